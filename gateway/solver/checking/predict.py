"""What one check may assume: usable inputs, the state carried forward and measured (S2, S3, S4), the past."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from gateway.core.ports import CheckRequest, StateSet
from gateway.core.quality import StatusCode
from gateway.core.tag import TagId, TagValue, exact
from gateway.solver.checking.motion import hull, predicted, since
from gateway.solver.checking.past import Past, carried_on, micros_down, micros_up, recall
from gateway.solver.checking.together import together
from gateway.solver.modules.module import Interval, Variable
from gateway.solver.rules.interval import SCALE
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.rules.steps import FINE, Whole, fine

_EVER = Fraction(10**9)  # seconds: the age of what never came
_GRID = 1_000_000  # of states, rounded outward: carried on for ever, numbers would grow
_FINER, _COARSER = FINE // _GRID, SCALE // _GRID
_PLACES = tuple(FINE // 10**places for places in range(25))  # units of 1 / `FINE` by decimal places


class UnusableError(Exception):
    """Nobody can decide on these inputs; the text is for people."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The premises of one check, by tag."""

    now: Mapping[str, Interval]  # measured values at acquisition, ends rounded outward to 1e-6
    whole: Mapping[str, tuple[int, int]]  # the same in units of 1 / `SCALE`
    old: Mapping[str, tuple[Fraction, ...]]  # values in force, one or {before, after}
    history: Mapping[
        str, tuple[tuple[Fraction, Fraction], ...]
    ]  # value, seconds since it ceased (rounded down)
    held: Mapping[str, Fraction]
    carried_used: bool
    carry: StateSet  # into the next check
    read: Mapping[str, Whole]  # where each reported variable may have been since its own reading
    age: Fraction  # of the oldest reading, seconds

    past: Past = field(default_factory=Past)
    quality: Mapping[str, Interval] = field(default_factory=dict)  # `good(TAG)` and `age(TAG)`


def same_premises(one: CheckRequest, other: CheckRequest) -> bool:
    """Whether two checks differ in what they judge and in nothing that they may assume."""
    judged = replace(one, decision=other.decision, proposal=other.proposal, may_repair=other.may_repair)
    return judged == other


def observe(rules: RuleSet, request: CheckRequest) -> Facts:
    """The premises; raises `UnusableError` where there are none anyone could stand on."""
    if not rules.modules:
        msg = "no constraint module is in force, and an empty rule set permits nothing"
        raise UnusableError(msg)
    old = {str(v.tag): _in_force(v, request) for v in rules.actions}
    ages, oldest, bad = _ages(rules, request)
    skew = _skew(rules, request.inputs, bad)
    measured = {str(v.tag): _known(rules, request, v, ages, skew, bad) for v in rules.measured}
    in_force = {tag: hull(*values) for tag, values in old.items()}
    fresh = _until_now(rules, request, measured, ages, bad)
    before = predicted(rules, request)
    met = fresh if before is None else _met(rules, before, fresh)
    short = {tag: (low // _FINER, -(-high // _FINER)) for tag, (low, high) in met.items()}
    now = {tag: (Fraction(low, _GRID), Fraction(high, _GRID)) for tag, (low, high) in short.items()}
    quality = _quality(rules, request, bad)
    past = recall(rules, request, now, {**{f"prev({t})": span for t, span in in_force.items()}, **quality})
    return Facts(
        now=now,
        whole={tag: (low * _COARSER, high * _COARSER) for tag, (low, high) in short.items()},
        old=old,
        history={
            str(v.tag): tuple((e.value, micros_down(e.ceased_s_ago)) for e in request.history[v.tag])
            for v in rules.actions
        },
        held={str(v.tag): micros_down(request.held_s.get(v.tag, 0.0)) for v in rules.actions},
        carried_used=before is not None,
        carry=carried_on(rules, request, now, past.rows),
        past=past,
        quality=quality,
        read={str(v.tag): _both(measured[v.tag], fresh[v.tag]) for v in rules.reported},
        age=oldest,
    )


def _until_now(
    rules: RuleSet,
    request: CheckRequest,
    measured: Mapping[str, Whole],
    ages: Mapping[str, Fraction],
    bad: frozenset[str],
) -> dict[str, Whole]:
    """Where each variable is by now, each from its own reading on: what ceased since acted until then."""
    moved: dict[float, Mapping[str, Whole]] = {}
    found = dict(measured)
    read = {tag: age for tag, age in ages.items() if tag not in bad}
    at_once = len({id(age) for age in read.values()}) <= 1  # equal ages are one object
    for tag in rules.forms:
        if tag not in ages:
            continue
        start = measured if at_once or tag in bad else together(rules, request, tag, measured, read)
        if start is None:
            msg = f"the readings behind `{tag}` lie too far apart in time to be put together"
            raise UnusableError(msg)
        age = float(ages[tag])  # whole microseconds: two that differ differ as floats
        if start is not measured:
            found[tag] = since(rules, request, start, ages[tag])[tag]
            continue
        if age not in moved:
            moved[age] = since(rules, request, measured, ages[tag])
        found[tag] = moved[age][tag]
    return found


def _both(one: Whole, other: Whole) -> Whole:
    return min(one[0], other[0]), max(one[1], other[1])


def _in_force(variable: Variable, request: CheckRequest) -> tuple[Fraction, ...]:
    entries = request.history.get(variable.tag, ())
    values = tuple(e.value for e in entries if e.ceased_s_ago <= 0)
    if not values:
        msg = f"the value in force of `{variable.tag}` is not known"
        raise UnusableError(msg)
    return values if len(values) == 1 else tuple(dict.fromkeys(values))


def _ages(rules: RuleSet, request: CheckRequest) -> tuple[dict[str, Fraction], Fraction, frozenset[str]]:
    """Age of every reading, that of the oldest, and the tags without one though the rules go on without."""
    ages: dict[str, Fraction] = {}
    bad: set[str] = set()
    known: dict[float, Fraction] = {}  # most tags are read together
    for variable in rules.reported:
        why = _unusable(rules, variable, request)
        if why and variable.tag not in rules.tolerated:
            raise UnusableError(why)
        if why:
            bad.add(variable.tag)
            ages[variable.tag] = Fraction(0)
        else:
            age = max(0.0, request.taken_at - request.inputs[variable.tag].confirmed_at)
            if age not in known:
                known[age] = micros_up(age)
            ages[variable.tag] = known[age]
    return ages, max(known.values(), default=Fraction(0)), frozenset(bad)


def _unusable(rules: RuleSet, variable: Variable, request: CheckRequest) -> str:
    """Why a sample must not be used, empty when it may be."""
    tag = variable.tag
    sample = request.inputs.get(tag)
    if sample is None or sample.value is None:
        return f"`{tag}` has no value"
    if not sample.status.is_plain_good and sample.status.name not in variable.accept_quality:
        return f"`{tag}` is {StatusCode(sample.status).name}, and only Good may be used for a write"
    age = request.taken_at - sample.confirmed_at
    if not math.isfinite(age):
        return f"`{tag}` was never confirmed by its source"
    if variable.max_age is not None and age > rules.steps.sensors[tag].max_age:
        return f"`{tag}` is {age:.3f} s old, and at most {float(variable.max_age):g} s are allowed"
    return ""


def _quality(rules: RuleSet, request: CheckRequest, bad: frozenset[str]) -> dict[str, Interval]:
    """What `good` and `age` say of each tag they are asked of."""
    found: dict[str, Interval] = {}
    for tag in rules.asked:
        sample = request.inputs.get(TagId(tag))
        age = math.inf if sample is None else max(0.0, request.taken_at - sample.confirmed_at)
        known = math.isfinite(age)
        found[f"age({tag})"] = (micros_down(age), micros_up(age)) if known else (_EVER, _EVER)
        usable = Fraction(tag not in bad)
        found[f"good({tag})"] = usable, usable
    return found


def _skew(rules: RuleSet, inputs: Mapping[TagId, TagValue], bad: frozenset[str]) -> Fraction:
    stamps = [inputs[v.tag].confirmed_at for v in rules.reported if v.tag in inputs and v.tag not in bad]
    finite = [s for s in stamps if math.isfinite(s)]
    return micros_up(max(finite) - min(finite)) if finite else Fraction(0)


def _known(
    rules: RuleSet,
    request: CheckRequest,
    variable: Variable,
    ages: Mapping[str, Fraction],
    skew: Fraction,
    bad: frozenset[str],
) -> Whole:
    """Where a variable was at its own reading; a state without one may be wherever it physically can."""
    if variable.hidden and variable.physical is not None:
        return fine(variable.physical)
    if variable.tag in bad:
        return fine(variable.roams)
    return _reading(variable, request.inputs[variable.tag], ages[variable.tag], skew, rules)


def _reading(variable: Variable, sample: TagValue, age: Fraction, skew: Fraction, rules: RuleSet) -> Whole:
    sensor, number = rules.steps.sensors[variable.tag], _number(variable, sample)
    low, high = number[0] - sensor.error, number[1] + sensor.error
    if low < sensor.low or high > sensor.high:
        shown = f"{low / FINE:g} to {high / FINE:g} {variable.unit}".strip()
        msg = f"`{variable.tag}` ({shown}) is not wholly inside its range"
        raise UnusableError(msg)
    if variable.labels is not None and (value := Fraction(number[0], FINE)) not in variable.labels.values():
        known = ", ".join(f"{label} {its}" for label, its in variable.labels.items())
        msg = f"`{variable.tag}` reads {value}, which is none of its values ({known})"
        raise UnusableError(msg)
    if variable.tag not in rules.forms and variable.max_rate is not None:
        low, high = rules.steps.grown(variable, (low, high), age + skew)
    elif sensor.physical is not None:
        low, high = max(low, sensor.physical[0]), min(high, sensor.physical[1])
    if low > high:
        msg = f"broken assumption: `{variable.tag}` reads outside its physical bounds"
        raise UnusableError(msg)
    return low, high


def _number(variable: Variable, sample: TagValue) -> Whole:
    value = sample.value
    if isinstance(value, str) or value is None or (isinstance(value, float) and not math.isfinite(value)):
        msg = f"`{variable.tag}` is `{value}`, not a number"
        raise UnusableError(msg)
    found = decimal(value)
    if variable.sort != "real" and (found[0] % FINE or found[0] != found[1]):
        msg = f"`{variable.tag}` is `{value}`, not a whole number"
        raise UnusableError(msg)
    return found


def decimal(value: float) -> Whole:
    """`exact` of a finite number, in units of 1 / `FINE`; mostly without making a fraction of it."""
    whole, _, places = repr(value).partition(".")
    if places.isdecimal() and len(places) < len(_PLACES):
        found = int(whole + places) * _PLACES[len(places)]
        return found, found
    number = exact(value)
    return fine((number, number))


def _met(rules: RuleSet, before: Mapping[str, Whole], now: Mapping[str, Whole]) -> dict[str, Whole]:
    """Prediction and reading intersected; raises `UnusableError` where they have nothing in common (S2)."""
    met: dict[str, Whole] = {}
    for tag, (low, high) in now.items():
        first, last = before[tag]
        met[tag] = max(low, first), min(high, last)
        if met[tag][0] > met[tag][1]:
            how = "can only be" if rules.variables[TagId(tag)].hidden else "reads"
            msg = (
                f"broken assumption: `{tag}` was predicted between {first / FINE:g} and "
                f"{last / FINE:g} and {how} between {low / FINE:g} and {high / FINE:g}"
            )
            raise UnusableError(msg)
    return met
