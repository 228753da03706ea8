"""Kernels for NVIDIA GPUs, checked where there is none: Triton's interpreter, and its compiler."""
