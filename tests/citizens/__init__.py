"""What users of JAX and torch do with a kernel, asked of every example."""
