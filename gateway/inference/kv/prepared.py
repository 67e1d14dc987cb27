"""Inputs of one shape in memory that is bound once: a run only fills them in. For sessions on the CPU.

A binding made for each run costs as much as a tenth of a small decoder's step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnxruntime
from numpy.typing import NDArray

_MOST = 64  # shapes that are kept
_LARGEST = 64  # tokens; larger forwards are worth a binding of their own
_LOGITS = {"tensor(float)": np.float32, "tensor(float16)": np.float16}

Feeds = Mapping[str, NDArray[np.generic]]


@dataclass(slots=True)
class _Bound:
    binding: onnxruntime.IOBinding
    inputs: dict[str, NDArray[np.generic]]
    logits: NDArray[np.floating]
    held: dict[str, onnxruntime.OrtValue]  # what the binding points to


class Prepared:
    """The bindings of one session by shape; the oldest makes room. Holds no more than `_MOST`."""

    def __init__(
        self, session: onnxruntime.InferenceSession, pools: Mapping[str, onnxruntime.OrtValue]
    ) -> None:
        """`pools` are bound as input and as `..._out`, where they stand."""
        self._session, self._pools = session, pools
        logits = next(output for output in session.get_outputs() if output.name == "logits")
        self._vocabulary = logits.shape[-1]
        self._type = _LOGITS.get(logits.type)
        self._bound: dict[tuple[int, int], _Bound] = {}

    def fits(self, rows: int, tokens: int) -> bool:
        """Whether a forward of so many rows and tokens a row is worth keeping, and can be."""
        return rows * tokens <= _LARGEST and self._type is not None and isinstance(self._vocabulary, int)

    def place(self, rows: int, tokens: int, name: str) -> NDArray[np.generic] | None:
        """Where an input of that shape stands, to be filled in before `run`; None before the first run."""
        bound = self._bound.get((rows, tokens))
        return None if bound is None else bound.inputs.get(name)

    def run(self, feeds: Feeds) -> NDArray[np.floating]:
        """Logits `[B, T, vocabulary]`; `feeds` fit each other in `B` and `T`, and have equal types always."""
        rows, tokens = feeds["tokens"].shape
        bound = self._bound.get((rows, tokens))
        if bound is None:
            bound = self._bound[rows, tokens] = self._made(rows, tokens)
            if len(self._bound) > _MOST:
                del self._bound[next(iter(self._bound))]
        for name, value in feeds.items():
            place = bound.inputs.get(name)
            if place is value:
                continue
            if place is None or place.shape != value.shape:
                bound.inputs[name] = value
                bound.held[name] = onnxruntime.OrtValue.ortvalue_from_numpy(value)
                bound.binding.bind_ortvalue_input(name, bound.held[name])
            else:
                place[...] = value
        self._session.run_with_iobinding(bound.binding)
        return bound.logits.copy()

    def _made(self, rows: int, tokens: int) -> _Bound:
        binding = self._session.io_binding()
        for name, pool in self._pools.items():
            binding.bind_ortvalue_input(name, pool)
            binding.bind_ortvalue_output(f"{name}_out", pool)
        logits = np.zeros((rows, tokens, self._vocabulary), dtype=self._type)
        place = onnxruntime.OrtValue.ortvalue_from_numpy(logits)
        binding.bind_ortvalue_output("logits", place)
        return _Bound(binding, {}, logits, {"logits": place})
