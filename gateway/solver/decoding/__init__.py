"""Which values of the next output can still lead to a permitted decision."""
