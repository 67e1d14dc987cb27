"""Imported rules put into a module file in place of those that the table brought before."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.solver.tables.matrix import Rule


def module_of(data: bytes) -> dict[str, Any]:
    """A module file as plain data, numbers as the texts they were; raises `ValueError`."""
    found = json.loads(data, parse_float=str)
    if not isinstance(found, dict) or not isinstance(found.get("constraints", []), list):
        msg = "not a module: an object with a list of constraints is expected"
        raise ValueError(msg)  # noqa: TRY004  the caller knows one error for a wrong file
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


def file_text(module: Mapping[str, Any]) -> str:
    """The module file."""
    return json.dumps(module, indent=2, ensure_ascii=False) + "\n"
