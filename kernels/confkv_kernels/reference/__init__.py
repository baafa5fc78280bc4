"""Torch reference of every kernel: correct on any device, quick on a CPU."""
