"""A regressor, a classifier and a forecaster of scikit-learn by skl2onnx: `python make_sklearn.py OUT`.

They learn a proportional law for the demo's pump, a threshold for its heater, and the pump again from four
measurements in a row.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from skl2onnx import to_onnx
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

STEPS = 4
LOW, HIGH = (0.2, 0.0, 15.0), (3.9, 36.0, 75.0)  # level m, inflow m3/h, temperature degC


def main(out: Path) -> None:
    """Write `sklearn_{regressor,classifier,forecaster}/model.onnx` under `out`."""
    rng = np.random.default_rng(7)
    plant = rng.uniform(LOW, HIGH, (800, 3)).astype(np.float32)
    _write(out, "regressor", _network().fit(plant, _pump(plant[:, 0], plant[:, 1])), plant)
    forest = RandomForestClassifier(12, max_depth=5, random_state=7)
    _write(out, "classifier", forest.fit(plant, (plant[:, 2] < 45).astype(int)), plant)
    start, slope = rng.uniform(LOW, HIGH, (800, 3)), rng.uniform(-1, 1, (800, 3)) * (0.05, 0.5, 0.2)
    rows = np.stack([start + slope * step for step in range(STEPS)], axis=1)
    ahead = rows[:, -1] + slope
    now_and_next = np.stack([_pump(at[:, 0], at[:, 1]) for at in (rows[:, -1], ahead)], axis=1)
    history = rows.reshape(len(rows), -1).astype(np.float32)
    _write(out, "forecaster", LinearRegression().fit(history, now_and_next), history)


def _pump(level: NDArray[Any], inflow: NDArray[Any]) -> NDArray[Any]:
    """Per cent: what flows in, and a correction towards 2 m."""
    return np.clip(20 * (level - 2) + 2.2 * inflow, 0, 100)


def _network() -> Any:  # noqa: ANN401  mypy knows nothing of scikit-learn
    return make_pipeline(
        StandardScaler(), MLPRegressor(hidden_layer_sizes=(16,), random_state=7, max_iter=2000)
    )


def _write(out: Path, name: str, model: Any, examples: NDArray[np.float32]) -> None:  # noqa: ANN401
    options = {"zipmap": False} if name == "classifier" else None
    graph = to_onnx(model, examples[:1], target_opset=18, options=options)
    folder = out / f"sklearn_{name}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(graph.SerializeToString())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
