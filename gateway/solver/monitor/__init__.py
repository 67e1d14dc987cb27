"""Measurements against what the modules assume of the plant."""
