"""From a model's outputs to register values."""
