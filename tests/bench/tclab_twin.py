"""The `tclab` package's twin behind the solver's check, on a clock of its own; what is safe without a solver.

Once in 10 s both temperatures are read, a proposal is checked, and what comes out acts at once until the
next. The plant is the package's own: its heaters, its noise, its converter. True temperatures are looked at
every 0.2 s, which is as fine as the twin moves.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gateway.config.model import TagRow
from gateway.config.tags import parse_csv, tag_definition
from gateway.core.decision import (
    CheckRequest,
    DecisionId,
    InForce,
    Permitted,
    PointId,
    Proposal,
    RegisterValue,
    Repaired,
    StateSet,
)
from gateway.core.quality import StatusCode
from gateway.core.tag import TagDefinition, TagId, TagValue
from gateway.solver.checking.condense import LEASE_S
from gateway.solver.checking.motion import predicted
from gateway.solver.checking.terms import Budget
from gateway.solver.checking.way import SLOWEST_RAMP
from gateway.solver.modules.compile import compile_module
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.rules.steps import FINE
from gateway.solver.workers.check import Checks
from tests.bench.tclab_dynamics import (
    AMBIENT,
    EULER_S,
    INPUTS,
    LIMIT,
    STATE,
    SUBSTEPS,
    coefficients,
    twin,
)

FOLDER = Path(__file__).parents[2] / "constraints"
MODULE = FOLDER / "tclab-twin.json"
TAGS = FOLDER / "tags" / "tclab-twin.csv"
T1, T2 = TagId("TCL.T1"), TagId("TCL.T2")
Q1, Q2 = TagId("TCL.Q1.SP"), TagId("TCL.Q2.SP")
H1, H2 = TagId("tclab-twin.h1"), TagId("tclab-twin.h2")
STEP_S = 10.0
RAMP, POWER = 20.0, 20_000.0  # % a step; 200*Q1 + 100*Q2
RULED = 59.77  # degC at the ends of steps, as the module says: between two of them it may be more
_BACKUP_STEPS = 14  # heaters are cold long before
_PAST = 6  # values that are told as history; a full ramp takes five steps
_TINY = 1e-9
# Time is simulated: a machine that pauses must not make an answer unknown. The work limit is the shipped one.
_BUDGET = Budget(timeout_ms=10_000)

Heat = tuple[float, float]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a proposer knows: temperatures as read, the heat in force, the step's number."""

    t1: float
    t2: float
    before: Heat
    step: int


Proposer = Callable[[Seen], Heat]


@dataclass(slots=True, kw_only=True)
class Tally:
    """One run counted."""

    steps: int = 0
    hot: int = 0  # instants of 0.2 s with a true temperature above 60 degC
    hot_steps: int = 0
    ramp: int = 0
    power: int = 0
    safe: int = 0  # proposals that vertex sampling shows safe
    permitted: int = 0  # of those: let through unchanged
    stopped_hot_in_silence: int = 0  # of the others: too hot if the gateway fell silent then
    unsafe_permitted: int = 0
    permitted_hot_in_silence: int = 0
    lost: int = 0  # safe, also in silence, and stopped
    lost_within_the_rules: int = 0  # of them: those that keep the module's own limit at every moment
    changed: int = 0  # repaired, or refused
    idle: int = 0  # nothing to write, not even the backup
    recovered: int = 0
    undetermined: Counter[str] = field(default_factory=Counter)
    stopped_by: Counter[str] = field(default_factory=Counter)  # safe proposals, by the rule that stopped them
    readings: int = 0
    outside: int = 0  # readings outside the predicted band
    hidden_outside: int = 0  # true states, the heaters' among them, outside the state set
    hottest: float = 0.0
    error: float = 0.0  # sum of |T1 - setpoint| + |T2 - setpoint| in K

    def __add__(self, other: Tally) -> Tally:
        both = {name: getattr(self, name) + getattr(other, name) for name in Tally.__slots__}
        return Tally(**{**both, "hottest": max(self.hottest, other.hottest)})


class Twin:
    """The package's twin, read as a gateway would: counts of its converter."""

    def __init__(self, seed: int) -> None:
        random.seed(seed)  # the package draws its noise from the global source
        self._dice = random.Random(seed + 1)  # noqa: S311  # reproducible, not a secret
        self._model = twin()
        self._definitions = definitions()
        self.ambient = self._dice.uniform(*AMBIENT)
        for name in STATE:
            setattr(self._model, f"_{name.upper()}", self.ambient)
        self._steps = 0

    @property
    def state(self) -> dict[str, float]:
        """The true state."""
        return {name: getattr(self._model, f"_{name.upper()}") for name in STATE}

    def readings(self) -> dict[TagId, float]:
        """One reading of each temperature, in the middle of its converter's step."""
        counts = {T1: self._model.T1, T2: self._model.T2}
        found: dict[TagId, float] = {}
        for tag, value in counts.items():
            definition = self._definitions[tag]
            found[tag] = float(definition.engineering(round(value / float(definition.scale))))
        return found

    def advance(self, heat: Heat, tally: Tally) -> None:
        """One step with the ambient moving at will within its band."""
        model = self._model
        model.Q1(heat[0])
        model.Q2(heat[1])
        low, high = AMBIENT
        self.ambient = min(high, max(low, self.ambient + self._dice.uniform(-1.0, 1.0)))
        model.Ta = self.ambient
        before = tally.hot
        for part in range(1, SUBSTEPS + 1):
            model.update(self._steps * STEP_S + part * float(EULER_S))
            hottest = max(model._T1, model._T2)
            tally.hottest = max(tally.hottest, hottest)
            tally.hot += hottest > LIMIT
        tally.hot_steps += tally.hot > before
        self._steps += 1


class Loop:
    """One proposer on one twin, with a check or without."""

    def __init__(self, propose: Proposer, seed: int, checks: Checks | None) -> None:
        self._propose, self._checks = propose, checks
        self._twin = Twin(seed)
        self._heat: Heat = (0.0, 0.0)
        self._past: deque[tuple[Heat, int]] = deque(maxlen=_PAST)  # heat that ceased, and at which step
        self._carried: StateSet | None = None
        self.tally = Tally()

    def run(
        self,
        steps: int,
        setpoint: Callable[[int], Heat] | None = None,
        told: Callable[[], object] = lambda: None,
    ) -> Tally:
        """So many steps, `told` after each; `setpoint` is what the error is measured against."""
        for step in range(steps):
            readings = self._twin.readings()
            state = self._twin.state
            asked = self._propose(Seen(readings[T1], readings[T2], self._heat, step))
            wanted = float(exactly(asked[0])), float(exactly(asked[1]))
            heat = wanted if self._checks is None else self._checked(self._checks, readings, wanted, step)
            self._count(heat)
            if heat != self._heat:
                self._past.appendleft((self._heat, step))
                self._heat = heat
            if setpoint is not None:
                aims = setpoint(step)
                self.tally.error += abs(state["t1"] - aims[0]) + abs(state["t2"] - aims[1])
            self._twin.advance(heat, self.tally)
            self.tally.steps += 1
            told()
        return self.tally

    def _count(self, heat: Heat) -> None:
        moved = max(abs(new - old) for new, old in zip(heat, self._heat, strict=True))
        self.tally.ramp += moved > RAMP + _TINY
        self.tally.power += 200 * heat[0] + 100 * heat[1] > POWER + _TINY

    def _checked(self, checks: Checks, readings: Mapping[TagId, float], wanted: Heat, step: int) -> Heat:
        tally = self.tally
        request = self._request(readings, proposal(wanted), step)
        self._residuals(checks.rules, request, readings)
        result, state = checks.check(request)
        self._carried = state
        verdict = result.verdict
        unchanged = isinstance(verdict, Permitted) and verdict.setpoints == proposal(wanted).values
        if state is None:
            tally.undetermined[str(getattr(verdict, "reason", verdict))] += 1
        else:
            self._true_state_inside(state)
            worst = upper_corner(state)
            safe = not unsafe_because(worst, self._heat, wanted)
            tally.safe += safe
            tally.permitted += safe and unchanged
            tally.unsafe_permitted += unchanged and not safe
            hot = safe and hot_in_silence(worst, wanted)
            tally.permitted_hot_in_silence += unchanged and hot
            lost = safe and not unchanged and not hot
            tally.lost += lost
            tally.lost_within_the_rules += lost and not hot_in_silence(worst, wanted, RULED)
            if safe and not unchanged:
                tally.stopped_hot_in_silence += hot
                told = getattr(verdict, "counterexample", None)
                tally.stopped_by[told.constraint if told is not None else type(verdict).__name__] += 1
        tally.changed += not unchanged
        if isinstance(verdict, Permitted | Repaired):
            return _heat(verdict.setpoints)
        fallback, _ = checks.check(self._request(readings, None, step))
        if isinstance(fallback.verdict, Permitted) or fallback.recovery:
            tally.recovered += fallback.recovery
            assert fallback.proposal is not None
            return _heat(fallback.proposal.values)
        tally.idle += 1
        return self._heat

    def _residuals(self, rules: RuleSet, request: CheckRequest, readings: Mapping[TagId, float]) -> None:
        band = predicted(rules, request)
        if band is None:
            return
        for tag, value in readings.items():
            low, high = (end / FINE for end in band[tag])
            reach = float(rules.variables[tag].uncertainty)
            self.tally.readings += 1
            self.tally.outside += not low - reach - _TINY <= value <= high + reach + _TINY

    def _true_state_inside(self, state: StateSet) -> None:
        for name, value in self._twin.state.items():
            interval = state.intervals[_TAG_OF[name]]
            self.tally.hidden_outside += (
                not float(interval.low) - _TINY <= value <= float(interval.high) + _TINY
            )

    def _request(self, readings: Mapping[TagId, float], asked: Proposal | None, step: int) -> CheckRequest:
        now = step * STEP_S
        return CheckRequest(
            decision=DecisionId(f"d{step}"),
            point=PointId("tclab"),
            generation=1,
            inputs={
                tag: TagValue(
                    value=value, status=StatusCode.Good, source_ts_ns=None, server_ts_ns=0, confirmed_at=now
                )
                for tag, value in readings.items()
            },
            taken_at=now,
            history={
                tag: (
                    InForce(exactly(self._heat[place]), 0.0),
                    *(InForce(exactly(heat[place]), (step - at) * STEP_S) for heat, at in self._past),
                )
                for place, tag in enumerate((Q1, Q2))
            },
            held_s={Q1: 0.0, Q2: 0.0},
            proposal=asked,
            carried=self._carried,
            hold_s=STEP_S,
            effect_delay_s=0.0,
        )


_TAG_OF = {"h1": H1, "h2": H2, "t1": T1, "t2": T2}


def upper_corner(state: StateSet) -> Floats:
    """The hottest state of a set: the twin is positive, so nothing else need be looked at."""
    return np.array([float(state.intervals[_TAG_OF[name]].high) for name in STATE])


def unsafe_because(hottest: Floats, before: Heat, wanted: Heat) -> str:
    """What goes wrong if the proposal acts for a step and the backup afterwards; empty where nothing does.

    The warmest ambient throughout, every 0.2 s looked at.
    """
    if max(abs(new - old) for new, old in zip(wanted, before, strict=True)) > RAMP + _TINY:
        return "ramp"
    if 200 * wanted[0] + 100 * wanted[1] > POWER + _TINY:
        return "power"
    moves, pushes = _courses()
    state, heat = hottest, np.array(wanted)
    if state[2:].max() > LIMIT:
        return "hot"
    for step in range(1 + _BACKUP_STEPS):
        if step:
            heat = np.maximum(heat - RAMP, 0.0)
        course = moves @ state + pushes @ np.array([*heat, AMBIENT[1]])
        if course[:, 2:].max() > LIMIT + _TINY:
            return "hot"
        state = course[-1]
    return ""


def hot_in_silence(hottest: Floats, wanted: Heat, limit: float = LIMIT) -> bool:
    """Whether a limit breaks if nothing is heard of the gateway after the proposal.

    The PLC waits as long as it may after the step; its ramp is the slowest that still counts as one (S11).
    """
    moves, pushes = _courses()
    state, heat = hottest, np.array(wanted)
    acting = int((STEP_S + float(LEASE_S)) / float(EULER_S))
    each = RAMP / SUBSTEPS * float(SLOWEST_RAMP)
    for part in range(acting + _BACKUP_STEPS * SUBSTEPS):
        if part >= acting:
            heat = np.maximum(heat - each, 0.0)
        state = moves[0] @ state + pushes[0] @ np.array([*heat, AMBIENT[1]])
        if state[2:].max() > limit + _TINY:
            return True
    return False


@lru_cache(maxsize=1)
def _courses() -> tuple[Floats, Floats]:
    """What a state and inputs come to at each instant of a step."""
    rows = [coefficients(k * EULER_S) for k in range(1, SUBSTEPS + 1)]
    moves = np.array([[[float(row[s][n]) for n in STATE] for s in STATE] for row in rows])
    pushes = np.array([[[float(row[s][n]) for n in INPUTS] for s in STATE] for row in rows])
    return moves, pushes


@lru_cache(maxsize=1)
def definitions() -> dict[TagId, TagDefinition]:
    """The module's tags."""
    rows = parse_csv(TAGS.read_text(encoding="utf-8")).plain()
    assert isinstance(rows, list)
    return {d.id: d for d in (tag_definition(TagRow.model_validate(row)) for row in rows)}


def rule_set() -> RuleSet:
    """The shipped module alone."""
    return RuleSet.of([compile_module(MODULE.read_bytes(), MODULE.name, definitions())], 1)


def checks() -> Checks:
    """A check of the shipped module."""
    return Checks(rule_set(), _BUDGET)


def exactly(percent: float) -> Fraction:
    """A register's tenth of a per cent."""
    return Fraction(round(percent * 10), 10)


def proposal(heat: Heat) -> Proposal:
    """Both heaters' registers."""
    known = definitions()
    values = []
    for tag, percent in zip((Q1, Q2), heat, strict=True):
        raw = known[tag].counts(exactly(percent))
        values.append(RegisterValue(tag, raw, known[tag].engineering(raw)))
    return Proposal(values=tuple(values), by="bench")


def _heat(values: tuple[RegisterValue, ...]) -> Heat:
    found = {value.tag: float(value.value) for value in values}
    return found[Q1], found[Q2]
