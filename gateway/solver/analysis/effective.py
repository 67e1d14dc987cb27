"""How far each reading may be from the truth (S4), and when a proposal acts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from gateway.solver.analysis.findings import ErrorRow
from gateway.solver.modules.module import Variable
from gateway.solver.rules.ruleset import RuleSet

_PLACES = 10**6


@dataclass(frozen=True, slots=True)
class Times:
    """Of a decision point, in seconds: what adds up until a proposal acts, and the inputs' largest skew."""

    until_effect: tuple[tuple[str, float], ...] = ()
    max_skew: float = 0.0


def errors(rules: RuleSet, times: Times) -> Iterator[ErrorRow]:
    """One row for each measured real, and for each count that may drift."""
    for v in rules.measured:
        if not v.hidden and (v.sort == "real" or v.max_rate is not None):
            yield _row(rules, v, Fraction(str(times.max_skew)))


def _row(rules: RuleSet, v: Variable, skew: Fraction) -> ErrorRow:
    counted = v.definition.raw_range is not None and v.sort == "real"
    half = abs(v.definition.scale) / 2 if counted else Fraction(0)
    reading = v.uncertainty
    drifts = v.max_rate is not None and str(v.tag) not in rules.forms
    drift = (v.max_rate or Fraction(0)) * ((v.max_age or Fraction(0)) + skew) if drifts else Fraction(0)
    return ErrorRow(
        name=v.name,
        tag=str(v.tag),
        unit=v.unit,
        error=_up(v.error),
        half_count=_up(half),
        deadband=_up(v.definition.deadband if v.sort == "real" else Fraction(0)),
        reading=_up(reading),
        drift=_up(drift) if drifts else "",
        worst=_up(reading + drift),
        after=_after(rules, v),
    )


def _after(rules: RuleSet, v: Variable) -> str:
    """What is assumed of a variable once its reading is taken."""
    if str(v.tag) in rules.forms:
        return "moves by its dynamics"
    unit = f" {v.unit}" if v.unit else ""
    within = f", within {float(v.physical[0]):g} to {float(v.physical[1]):g}{unit}" if v.physical else ""
    if v.max_rate is not None:
        return f"at most {float(v.max_rate):g}{unit}/s{within}"
    low, high = v.physical or v.range
    return f"anywhere from {float(low):g} to {float(high):g}{unit}, at once"


def _up(value: Fraction) -> str:
    """Rounded up: what is shown is never too little."""
    return f"{ceil(value * _PLACES) / _PLACES:.6f}".rstrip("0").rstrip(".") or "0"
