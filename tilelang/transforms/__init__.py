"""Rewrites of kernels: gradients, batches, partitions."""
