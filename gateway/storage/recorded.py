"""Recorded decisions of an audit file as columns, read cheaply: only what a back-test asks for is decoded.

Blocks; never writes. A gateway may be appending meanwhile.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain as chained
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from gateway.core.decision import DecisionRecord
from gateway.core.errors import StorageError
from gateway.storage import chain, reading
from gateway.storage.recorded_shape import Body, Moment, Number, shape

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
NAN = float("nan")
OUTCOMES = ("permitted", "repaired", "refused", "undetermined", "rejected")
_MMAP_BYTES = 1 << 34
_BEHIND = "SELECT body FROM audit WHERE kind = 'decision' AND sequence >= ? ORDER BY sequence"
_BEHIND_AT = (
    "SELECT sequence, body FROM audit WHERE kind = 'decision' AND sequence >= ? AND sequence < ? "
    "ORDER BY sequence LIMIT 1"
)
_LOOKS = 1_000
_BEFORE = "SELECT body FROM audit WHERE kind = 'decision' AND sequence <= ? ORDER BY sequence DESC"
_SELECT = (
    "SELECT sequence, body FROM audit NOT INDEXED WHERE sequence BETWEEN :first AND :last "
    "AND kind = 'decision' AND (:point IS NULL OR point = :point) ORDER BY sequence"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Tags a back-test reads: those measured, those written, those with a carried state."""

    measured: tuple[str, ...]
    actions: tuple[str, ...]
    carried: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Some decisions that were examined, as columns; NaN is what a record does not hold.

    `outcome` indexes `OUTCOMES`. `history`: by action, values, seconds since each ceased and whose each is.
    `findings`: by row, of those not permitted, what `blamed` reads.
    `left_out`: why other decisions of this part cannot be judged, and how many.
    """

    sequence: Ints
    ids: list[str]
    at_ns: Ints
    outcome: Ints
    taken_at: Floats
    hold_s: Floats
    effect_delay_s: Floats
    value: dict[str, Floats]
    status: dict[str, Ints]
    confirmed_at: dict[str, Floats]
    history: dict[str, tuple[Floats, Floats, Ints]]
    held_s: dict[str, Floats]
    carried_at: Floats
    carried: dict[str, tuple[Floats, Floats]]
    let_out: dict[str, Floats]
    proposed: dict[str, Floats]
    findings: dict[int, bytes]
    left_out: dict[str, int]


class RecordedDecisions:
    """One audit file, open for reading. Raises `StorageError`."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise StorageError(f"there is no audit log at `{path}`")
        self._path = path
        self._connection = chain.open_for_reading(path)
        with self._problems_named():
            self._connection.execute(f"PRAGMA mmap_size={_MMAP_BYTES}")

    def close(self) -> None:
        """No more is read."""
        self._connection.close()

    def since(self, utc_ns: int) -> tuple[int, int]:
        """First and last sequence of what was decided from then on; the second is lower where nothing was."""
        with self._problems_named():
            first, last = self._connection.execute(
                "SELECT min(sequence), max(sequence) FROM audit"
            ).fetchone()
            if first is None:
                return 1, 0
            low, high = int(first), int(last) + 1
            while low < high:
                middle = (low + high) // 2
                at = self._decided_at(middle)
                if at is None or at >= utc_ns:
                    high = middle
                else:
                    low = middle + 1
            return self._first_look(int(first), low, utc_ns), int(last)

    def newest(self) -> int:
        """The last row of the log, 0 while it is empty."""
        with self._problems_named():
            return int(self._connection.execute("SELECT max(sequence) FROM audit").fetchone()[0] or 0)

    def span_ns(self, first: int, last: int) -> int:
        """Time from the first decision of a stretch to the last."""
        with self._problems_named():
            begins, ends = self._decided_at(first), self._decided_at(last, backwards=True)
        return 0 if begins is None or ends is None else max(0, ends - begins)

    def batch(self, first: int, last: int, point: str | None, wanted: Wanted) -> Batch:
        """The decisions of a stretch of the log, of one point where it is named."""
        decoder = shape(wanted.measured, wanted.actions, wanted.carried)
        rows: list[tuple[int, Any]] = []
        unread = 0
        named = {"first": first, "last": last, "point": point}
        with self._problems_named():
            for sequence, body in self._connection.execute(_SELECT, named):
                try:
                    document: Body = decoder.decode(body)
                except msgspec.DecodeError:  # of another version, or no record: told, and the rest goes on
                    unread += 1
                else:
                    rows.append((sequence, document.decision))
        return _batch(rows, wanted, {"its record cannot be read": unread} if unread else {})

    def record(self, sequence: int) -> DecisionRecord:
        """One whole decision."""
        with self._problems_named():
            row = self._connection.execute(
                "SELECT decision FROM audit WHERE sequence = ?", (sequence,)
            ).fetchone()
            found = None if row is None else reading.one(self._connection, row[0])
        if found is None:
            raise StorageError(f"audit log `{self._path}` holds no decision at row {sequence}")
        return found.record

    def _first_look(self, first: int, low: int, utc_ns: int) -> int:
        """`low`, or an earlier row: where a clock was lost for a while, what is older lies on either side.

        A look at every so many rows: what lasted for fewer may be missed, and so many may be too many.
        """
        stride = max(1, (low - first) // _LOOKS)
        for sequence in range(first, low, stride):
            for at, body in self._connection.execute(_BEHIND_AT, (sequence, low)):
                with contextlib.suppress(msgspec.DecodeError):
                    if msgspec.json.decode(body, type=Moment).decision.received_utc_ns >= utc_ns:
                        return max(first, int(at) - stride + 1)
        return low

    def _decided_at(self, sequence: int, *, backwards: bool = False) -> int | None:
        """When the first decision at or behind a row was made; or the last at or before it."""
        for (body,) in self._connection.execute(_BEFORE if backwards else _BEHIND, (sequence,)):
            with contextlib.suppress(msgspec.DecodeError):  # the next one that can be read will do
                return msgspec.json.decode(body, type=Moment).decision.received_utc_ns
        return None

    @contextlib.contextmanager
    def _problems_named(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as exc:
            raise StorageError(f"audit log `{self._path}` cannot be read: {exc}") from exc
        except msgspec.DecodeError as exc:
            raise StorageError(f"audit log `{self._path}` holds what is no decision record: {exc}") from exc


def _why_not(decision: Any) -> str:  # noqa: ANN401  a struct made for the tags
    """Why a decision says nothing to compare with; empty where it does."""
    if decision.what_if:
        return "it was a question with inputs of its own (what-if)"
    if decision.outcome.kind in {"undetermined", "rejected"}:
        return f"it was {decision.outcome.kind} when it was decided"
    if decision.examined is None or decision.proposal is None:
        return "its record does not hold what was examined"
    return ""


def _batch(rows: Sequence[tuple[int, Any]], wanted: Wanted, left_out: dict[str, int]) -> Batch:
    kept: list[tuple[int, Any]] = []
    for row in rows:
        why = _why_not(row[1])
        if why:
            left_out[why] = left_out.get(why, 0) + 1
        else:
            kept.append(row)
    decisions = [decision for _, decision in kept]
    asked = [d.examined for d in decisions]
    samples = {tag: _samples(decisions, f"t{n}") for n, tag in enumerate(wanted.measured)}
    outcome = np.array([OUTCOMES.index(d.outcome.kind) for d in decisions], dtype=np.int64)
    proposed = _registers([d.proposal.values for d in decisions], wanted.actions)
    let_out = _registers([d.outcome.setpoints or d.proposal.values for d in decisions], wanted.actions)
    carried_at = [NAN if a.carried is None else a.carried.at for a in asked]
    return Batch(
        sequence=np.array([sequence for sequence, _ in kept], dtype=np.int64),
        ids=[d.id for d in decisions],
        at_ns=np.array([d.received_utc_ns for d in decisions], dtype=np.int64),
        outcome=outcome,
        taken_at=_floats([a.taken_at for a in asked]),
        hold_s=_floats([a.hold_s for a in asked]),
        effect_delay_s=_floats([a.effect_delay_s for a in asked]),
        value={tag: _floats([_number(s) for s in column]) for tag, column in samples.items()},
        status={
            tag: np.array([s.status if s else 0 for s in c], dtype=np.int64) for tag, c in samples.items()
        },
        confirmed_at={tag: _floats([_stamp(s) for s in column]) for tag, column in samples.items()},
        history={
            tag: _history([getattr(a.history, f"t{n}") for a in asked])
            for n, tag in enumerate(wanted.actions)
        },
        held_s={
            tag: _floats([NAN if (h := getattr(a.held_s, f"t{n}")) is None else h for a in asked])
            for n, tag in enumerate(wanted.actions)
        },
        carried_at=_floats(carried_at),
        carried={tag: _carried(asked, f"t{n}") for n, tag in enumerate(wanted.carried)},
        let_out=let_out,
        proposed=proposed,
        findings={row: bytes(d.findings) for row, d in enumerate(decisions) if d.outcome.kind != "permitted"},
        left_out=left_out,
    )


def _floats(values: list[float]) -> Floats:
    return np.array(values, dtype=np.float64)


def _samples(decisions: Sequence[Any], field: str) -> list[Any]:
    """What a check read of one tag: its own word, or where that is null the record's."""
    found = []
    for decision in decisions:
        sample = getattr(decision.examined.inputs, field)
        if sample is None:
            sample = getattr(decision.inputs, field)
        found.append(None if sample is msgspec.UNSET else sample)
    return found


def _number(sample: Any) -> float:  # noqa: ANN401  a sample or None
    if sample is None:
        return NAN
    value = sample.value
    if type(value) is Number:
        return value.real if value.real is not None else value.integer if value.integer is not None else NAN
    return float(value) if isinstance(value, bool) else NAN


def _stamp(sample: Any) -> float:  # noqa: ANN401
    return float("-inf") if sample is None or sample.confirmed_at is None else sample.confirmed_at


def _registers(every: Sequence[Any], tags: Sequence[str]) -> dict[str, Floats]:
    """By tag, the values of lists of register values; they come in one order nearly always."""
    order = [register.tag for register in every[0]] if every else []
    alike = [[register.tag for register in registers] == order for registers in every]
    blank = [NAN] * len(order)
    rows = [
        [r.value for r in registers] if same else blank for registers, same in zip(every, alike, strict=True)
    ]
    table = np.array(rows, dtype=np.float64).reshape(len(every), len(order))
    found = {
        tag: table[:, order.index(tag)].copy() if tag in order else np.full(len(every), NAN) for tag in tags
    }
    for registers, row in ((every[row], row) for row, same in enumerate(alike) if not same):
        for register in registers:
            if register.tag in found:
                found[register.tag][row] = register.value
    return found


def _history(lists: Sequence[Any]) -> tuple[Floats, Floats, Ints]:
    lengths = np.array([len(entries) for entries in lists], dtype=np.int64)
    flat = np.fromiter(
        chained.from_iterable(chained.from_iterable(lists)), dtype=np.float64, count=2 * int(lengths.sum())
    )
    return flat[::2].copy(), flat[1::2].copy(), np.repeat(np.arange(len(lists)), lengths)


def _carried(asked: Sequence[Any], field: str) -> tuple[Floats, Floats]:
    none = (NAN, NAN)
    ends = [none if a.carried is None else getattr(a.carried.intervals, field) or none for a in asked]
    pairs = np.array(ends, dtype=np.float64).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def blamed(findings: bytes) -> frozenset[str]:
    """The modules whose critical or standard rules were found violated; monitors refuse nothing."""
    found = msgspec.json.decode(findings, type=list[Finding])
    return frozenset(
        f.module for f in found if f.what == "violated" and f.kind not in {"informational", "monitor"}
    )


class Finding(msgspec.Struct, gc=False):
    """What is read of a finding, of decisions that were not permitted."""

    module: str
    what: str = msgspec.field(name="is")
    kind: str = ""
