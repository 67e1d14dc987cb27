"""S7: what the compiler accepts, the second reader reads, and alike: spellings that few people use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from gateway.recheck.check import Question, recheck
from gateway.recheck.language import LanguageError, read
from gateway.recheck.source import read_source
from gateway.solver.language.evaluate import truth
from gateway.solver.modules.compile import compile_module
from gateway.solver.modules.module import Hold, Module
from tests.unit.recheck_examples import ENV, NAMES, SORTS
from tests.unit.solver_small import TAGS, document, rule, small

F = Fraction


def judged_alike(module: Module, point: Mapping[str, int | str]) -> bool:
    """Whether the module's only written rule holds at a point, which both readers must say alike."""
    values = {name: F(value) for name, value in point.items()}
    tags = {v.name: str(v.tag) for v in module.variables.values()}
    requirement = read_source(module.text).requirements[0]
    told = {name.replace("(", " ").rstrip(")"): value for name, value in values.items()}
    env = {" ".join([*w[:-1], tags[w[-1]]]): v for name, v in told.items() if (w := name.split())}
    found = bool(requirement.holds(env))
    assert found is truth(module.rules[0].require, values)
    return found


CHOSEN = "(if b then run else idle)"


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("s == run", True),
        ("run == s", True),
        ("s == (run)", True),
        ("(stop) != s", True),
        (f"s == {CHOSEN}", True),
        (f"{CHOSEN} == s", True),
        (f"s != {CHOSEN}", False),
        ("(if b then s else stop) == run", True),
        ("(if not b then s else stop) == run", False),
        ("(if b then s else prev(s)) == prev(s)", False),
        ("s == (if b then (if h then stop else run) else idle)", True),
        ("run == s != idle", True),
        ("prev(s) == idle != s", True),
        ("at_most(1.0, b, h)", True),
        ("exactly(2.0, b, h)", False),
    ],
)
def test_labels_may_stand_on_either_side_and_in_branches(text: str, *, holds: bool) -> None:
    point = {"s": 5, "prev(s)": 0, "b": 1, "h": 0}

    assert judged_alike(small(text), point) is holds


# A register may hold what no label stands for: that is equal to itself, and to no label.
@pytest.mark.parametrize(
    ("text", "holds"),
    [("s == prev(s)", True), ("s != s", False), ("s == idle", False), (f"s == {CHOSEN}", False)],
)
def test_a_register_that_no_label_stands_for_is_equal_to_itself(text: str, *, holds: bool) -> None:
    assert judged_alike(small(text), {"s": 7, "prev(s)": 7, "b": 1}) is holds


@pytest.mark.parametrize(
    "text",
    [
        "e == (if p then red else stop)",
        "(if p then clear else stop)",
        "(if p then e else x) == 1",
        "(if p then e else f) == clear + 1",
        "prev(clear) == e",
        "good(clear)",
        "clear == stop",
        "(if p then clear else stop) == stop",
        "e < (if p then clear else stop)",
        "at_most(0.5, p)",
    ],
)
def test_labels_where_nothing_is_compared_with_them_are_refused(text: str) -> None:
    with pytest.raises(LanguageError, match=r".+"):
        read(text, NAMES, SORTS, "m")(ENV)


@pytest.mark.parametrize("depth", [35, 100, 140])
def test_what_the_compiler_takes_is_not_nested_too_deeply(depth: int) -> None:
    chain = " implies ".join(["b"] * depth)
    total = " + ".join(["p"] * depth)
    assert judged_alike(small(chain), {"b": 1})
    assert judged_alike(small(f"{total} <= {depth}"), {"p": 1})
    if depth < 40:
        assert judged_alike(small("(p + " * depth + "p" + ")" * depth + f" <= {depth + 1}"), {"p": 1})


def test_a_mark_of_the_byte_order_is_nothing() -> None:
    text = "\ufeff" + json.dumps(document(rule("p <= 9")))

    compile_module(text.encode(), "m.json", TAGS)

    assert read_source(text).id == "small"


@pytest.mark.parametrize(
    ("changes", "horizon"),
    [
        ({"horizon": None}, 0),
        ({"horizon": None, "dynamics": {"l": "l"}}, 1),
        ({"dynamics": {"disturbance": {"w": ["0", "1"]}}}, 0),
        ({"dynamics": {}}, 0),
        ({"horizon": 0, "dynamics": {"l": "l"}}, 0),
    ],
)
def test_a_horizon_that_is_not_told_is_the_same_for_both(changes: Mapping[str, Any], horizon: int) -> None:
    module = small("p <= 9", **changes)

    assert (module.horizon, read_source(module.text).horizon) == (horizon, horizon)


# A label of that name is meant, not the move: both must take it for the same.
@pytest.mark.parametrize(
    ("move", "value", "ramps"),
    [
        ({"s": "hold"}, 5, ()),
        ({"s": "idle"}, 0, ()),
        ({"p": "+40"}, 40, ()),
        ({"p": " ramp( +40 , 10 ) "}, None, ("40", "10")),
        ({"p": "ramp(-1.5,0.5)"}, None, ("-1.5", "0.5")),
    ],
)
def test_moves_of_a_backup_are_read_alike(
    move: Mapping[str, str], value: int | None, ramps: tuple[str, ...]
) -> None:
    labels = {"s": {"values": {"idle": 0, "hold": 5}}, "p": {"range": ["-2", "100"]}}
    rest = {"p": "hold", "h": False, "s": "idle"}
    module = small("p <= 9", variables=labels, backup=[{**rest, **move}])
    (name, _), tag = *move.items(), {"s": "S", "p": "P"}[next(iter(move))]

    theirs = module.backup[0].moves[name]
    ours = read_source(module.text).backup[0].moves[tag]

    assert not isinstance(theirs, Hold)
    if value is not None:
        assert theirs == F(ours) == value
    else:
        assert [F(part) for part in ours.removeprefix("ramp(").rstrip(")").split(",")] == [*map(F, ramps)]


# What a state says follows, be it nothing: then it may only stay.
def test_a_state_that_nothing_may_follow_may_only_stay() -> None:
    states = [{"state": "idle", "next": []}, {"state": "run"}, {"state": "stop"}]
    module = small("p <= 9", sequences=[{"id": "seq", "variable": "s", "states": states}])
    order = next(r for r in module.rules if r.id == "seq.order")

    for new, kept in ((0, True), (5, False), (9, False)):
        question = Question(
            inputs={},
            previous={"P": [F(0)], "H": [F(0)], "S": [F(0)]},
            proposal={"P": F(0), "H": F(0), "S": F(new)},
        )
        found = recheck([module.text], question).violated
        assert ("small/seq.order" not in found) is kept
        assert truth(order.require, {"s": F(new), "prev(s)": F(0)}) is kept


# A switch has no value between off and on, also where something takes over within a step.
def test_what_has_values_of_its_own_has_none_in_between() -> None:
    texts = [
        small(rule("not b or n >= 1 or m in (auto, hand)", always=True), horizon=1).text,
        small(rule("m == off or m == auto or m == hand", always=True), horizon=1).text,
        small(rule("n in (0, 1, 2, 3, 4, 5, 6)", always=True), horizon=1, variables=SIX).text,
    ]
    for text in texts:
        question = Question(
            inputs={"B": (F(1), F(1)), "N": (F(2), F(2)), "M": (F(1), F(1))},
            previous={"P": [F(0)], "H": [F(0)], "S": [F(0)]},
            proposal={"P": F(5), "H": F(1), "S": F(5)},
            effect_delay_s=F(1, 2),
        )
        assert recheck([text], question, samples=64).violated <= {"small/r"} & _by_whole_values(text)


SIX: Mapping[str, Any] = {"n": {"range": ["0", "6"]}}


def _by_whole_values(text: str) -> set[str]:
    """What whole values can violate: of these rules only the first, with everything off and 0."""
    return {"small/r"} if "not b or" in text else set()
