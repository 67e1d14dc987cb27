"""The assumption monitor: measurements against what was predicted 1, 10 and 60 steps before (S16).

A prediction starts from the state set that a check kept, and only the module's dynamics and disturbances,
the values really in force and the measured inputs carry it on: it is never intersected with later readings of
what it predicts, so that a drift too slow for a single step adds up. Ends are whole numbers, rounded outward.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from gateway.core.ports import CheckRequest, StateSet
from gateway.core.residual import COUNTED, WINDOWS, Residual
from gateway.core.tag import TagId
from gateway.solver.checking.past import LONGEST_GAP_STEPS, micros_down
from gateway.solver.modules.module import Variable
from gateway.solver.monitor.envelope import Between
from gateway.solver.monitor.readings import Moment, Piece, moment, pieces
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.rules.steps import FINE, Whole, fine

_EARLY = Fraction(1, 4)  # of a step: a decision so much early still counts as a step later
_MICROS = 1_000_000  # a second: what instants are whole numbers of
_WHOLLY_OUTSIDE = 1e9  # the share of a band without width


@dataclass(slots=True)
class _Prediction:
    """The state set kept at one instant, and where it has come to since."""

    micros: int  # monotonic
    kept: Mapping[str, Whole]
    state: dict[str, Whole]


class Monitor:
    """The windows of one decision point.

    They begin anew at other premises, after a gap of more than ten steps, and where somebody says so.
    """

    def __init__(self) -> None:
        self._rules: RuleSet | None = None
        self._predictions: deque[_Prediction] = deque()  # oldest first, one a step
        self._pieces: list[Piece] = []  # since the newest measured moment
        self._moment: Moment | None = None  # the newest measured
        self._heard_at = Fraction(-1)  # INVARIANT: `_pieces` reach from `_moment` to here
        self._missed: dict[tuple[TagId, int], deque[bool]] = {}
        self.begun = 0  # how often the windows began anew

    def take(
        self,
        rules: RuleSet,
        request: CheckRequest,
        kept: StateSet | None,
        unbroken_since: float = -math.inf,
    ) -> tuple[Residual, ...]:
        """One decision's measurements; what they say, empty where it is less than a step since the last.

        `kept` is the state set its check carried on, None where it had none: then readings alone stand for
        it. Since `unbroken_since` (monotonic s) the values in force were known without interruption: what was
        predicted before is worth nothing.
        """
        at, step = micros_down(request.taken_at), rules.modules[0].step
        unknown = any(
            not any(e.ceased_s_ago <= 0 for e in request.history.get(v.tag, ())) for v in rules.actions
        )
        gap = at - self._heard_at
        broken = unbroken_since > float(self._heard_at) or not 0 <= gap <= LONGEST_GAP_STEPS * step
        if unknown or broken or self._rules is None or not _same_plant(self._rules, rules):
            self._begin()
        self._rules = rules
        if unknown:
            return ()  # nobody knows what acts
        if self._moment is not None and gap > 0:
            self._acted(pieces(rules, request, gap))
        self._heard_at = at
        if self._moment is not None and at - self._moment.at < (1 - _EARLY) * step:
            return ()
        now = moment(rules, request, at)
        if self._moment is not None:
            self._carry_on(rules, self._moment, now)
        found = self._compared(rules, now)
        self._keep(rules, now, kept)
        return found

    def _begin(self) -> None:
        self.begun += bool(self._predictions)
        self._predictions.clear()
        self._pieces.clear()
        self._missed.clear()
        self._moment = None

    def _acted(self, parts: list[Piece]) -> None:
        for piece in parts:
            if self._pieces and self._pieces[-1].acting == piece.acting:
                self._pieces[-1].seconds += piece.seconds
            else:
                self._pieces.append(piece)

    def _carry_on(self, rules: RuleSet, before: Moment, now: Moment) -> None:
        """Every prediction from the moment before to now; what has no dynamics is an input, and measured."""
        known = {
            v: Between(
                _exactly(before.sets[v.tag]), _exactly(now.sets[v.tag]), v.max_rate, now.at - before.at
            )
            for v in rules.reported
            if str(v.tag) not in rules.forms and v.max_rate is not None
        }
        start = Fraction(0)
        for piece in self._pieces:
            end = start + piece.seconds
            held = {str(v.tag): _during(rules, v, between, start, end) for v, between in known.items()}
            for prediction in self._predictions:
                state = {**prediction.state, **held}
                prediction.state = rules.steps.forward(state, piece.acting, piece.seconds, held)
            start = end
        for prediction in self._predictions:
            inputs = {t: s for t, s in now.sets.items() if t not in rules.forms}
            prediction.state = {**prediction.state, **inputs}
        self._pieces.clear()

    def _compared(self, rules: RuleSet, now: Moment) -> tuple[Residual, ...]:
        """Each tag that is newly measured and that the modules say something of, in each window there is."""
        step, found = rules.modules[0].step, list[Residual]()
        for window in WINDOWS:
            latest = math.floor((now.at - (window - _EARLY) * step) * _MICROS)
            since = next((p for p in reversed(self._predictions) if p.micros <= latest), None)
            for variable in rules.reported:
                if not now.newer(variable.tag, self._moment):
                    continue
                read = now.sets[variable.tag]
                band = _impossible(rules, variable, read) if window == WINDOWS[0] else None
                if band is None and since is not None:
                    band = _expected(rules, variable, since, now.at)
                if band is not None:
                    found.append(self._judged(variable.tag, window, read, band))
        return tuple(found)

    def _judged(self, tag: TagId, window: int, read: Whole, band: Whole) -> Residual:
        share, outside, off = _against(read, band)
        newest = self._missed.setdefault((tag, window), deque(maxlen=COUNTED))
        newest.append(outside > 0)
        return Residual(
            tag=tag,
            window=window,
            residual=off / FINE,
            outside=outside / FINE,
            used_share=share,
            missed=sum(newest),
        )

    def _keep(self, rules: RuleSet, now: Moment, kept: StateSet | None) -> None:
        self._moment = now
        known = {t: fine((i.low, i.high)) for t, i in kept.intervals.items()} if kept is not None else {}
        state = {str(v.tag): known.get(v.tag) or _possible(rules, v, now.sets[v.tag]) for v in rules.measured}
        self._predictions.append(_Prediction(int(now.at * _MICROS), state, dict(state)))
        oldest = math.floor((now.at - (WINDOWS[-1] - _EARLY) * rules.modules[0].step) * _MICROS)
        while len(self._predictions) > 1 and self._predictions[1].micros <= oldest:
            self._predictions.popleft()


def _same_plant(one: RuleSet, other: RuleSet) -> bool:
    if one is other:
        return True
    return (one.variables, one.forms, one.disturbances, one.modules[0].step) == (
        other.variables,
        other.forms,
        other.disturbances,
        other.modules[0].step,
    )


def _during(rules: RuleSet, variable: Variable, between: Between, start: Fraction, end: Fraction) -> Whole:
    """What of an input counts while it moves: the mean where it is only added up, else any value it had."""
    tag = str(variable.tag)
    added_up = all(
        form.terms.get(name) == 1 for name, form in rules.forms.items() if tag in form.terms
    )  # a state forgets nothing of it
    low, high = between.mean(start, end) if added_up else between.hull(start, end)
    if variable.physical is not None and max(low, variable.physical[0]) <= min(high, variable.physical[1]):
        low, high = max(low, variable.physical[0]), min(high, variable.physical[1])
    return fine((low, high))


def _impossible(rules: RuleSet, variable: Variable, read: Whole) -> Whole | None:
    """What is physically possible, where a reading has nothing of it: a premise of every instant (S3)."""
    physical = rules.steps.sensors[variable.tag].physical
    if physical is None or max(read[0], physical[0]) <= min(read[1], physical[1]):
        return None
    return physical


def _expected(rules: RuleSet, variable: Variable, since: _Prediction, at: Fraction) -> Whole | None:
    """Where a reading must lie; None where the modules say nothing of it: it may do as it likes."""
    tag = str(variable.tag)
    if tag in rules.forms:
        return since.state[tag]
    if variable.max_rate is None:
        return None
    reach = fine((variable.max_rate * (at - Fraction(since.micros, _MICROS)),) * 2)[1]
    low, high = since.kept[tag]
    low, high = low - reach, high + reach
    if variable.sort != "real":  # it may count up at any moment
        low, high = low // FINE * FINE, -(-high // FINE) * FINE
    return low, high


def _against(read: Whole, band: Whole) -> tuple[float, int, float]:
    """Used share of a band, by how far it is missed, and how far its middle is away."""
    outside = max(band[0] - read[1], read[0] - band[1], 0)
    width = band[1] - band[0] + read[1] - read[0]
    off = read[0] + read[1] - band[0] - band[1]
    share = abs(off) / width if width else (_WHOLLY_OUTSIDE if off else 0.0)
    return min(share, _WHOLLY_OUTSIDE), outside, off / 2


def _possible(rules: RuleSet, variable: Variable, interval: Whole) -> Whole:
    """What of a reading is physically possible; where nothing is, the reading."""
    physical = None if variable.hidden else rules.steps.sensors[variable.tag].physical
    if physical is None:
        return interval
    low, high = max(interval[0], physical[0]), min(interval[1], physical[1])
    return (low, high) if low <= high else interval


def _exactly(interval: Whole) -> tuple[Fraction, Fraction]:
    return Fraction(interval[0], FINE), Fraction(interval[1], FINE)
