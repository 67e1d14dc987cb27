"""The least change that lines leave, between register values as well as at them: a linear program for HiGHS.

It answers in floats and decides nothing: where it says that nothing is left, or what is nearest, the search
looks there first, and what the search finds fulfils every line in whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import highspy
import numpy as np

from gateway.solver.decoding.counts import Line, Span

_MOST_ITERATIONS = 2_000
_TOLERANCE = 1e-9
_ROUNDING = 1e-7


class UnsolvedError(Exception):
    """HiGHS gave no answer: neither a least change nor that there is none."""


@dataclass(frozen=True, slots=True)
class Bound:
    """How little can be changed, and where; a value is off by rounding, never by more than `slack`."""

    value: float
    slack: float
    at: tuple[float, ...]  # register counts, by place


@dataclass(frozen=True, slots=True)
class Least:
    """What is made small: weighted changes from `wanted`, while others stay within limits."""

    wanted: Sequence[int]
    weights: Sequence[int]  # by place
    limits: Sequence[tuple[Sequence[int], int]] = ()  # weights by place, and the most that their sum may be


class _Quiet(highspy.Highs):
    """HiGHS without a word on the console, also of its own name, and without callbacks."""

    def enableCallbacks(self) -> None:  # noqa: N802  # its own name
        """Called before anybody could ask it to be silent."""
        self.silent()


class LinearProgram:
    """One instance of HiGHS; one thread."""

    def __init__(self) -> None:
        self._highs = _Quiet()  # type: ignore[no-untyped-call]
        for option, value in (
            ("threads", 1),
            ("parallel", "off"),
            ("presolve", "off"),
            ("solver", "simplex"),
            ("simplex_iteration_limit", _MOST_ITERATIONS),
            ("primal_feasibility_tolerance", _TOLERANCE),
            ("dual_feasibility_tolerance", _TOLERANCE),
        ):
            self._highs.setOptionValue(option, value)

    def least(self, goal: Least, box: Sequence[Span], lines: Iterable[Line]) -> Bound | None:
        """The least change within a box and lines; None where they leave nothing. Raises `UnsolvedError`.

        An output is what is wanted, plus what it goes up, less what it goes down: two columns each.
        """
        try:
            program = _program(goal, box, lines)
        except OverflowError as exc:
            raise UnsolvedError(str(exc)) from exc
        self._highs.clearSolver()  # nothing of the program before: the same question has the same answer
        self._highs.passModel(program)
        if self._highs.run() == highspy.HighsStatus.kError:
            # Another instance of this process began with more threads: they are shared, and stay so many.
            self._highs.setOptionValue("threads", 0)
            self._highs.run()
        return self._answer(goal)

    def _answer(self, goal: Least) -> Bound | None:
        status = self._highs.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return None
        if status != highspy.HighsModelStatus.kOptimal:
            raise UnsolvedError(str(status))
        found, size = self._highs.getSolution().col_value, len(goal.wanted)
        at = tuple(w + found[k] - found[size + k] for k, w in enumerate(goal.wanted))
        value = sum(w * (found[k] + found[size + k]) for k, w in enumerate(goal.weights))
        return Bound(value, _ROUNDING * (abs(value) + max(1, *goal.weights)), at)


def _program(goal: Least, box: Sequence[Span], lines: Iterable[Line]) -> highspy.HighsLp:
    """The program in floats; raises `OverflowError` where they do not reach."""
    size = len(box)
    unit = max(1, *goal.weights)
    program = highspy.HighsLp()
    program.num_col_ = 2 * size
    program.col_cost_ = np.array([w / unit for w in goal.weights] * 2)
    moves = [(low - w, high - w) for (low, high), w in zip(box, goal.wanted, strict=True)]
    program.col_lower_ = np.array([max(m[0], 0) for m in moves] + [max(-m[1], 0) for m in moves], float)
    program.col_upper_ = np.array([max(m[1], 0) for m in moves] + [max(-m[0], 0) for m in moves], float)
    rows = [_row(line, goal.wanted, size) for line in lines]
    rows += [_limit(weights, most, size) for weights, most in goal.limits]
    program.num_row_ = len(rows)
    program.row_lower_ = np.full(len(rows), -highspy.kHighsInf)
    program.row_upper_ = np.array([most for _, most in rows], float)
    matrix = program.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kRowwise
    matrix.start_ = np.array([0, *np.cumsum([len(factors) for factors, _ in rows])], np.int32)
    matrix.index_ = np.array([k for factors, _ in rows for k, _ in factors], np.int32)
    matrix.value_ = np.array([f for factors, _ in rows for _, f in factors], float)
    return program


_Row = tuple[list[tuple[int, float]], float]


def _row(line: Line, wanted: Sequence[int], size: int) -> _Row:
    """A line over both columns of each output, its greatest factor 1."""
    greatest = max(abs(factor) for _, factor in line.terms)
    left = line.limit - sum(factor * wanted[place] for place, factor in line.terms)
    up = [(place, factor / greatest) for place, factor in line.terms]
    return [*up, *((place + size, -factor) for place, factor in up)], float(Fraction(left, greatest))


def _limit(weights: Sequence[int], most: int, size: int) -> _Row:
    greatest = max(1, *weights)
    each = [(place, weight / greatest) for place, weight in enumerate(weights) if weight]
    return [*each, *((place + size, factor) for place, factor in each)], float(Fraction(most, greatest))
