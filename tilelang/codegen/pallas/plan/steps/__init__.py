"""Steps: the table of steps, which blocks they revisit, and when a section runs."""
