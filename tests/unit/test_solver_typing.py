"""What a module may say of sorts, units and places, and the words of every refusal."""

from __future__ import annotations

import pytest

from gateway.solver.modules.compile import ModuleRefusedError
from tests.unit.solver_small import rule, small


def problems(*rules: object, **more: object) -> str:
    with pytest.raises(ModuleRefusedError) as refused:
        small(*rules, **more)  # type: ignore[arg-type]
    return "\n".join(str(p) for p in refused.value.problems)


@pytest.mark.parametrize(
    "text",
    [
        "t - 20 <= 60",  # degC - degC is K
        "t <= 20 + (t - 10)",
        "2*(t - 0) <= 100",
        "abs(t - 40) <= 5 or t - 40 <= t - 39",
        "rate(t) <= 0.1",
        "g - 1 <= 5",
        "min(t, 50) >= 10 and max(t, 60) <= 80",
        "sum(l, 1, l) <= 9",
        "l + 0.1*p <= 9",  # a bare factor takes the unit it needs
        "l*q <= 90 and l*l <= 9",
        "p/q <= 9",
        "110*h + p <= 200",
        "count(h, b, l > 1) <= 2",
        "m == auto iff s != stop",
        "auto == m",
        "m in (off, hand) or s in (idle, run)",
        "n in (1, 2) or n == 3",
        "s == prev(s) or (if h then s else prev(s)) == stop",
        "good(l) and age(l) <= 2 or p == 0",
        "not (l > 3 for 10 s)",
        "(prev(h) for 2 min) implies p <= 50",
        "abs(rate(l)) <= 0.1 and prev(q) <= 30",
        "(not good(l)) for 5 s implies p == 0",
        "vote(median, l, l, 2) <= 4",
        "if b then p <= 10 else p <= 50",
        "p <= (if b then 10 else 50)",
    ],
)
def test_a_rule_that_makes_sense_compiles(text: str) -> None:
    assert small(text).rules[0].id == "r"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("l <= q", "`m` and `m3/h` are unlike units"),
        ("l + q <= 3", "`m` and `m3/h` are unlike units"),
        ("t + t <= 90", "two values in `degC` cannot be added: they are points on a scale, not amounts"),
        ("g + g <= 9", "two values in `bar(g)` cannot be added"),
        ("2*t <= 90", "a product of a temperature in degC has no meaning"),
        ("t/2 <= 90", "write a difference such as `(t - 0)`"),
        ("-t <= 90", "a product of a temperature"),
        ("t <= g", "`degC` and `bar(g)` are unlike units"),
        ("age(l) <= l", "`s` and `m` are unlike units"),
        ("h == true", "write `iff` between two conditions"),
        ("h == 1", "`==` compares a condition with a number"),
        ("h + (l > 1) <= 2", "a number is expected, not a condition; `count(...)` makes a number of it"),
        ("l", "a condition is expected, not a number"),
        ("l and h", "a condition is expected, not a number"),
        ("l == 2", "`==` needs exact values, and `l` is measured with an error"),
        ("abs(l) != 3", "write `abs(a - b) <= tolerance`"),
        ("rate(l) == 0", "`rate(l)` is measured with an error"),
        ("age(n) == 1", "`age(n)` is measured with an error"),
        ("m < auto", "enums compare by `==`, `!=` and `in` only; they have no order"),
        ("m == 1", "an enum is compared with its own labels, not with a number"),
        ("m == idle", "`idle` is not one of `off`, `auto`, `hand`"),
        ("m == auot", "did you mean `auto`?"),
        ("m == s", "two enums with different labels are compared"),
        ("m + 1 <= 2", "an enum is no number"),
        ("auto", "`auto` is a label: compare it with `m` by `==`, `!=` or `in`"),
        ("l <= auto", "`auto` is a label"),
        ("l in (1, 2)", "takes a whole-number variable or an enum on its left"),
        ("n in (1, auto)", "`auto` is a label"),
        ("m in (1, auto)", "`m in (...)` lists a label each"),
        ("rate(h) <= 1", "`rate(h)` needs a number, not a boolean"),
        ("rate(m) <= 1", "`rate(m)` needs a number, not an enum"),
        ("good(p)", "`good(p)` takes a measured variable, not an action"),
        ("age(h) <= 1", "takes a measured variable, not an action"),
        ("at_most(1.5, b, h)", "`at_most` begins with a whole number"),
        ("exactly(n, b, h)", "`exactly` begins with a whole number"),
        ("count(l, h) <= 1", "a condition is expected, not a number"),
        ("if l then h else b", "a condition is expected, not a number"),
        ("if b then l else h > 1", "the branches of `if` must both be numbers or both be conditions"),
        ("(if b then m else 1) == auto", "one branch of `if` is an enum and the other is not"),
        ("p > 3 for 10 s", "`for` looks back, and `p` is proposed only now; write `prev(p)`"),
        ("(l > 1 for 2 s) for 3 s", "`for` inside `for` has no meaning"),
        ("p/l <= 9", "over the declared ranges the divisor goes from -1 to 5 and could be 0"),
        ("(p/l <= 9) for 3 s", "`for` looks back"),
        ("(q/l <= 9) for 3 s", "the divisor goes from -1 to 5 and could be 0"),
        ("p/age(l) <= 9", "nobody can tell that this divisor is never 0"),
        ("p*l*q <= 9", "a term holds more than two variables"),
        ("lvl <= 3", "`lvl` is not a variable of this module"),
    ],
)
def test_a_rule_that_makes_none_is_refused_in_the_users_words(text: str, said: str) -> None:
    found = problems(text)

    assert said in found
    assert f"in `{text}`" in found


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"constraints": [rule("prev(l) <= 1", always=True)]}, "`prev(l)` has no meaning in a rule with"),
        ({"constraints": [rule("not (b for 3 s)", always=True)]}, "`for` has no meaning in a rule with `alw"),
        ({"constraints": [rule("good(l)", always=True)]}, "`good(l)` has no meaning in a rule with `always`"),
        ({"dynamics": {"l": "l + 0.1*prev(p)"}}, "`prev(p)` has no meaning in `dynamics`"),
        ({"dynamics": {"l": "l*q"}}, "a product of two variables is not allowed here, only affine terms"),
        ({"dynamics": {"l": "max(l, 1)"}}, "only affine terms"),
        ({"safe_set": ["l*q <= 4"]}, "a product of two variables is not allowed in a safe set"),
        ({"safe_set": ["age(l) <= 4"]}, "`age(l)` has no meaning in `safe_set` and `terminal`"),
        ({"backup": [{"when": "b for 3 s", "p": "0"}]}, "`for` has no meaning in `backup`"),
        ({"backup": [{"s": "strop"}]}, "`strop` is not a move; did you mean `stop`?"),
        ({"backup": [{"s": "5.5"}]}, "`5.5` is not a value of `s`"),
        ({"backup": [{"l": "2"}]}, "`l` is not an action"),
        ({"backup": [{"p": "101"}]}, "`101` is outside the range of `p`"),
        ({"backup": [{"p": "ramp(101, 5)"}]}, "`ramp(101, 5)` is outside the range of `p`"),
        ({"backup": [{"h": "ramp(1, 1)"}]}, "`h` is not a real and cannot ramp"),
        (
            {"backup": [{"p": "ramp(0, 0)"}]},
            "`ramp(0, 0)` never moves `p`; give a rate above 0, or write `hold`",
        ),
        ({"horizon": 3}, "a `horizon` above 1 needs a `terminal` set"),
        ({"horizon": 0, "safe_set": ["l <= 4"]}, "a `horizon` of 0 claims the snapshot only"),
        ({"terminal": ["l <= 4"]}, "a `terminal` set needs a `backup` that reaches it"),
        ({"terminal": ["l <= 4"], "safe_set": ["l <= 4"]}, "a `safe_set` or a `terminal` set, not both"),
        ({"step": "0 s"}, "a step of 0 s leads nowhere"),
        ({"variables": {"m": {"values": ["off", "l"]}}}, "label `l` of `m` is also the name of a variable"),
        ({"variables": {"m": {"values": ["off", "for"]}}}, "`for` cannot be a label"),
        ({"variables": {"m": {"values": {"off": 1, "auto": 1}}}}, "appears twice"),
        ({"variables": {"m": {"values": []}}}, "`m` is an enum and needs `values`"),
        ({"variables": {"m": {"range": ["0", "1"]}}}, "`m` is an enum; its `values` are its range"),
        ({"variables": {"n": {"values": ["a"]}}}, '`values` belongs to `"type": "enum"`'),
        ({"variables": {"b": {"max_age": None}}}, "`b` is measured and needs a `max_age`"),
        ({"variables": {"b": {"error": "1"}}}, "`b` counts exactly and has no `error`"),
        ({"variables": {"l": {"error": "0"}}}, "or why it has none in `error_reason`"),
        ({"variables": {"l": {"error_reason": "fine"}}}, "explains an `error` of 0 and no other"),
        ({"variables": {"p": {"max_age": "2 s"}}}, "`max_age` belongs to measured variables"),
        ({"variables": {"if": {"tag": "L", "type": "real"}}}, "`if` cannot be the name of a variable"),
    ],
)
def test_what_has_no_meaning_in_its_place_is_refused(more: dict[str, object], said: str) -> None:
    given = dict(more)
    rules = given.pop("constraints", [rule("p <= 90")])
    assert isinstance(rules, list)

    assert said in problems(*rules, **given)


def test_an_error_of_0_with_its_reason_is_accepted_and_makes_equality_mean_something() -> None:
    exact = small("l == 2 or p <= 90", variables={"l": {"error": "0", "error_reason": "set by hand"}})

    assert exact.variables["l"].error_reason == "set by hand"


SEQUENCE = {
    "id": "cycle",
    "variable": "s",
    "states": [{"state": "idle"}, {"state": "run", "min": "5 s", "max": "9 s"}],
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"variable": "p"}, "`p` is not an enum action"),
        ({"variable": "m"}, "`m` is not an enum action"),
        ({"id": "r"}, "`r` is already the name of something else"),
        (
            {"states": [{"state": "idle"}, {"state": "runn"}]},
            "`runn` is not a value of `s`; did you mean `run`",
        ),
        ({"states": [{"state": "idle"}, {"state": "idle"}]}, "state `idle` appears twice"),
        (
            {"states": [{"state": "idle", "next": ["stop"]}, {"state": "run"}]},
            "`stop` is not a state of this",
        ),
        (
            {"states": [{"state": "idle", "min": "3 s", "max": "2 s"}, {"state": "run"}]},
            "longer than its `max`",
        ),
        ({"states": [{"state": "idle"}]}, "states"),
    ],
)
def test_a_sequence_that_makes_no_sense_is_refused(change: dict[str, object], said: str) -> None:
    assert said in problems("p <= 90", sequences=[{**SEQUENCE, **change}])


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ({"given": {"m": "atuo"}}, "`atuo` is not a label of `m`; did you mean `auto`?"),
        ({"given": {"m": 1}}, "`1` is not a label of `m`"),
        ({"given": {"l": True}}, "`True` is not a value of `l`, which is real"),
        ({"given": {"n": "1.5"}}, "is not a value of `n`, which is int"),
        ({"previous": {"lvl": "1"}}, "`lvl` is not a variable"),
        ({"previous": {"q_for": "2 s"}}, "`q` is not an action"),
        ({"previous": {"h_for": "2"}}, "is not a duration"),
        ({"age": {"p": "2 s"}}, "`p` is not a measured variable"),
        ({"bad": ["h"]}, "`h` is not a measured variable"),
        ({"held": {"s": "2 s"}}, "`s` is not a measured variable"),
    ],
)
def test_a_case_that_makes_no_sense_is_refused(case: dict[str, dict[str, object]], said: str) -> None:
    usual = {"l": "2", "q": "20", "t": "40", "g": "2", "b": False, "n": "3", "m": "auto"}
    usual |= {"p": "40", "h": False, "s": "idle"}
    given = {**usual, **case.get("given", {})}

    assert said in problems("p <= 90", cases=[{**case, "given": given, "expect": "permitted"}])


@pytest.mark.parametrize(
    ("text", "case", "violated"),
    [
        ("good(l) or p == 0", {"bad": ["l"]}, True),
        ("good(l) or p == 0", {}, False),
        ("age(l) <= 1", {"age": {"l": "1.5 s"}}, True),
        ("not (l > 1 for 10 s)", {}, True),
        ("not (l > 1 for 10 s)", {"held": {"l": "9 s"}}, False),
        ("not ((l > 1 and b) for 10 s)", {"held": {"l": "9 s"}}, False),
        ("not (prev(h) for 10 s)", {"previous": {"h": True, "h_for": "10 s"}}, True),
        ("not (prev(h) for 10 s)", {"previous": {"h": True, "h_for": "9 s"}}, False),
        ("rate(l) <= 0.4", {"previous": {"l": "1.5"}}, True),
        ("rate(l) <= 0.5", {"previous": {"l": "1.5"}}, False),
        ("prev(m) == m", {"previous": {"m": "off"}}, True),
    ],
)
def test_cases_say_what_a_rule_looks_back_at(text: str, case: dict[str, object], violated: bool) -> None:  # noqa: FBT001
    given = {"l": "2", "q": "20", "t": "40", "g": "2", "b": True, "n": "3", "m": "auto"}
    given |= {"p": "40", "h": False, "s": "idle"}

    if violated:
        said = problems(text, cases=[{**case, "given": given, "expect": "permitted"}])
        assert "the case expects nothing violated and finds `r`" in said
    else:
        compiled = small(text, cases=[{**case, "given": given, "expect": "permitted"}])
        assert len(compiled.cases) == 1
