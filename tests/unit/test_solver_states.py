"""States that nobody measures: every refusal in its own words, and what a check says of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gateway.core.decision import (
    CheckRequest,
    DecisionId,
    InForce,
    PointId,
    StateInterval,
    StateSet,
    Undetermined,
)
from gateway.core.quality import StatusCode
from gateway.core.tag import TagDefinition, TagId, TagKind, TagValue
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.language.json_schema import json_schema
from gateway.solver.modules.compile import compile_module
from gateway.solver.modules.module import Module
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from tests.unit.solver_small import PATIENT

_T, _Q, _CORE = TagId("T"), TagId("Q"), TagId("oven.core")
TAGS = {
    _T: TagDefinition(id=_T, kind=TagKind.REAL, unit="degC", scale=Fraction(1, 100), raw_range=(0, 20_000)),
    _Q: TagDefinition(
        id=_Q, kind=TagKind.REAL, unit="%", scale=Fraction(1, 10), raw_range=(0, 1_000), writable=True
    ),
}
OVEN: dict[str, Any] = {
    "id": "oven",
    "revision": 1,
    "language": 1,
    "step": "10 s",
    "variables": {
        "wall": {
            "tag": "T",
            "type": "real",
            "unit": "degC",
            "range": ["0", "150"],
            "error": "0.5",
            "max_age": "20 s",
        },
        "core": {
            "role": "state",
            "type": "real",
            "unit": "degC",
            "range": ["0", "200"],
            "physical": ["15", "150"],
        },
        "heat": {"tag": "Q", "type": "real", "unit": "%", "range": ["0", "100"], "role": "action"},
    },
    "dynamics": {
        "core": "core + 0.2*(20 - core) + 0.2*heat",
        "wall": "wall + 0.1*(core - wall) + w",
        "disturbance": {"w": ["-0.1", "0.1"]},
    },
    "constraints": [{"id": "hot", "kind": "critical", "require": "wall <= 120", "always": True}],
    "backup": [{"heat": 0}],
    "cases": [
        {"given": {"wall": "121", "core": "60", "heat": "10"}, "expect": {"violated": ["hot"]}},
        {"given": {"wall": "100", "core": "60", "heat": "10"}, "expect": "permitted"},
    ],
}


def _compiled(document: dict[str, Any], tags: dict[TagId, TagDefinition] | None = None) -> Module:
    return compile_module(
        json.dumps(document, indent=1).encode(), "oven.json", TAGS if tags is None else tags
    )


def _problems(document: dict[str, Any], tags: dict[TagId, TagDefinition] | None = None) -> list[str]:
    with pytest.raises(ModuleRefusedError) as refused:
        _compiled(document, tags)
    return [p.problem for p in refused.value.problems]


def _spoilt(spoil: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    document = deepcopy(OVEN)
    spoil(document)
    return document


def _core(**changes: object) -> Callable[[dict[str, Any]], object]:
    return lambda m: m["variables"]["core"].update(changes)


def test_the_oven_is_a_module_and_its_state_is_named_after_it() -> None:
    module = _compiled(OVEN)

    assert module.variables["core"].tag == _CORE
    assert module.variables["core"].hidden
    assert not module.variables["core"].action


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tag", "T"),
        ("values", ["a", "b"]),
        ("error", "0.1"),
        ("error_reason", "because"),
        ("max_age", "2 s"),
        ("max_rate", "1 K/s"),
        ("min_on", "2 s"),
        ("min_off", "2 s"),
        ("accept_quality", ["Uncertain"]),
    ],
)
def test_a_state_has_nothing_that_belongs_to_a_reading_or_an_action(key: str, value: object) -> None:
    said = _problems(_spoilt(_core(**{key: value})))

    assert f"`core` is a state that nobody measures, and has no `{key}`" in said


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_core(type="int"), "`core` is a state that nobody measures; it must be `real`"),
        (lambda m: m["variables"]["core"].pop("range"), "`core` needs a `range`"),
        (
            lambda m: m["variables"]["core"].pop("physical"),
            (
                "`core` is never measured and needs `physical`: where it may be when nothing is known of it, "
                "at a start and after a gap"
            ),
        ),
        (_core(physical=["-5", "150"]), "`physical` of `core` is not wholly inside its `range`"),
        (_core(physical=["15", "201"]), "`physical` of `core` is not wholly inside its `range`"),
        (
            lambda m: m["dynamics"].pop("core"),
            "`core` is never measured and needs `dynamics`: nothing else tells where it is",
        ),
        (
            lambda m: m["backup"].insert(0, {"when": "core >= 80", "heat": 0}),
            "`core` is never measured, and a backup can only ask for what is seen, in `core >= 80`",
        ),
        (
            lambda m: m["constraints"].append(
                {"id": "seen", "kind": "standard", "require": "good(core) or heat <= 10"}
            ),
            "`good(core)` asks for a reading, and `core` is never measured, in `good(core) or heat <= 10`",
        ),
        (
            lambda m: m["constraints"].append(
                {"id": "fresh", "kind": "standard", "require": "age(core) <= 5"}
            ),
            "`age(core)` asks for a reading, and `core` is never measured, in `age(core) <= 5`",
        ),
        (
            lambda m: m["variables"]["wall"].pop("tag"),
            '`wall` needs a `tag`; only a variable of `"role": "state"` has none',
        ),
        (
            lambda m: m["variables"]["heat"].pop("tag"),
            '`heat` needs a `tag`; only a variable of `"role": "state"` has none',
        ),
        (lambda m: m["cases"][0].update(bad=["core"]), "`core` is not a measured variable"),
        (lambda m: m["cases"][0].update(age={"core": "1 s"}), "`core` is not a measured variable"),
    ],
)
def test_a_state_is_refused_in_these_words(spoil: Callable[[dict[str, Any]], object], said: str) -> None:
    found = _problems(_spoilt(spoil))

    assert any(problem.startswith(said) for problem in found), found


def test_a_state_whose_name_is_a_tag_s_already_is_refused() -> None:
    taken = {**TAGS, _CORE: replace(TAGS[_T], id=_CORE)}

    assert "there is a tag `oven.core`; give the state `core` another name" in _problems(OVEN, taken)


def test_a_case_that_leaves_a_state_out_is_refused() -> None:
    found = _problems(_spoilt(lambda m: m["cases"][1]["given"].pop("core")))

    assert any("core" in problem for problem in found), found


@pytest.mark.parametrize(
    "spoil",
    [
        _core(tag="T"),
        _core(error="0.1"),
        _core(error_reason="because"),
        _core(max_age="2 s"),
        _core(max_rate="1 K/s"),
        _core(type="int"),
        lambda m: m["variables"]["core"].pop("physical"),
        lambda m: m["variables"]["core"].pop("range"),
    ],
)
def test_an_editor_marks_a_wrong_state_too(spoil: Callable[[dict[str, Any]], object]) -> None:
    validator = Draft202012Validator(json_schema())

    assert validator.is_valid(OVEN)
    assert not validator.is_valid(_spoilt(spoil))


def _request(carried: StateSet | None, wall: float = 60.0) -> CheckRequest:
    sample = TagValue(
        value=wall, status=StatusCode.Good, source_ts_ns=None, server_ts_ns=0, confirmed_at=100.0
    )
    return CheckRequest(
        decision=DecisionId("d"),
        point=PointId("p"),
        generation=1,
        inputs={_T: sample},
        taken_at=100.0,
        history={_Q: (InForce(Fraction(10), 0.0),)},
        held_s={_Q: 0.0},
        proposal=None,
        carried=carried,
        hold_s=10.0,
        effect_delay_s=0.0,
    )


def _carried(low: int, high: int) -> StateSet:
    return StateSet(
        at=90.0,
        intervals={
            _T: StateInterval(Fraction(59), Fraction(61)),
            _CORE: StateInterval(Fraction(low), Fraction(high)),
        },
    )


def _checks(module: Module) -> Checks:
    return Checks(RuleSet.of([module], 1), PATIENT)


# S2: nothing is known of a state at a start but what a person vouches for.
def test_at_a_start_a_state_is_anywhere_within_its_physical_bounds() -> None:
    module = _compiled(OVEN)

    _, state = _checks(module).check(_request(None))

    assert state is not None
    assert state.intervals[_CORE] == StateInterval(Fraction(15), Fraction(150))


# S2: afterwards it is where its dynamics lead from where it was.
def test_a_state_goes_on_from_where_the_last_check_had_it() -> None:
    module = _compiled(OVEN)

    _, state = _checks(module).check(_request(_carried(60, 70)))

    assert state is not None
    inside = state.intervals[_CORE]
    assert inside.low <= Fraction("54") <= inside.high  # 60 + 0.2*(20 - 60) + 0.2*10
    assert inside.low <= Fraction("62") <= inside.high
    assert inside.high - inside.low < 11


# S16: a prediction that leaves the physical bounds is a broken assumption, and nothing passes on it.
def test_a_state_that_can_only_be_outside_its_physical_bounds_is_undetermined() -> None:
    module = _compiled(_spoilt(_core(physical=["100", "150"])))

    result, state = _checks(module).check(_request(_carried(60, 70)))

    assert state is None
    assert isinstance(result.verdict, Undetermined)
    assert "broken assumption: `oven.core` was predicted between" in result.verdict.reason
    assert "and can only be between 100 and 150" in result.verdict.reason
