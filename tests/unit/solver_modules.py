"""The shipped modules of several industries, each with the tags it names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from gateway.config.model import TagRow
from gateway.config.tags import parse_csv, tag_definition
from gateway.core.tag import TagDefinition, TagId
from gateway.solver.compile import compile_module
from gateway.solver.module import Module

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
