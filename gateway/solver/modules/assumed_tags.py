"""The tags a module names, as it says they are: for tools that know no gateway."""

from __future__ import annotations

from collections.abc import Mapping

import pydantic

from gateway.config.positions import PositionError, parse_json
from gateway.core.tag import TagDefinition, TagId, TagKind
from gateway.solver.language.schema import ModuleShape, VariableShape

_KINDS = {
    "real": TagKind.REAL,
    "int": TagKind.INTEGER,
    "bool": TagKind.BOOLEAN,
    "enum": TagKind.INTEGER,
}
_INT32 = (-(1 << 31), (1 << 31) - 1)
_RANGES = {"real": None, "int": _INT32, "bool": (0, 1), "enum": _INT32}


def assumed_tags(data: bytes) -> Mapping[TagId, TagDefinition]:
    """Every tag of a module with unit and type of its first use; none where the file has no such shape."""
    try:
        shape = ModuleShape.model_validate(parse_json(data.decode()).plain())
    except (UnicodeDecodeError, PositionError, pydantic.ValidationError):
        return {}
    found: dict[TagId, TagDefinition] = {}
    for variable in shape.variables.values():
        if variable.tag is not None:
            found.setdefault(TagId(variable.tag), _assumed(variable, variable.tag))
    return found


def _assumed(variable: VariableShape, tag: str) -> TagDefinition:
    return TagDefinition(
        id=TagId(tag),
        kind=_KINDS[variable.type],
        unit=variable.unit,
        raw_range=_RANGES[variable.type],
        writable=variable.role == "action",
    )
