"""Modules, tags and keys of verbs that need no gateway; what is wrong is told and ends the verb."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn, cast

import pydantic
import typer

from gateway.cli.reading import module_bytes
from gateway.config.load import load
from gateway.config.model import TagRow
from gateway.config.positions import Node, PositionError
from gateway.config.problems import Problems, add_validation_errors
from gateway.config.tags import parse_csv, tag_definition, tag_definitions
from gateway.core.errors import ConfigError
from gateway.core.tag import TagDefinition, TagId
from gateway.solver.modules.assumed_tags import assumed_tags

Tags = Mapping[TagId, TagDefinition]


def fail(sentence: str) -> NoReturn:
    """Tell and end with status 1."""
    print(sentence, file=sys.stderr)
    raise typer.Exit(1)


def file_bytes(path: Path) -> bytes:
    """The bytes of a module file."""
    try:
        return module_bytes(path)
    except OSError as exc:
        fail(f"o3ctl: `{path}` cannot be read: {exc.strerror or exc}")


def folder_bytes(folder: Path, but: Path) -> tuple[dict[Path, bytes], list[str]]:
    """A folder's module files but for one, as the gateway reads them; and why others cannot be read.

    A link to where nothing is, a folder or a device under a module's name cannot.
    """
    from gateway.solver.in_force.watcher import FolderReader  # noqa: PLC0415  # watchfiles

    found = FolderReader(folder).read(again=True)
    if found is None:
        fail(f"o3ctl: `{folder}` cannot be read")
    read: dict[Path, bytes] = {}
    unread: list[str] = []
    for name, content in sorted(found.items()):
        path = folder / name
        if content.problem:
            unread.append(f"{path}: {content.problem}")
        elif path.resolve() != but.resolve():
            read[path] = content.data
    return read, unread


def tags_of(data: bytes, csv: Path | None, config: Path | None) -> Tags:
    """Tags from a table or a configuration, else as the module itself says they are."""
    if csv is not None and config is not None:
        raise typer.BadParameter("name the tags once: --tags CSV or --config gateway.toml")
    if config is not None:
        try:
            return {d.id: d for d in tag_definitions(load(config))}
        except ConfigError as exc:
            fail(str(exc))
    return _table(csv) if csv is not None else assumed_tags(data)


def _table(path: Path) -> Tags:
    problems = Problems()
    found: dict[TagId, TagDefinition] = {}
    try:
        rows = cast("tuple[Node, ...]", parse_csv(path.read_text(encoding="utf-8-sig")).value)
    except OSError as exc:
        fail(f"o3ctl: `{path}` cannot be read: {exc.strerror or exc}")
    except UnicodeDecodeError:
        fail(f"{path}:1:1: the file is not UTF-8 text")
    except PositionError as exc:
        fail(f"{path}:{exc.line}:{exc.column}: {exc.problem}")
    for row in rows:
        try:
            definition = tag_definition(TagRow.model_validate(row.plain()))
        except pydantic.ValidationError as exc:
            add_validation_errors(problems, path, row, TagRow, exc)
        else:
            found[definition.id] = definition
    if problems:
        fail("\n".join(problems.sentences()))
    return found
