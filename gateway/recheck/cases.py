"""A module's own cases, judged as the text of the language says."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from gateway.recheck.declared import faults
from gateway.recheck.language import truth
from gateway.recheck.source import Source, duration, read_source, value_of
from gateway.recheck.tree import LanguageError, reads, rows

_KEYS = {"given", "previous", "expect", "age", "bad", "held", "id", "message"}


def misjudged_cases(text: str) -> list[str]:
    """The module's own cases that this checker judges otherwise than they say."""
    source = read_source(text)
    wrong: list[str] = []
    for index, case in enumerate(source.cases):
        failed = _failed(source, case)
        expected = set() if case["expect"] == "permitted" else set(case["expect"]["violated"])
        if failed != expected:
            wrong.append(f"case {index}: expected {sorted(expected)}, found {sorted(failed)}")
    return wrong


def _failed(source: Source, case: Mapping[str, Any]) -> set[str]:
    """Ids of all rules that fail, those only watched too, and of nothing informational."""
    if unknown := case.keys() - _KEYS:
        raise LanguageError(f"a case knows no `{min(unknown)}`")
    given, old = _values(source, case["given"]), _values(source, case.get("previous", {}))
    if missing := source.names.keys() - case["given"].keys():
        raise LanguageError(f"a case says nothing of `{min(missing)}`")
    before = {**given, **old}
    held = _held(source, case)
    env: dict[str, Fraction] = dict(given)
    for tag, value in given.items():
        env[f"prev {tag}"] = before[tag]
        env[f"rate {tag}"] = (value - before[tag]) / source.step
        env[f"good {tag}"], env[f"age {tag}"] = Fraction(1), Fraction(0)
    for name in case.get("bad", ()):
        env[f"good {source.names[name]}"] = Fraction(0)
    for name, told in case.get("age", {}).items():
        env[f"age {source.names[name]}"] = duration(told)
    for row, condition in rows(source.trees).items():
        tags = {tag for _, tag in reads([condition])}
        env[f"for {row.name}"] = Fraction(all(held.get(t) is None or held[t] >= row.seconds for t in tags))
    failed = {r.id for r in source.requirements if r.kind != "informational" and not truth(r.holds(env))}
    actions = {tag: value for tag, value in given.items() if source.quantities[tag].action}
    declared = faults(source, before, actions, {tag: held.get(tag) for tag in actions})
    return failed | {fault.id for fault in declared if fault.kind != "informational"}


def _values(source: Source, told: Mapping[str, Any]) -> dict[str, Fraction]:
    return {
        source.names[name]: value_of(raw, source.quantities[source.names[name]].sort)
        for name, raw in told.items()
        if name in source.names
    }


def _held(source: Source, case: Mapping[str, Any]) -> dict[str, Fraction]:
    """How long values have been so, by tag: of actions `NAME_for`, of measured variables `held`."""
    found = {source.names[name]: duration(told) for name, told in case.get("held", {}).items()}
    for name, told in case.get("previous", {}).items():
        if name not in source.names:
            found[source.names[name.removesuffix("_for")]] = duration(told)
    return found
