"""Points of a box at which a formula may be missed: what is looked at before Z3 is asked for one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from gateway.solver.rules.interval import SCALE, SETTLED, Box, ProductRow, Row, Scaled


def corners(within: Box, formula: Scaled, row: Row | None) -> Iterator[dict[str, Fraction]]:
    """Points that may miss a formula: worst for the row that decides, and that where nothing else excuses it.

    What excuses a row may be about what it depends on: a switch that is on, and the state that follows. There
    a symbol of both goes no farther from the row's worst than it must.
    """
    if row is None:
        return
    first = corner(within, row)
    yield first
    ends = {name: int(value * SCALE) for name, value in first.items()}
    others = sorted((r for r in formula.rows if r != row), key=lambda r: -len(r.terms))
    used = set(row.worst(within))
    for other in others:
        far = other.worst(within)
        ends |= {name: end for name, end in far.items() if name not in used}
        ends |= _just_missed(within, other, ends)
        used |= far.keys()
    if others:
        yield {name: Fraction(end, SCALE) for name, end in ends.items()}


def _just_missed(within: Box, row: Row, ends: Mapping[str, int]) -> dict[str, int]:
    """Where the symbols of a row must go from where they are for it to be missed; as far as they can."""
    far = row.worst(within)
    if isinstance(row, ProductRow):
        return far
    here, there = (
        row.slack({n: (ends[n],) * 2 for n in far}),
        row.slack({n: (e,) * 2 for n, e in far.items()}),
    )
    if here < 0 or there >= 0:
        return {} if here < 0 else far
    way, whole = here + 1, here - there
    return {n: ends[n] + _away((end - ends[n]) * way, whole) for n, end in far.items()}


def _away(above: int, below: int) -> int:
    """A quotient rounded away from 0; `below` is positive."""
    return -(-above // below) if above > 0 else above // below


def corner(within: Box, row: Row) -> dict[str, Fraction]:
    """A point of the box that is worst for one row."""
    ends = {
        name: low if low == high or name.startswith(SETTLED) else (low + high) // 2
        for name, (low, high) in within.items()
    }
    ends |= row.worst(within)
    return {name: Fraction(end, SCALE) for name, end in ends.items()}
