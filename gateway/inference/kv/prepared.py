"""Inputs of one shape in memory that is bound once: a run only fills them in. For sessions on the CPU.

A binding made for each run costs as much as a tenth of a small decoder's step.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Values
from dataclasses import dataclass

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from gateway.inference.kv.rows import Row

_MOST = 64  # shapes that are kept
_LARGEST = 64  # tokens; larger forwards are worth a binding of their own
_LOGITS = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Of B sequences with T new tokens each; all but the table, whose width changes."""

    tokens: NDArray[np.int64]  # [B, T]
    fractions: NDArray[np.float32]  # [B, T]
    cos: NDArray[np.float32]  # [B, T, head_dim / 2]
    sin: NDArray[np.float32]
    query_positions: NDArray[np.int64]  # [B, T]
    first_positions: NDArray[np.int64]  # [B]
    write_slots: NDArray[np.int64]  # [B * T, 1]

    @classmethod
    def of(cls, rows: int, tokens: int, half: int) -> _Inputs:
        """Unfilled."""
        whole, turned = (rows, tokens), (rows, tokens, half)
        return cls(
            tokens=np.zeros(whole, dtype=np.int64),
            fractions=np.zeros(whole, dtype=np.float32),
            cos=np.zeros(turned, dtype=np.float32),
            sin=np.zeros(turned, dtype=np.float32),
            query_positions=np.zeros(whole, dtype=np.int64),
            first_positions=np.zeros(rows, dtype=np.int64),
            write_slots=np.zeros((rows * tokens, 1), dtype=np.int64),
        )

    def fill(self, rows: Values[Row], frequencies: NDArray[np.float64]) -> None:
        """What a session makes of rows for a run of its own, in place.

        A decode step number by number, which is faster there.
        """
        if self.tokens.shape[1] == 1:
            for at, row in enumerate(rows):
                (token,) = row.tokens
                self.tokens[at, 0], self.fractions[at, 0] = token.id, token.fraction
                self.query_positions[at, 0] = row.sequence.end - 1
                self.first_positions[at] = row.sequence.first
                (self.write_slots[at, 0],) = row.appended.slots
        else:
            count = self.tokens.shape[1]
            for at, row in enumerate(rows):
                self.tokens[at] = [token.id for token in row.tokens]
                self.fractions[at] = [token.fraction for token in row.tokens]
                self.query_positions[at] = range(row.sequence.end - count, row.sequence.end)
                self.first_positions[at] = row.sequence.first
            self.write_slots[:, 0] = [slot for row in rows for slot in row.appended.slots]
        # float64 until the cosine: exact enough for centuries of growing positions
        angles = self.query_positions[:, :, None] * frequencies
        np.cos(angles, out=self.cos)
        np.sin(angles, out=self.sin)


@dataclass(slots=True)
class _Bound:
    binding: onnxruntime.IOBinding
    inputs: _Inputs
    table: NDArray[np.int64]  # [B, pages]
    written: list[list[int]]  # the pages that stand in its lines
    logits: NDArray[np.floating]
    held: dict[str, onnxruntime.OrtValue]  # what the binding points to


class Prepared:
    """The bindings of one session by shape; the oldest makes room. Holds no more than `_MOST`."""

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        pools: Mapping[str, onnxruntime.OrtValue],
        frequencies: NDArray[np.float64],
    ) -> None:
        """`pools` are bound as input and as `..._out`, where they stand; `frequencies` turn positions."""
        self._session, self._pools, self._frequencies = session, pools, frequencies
        logits = next(output for output in session.get_outputs() if output.name == "logits")
        self._vocabulary = logits.shape[-1]
        self._type = _LOGITS.get(logits.type)
        self._bound: dict[tuple[int, int], _Bound] = {}

    def fits(self, rows: int, tokens: int) -> bool:
        """Whether a forward of so many rows and tokens a row is worth keeping, and can be."""
        return rows * tokens <= _LARGEST and self._type is not None and isinstance(self._vocabulary, int)

    def run(self, rows: Values[Row]) -> NDArray[np.floating]:
        """Logits `[B, T, vocabulary]` of B sequences' T tokens each."""
        shape = len(rows), len(rows[0].tokens)
        bound = self._bound.get(shape)
        if bound is None:
            bound = self._bound[shape] = self._made(*shape)
            if len(self._bound) > _MOST:
                del self._bound[next(iter(self._bound))]
        bound.inputs.fill(rows, self._frequencies)
        width = max(len(row.sequence.pages) for row in rows)
        if bound.table.shape[1] != width:
            bound.table = np.zeros((len(rows), width), dtype=np.int64)
            bound.written = [[] for _ in rows]
            _bind(bound, "block_table", bound.table)
        for at, row in enumerate(rows):
            pages = row.sequence.pages
            if bound.written[at] != pages:
                bound.table[at, : len(pages)] = pages
                bound.table[at, len(pages) :] = pages[-1]
                bound.written[at] = list(pages)
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
        inputs = _Inputs.of(rows, tokens, len(self._frequencies))
        table = np.zeros((rows, 0), dtype=np.int64)
        bound = _Bound(binding, inputs, table, [], logits, {"logits": place})
        for name in _Inputs.__slots__:
            _bind(bound, name, getattr(inputs, name))
        return bound


def _bind(bound: _Bound, name: str, value: NDArray[np.generic]) -> None:
    bound.held[name] = onnxruntime.OrtValue.ortvalue_from_numpy(value)  # of the same memory
    bound.binding.bind_ortvalue_input(name, bound.held[name])
