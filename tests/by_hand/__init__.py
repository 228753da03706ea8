"""Kernels that a person wrote with Pallas: what generated ones are measured against."""
