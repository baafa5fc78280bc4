"""Tool-use benchmarks as suites, and what is measured on their gold episodes."""
