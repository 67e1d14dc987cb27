"""The gateway's side of a loop: the check that a worker runs, with the records its premises come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.core.decision import (
    CheckResult,
    DecisionId,
    Permitted,
    PointId,
    Proposal,
    RegisterValue,
    Repaired,
    Undetermined,
)
from gateway.core.ports import CheckRequest, StateSet
from gateway.core.quality import StatusCode
from gateway.core.tag import TagId, TagValue
from gateway.pipeline.history import OutputHistory
from gateway.recheck.check import recheck
from gateway.recheck.evidence import box_of, recorded_of
from gateway.recheck.recorded import premises, question
from gateway.recheck.tree import LanguageError
from gateway.solver.checking.terms import Budget
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.rules.standing import standing
from gateway.solver.workers.check import Checks
from tests.unit.falsifier_plant import Plant

PATIENT = Budget(timeout_ms=20_000)
Readings = Mapping[str, tuple[float | int | None, Fraction]]  # by name, the value and when it was read


@dataclass(frozen=True)
class Rules:
    """One rule set in force, and the plant as it tells of it."""

    plant: Plant
    checks: Checks
    standing: Mapping[str, str]
    texts: tuple[str, ...]

    @staticmethod
    def of(plant: Plant, generation: int = 1) -> Rules:
        modules = plant.modules()
        rules = RuleSet.of(modules, generation)
        return Rules(plant, Checks(rules, PATIENT), standing(rules), tuple(m.text for m in modules))


@dataclass(frozen=True)
class Decided:
    """What one decision came to. `written` is empty where nothing may be written."""

    asked: CheckRequest
    result: CheckResult  # of the proposal
    written: Mapping[str, Fraction]
    by: str  # `permitted`, `repaired`, `backup`, `recovery`, `value in force`, or nothing
    stands_on: CheckRequest
    state: StateSet | None

    @property
    def undetermined(self) -> str:
        verdict = self.result.verdict
        return verdict.reason if isinstance(verdict, Undetermined) else ""


@dataclass
class Gateway:
    """One decision point: what it remembers, and how it decides."""

    rules: Rules
    repair_nearest: bool = False
    histories: dict[str, OutputHistory] = field(default_factory=dict)
    carried: StateSet | None = None
    stood_on: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Nothing is remembered."""
        self.histories = {o.name: OutputHistory() for o in self.rules.plant.outputs}
        self.carried = None

    def observe(self, acting: Mapping[str, Fraction], at: Fraction) -> bool:
        """Working values read back; True where one changed and nobody asked for it."""
        unrequested = False
        for name, value in acting.items():  # every one of them, whatever the first says
            unrequested |= self.histories[name].observe(value, float(at))
        return unrequested

    def decide(self, at: Fraction, readings: Readings, wanted: Mapping[str, Fraction]) -> Decided:
        """One decision as the pipeline makes it: the proposal, else the backup, else what is in force."""
        checks = self.rules.checks
        request = self._request(at, readings, self._proposal(wanted, "model"))
        result, state = checks.check(request)
        written, by, stands_on = _of(result, request)
        if not by:
            request = self._request(at, readings, None)
            fallback, after = checks.check(request)
            state = after if after is not None else state
            written, by, stands_on = _fallen(fallback, request)
        if not by and (held := self._in_force()) is not None:
            request = self._request(at, readings, self._proposal(held, "value_in_force"), repair=False)
            kept, after = checks.check(request)
            state = after if after is not None else state
            if isinstance(kept.verdict, Permitted):
                written, by, stands_on = _named(kept.verdict.setpoints), "value in force", request
        if state is not None:
            self.carried, self.stood_on = state, self.rules.standing
        return Decided(request, result, written, by, stands_on, state)

    def _in_force(self) -> dict[str, Fraction] | None:
        found = {name: history.current for name, history in self.histories.items()}
        known = {name: value for name, value in found.items() if value is not None}
        return known if len(known) == len(found) else None

    def _proposal(self, wanted: Mapping[str, Fraction], by: str) -> Proposal:
        tags = self.rules.plant.tags()
        values: list[RegisterValue] = []
        for name, value in wanted.items():
            tag = TagId(name.upper())
            raw = tags[tag].counts(value)
            values.append(RegisterValue(tag, raw, tags[tag].engineering(raw)))
        return Proposal(values=tuple(values), by=by)

    def _request(
        self, at: Fraction, readings: Readings, proposal: Proposal | None, *, repair: bool = True
    ) -> CheckRequest:
        plant, now = self.rules.plant, float(at)
        inputs = {
            TagId(name.upper()): TagValue(
                value=value,
                status=StatusCode.Good if value is not None else StatusCode.BadSensorFailure,
                source_ts_ns=None,
                server_ts_ns=0,
                confirmed_at=float(when),
            )
            for name, (value, when) in readings.items()
        }
        carries = all(self.rules.standing.get(name, said) == said for name, said in self.stood_on.items())
        return CheckRequest(
            decision=DecisionId("d"),
            point=PointId("p"),
            generation=1,
            inputs=inputs,
            taken_at=now,
            history={TagId(n.upper()): h.in_force(now) for n, h in self.histories.items()},
            held_s={TagId(n.upper()): h.held_s(now) for n, h in self.histories.items()},
            proposal=proposal,
            carried=self.carried if carries else None,
            hold_s=float(plant.hold),
            effect_delay_s=float(plant.delay),
            may_repair=repair and proposal is not None,
            repair="nearest" if self.repair_nearest else "segment",
        )


def _named(setpoints: Sequence[RegisterValue]) -> dict[str, Fraction]:
    return {str(v.tag).lower(): v.value for v in setpoints}


def _of(result: CheckResult, request: CheckRequest) -> tuple[Mapping[str, Fraction], str, CheckRequest]:
    match result.verdict:
        case Permitted(setpoints):
            return _named(setpoints), "permitted", request
        case Repaired(setpoints):
            return _named(setpoints), "repaired", request
        case _:
            return {}, "", request


def _fallen(result: CheckResult, request: CheckRequest) -> tuple[Mapping[str, Fraction], str, CheckRequest]:
    if isinstance(result.verdict, Permitted):
        return _named(result.verdict.setpoints), "backup", request
    if result.recovery and result.proposal is not None:
        return _named(result.proposal.values), "recovery", request
    return {}, "", request


def second_opinion(rules: Rules, decided: Decided, carried: StateSet | None, samples: int, seed: int) -> str:
    """What the independent checker has against what was permitted; empty where it has nothing to say."""
    kept = None if carried is None else box_of(carried)
    written = {name.upper(): value for name, value in decided.written.items()}
    recorded = recorded_of(decided.stands_on, written, as_backup=decided.by == "backup", kept=kept)
    try:
        known = premises(rules.texts, recorded)
        if known.contradict or known.unusable:
            return ""  # it knows no counts, and says of itself that it cannot judge then
        report = recheck(rules.texts, question(recorded, known), samples=samples, seed=seed)
    except LanguageError:
        return ""
    said = [f"`{name}` can be violated" for name in sorted(report.violated)]
    said += [f"the state set leaves out values of `{tag}`" for tag in known.left_out]
    return "; ".join(said)
