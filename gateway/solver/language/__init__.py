"""Constraint text to checked expressions, and the exact forms they come to."""
