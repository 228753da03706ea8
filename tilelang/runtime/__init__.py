"""Running kernels: what arguments are, when a kernel is compiled again, and the way in and out.

signature   a call's arguments -> one value per parameter
tensors     a value -> where it lives, its shape and dtype
choices     what specialisations read -> the one that fits a call
checks      offsets and indices are in range, before anything runs
bridge      torch, JAX and NumPy values -> what the jitted function takes, and back
program     the generated host function -> a jitted function that works anywhere in JAX
launch      all of that for one specialisation, as one function
"""
