"""How things are said to people: words, tables."""
