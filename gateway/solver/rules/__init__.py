"""Modules in force together as one system, and exact bounds of it."""
