"""Kernels with gradients, in JAX and in torch."""
