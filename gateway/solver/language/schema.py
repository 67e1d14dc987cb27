"""The shape of a module file. What its expressions mean is judged in `compile`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Literal

import pydantic

LANGUAGE = 1

_DECIMAL = re.compile(r"[+-]?\d+(?:\.\d+)?")
_QUANTITY = re.compile(r"([+-]?\d+(?:\.\d+)?)\s+(\S+)")
_SHORTEST, _LONGEST = Fraction(1, 1000), Fraction(86_400)  # s, of a step
_SHOWN = 40  # characters
_TIMES = {"ms": Fraction(1, 1000), "s": Fraction(1), "min": Fraction(60), "h": Fraction(3600)}


def decimal(value: object) -> Fraction:
    """A JSON number or a decimal text, exactly."""
    if isinstance(value, bool):
        msg = "a number is expected, not true or false"
        raise ValueError(msg)  # noqa: TRY004  pydantic turns ValueError into a positioned problem
    if isinstance(value, int | Decimal):
        return Fraction(value)
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        return Fraction(value)
    msg = f"`{value}` is not a decimal number"
    raise ValueError(msg)


def quantity(value: object) -> tuple[Fraction, str]:
    """`2 m3/h/s` as number and unit; the unit is empty for a bare number."""
    if isinstance(value, str) and (match := _QUANTITY.fullmatch(value)) is not None:
        return Fraction(match.group(1)), match.group(2)
    return decimal(value), ""


def seconds(value: object) -> Fraction:
    """A duration such as `2 s`."""
    number, unit = quantity(value) if isinstance(value, str) else (Fraction(0), "")
    if unit not in _TIMES:
        msg = f"`{value}` is not a duration; write it as `2 s`"
        raise ValueError(msg)
    if number < 0:
        msg = f"`{value}` is negative"
        raise ValueError(msg)
    return number * _TIMES[unit]


def expected(value: object) -> frozenset[str]:
    """The rules that a case violates, as its `expect` names them; none where it is permitted."""
    if value == "permitted":
        return frozenset()
    named = value.get("violated") if isinstance(value, Mapping) and len(value) == 1 else None
    if isinstance(named, list) and all(isinstance(name, str) for name in named):
        return frozenset(named)
    msg = 'write "permitted", or {"violated": [...]} with the ids of the rules it violates'
    raise ValueError(msg)


def step(value: object) -> Fraction:
    """A duration above 0."""
    found = seconds(value)
    if not found:
        msg = "a step of 0 s leads nowhere; write how long one application of `dynamics` stands for"
        raise ValueError(msg)
    if not _SHORTEST <= found <= _LONGEST:
        msg = f"a step of `{str(value)[:_SHOWN]}` is of no plant; write one from 1 ms to 24 h"
        raise ValueError(msg)
    return found


def interval(value: object) -> tuple[Fraction, Fraction]:
    """`["0", "5"]` with the lower end first."""
    if not isinstance(value, list | tuple) or len(value) != 2:  # noqa: PLR2004  an interval has two ends
        msg = "write an interval as two numbers, the lower first"
        raise ValueError(msg)
    low, high = decimal(value[0]), decimal(value[1])
    if low > high:
        msg = f"the lower end `{value[0]}` is above the upper end `{value[1]}`"
        raise ValueError(msg)
    return low, high


def not_negative(value: object) -> Fraction:
    """A decimal that is at least 0."""
    number = decimal(value)
    if number < 0:
        msg = f"`{value}` is negative"
        raise ValueError(msg)
    return number


def value(given: object) -> Fraction | bool | str:
    """What a case gives: a number, true or false, or the label of an enum."""
    if isinstance(given, bool) or (isinstance(given, str) and given.isidentifier()):
        return given
    return decimal(given)


_NUMBER = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^[+-]?\d+(\.\d+)?$"}]}
_NOT_NEGATIVE = {
    "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": r"^\+?\d+(\.\d+)?$"}]
}
_DURATION = {"type": "string", "pattern": r"^\+?\d+(\.\d+)?\s+(ms|s|min|h)$", "examples": ["2 s"]}
_PAIR = {"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2}
_EXPECTED = {
    "anyOf": [
        {"const": "permitted"},
        {
            "type": "object",
            "properties": {"violated": {"type": "array", "items": {"type": "string"}}},
            "required": ["violated"],
            "additionalProperties": False,
        },
    ]
}
_VALUE = {"anyOf": [*_NUMBER["anyOf"], {"type": "boolean"}, {"type": "string"}]}

Exact = Annotated[Fraction, pydantic.PlainValidator(decimal), pydantic.WithJsonSchema(_NUMBER)]
Distance = Annotated[Fraction, pydantic.PlainValidator(not_negative), pydantic.WithJsonSchema(_NOT_NEGATIVE)]
Seconds = Annotated[Fraction, pydantic.PlainValidator(seconds), pydantic.WithJsonSchema(_DURATION)]
Interval = Annotated[
    tuple[Fraction, Fraction], pydantic.PlainValidator(interval), pydantic.WithJsonSchema(_PAIR)
]
Quantity = Annotated[
    tuple[Fraction, str],
    pydantic.PlainValidator(quantity),
    pydantic.WithJsonSchema(
        {"type": ["string", "number"], "pattern": r"^[+-]?\d+(\.\d+)?(\s+\S+)?$", "examples": ["2 m3/h/s"]}
    ),
]
Value = Annotated[Fraction | bool | str, pydantic.PlainValidator(value), pydantic.WithJsonSchema(_VALUE)]
Name = Annotated[str, pydantic.Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]


class Shape(pydantic.BaseModel):
    """Strict and frozen: an unknown key is a typo, not a comment."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class VariableShape(Shape):
    """One variable: a measured tag, an action the gateway may write, or a state that nobody measures."""

    tag: str | None = None
    type: Literal["real", "bool", "int", "enum"]
    values: list[str] | Mapping[str, pydantic.StrictInt] | None = None
    unit: str = ""
    range: Interval | None = None
    role: Literal["measured", "action", "state"] = "measured"
    error: Distance | None = None
    error_reason: str | None = None
    max_age: Seconds | None = None
    max_rate: Quantity | None = None
    physical: Interval | None = None
    min_on: Seconds | None = None
    min_off: Seconds | None = None
    accept_quality: list[str] = []


class ConstraintShape(Shape):
    """One constraint."""

    id: str
    kind: Literal["critical", "standard", "informational"]
    require: str
    when: str | None = None
    always: bool = False
    message: str = ""
    row: str = ""
    monitor: bool = False


class StateShape(Shape):
    """One state of a sequence."""

    state: str
    min: Seconds | None = None
    max: Seconds | None = None
    next: list[str] | None = None


class SequenceShape(Shape):
    """Ordered states of an enum action."""

    id: Name
    variable: str
    kind: Literal["critical", "standard", "informational"] = "standard"
    cyclic: bool = False
    states: Annotated[list[StateShape], pydantic.Field(min_length=2, max_length=16)]


class CaseShape(Shape):
    """One example that the rules must judge as said."""

    given: Mapping[str, Value]
    previous: Mapping[str, Value | str] = {}
    age: Mapping[str, Seconds] = {}
    bad: list[str] = []
    held: Mapping[str, Seconds] = {}
    expect: Annotated[
        frozenset[str], pydantic.PlainValidator(expected), pydantic.WithJsonSchema(_EXPECTED)
    ]  # the rules it violates


class ModuleShape(Shape):
    """A module file. `$schema` is for editors and means nothing here."""

    schema_: Annotated[str | None, pydantic.Field(alias="$schema")] = None
    id: Name
    revision: Annotated[int, pydantic.Field(ge=1)]
    language: int
    priority: Annotated[int, pydantic.Field(ge=0, le=15)] = 8
    step: Annotated[Fraction, pydantic.PlainValidator(step), pydantic.WithJsonSchema(_DURATION)]
    horizon: Annotated[int, pydantic.Field(ge=0, le=60)] | None = None
    variables: Mapping[str, VariableShape]
    dynamics: Mapping[str, str | Mapping[str, Interval]] = {}
    constraints: list[ConstraintShape]
    backup: list[Mapping[str, str | Value]] = []
    sequences: list[SequenceShape] = []
    safe_set: list[str] = []
    terminal: list[str] = []
    repair: Mapping[str, bool] = {}
    cases: list[CaseShape] = []

    @pydantic.field_validator("language")
    @classmethod
    def _known_language(cls, value: int) -> int:
        if value != LANGUAGE:
            msg = f"language {value} is not known here; this gateway reads language {LANGUAGE}"
            raise ValueError(msg)
        return value
