"""Tags as the engine reads and writes them: exact decimal text in, register counts out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from gateway.core.errors import InferenceError
from gateway.core.tag import TagDefinition, TagId, TagKind, decimal_text, number_text
from gateway.core.tagstore import Snapshot
from gateway.inference.messages import OutputLimits


def limits_of(definition: TagDefinition, max_change: str | None = None) -> OutputLimits:
    """The counts an output may take: its register's range, narrowed to its engineering range.

    `max_change` is what its bundle states; the narrower of that and the tag's own holds.
    """
    raw_range = (0, 1) if definition.kind is TagKind.BOOLEAN else definition.raw_range
    if raw_range is None:
        message = (
            f"tag `{definition.id}` has no register counts and cannot be a model's output: give it a "
            "register, or use a bundle that proposes other tags"
        )
        raise InferenceError(message)
    low, high = raw_range
    if definition.eu_range is not None:
        ends = sorted((end - definition.offset) / definition.scale for end in definition.eu_range)
        low, high = max(low, -int(-ends[0] // 1)), min(high, int(ends[1] // 1))
    return OutputLimits(
        decimal_text(definition.scale),
        decimal_text(definition.offset),
        low,
        high,
        _most_counts(definition, max_change),
    )


def _most_counts(definition: TagDefinition, max_change: str | None) -> int | None:
    stated = None if max_change is None else Fraction(max_change)
    changes = [change for change in (definition.max_change, stated) if change is not None]
    if not changes:
        return None
    counts = int(min(changes) / abs(definition.scale))
    if not counts:
        message = (
            f"tag `{definition.id}`: a largest change of {float(min(changes)):g} is less than one register "
            f"count, {float(abs(definition.scale)):g}: correct `max_change` in its bundle"
        )
        raise InferenceError(message)
    return counts


def input_text(snapshot: Snapshot, tag: TagId) -> str:
    """A measured value; raises `InferenceError` where the tag has no number."""
    value = snapshot.values[tag].value if tag in snapshot.values else None
    if value is None or isinstance(value, str) or not math.isfinite(value):
        message = f"model input `{tag}` has no number"
        raise InferenceError(message)
    return number_text(value)


def in_force_text(previous: Mapping[TagId, Fraction], tag: TagId) -> str:
    """An output's value in force; raises `InferenceError` where it has none yet."""
    if tag not in previous:
        message = f"output `{tag}` has no value in force yet: the model needs it"
        raise InferenceError(message)
    return decimal_text(previous[tag])
