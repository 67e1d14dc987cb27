"""The demo plant's tags, modules and check requests for tests of the solver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from gateway.core.decision import DecisionId, PointId, Proposal, RegisterValue
from gateway.core.ports import CheckRequest, InForce, StateSet
from gateway.core.quality import StatusCode
from gateway.core.tag import TagDefinition, TagId, TagKind, TagValue
from gateway.solver.checking.terms import Budget
from gateway.solver.modules.compile import compile_module
from gateway.solver.modules.module import Module
from gateway.solver.rules.ruleset import RuleSet

PATIENT = Budget(timeout_ms=10_000)  # a machine that pauses makes no answer unknown
ROOT = Path(__file__).parents[2]
BUFFER_TANK = ROOT / "constraints" / "buffer-tank.json"
LOWER_LEVEL = ROOT / "docs" / "examples" / "lower-level-limit.json"

LEVEL, INFLOW, TEMP = TagId("TK1.LT101"), TagId("TK1.FT101"), TagId("TK1.TT101")
PUMP, HEATER, MIXER = TagId("TK1.P101.SP"), TagId("TK1.H101.CMD"), TagId("TK1.M101.STAGE")
NOW = 1_000.0


def _tag(
    tag: TagId,
    kind: TagKind,
    unit: str = "",
    scale: str = "1",
    *,
    highest: int = 65_535,
    writable: bool = False,
) -> TagDefinition:
    lowest = 0 if writable else -32_768
    return TagDefinition(
        id=tag, kind=kind, unit=unit, scale=Fraction(scale), raw_range=(lowest, highest), writable=writable
    )


TAGS: Mapping[TagId, TagDefinition] = {
    d.id: d
    for d in (
        _tag(LEVEL, TagKind.REAL, "m", "0.001", highest=32_767),
        _tag(INFLOW, TagKind.REAL, "m3/h", "0.01", highest=32_767),
        _tag(TEMP, TagKind.REAL, "degC", "0.01", highest=32_767),
        _tag(PUMP, TagKind.REAL, "%", "0.1", writable=True),
        _tag(HEATER, TagKind.BOOLEAN, highest=1, writable=True),
        _tag(MIXER, TagKind.INTEGER, writable=True),
    )
}


def module(path: Path = BUFFER_TANK, *changes: tuple[str, str]) -> Module:
    """A shipped module, with texts of it replaced; every replacement must find its text."""
    text = path.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return compile_module(text.encode(), path.name, TAGS)


def rule_set(*modules: Module, generation: int = 1) -> RuleSet:
    return RuleSet.of(modules or (module(),), generation)


def good(value: float, *, age: float = 0.0, status: StatusCode = StatusCode.Good) -> TagValue:
    return TagValue(value=value, status=status, source_ts_ns=None, server_ts_ns=0, confirmed_at=NOW - age)


def register(tag: TagId, value: str | float | Fraction) -> RegisterValue:
    raw = TAGS[tag].counts(Fraction(str(value)))
    return RegisterValue(tag, raw, TAGS[tag].engineering(raw))


def proposal(pump: str = "40", heater: int = 0, mixer: int = 1, by: str = "model") -> Proposal:
    return Proposal(values=(register(PUMP, pump), register(HEATER, heater), register(MIXER, mixer)), by=by)


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A plant state and a past, from which requests are made."""

    level: float = 2.0
    inflow: float = 12.0
    temp: float = 40.0
    pump: str = "40"
    heater: int = 0
    mixer: int = 1
    held_s: float = 1_000.0
    older: Mapping[TagId, tuple[InForce, ...]] = field(default_factory=dict)
    carried: StateSet | None = None
    hold_s: float = 1.2
    effect_delay_s: float = 0.3
    generation: int = 1
    may_repair: bool = True

    def inputs(self) -> dict[TagId, TagValue]:
        return {LEVEL: good(self.level), INFLOW: good(self.inflow), TEMP: good(self.temp)}

    def request(
        self, wanted: Proposal | None, inputs: Mapping[TagId, TagValue] | None = None
    ) -> CheckRequest:
        now = {PUMP: Fraction(self.pump), HEATER: Fraction(self.heater), MIXER: Fraction(self.mixer)}
        return CheckRequest(
            decision=DecisionId("d-1"),
            point=PointId("tank"),
            generation=self.generation,
            inputs=self.inputs() if inputs is None else inputs,
            taken_at=NOW,
            history={t: (InForce(v, 0.0), *self.older.get(t, ())) for t, v in now.items()},
            held_s=dict.fromkeys(now, self.held_s),
            proposal=wanted,
            carried=self.carried,
            hold_s=self.hold_s,
            effect_delay_s=self.effect_delay_s,
            may_repair=self.may_repair,
        )
