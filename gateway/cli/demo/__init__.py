"""`make run`: demo plant, broker and gateway together."""
