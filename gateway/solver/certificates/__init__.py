"""Decisions as documents that other solvers can repeat."""
