"""Three small models trained on real text, with kernels and with what the frameworks have."""
