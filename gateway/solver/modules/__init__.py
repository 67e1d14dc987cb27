"""One constraint module: declared, checked and compiled."""
