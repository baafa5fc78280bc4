"""What is in the sites' databases at the start, decided by the seed alone."""
