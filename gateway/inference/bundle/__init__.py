"""What a model's folder holds, and what makes it fit to serve."""
