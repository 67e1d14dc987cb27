"""Gains for plants that are linear near a point: regulator and observer by Riccati iteration."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

_STEPS = 3_000
_ENOUGH = 1e-10


def regulator(a: Matrix, b: Matrix, state_cost: Matrix, move_cost: Matrix) -> Matrix:
    """`K` for `u = -K x` that minimises the sum of `x'Qx + u'Ru` for `x+ = Ax + Bu`."""
    value: Matrix = state_cost.copy()
    gain: Matrix = np.zeros((b.shape[1], a.shape[0]))
    for _ in range(_STEPS):
        gain = np.asarray(np.linalg.solve(move_cost + b.T @ value @ b, b.T @ value @ a))
        following = state_cost + a.T @ value @ (a - b @ gain)
        if np.abs(following - value).max() <= _ENOUGH * max(1.0, np.abs(value).max()):
            break
        value = following
    return gain


def observer(a: Matrix, c: Matrix, drift: Matrix, noise: Matrix) -> Matrix:
    """`L` for `x += L (y - Cx)` of the steady Kalman filter for `x+ = Ax` with such covariances."""
    spread, gain = drift.copy(), np.zeros((a.shape[0], c.shape[0]))
    for _ in range(_STEPS):
        gain = spread @ c.T @ np.linalg.inv(c @ spread @ c.T + noise)
        following = a @ (spread - gain @ c @ spread) @ a.T + drift
        if np.abs(following - spread).max() <= _ENOUGH * max(1.0, np.abs(spread).max()):
            break
        spread = following
    return gain
