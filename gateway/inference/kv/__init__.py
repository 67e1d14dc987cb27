"""Forwards of a model and the keys and values they leave: one port, its kinds, and the pool of pages."""
