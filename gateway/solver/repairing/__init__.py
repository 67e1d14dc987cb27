"""The permitted register values nearest to a proposal, wherever they lie (S12)."""
