"""The printed JSON Schema says of files what the compiler's own shape says of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gateway.solver.errors import ModuleRefusedError
from gateway.solver.language.json_schema import json_schema
from gateway.solver.modules.compile import compile_module
from tests.unit.bytecode_modules import ALL, source_module
from tests.unit.solver_demo import TAGS

SCHEMA = json_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
TANK: dict[str, Any] = json.loads(source_module("buffer-tank").text)


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


@pytest.mark.parametrize("name", ALL)
def test_every_shipped_module_fits_the_schema(name: str) -> None:
    assert list(VALIDATOR.iter_errors(json.loads(source_module(name).text))) == []


def test_every_key_that_a_person_writes_is_explained() -> None:
    for name in ("VariableShape", "ConstraintShape", "CaseShape"):
        for key, said in SCHEMA["$defs"][name]["properties"].items():
            assert said.get("description"), key
    for key, said in SCHEMA["properties"].items():
        assert said.get("description"), key


def test_a_file_may_name_its_schema_for_editors() -> None:
    named = {"$schema": "./module.schema.json", **TANK}
    assert VALIDATOR.is_valid(named)
    module = compile_module(json.dumps(named).encode(), "tank.json", TAGS)
    assert module.id == "buffer-tank"


def _level(change: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    return lambda m: m["variables"]["level"].update(change)


def _without(*path: str) -> Callable[[dict[str, Any]], None]:
    def change(module: dict[str, Any]) -> None:
        for step in path[:-1]:
            module = module[step]
        del module[path[-1]]

    return change


@pytest.mark.parametrize(
    "spoil",
    [
        _without("step"),
        _without("constraints"),
        _without("variables", "level", "max_age"),
        _without("variables", "level", "error"),
        _without("variables", "level", "range"),
        _without("variables", "level", "tag"),
        _without("variables", "level", "type"),
        lambda m: m.update(revison=8),
        lambda m: m.update(revision=0),
        lambda m: m.update(priority=16),
        lambda m: m.update(language=2),
        lambda m: m.update(step="1 second"),
        lambda m: m.update(horizon=61),
        lambda m: m.update(constraints=[]),
        lambda m: m.update(id="two words"),
        lambda m: m["constraints"][0].update(kind="grave"),
        lambda m: m["constraints"][0].update(alway=True),
        lambda m: m["constraints"][0].update(require=3),
        lambda m: m["cases"][0].update(expect="violated"),
        lambda m: m["cases"][0].update(expect={"broken": []}),
        lambda m: m["cases"][0].update(expect={}),
        lambda m: m["cases"][0].update(expect={"violated": "no-overflow"}),
        lambda m: m["variables"]["pump"].update(error="0.1"),
        lambda m: m["variables"]["pump"].update(min_on="3 s"),
        lambda m: m["variables"]["heater"].update(values=["a", "b"]),
        lambda m: m["variables"].update(e={"tag": "TK1.M101.STAGE", "type": "enum", "role": "action"}),
        lambda m: m.update(sequences=[{"id": "s", "variable": "e", "states": [{"state": "a"}]}]),
        _level({"range": ["0"]}),
        _level({"range": "0 to 5"}),
        _level({"error": "-0.1"}),
        _level({"error": "much"}),
        _level({"max_age": "2"}),
        _level({"max_rate": "fast"}),
        _level({"role": "sensor"}),
        _level({"type": "float"}),
        _level({"role": "state"}),
    ],
)
def test_a_wrong_file_fits_neither_the_schema_nor_the_compiler(
    spoil: Callable[[dict[str, Any]], None],
) -> None:
    wrong = deepcopy(TANK)
    spoil(wrong)
    assert not VALIDATOR.is_valid(wrong)
    with pytest.raises(ModuleRefusedError):
        compile_module(json.dumps(wrong).encode(), "tank.json", TAGS)
