"""Dynamics drafted from what was recorded."""
