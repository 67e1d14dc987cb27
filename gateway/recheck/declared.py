"""Rules that declarations make: ranges of actions, minimum times, sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from gateway.recheck.source import Order, Quantity, Source


@dataclass(frozen=True, slots=True)
class Fault:
    """A declared rule that a proposal breaks: `NAME.range`, `NAME.min_on`, `ID.order` and the like."""

    id: str
    kind: str


def faults(
    source: Source,
    old: Mapping[str, Fraction],
    new: Mapping[str, Fraction],
    held_s: Mapping[str, Fraction | None],
) -> Iterator[Fault]:
    """What a change of actions breaks, by tag.

    `held_s`: how long each has had its old value, None for ever; what is not in it has no times to keep.
    """
    for name, tag in source.names.items():
        quantity = source.quantities[tag]
        if quantity.action and tag in new:
            if not allowed(quantity, new[tag]):
                yield Fault(f"{name}.range", "critical")
            if tag in held_s and tag in old:
                yield from _too_soon(name, quantity, old[tag], new[tag], held_s[tag])
    for order in source.orders:
        if order.tag in new and order.tag in old:
            for what in out_of_order(order, old[order.tag], new[order.tag], held_s):
                yield Fault(f"{order.id}.{what}", order.kind_of(what))


def allowed(quantity: Quantity, value: Fraction) -> bool:
    """Whether an action may have a value: in its range, and one of its values where it has a list."""
    if quantity.range is not None and not quantity.range[0] <= value <= quantity.range[1]:
        return False
    listed = quantity.listed(value, value)
    return listed is None or value in listed


def _too_soon(
    name: str, quantity: Quantity, old: Fraction, new: Fraction, held: Fraction | None
) -> Iterator[Fault]:
    if held is None or bool(old) == bool(new):
        return
    if old and held < quantity.min_on:
        yield Fault(f"{name}.min_on", "standard")
    if not old and held < quantity.min_off:
        yield Fault(f"{name}.min_off", "standard")


def out_of_order(
    order: Order, old: Fraction, new: Fraction, held_s: Mapping[str, Fraction | None]
) -> Iterator[str]:
    """`order`, `min` and `max`, as far as a change of a sequence's action breaks them."""
    now = order.states.get(old)
    if old != new and (now is None or new not in order.states or new not in now.following):
        yield "order"
    if now is None or order.tag not in held_s:
        return
    held = held_s[order.tag]
    if old != new and held is not None and held < now.least:
        yield "min"
    if old == new and now.most is not None and (held is None or held >= now.most):
        yield "max"
