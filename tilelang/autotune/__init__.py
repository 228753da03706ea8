"""Choosing a config: for now, the predicted time of one (`model`)."""
