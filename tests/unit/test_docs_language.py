"""Every example of `docs/language-examples.md` is read and judged as the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gateway.recheck.cases import misjudged_cases
from gateway.recheck.language import LanguageError
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.modules.assumed_tags import assumed_tags
from gateway.solver.modules.cases import violations
from gateway.solver.modules.compile import compile_module
from gateway.solver.modules.module import Module
from gateway.solver.proofs.safeset import prove
from gateway.solver.rules.ruleset import RuleSet

PAGE = Path(__file__).parents[2] / "docs" / "language-examples.md"
_BLOCK = re.compile(r"^```json( variables)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BLOCKS = [(kind, json.loads(text)) for kind, text in _BLOCK.findall(PAGE.read_text(encoding="utf-8"))]
VARIABLES: dict[str, Any] = next(found for kind, found in _BLOCKS if kind)
EXAMPLES = [found for kind, found in _BLOCKS if not kind]
CONSTRUCTS = (
    *(
        "if ",
        " iff ",
        " implies ",
        " and ",
        " or ",
        "not ",
        " for ",
        " in (",
        "== ",
        "!= ",
        "< ",
        "abs(",
        "min(",
        "max(",
    ),
    *("sum(", "count(", "at_most(", "exactly(", "vote(", "prev(", "rate(", "good(", "age(", "*", "/"),
    *(
        '"always"',
        '"dynamics"',
        '"disturbance"',
        '"backup"',
        '"safe_set"',
        '"sequences"',
        '"repair"',
        '"monitor"',
    ),
    *('"min_on"', '"held"', '"bad"', '"age"', '"previous"', '"informational"', '"critical"', '"when"'),
)


def text_of(example: dict[str, Any]) -> str:
    """The example as a module file, with the variables it names."""
    words = set(re.findall(r"[a-z_][a-z0-9_]*", json.dumps(example)))
    variables = {name: v for name, v in VARIABLES.items() if name in words} | example.get("variables", {})
    return json.dumps(
        {"id": "example", "revision": 1, "language": 1, "step": "1 s", **example, "variables": variables}
    )


def module_of(text: str) -> Module:
    return compile_module(text.encode(), "example.json", assumed_tags(text.encode()))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: "-".join(rule["id"] for rule in e["constraints"]))
def test_each_example_is_read_and_each_of_its_points_judged_as_the_page_says(example: dict[str, Any]) -> None:
    module = module_of(text_of(example))

    assert [violations(module, case) for case in module.cases] == [case.violated for case in module.cases]
    assert any(case.violated for case in module.cases)
    assert not all(case.violated for case in module.cases)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: "-".join(rule["id"] for rule in e["constraints"]))
def test_s7_the_independent_checker_judges_each_point_alike(example: dict[str, Any]) -> None:
    try:
        wrong = misjudged_cases(text_of(example))
    except LanguageError as exc:
        pytest.skip(f"the independent checker does not read all of it: {exc}")
    assert wrong == []


def test_a_point_that_is_judged_otherwise_than_the_page_says_is_found() -> None:
    example = json.loads(json.dumps(EXAMPLES[0]))
    example["cases"][0]["expect"] = {"violated": ["limit"]}

    with pytest.raises(ModuleRefusedError, match="the case expects `limit` and finds nothing violated"):
        module_of(text_of(example))


def test_s1_the_safe_set_of_the_example_is_proved_invariant() -> None:
    ahead = [module_of(text_of(example)) for example in EXAMPLES if "safe_set" in example]

    assert [prove(RuleSet.of((module,), 1)).escape for module in ahead] == [""]


def test_no_construct_is_left_out() -> None:
    shown = "\n".join(json.dumps(example) for example in EXAMPLES)

    assert [construct for construct in CONSTRUCTS if construct not in shown] == []
