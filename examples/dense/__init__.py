"""Kernels over arrays whose sizes are all known."""
