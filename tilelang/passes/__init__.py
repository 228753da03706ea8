"""KernelIR -> KernelIR, for every target: the same kernel, simpler; facts stay true."""
