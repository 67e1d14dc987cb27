"""The audit log, read from its file."""
