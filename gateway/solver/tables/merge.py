"""Imported rules put into a module file in place of those that the table brought before."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.solver.tables.matrix import Rule

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def module_of(data: bytes) -> dict[str, Any]:
    """A module file as plain data, numbers as the texts they were; raises `ValueError`."""
    try:
        found = json.loads(data, parse_float=str)
    except RecursionError as exc:
        msg = "not a module: it is nested too deeply"
        raise ValueError(msg) from exc
    if not isinstance(found, dict) or not isinstance(found.get("variables"), dict):
        msg = "not a module: an object with variables is expected"
        raise ValueError(msg)  # noqa: TRY004  the caller knows one error for a wrong file
    if not isinstance(found.get("dynamics", {}), dict):
        msg = "not a module: its dynamics are an object"
        raise ValueError(msg)  # noqa: TRY004  as above
    rules = found.get("constraints", [])
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        msg = "not a module: its constraints are a list of objects"
        raise ValueError(msg)
    if type(found.get("revision", 0)) is not int:
        msg = "not a module: its revision is a whole number"
        raise ValueError(msg)
    return found


def merged(module: Mapping[str, Any], rules: Sequence[Rule], prefix: str) -> dict[str, Any]:
    """The module with a higher revision, its rules of this table replaced by these in their place.

    `prefix` names the table; it stands before every row id, so that two tables may have like rows.
    """
    named = [rule | {"id": f"{prefix}{rule['id']}", "row": f"{prefix}{rule['row']}"} for rule in rules]
    kept = module.get("constraints", [])
    ours = (
        [i for i, rule in enumerate(kept) if str(rule.get("row", "")).startswith(prefix)]
        if prefix
        else [i for i, rule in enumerate(kept) if rule.get("row")]
    )
    place = ours[0] if ours else len(kept)
    others = [rule for i, rule in enumerate(kept) if i not in set(ours)]
    before = sum(1 for i in range(place) if i not in set(ours))
    constraints = [*others[:before], *named, *others[before:]]
    return {**module, "revision": int(module.get("revision", 0)) + 1, "constraints": constraints}


def gone(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Rows of tables that the one module has rules of and the other has not, in their order."""
    kept = {rule.get("row") for rule in after.get("constraints", [])}
    rows = (str(rule["row"]) for rule in before.get("constraints", []) if rule.get("row"))
    return [row for row in dict.fromkeys(rows) if row not in kept]


def alone(
    module: Mapping[str, Any], rules: Sequence[Rule], name: str, before: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A module `name` to merge these rules into: the variables of `module` they name, as they stand.

    Assumptions are carried over unchanged: what a second module leaves out or widens counts for all modules
    in force together (S3). Of the same module `before`, where there is one, rules, revision and cases go on.
    """
    known = before if before is not None and before.get("id") == name else {}
    words = set(_WORD.findall(" ".join(str(rule.get(k, "")) for rule in rules for k in ("when", "require"))))
    labels = {word for word in words if word in module.get("variables", {})}
    found: dict[str, Any] = {"id": name, "revision": known.get("revision", 0)}
    found |= {key: module[key] for key in ("$schema", "language", "priority", "step") if key in module}
    found["variables"] = {k: v for k, v in module.get("variables", {}).items() if k in labels}
    if repair := {k: v for k, v in module.get("repair", {}).items() if k in labels}:
        found["repair"] = repair
    return found | {key: known[key] for key in ("constraints", "cases") if key in known}


def unshown(module: Mapping[str, Any]) -> list[str]:
    """Critical rules that no case of the module violates yet (S26)."""
    expected = [case.get("expect") for case in module.get("cases", []) if isinstance(case, dict)]
    shown = {name for given in expected if isinstance(given, dict) for name in given.get("violated", [])}
    rules = [rule for rule in module.get("constraints", []) if rule.get("kind") == "critical"]
    return [rule["id"] for rule in rules if rule["id"] not in shown]


def file_text(module: Mapping[str, Any]) -> str:
    """The module file."""
    return json.dumps(module, indent=2, ensure_ascii=False) + "\n"
