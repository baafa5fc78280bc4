"""A small shop that lives in this package: a server on the loopback address and a task played in it."""
