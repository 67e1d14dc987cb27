"""Constraint modules and overrides of the running gateway."""
