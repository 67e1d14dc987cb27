"""The daemon's side: points, their past, and the worker that answers them."""
