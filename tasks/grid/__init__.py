"""The evaluation grid: suite x policies x models x seeds, an episode each, on file as soon as it is over."""
