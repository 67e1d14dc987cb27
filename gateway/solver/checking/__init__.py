"""One proposal against the rules: premises, exact judge, Z3, repair and reports."""
