"""The critical and standard rules of a plan as conditions on register counts alone, for one state.

A rule must hold wherever the state may be. Over rows without products that is each row at its worst, and what
moves with an output (`new`, `rate`, `e`) is there at one of a few points that are straight in the count: the
value itself, one in force, its change since one. So a row becomes lines, one for each combination of points,
and nothing is lost. Where something is, a condition says less than its rule, and the reason is told:

* alternatives that pull one uncertain value to different ends need not each hold alone: asked at some of its
  values only;
* products of two outputs are left out, and squares are asked at some values only;
* what the backup does afterwards, where a guard decides or a ramp's nearer end counts, is taken at its best;
* a scale that is no decimal of twelve places is not rounded as the check rounds it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from typing import NamedTuple

import numpy as np

from gateway.core.tag import TagId
from gateway.solver.checking.condense import Plan
from gateway.solver.checking.predict import Facts
from gateway.solver.decoding.counts import ALWAYS, Condition, Span, all_of, line, one_of
from gateway.solver.decoding.settled import LinearRows, joined, registers
from gateway.solver.decoding.tracks import MOVING, Track, Tracks
from gateway.solver.rules.interval import ProductRow, Row, Rows, scaled
from gateway.solver.rules.ruleset import RuleSet

_MOST_CORNERS = 64
_MOST_PINNED = 64  # combinations of values in force, whole numbers and truths told apart
_MOST_ASKED = 4  # rows of alternatives at whose worst all are asked

_Node = int | tuple[bool, tuple["_Node", ...]]

SHARED = "has alternatives about the same uncertain value, which were asked at some of its values only"
PRODUCT = "multiplies outputs, and was left out"
SQUARE = "multiplies uncertain values, and was asked at some of them only"
BACKUP = "is about what the backup does afterwards, which was taken at its best"
ROUNDED = "has a scale that is no decimal of twelve places"


class _Row(NamedTuple):
    """`constant + sum(factor * symbol) + sum(factor * symbol * symbol) <= 0`, strictness in the constant."""

    constant: int
    known: tuple[tuple[str, int], ...]
    moving: tuple[tuple[str, int], ...]
    products: tuple[tuple[str, str, int], ...]
    squares: frozenset[str]  # those that are greatest within an interval


class _Found(NamedTuple):
    condition: Condition
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What the formulas are folded over."""

    known: Mapping[str, Span]  # intervals that no output moves, in units of 1 / `SCALE`
    choices: Mapping[str, tuple[int, ...]]  # the values of those that have a few only
    tracks: Mapping[str, Track]


class Folding:
    """The formulas of one plan for outputs in one order."""

    def __init__(self, rules: RuleSet, plan: Plan, order: Sequence[TagId]) -> None:
        self._rules, self._plan, self._order = rules, plan, tuple(order)
        self._rows: list[_Row] = []
        self._row_of: dict[Row, int] = {}
        self._domains = [registers(rules.variables[tag]) for tag in self._order]
        self._tracks = Tracks(rules, plan, self._order, self._domains)
        self._torn: dict[tuple[_Node, ...], tuple[str, ...]] = {}
        self._moving = frozenset(n for n in plan.symbols if n.startswith(MOVING))
        demanded = ((d.rule, scaled(d.formula).formula) for d in plan.duties if plan.rules[d.rule].binding)
        self._formulas = [(rule, self._node(formula)) for rule, formula in dict.fromkeys(demanded)]
        self._linear = LinearRows(
            [(row.constant, {} if row.products else joined(row.known, row.moving)) for row in self._rows],
            self._domains,
        )
        self._plain = np.array([not row.products for row in self._rows], dtype=np.bool_)

    def state(
        self, facts: Facts, common: Mapping[str, Span], choices: Mapping[str, tuple[int, ...]]
    ) -> State:
        """One state; `common` has every symbol that no output moves."""
        known = dict(common)
        for name, values in choices.items():
            if name in known and values:
                known[name] = min(values), max(values)
        return State(
            known=known,
            choices=choices,
            tracks=self._tracks.of(facts),
        )

    def conditions(self, state: State) -> tuple[list[Condition], str]:
        """What all rules together demand of the outputs, or less, and why less."""
        holds = self._holding(state)
        left = [(rule, node) for rule, node in self._formulas if not _certain(node, holds)]
        wanted = frozenset(number for _, node in left for number in _rows_of(node))
        rows = self._found(wanted, state, holds)
        found: list[Condition] = []
        why = ""
        for rule, node in left:
            condition, reason = self._folded(node, rows, state)
            found.append(condition)
            if reason:
                why = why or f"`{self._plan.rules[rule].constraint.id}` {reason}"
        return list(dict.fromkeys(found)), why

    def _holding(self, state: State) -> list[bool]:
        """By row, whether it holds for certain, whatever the outputs are: it says nothing about them."""
        held: list[bool] = (self._plain & self._linear.hold(state.known, state.tracks)).tolist()
        return held

    def _found(self, wanted: Iterable[int], state: State, holds: Sequence[bool]) -> dict[int, _Found]:
        """Some rows by number."""
        return {
            number: _Found(ALWAYS, "") if holds[number] else self._row(self._rows[number], state)
            for number in wanted
        }

    def _node(self, formula: Row | Rows) -> _Node:
        if isinstance(formula, Rows):
            return formula.every, tuple(self._node(part) for part in formula.parts)
        if formula not in self._row_of:
            self._row_of[formula] = len(self._rows)
            self._rows.append(self._split(formula))
        return self._row_of[formula]

    def _split(self, row: Row) -> _Row:
        products: tuple[tuple[str, str, int], ...] = ()
        squares: frozenset[str] = frozenset()
        if isinstance(row, ProductRow):
            products = tuple((a, b, factor) for (a, b), factor in row.corners)
            products += tuple((name, name, factor) for name, factor in row.inner)
            squares = frozenset(name for name, _ in row.inner)
        return _Row(
            row.constant + row.strict,
            tuple((n, f) for n, f in row.terms if n not in self._moving),
            tuple((n, f) for n, f in row.terms if n in self._moving),
            products,
            squares,
        )

    def _folded(self, node: _Node, rows: Mapping[int, _Found], state: State) -> _Found:
        if isinstance(node, int):
            return rows[node]
        every, nodes = node
        if every:
            parts = [self._folded(part, rows, state) for part in nodes]
            return _Found(all_of(p.condition for p in parts), next((p.why for p in parts if p.why), ""))
        shared = self._shared(nodes, state)
        parts = [self._folded(part, rows, state) for part in nodes]
        together = one_of(p.condition for p in parts)
        why = next((p.why for p in parts if p.why), "")
        if not shared or any(p.condition == ALWAYS and not p.why for p in parts):
            return _Found(together, "" if together == ALWAYS and not shared and not why else why)
        if shared <= state.choices.keys():
            pinned = list(self._pinned(shared, state))
            if pinned:
                mine = frozenset(_rows_of(node))
                again = [
                    self._folded(node, self._found(mine, each, self._holding(each)), each) for each in pinned
                ]
                return _Found(all_of(p.condition for p in again), next((p.why for p in again if p.why), ""))
        return _Found(self._asked(node, state), SHARED)

    def _shared(self, nodes: tuple[_Node, ...], state: State) -> frozenset[str]:
        """Symbols of several parts with more than one value, not all at their worst for the same one of them.

        At a worst value common to all, each part is at its worst, and one of them must hold by itself.
        """
        if nodes not in self._torn:
            self._torn[nodes] = self._torn_between(nodes)
        return frozenset(name for name in self._torn[nodes] if _loose(name, state))

    def _torn_between(self, nodes: Iterable[_Node]) -> tuple[str, ...]:
        """Symbols of several parts whose factors differ in sign."""
        parts_of: Counter[str] = Counter()
        signs: dict[str, set[int]] = {}
        for part in nodes:
            mine: set[str] = set()
            for name, sign in itertools.chain.from_iterable(
                map(self._signs, map(self._rows.__getitem__, _rows_of(part)))
            ):
                mine.add(name)
                signs.setdefault(name, set()).add(sign)
            parts_of.update(mine)
        return tuple(n for n, many in parts_of.items() if many > 1 and signs[n] not in ({1}, {-1}))

    def _signs(self, row: _Row) -> Iterator[tuple[str, int]]:
        """Symbols with the signs of their factors; 0 where another symbol decides."""
        yield from ((name, 1 if factor > 0 else -1) for name, factor in (*row.known, *row.moving))
        yield from ((name, 0) for a, b, _ in row.products for name in (a, b))

    def _pinned(self, names: frozenset[str], state: State) -> Iterator[State]:
        """The state at each combination of some symbols' values; nothing where there are too many."""
        ordered = sorted(names)
        many = 1
        for name in ordered:
            many *= len(state.choices[name])
        if many > _MOST_PINNED:
            return
        for values in itertools.product(*(state.choices[name] for name in ordered)):
            known = {**state.known, **{n: (v, v) for n, v in zip(ordered, values, strict=True)}}
            yield State(known=known, choices=state.choices, tracks=state.tracks)

    def _asked(self, node: _Node, state: State) -> Condition:
        """A formula at some points of the state: each where a row of it is at its worst."""
        found: list[Condition] = []
        for row in list(dict.fromkeys(_rows_of(node)))[:_MOST_ASKED]:
            factors = dict(self._rows[row].known)
            point = {n: ends[factors.get(n, 0) > 0] for n, ends in state.known.items()}
            there = State(
                known={n: (v, v) for n, v in point.items()},
                choices=state.choices,
                tracks={n: track.at_proposal() for n, track in state.tracks.items()},
            )
            found.append(self._plainly(node, there))
        return all_of(found)

    def _plainly(self, node: _Node, state: State) -> Condition:
        if isinstance(node, int):
            return self._row(self._rows[node], state).condition
        every, nodes = node
        return (all_of if every else one_of)(self._plainly(part, state) for part in nodes)

    def _row(self, row: _Row, state: State) -> _Found:
        """A row at its worst as lines, one for each combination of points."""
        if not row.products:
            return self._lines(row.constant, row.known, row.moving, state)
        if any(a in self._moving and b in self._moving for a, b, _ in row.products):
            return _Found(ALWAYS, PRODUCT)
        fixed = sorted({n for a, b, _ in row.products for n in (a, b) if n not in self._moving})
        ends = [_corners(state.known[n], inner=n in row.squares) for n in fixed]
        many = 1
        for mine in ends:
            many *= len(mine)
        if many > _MOST_CORNERS:
            return _Found(ALWAYS, SQUARE)
        inside = any(state.known[n][0] < state.known[n][1] for n in row.squares)
        found: list[Condition] = []
        why = SQUARE if inside else ""
        for corner in itertools.product(*ends):
            at = dict(zip(fixed, corner, strict=True))
            constant = row.constant + sum(f * at[n] for n, f in row.known if n in at)
            moving = dict(row.moving)
            for a, b, factor in row.products:
                if a in at and b in at:
                    constant += factor * at[a] * at[b]
                else:
                    name, other = (a, b) if b in at else (b, a)
                    moving[name] = moving.get(name, 0) + factor * at[other]
            known = tuple((n, f) for n, f in row.known if n not in at)
            mine_lines = self._lines(constant, known, [(n, f) for n, f in moving.items() if f], state)
            found.append(mine_lines.condition)
            why = why or mine_lines.why
        return _Found(all_of(found), why)

    def _lines(
        self,
        constant: int,
        known: Iterable[tuple[str, int]],
        moving: Sequence[tuple[str, int]],
        state: State,
    ) -> _Found:
        ends = state.known
        base = constant
        for name, factor in known:
            base += factor * ends[name][factor > 0]
        if not moving:
            return _Found(line({}, -base), "")
        if len(moving) == 1:
            return self._single(base, *moving[0], state)
        by_place: dict[int, list[tuple[Track, int]]] = {}
        unit, why = 1, ""
        for name, factor in moving:
            track = state.tracks[name]
            by_place.setdefault(track.place, []).append((track, factor))
            unit = lcm(unit, track.unit)
            why = why or (BACKUP if track.bounded(factor) else "")
        why = why or (ROUNDED if unit > 1 else "")
        slopes = [(place, _slopes(mine, unit)) for place, mine in by_place.items()]
        found: list[Condition] = []
        for combination in itertools.product(*(points for _, points in slopes)):
            factors = {place: point[0] for (place, _), point in zip(slopes, combination, strict=True)}
            limit = -base * unit - sum(point[1] for point in combination)
            if sum(f * self._domains[place][f > 0] for place, f in factors.items()) > limit:
                found.append(line(factors, limit))  # else it says nothing
        return _Found(all_of(found), why)

    def _single(self, base: int, name: str, factor: int, state: State) -> _Found:
        """One moving symbol: its rounding is undone exactly, as the limit is a whole number as well."""
        track = state.tracks[name]
        why = BACKUP if track.bounded(factor) else ""
        bound = -base // factor if factor > 0 else -(-base // -factor)
        found: list[Condition] = []
        for slope, start, unit in track.ends(factor):
            if factor > 0:
                found.append(line({track.place: slope}, bound * unit - start))
            else:
                found.append(line({track.place: -slope}, start - bound * unit))
        return _Found(all_of(found), why)


def _slopes(mine: Sequence[tuple[Track, int]], unit: int) -> list[tuple[int, int]]:
    """The different straight pieces of one output's share of a row, in units of 1 / `unit` of the row's."""
    found: dict[tuple[int, int], None] = {}
    for cell in range(mine[0][0].cells):
        slope = start = 0
        for track, factor in mine:
            p, q, den = track.end(cell, factor)
            slope += factor * p * (unit // den)
            start += factor * q * (unit // den)
        found[slope, start] = None
    return list(found)


def _certain(node: _Node, holds: Sequence[bool]) -> bool:
    """Whether a formula holds because of rows that do."""
    if isinstance(node, int):
        return holds[node]
    every, nodes = node
    return (all if every else any)(_certain(part, holds) for part in nodes)


def _rows_of(node: _Node) -> Iterator[int]:
    if isinstance(node, int):
        yield node
    else:
        for part in node[1]:
            yield from _rows_of(part)


def _loose(name: str, state: State) -> bool:
    if name in state.known:
        return state.known[name][0] < state.known[name][1]
    return state.tracks[name].loose


def _corners(ends: Span, *, inner: bool) -> tuple[int, ...]:
    if ends[0] == ends[1]:
        return (ends[0],)
    return (*ends, 0) if inner and ends[0] < 0 < ends[1] else ends
