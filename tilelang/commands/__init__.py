"""What `python -m tilelang` can do: check kernels for every TPU generation, look for trouble."""
