"""The shipped modules of several industries, each with the tags it names."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import cast

from gateway.config.model import TagRow
from gateway.config.tags import parse_csv, tag_definition
from gateway.core.decision import CheckRequest, DecisionId, InForce, PointId, Proposal, RegisterValue
from gateway.core.quality import StatusCode
from gateway.core.tag import TagDefinition, TagId, TagValue
from gateway.solver.modules.compile import compile_module
from gateway.solver.modules.module import Case, Module

FOLDER = Path(__file__).parents[2] / "constraints"
NAMES = tuple(sorted(path.stem for path in (FOLDER / "tags").glob("*.csv")))


def text(name: str) -> str:
    return (FOLDER / f"{name}.json").read_text(encoding="utf-8")


def tags(name: str) -> Mapping[TagId, TagDefinition]:
    table = (FOLDER / "tags" / f"{name}.csv").read_text(encoding="utf-8")
    rows = cast("list[object]", parse_csv(table).plain())
    return {d.id: d for d in (tag_definition(TagRow.model_validate(row)) for row in rows)}


def shipped(name: str, *changes: tuple[str, str]) -> Module:
    """A shipped module, with texts of it replaced; every replacement must find its text."""
    found = text(name)
    for old, new in changes:
        assert old in found, old
        found = found.replace(old, new)
    return compile_module(found.encode(), f"{name}.json", tags(name))


def request(module: Module, case: Case) -> CheckRequest:
    """The example as the plant would show it: readings a tenth of a second old, values in registers."""
    now = 1_000.0
    inputs: dict[TagId, TagValue] = {}
    history: dict[TagId, tuple[InForce, ...]] = {}
    values: list[RegisterValue] = []
    for v in module.variables.values():
        given = case.given[v.name]
        if v.action:
            history[v.tag] = (InForce(case.previous.get(v.name, given), 0.0),)
            raw = v.definition.counts(given)
            values.append(RegisterValue(v.tag, raw, v.definition.engineering(raw)))
        else:
            read = float(given) if v.sort == "real" else int(given)
            inputs[v.tag] = TagValue(
                value=read,
                status=StatusCode.Good,
                source_ts_ns=None,
                server_ts_ns=0,
                confirmed_at=now - 0.1,
            )
    return CheckRequest(
        decision=DecisionId("d"),
        point=PointId("p"),
        generation=1,
        inputs=inputs,
        taken_at=now,
        history=history,
        held_s={tag: float(max(case.held_s.values(), default=Fraction(10**6))) for tag in history},
        proposal=Proposal(values=tuple(values), by="test"),
        carried=None,
        hold_s=1.2,
        effect_delay_s=0.3,
        may_repair=False,
    )
