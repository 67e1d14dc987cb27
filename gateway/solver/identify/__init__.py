"""Dynamics and disturbance bands from recorded data: numbers in, a draft with its evidence out. No I/O."""
