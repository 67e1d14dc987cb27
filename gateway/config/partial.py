"""A configuration without everything that is wrong with it: enough to go on checking, never to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from gateway.config.model import ConfigFile
from gateway.config.positions import Loc, Node

_MOST_CUTS = 500
Place = tuple[int, int, str]  # a table's line and column, and one of its keys
_STAND_IN = {
    "id": "unknown",
    "state_dir": "state",
    "constraints_dir": "constraints.d",
    "bundles_dir": "bundles",
}


def usable_part(node: Node, folder: Path) -> tuple[ConfigFile, Node, frozenset[Place]] | None:
    """The file without its broken keys and tables, its document, and where something was taken out.

    None where too little is left. Nothing is ever run with it.
    """
    cut: set[Place] = set()
    for _ in range(_MOST_CUTS):
        try:
            file = ConfigFile.model_validate(node.plain(), context={"folder": folder})
        except ValidationError as exc:
            loc: Loc = tuple(exc.errors(include_url=False)[0]["loc"])
            path = _existing(node, loc)
            if not path:
                stood_in = _with_stand_in(node)
                if stood_in is None:
                    return None
                node = stood_in
                continue
            cut |= places(node, path)
            node = _without(node, path)
        else:
            return file, node, frozenset(cut)
    return None


def places(node: Node, loc: Loc) -> set[Place]:
    """Every table and key on the way to a loc."""
    found: set[Place] = set()
    for step in loc:
        match node.value:
            case Mapping() as members if isinstance(step, str) and step in members:
                found.add((node.line, node.column, step))
                node = members[step]
            case tuple() as items if isinstance(step, int) and 0 <= step < len(items):
                node = items[step]
            case _:
                break
    return found


def last_place(node: Node, loc: Loc) -> Place | None:
    """The innermost table and key on the way to a loc."""
    found: Place | None = None
    for end in range(1, len(loc) + 1):
        steps = places(node, loc[:end]) - places(node, loc[: end - 1])
        found = next(iter(steps), found)
    return found


def _existing(node: Node, loc: Loc) -> Loc:
    """The part of a loc that is there."""
    there: list[str | int] = []
    for step in loc:
        match node.value:
            case Mapping() as members if isinstance(step, str) and step in members:
                node = members[step]
            case tuple() as items if isinstance(step, int) and 0 <= step < len(items):
                node = items[step]
            case _:
                continue
        there.append(step)
    return tuple(there)


def _without(node: Node, loc: Loc) -> Node:
    step, *rest = loc
    match node.value:
        case Mapping() as members if isinstance(step, str):
            kept = {
                key: _without(value, tuple(rest)) if key == step else value
                for key, value in members.items()
                if rest or key != step
            }
            return replace(node, value=kept)
        case tuple() as items if isinstance(step, int):
            left = [
                _without(item, tuple(rest)) if index == step else item
                for index, item in enumerate(items)
                if rest or index != step
            ]
            return replace(node, value=tuple(left))
        case _:
            return node


def _with_stand_in(node: Node) -> Node | None:
    """The document with a gateway section, which no check between tables looks at."""
    if not isinstance(node.value, Mapping) or "gateway" in node.value:
        return None
    keys = {key: Node(value=text, line=1, column=1) for key, text in _STAND_IN.items()}
    return replace(node, value={**node.value, "gateway": Node(value=keys, line=1, column=1)})
