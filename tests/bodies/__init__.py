"""Random bodies: every operation of every dtype, of numbers, rows, columns and blocks, compiled.

draw      rng -> Body             a statement of a kernel as a tree of operations
text      Body... -> str          a kernel whose steps run these bodies
campaign  seed, count -> Verdict  what the real TPU compiler says of each, and the interpreter
"""
