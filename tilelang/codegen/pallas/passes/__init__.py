"""KernelIR -> KernelIR for TPUs: forms that windows and scalar memory can hold."""
