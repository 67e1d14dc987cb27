"""The shape of a decision record as far as a back-test reads it: numbers in text become floats at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType


class Number(msgspec.Struct, gc=False):
    """A number that keeps its kind."""

    real: float | None = None
    integer: float | None = None


class Sample(msgspec.Struct, gc=False):
    """A tag's value, quality and time."""

    value: Number | bool | str | None
    status: int
    confirmed_at: float | None


class Register(msgspec.Struct, gc=False):
    """One output."""

    tag: str
    value: float


class Outcome(msgspec.Struct, gc=False):
    """What came out."""

    kind: str = msgspec.field(name="is")
    setpoints: list[Register] = []


class Proposal(msgspec.Struct, gc=False):
    """What was wanted."""

    values: list[Register]


class _At(msgspec.Struct, gc=False):
    received_utc_ns: int


class Moment(msgspec.Struct, gc=False):
    """When a decision was made, and nothing else of it."""

    decision: _At


class Body(msgspec.Struct, gc=False):
    """A row of the log; `decision` is made for the tags that are read."""

    decision: Any


@lru_cache(maxsize=4)
def shape(
    measured: Sequence[str], actions: Sequence[str], carried: Sequence[str]
) -> msgspec.json.Decoder[Any]:
    """A decoder of rows whose per-tag fields are `t0`, `t1`, ... in the order given."""
    inputs = _of_tags("Inputs", measured, Sample | None | UnsetType, UNSET)
    history = _of_tags("History", actions, list[tuple[float, float]], [])
    held = _of_tags("Held", actions, float | None, None)
    intervals = _of_tags("Intervals", carried, tuple[float, float] | None, None)
    state = msgspec.defstruct("State", [("at", float), ("intervals", intervals)], gc=False)
    examined = msgspec.defstruct(
        "Examined",
        [
            ("taken_at", float),
            ("hold_s", float),
            ("effect_delay_s", float),
            ("inputs", inputs),
            ("history", history),
            ("held_s", held),
            ("carried", state | None),
        ],
        gc=False,
    )
    decision = msgspec.defstruct(
        "Decision",
        [
            ("id", str),
            ("point", str),
            ("received_utc_ns", int),
            ("outcome", Outcome),
            ("proposal", Proposal | None),
            ("findings", msgspec.Raw),
            ("inputs", inputs),
            ("what_if", bool, False),
            ("examined", examined | None, None),
        ],
        gc=False,
    )
    return msgspec.json.Decoder(msgspec.defstruct("Row", [("decision", decision)], gc=False), strict=False)


def _of_tags(name: str, tags: Sequence[str], kind: Any, default: Any) -> type[msgspec.Struct]:  # noqa: ANN401
    fields = [
        (f"t{n}", kind, msgspec.field(default_factory=list) if default == [] else default)
        for n in range(len(tags))
    ]
    return msgspec.defstruct(name, fields, rename={f"t{n}": tag for n, tag in enumerate(tags)}, gc=False)
