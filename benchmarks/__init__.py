"""Measurements, never tests: ratios within one run, so that machines can be compared."""
