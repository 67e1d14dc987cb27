"""A module beside recorded decisions, and beside live ones."""
