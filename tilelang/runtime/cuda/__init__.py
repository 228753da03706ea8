"""Calls on NVIDIA GPUs: the generated Triton, compiled once, launched on torch's stream."""
