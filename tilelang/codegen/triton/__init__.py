"""The Triton back end: `plan` holds its choices and legality, `emit` prints them."""
