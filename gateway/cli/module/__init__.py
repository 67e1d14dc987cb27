"""A constraint module's file: analyzed, compiled, validated, from tables and to tables."""
