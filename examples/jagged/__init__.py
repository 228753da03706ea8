"""Kernels over groups of unequal length: group g owns the rows offsets[g] to offsets[g + 1] - 1."""
