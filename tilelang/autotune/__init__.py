"""Choosing a config: predicted times (`model`), trials of configs, and the file of choices."""
