"""Everything wrong with a configuration, collected and said in its author's words."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path

import pydantic
from pydantic_core import ErrorDetails

from gateway.config.positions import Loc, Node, Position

ROOT_KEY = "the file"

# Pydantic's own words name Python's types and our classes.
_SHAPES = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "names, each with its value"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), "a list"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing", "decimal_type", "decimal_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "string_type": "a text in quotes",
}


class Problems:
    """Problems in the order found; each is `file:line:column: sentence`."""

    def __init__(self) -> None:
        self._found: list[tuple[str, int, int, str]] = []

    def add(self, file: Path, position: Position, sentence: str) -> None:
        """Note one problem; the same one twice counts once."""
        problem = (str(file), *position, sentence)
        if problem not in self._found:
            self._found.append(problem)

    def __bool__(self) -> bool:
        return bool(self._found)

    def sentences(self) -> tuple[str, ...]:
        """All problems, in the order of the files' lines."""
        ordered = sorted(self._found, key=lambda p: p[:3])
        return tuple(f"{file}:{line}:{column}: {text}" for file, line, column, text in ordered)


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean ...?` where some known name is near, else nothing."""
    by_folded = {k.lower(): k for k in known}
    close = difflib.get_close_matches(name.lower(), by_folded, n=1, cutoff=0.6)
    return f"; did you mean `{by_folded[close[0]]}`?" if close else ""


def add_validation_errors(
    problems: Problems,
    file: Path,
    node: Node,
    model: type[pydantic.BaseModel],
    error: pydantic.ValidationError,
) -> None:
    """Turn pydantic's errors into sentences at the lines they belong to."""
    items = error.errors(include_url=False)
    for item in items:
        loc: Loc = tuple(item["loc"])
        if item["type"] == "too_short" and any(tuple(i["loc"])[: len(loc)] == loc != i["loc"] for i in items):
            continue  # the list is short only because its broken items were left out
        name = str(loc[-1]) if loc else ROOT_KEY
        match item["type"]:
            case "extra_forbidden":
                known = known_keys(model, loc[:-1])
                hint = nearest(name, known) or f"; known here: {', '.join(sorted(known))}"
                problems.add(file, node.key_at(loc), f"unknown key `{name}`{hint}")
            case "missing":
                problems.add(file, node.at(loc[:-1]), f"key `{name}` is missing")
            case _:
                problems.add(file, node.at(loc), f"`{_key_of(loc)}`: {_sentence(item)}")


def known_keys(model: type[pydantic.BaseModel], loc: Loc) -> set[str]:
    """The keys a table at `loc` may have."""
    current: object = model
    for step in loc:
        found = _model_in(current)
        if found is not None and isinstance(step, str):
            info = found.model_fields.get(step) or next(
                (f for f in found.model_fields.values() if f.alias == step), None
            )
            current = info.annotation if info is not None else None
        elif found is None:
            current = _element(current)
        else:  # an index into a list of models: the list was unwrapped already
            current = found
    found = _model_in(current)
    return {f.alias or name for name, f in found.model_fields.items()} if found is not None else set()


def _model_in(annotation: object) -> type[pydantic.BaseModel] | None:
    """The one model an annotation holds, through unions and lists, not through mappings."""
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return annotation
    origin = typing.get_origin(annotation)
    if origin in {typing.Union, types.UnionType, typing.Annotated, tuple, list}:
        return next((m for m in map(_model_in, typing.get_args(annotation)) if m is not None), None)
    return None


def _element(annotation: object) -> object:
    """The value type of a mapping."""
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    return arguments[1] if isinstance(origin, type) and issubclass(origin, Mapping) else annotation


def _key_of(loc: Loc) -> str:
    """The innermost key of a loc: what a person calls the place."""
    return next((str(step) for step in reversed(loc) if isinstance(step, str)), ROOT_KEY)


def _sentence(item: ErrorDetails) -> str:
    value = item["input"]
    shown = f"`{value}` " if isinstance(value, str | int | float) else ""
    message = item["msg"].removeprefix("Value error, ")
    if message != item["msg"]:
        return message
    if wanted := _SHAPES.get(item["type"]):
        return f"{shown}is not allowed: give {wanted}"
    return f"{shown}is not allowed: {message[:1].lower()}{message[1:]}"
