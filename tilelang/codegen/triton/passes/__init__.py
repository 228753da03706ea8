"""KernelIR -> KernelIR, for NVIDIA GPUs: what Triton's language asks for, said in the IR."""
