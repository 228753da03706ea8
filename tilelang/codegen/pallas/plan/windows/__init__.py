"""Windows: which block of every array a step sees, and how that is decided."""
