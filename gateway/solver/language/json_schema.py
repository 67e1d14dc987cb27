"""The shape of a module file as JSON Schema 2020-12, for editors and other people's tools.

Generated from `ModuleShape`, which the compiler itself reads with; what depends on a variable's role and type
is added, and a sentence for each key that an editor shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.solver.language.schema import LANGUAGE, ModuleShape

Schema = dict[str, Any]

_NOTHING: Schema = {"type": "null"}
_WORDS: Mapping[str, Mapping[str, str]] = {
    "ModuleShape": {
        "$schema": "Where an editor finds this schema; the gateway ignores it.",
        "id": "The module's name.",
        "revision": "A whole number that rises with every change.",
        "language": f"The version of the constraint language: {LANGUAGE}.",
        "priority": "0 to 15; orders repairs and reports, never switches a rule off.",
        "step": "The time that one application of `dynamics` stands for, such as `1 s`.",
        "horizon": "Steps that the rules are shown over; 0 claims the snapshot only.",
        "variables": "Names bound to tags.",
        "dynamics": "For a measured variable or a state, its value one step later; `disturbance` names "
        "intervals that may act at will.",
        "constraints": "The rules.",
        "backup": "What to do when nothing else may be done: per action the first entry whose `when` holds.",
        "sequences": "Ordered states of an enum action, with dwell times.",
        "safe_set": "Conditions under which the backup keeps every critical rule for ever; proved.",
        "terminal": "In place of `safe_set`: a set the backup reaches within the horizon and never leaves.",
        "repair": "Booleans, whole numbers and enums that a repair may change.",
        "cases": "Examples; the module is refused unless each is judged as it says.",
    },
    "VariableShape": {
        "tag": "The tag's id in the gateway's configuration.",
        "type": "What its values are.",
        "values": "The labels of an enum: a list counts from 0, a table names register values.",
        "unit": "The tag's unit, such as `m3/h`; empty for a bare number.",
        "range": "Measured: outside it a reading is not believed. Action: what may be written.",
        "role": "`measured`, `action`, or `state` for what nobody measures.",
        "error": "How far a reading may be from the truth, in its unit.",
        "error_reason": "Why a reading has no error; only beside `error` 0.",
        "max_age": "How old a reading may be, such as `2 s`.",
        "max_rate": "The fastest it can change, per second, such as `2 m3/h/s`: a premise.",
        "physical": "Where it can be at all: a premise.",
        "min_on": "How long a boolean action stays on at least.",
        "min_off": "How long a boolean action stays off at least.",
        "accept_quality": "StatusCodes other than Good whose values may be used.",
    },
    "ConstraintShape": {
        "id": "The rule's name.",
        "kind": "`critical` and `standard` must hold, `informational` is reported.",
        "require": "What must hold.",
        "when": "Where it must hold; everywhere, if left out.",
        "always": "At every moment until the proposal can be replaced, over the whole horizon.",
        "message": "What to tell people when it does not hold.",
        "row": "Its id in an imported table.",
        "monitor": "No action can influence it: it is reported and does not refuse.",
    },
    "CaseShape": {
        "given": "A value for every variable.",
        "previous": "Values one step ago; `NAME_for` is how long an action has been so.",
        "age": "How old readings are.",
        "bad": "Readings that are not good.",
        "held": "How long a measured variable has had its value.",
        "expect": "`permitted`, or the ids of every critical and standard rule that fails.",
    },
}


def json_schema() -> Schema:
    """The schema of a module file."""
    schema: Schema = ModuleShape.model_json_schema()
    for name, keys in _WORDS.items():
        shape = schema if name == "ModuleShape" else schema["$defs"][name]
        for key, words in keys.items():
            shape["properties"][key]["description"] = words
    schema["properties"]["language"]["const"] = LANGUAGE
    schema["properties"]["constraints"]["minItems"] = 1
    schema["$defs"]["VariableShape"]["allOf"] = _of_variables()
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:o3-gateway:constraint-module:{LANGUAGE}",
        "title": "O3 constraint module",
    }
    return head | {key: value for key, value in schema.items() if key != "title"}


_NOT_OF_STATES = ("tag", "values", "error", "error_reason", "max_age", "max_rate")


def _of_variables() -> list[Schema]:
    """What a variable needs and may not have, by its role and type."""
    measured: Schema = {"not": {"properties": {"role": {"enum": ["action", "state"]}}, "required": ["role"]}}
    real: Schema = {"properties": {"type": {"const": "real"}}, "required": ["type"]}
    state: Schema = {"properties": {"role": {"const": "state"}}, "required": ["role"]}
    return [
        _where("role", ["action"], ["tag"], ("error", "error_reason", "max_age", "max_rate", "physical")),
        _where("role", ["state"], ["range", "physical"], _NOT_OF_STATES),
        {"if": state, "then": {"properties": {"type": {"const": "real"}}}},
        {"if": measured, "then": {"required": ["tag", "max_age"]} | _without(("min_on", "min_off"))},
        {"if": {"allOf": [measured, real]}, "then": {"required": ["error"]}},
        _where("type", ["enum"], ["values"], ("range",)),
        _where("type", ["real", "int", "bool"], [], ("values",)),
        _where("type", ["real"], ["range"], ()),
        _where("type", ["real", "int", "enum"], [], ("min_on", "min_off")),
    ]


def _where(key: str, values: list[str], needed: list[str], unwanted: tuple[str, ...]) -> Schema:
    condition = {"properties": {key: {"enum": values}}, "required": [key]}
    return {"if": condition, "then": {"required": needed} | _without(unwanted)}


def _without(keys: tuple[str, ...]) -> Schema:
    return {"properties": dict.fromkeys(keys, _NOTHING)} if keys else {}
