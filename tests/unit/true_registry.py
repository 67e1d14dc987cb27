"""The registry with the true parser, combination and judgement of weakenings; activation only remembers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gateway.core.clock import SystemClock
from gateway.solver.bytecode.accept import accepted
from gateway.solver.bytecode.signing import Trust
from gateway.solver.in_force.activation import Activation
from gateway.solver.in_force.module_reports import ReportWriter
from gateway.solver.in_force.registry import Invariance, Registry
from gateway.solver.in_force.weakening import weakens
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.solver_demo import TAGS


@dataclass
class TrueBench:
    root: Path
    armed: bool = False
    proved: bool = True
    trust: Trust = field(default_factory=Trust)
    recorded: list[tuple[str, str]] = field(default_factory=list)
    active: list[RuleSet] = field(default_factory=list)
    trials: list[RuleSet | None] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.root / "constraints.d"

    async def activate(self, rules: RuleSet, trial: RuleSet | None) -> None:
        self.active.append(rules)
        self.trials.append(trial)

    async def record(self, kind: str, who: str, _facts: Mapping[str, str]) -> None:
        self.recorded.append((kind, who))

    async def prove(self, _: RuleSet) -> str:
        return "" if self.proved else "not proved"

    def registry(self) -> Registry[RuleSet]:
        self.folder.mkdir(exist_ok=True)
        return Registry(
            folder=self.folder,
            activation=Activation(self.root / "state" / "modules"),
            reports=ReportWriter(self.folder, self.root / "state" / "refusals"),
            compile=lambda data, source: accepted(data, source, TAGS, self.trust),
            assemble=RuleSet.of,
            activate=self.activate,
            clock=SystemClock(),
            weakening="confirm",
            required=frozenset({"buffer-tank"}),
            weaker=weakens,
            invariance=Invariance(lambda: self.armed, lambda _: self.proved, self.prove),
            record=self.record,
        )
