from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.positions import PositionError, parse_json
from gateway.config.toml import parse_toml


def test_values_are_exact_and_positions_are_those_an_editor_shows() -> None:
    node = parse_json('{\n  "é": [1, 0.10, {"b": "x"}],\n  "c": -5e2, "d": null\n}')

    assert node.plain() == {"é": [1, Decimal("0.10"), {"b": "x"}], "c": Decimal("-5e2"), "d": None}
    assert node.at(("é", 2, "b")) == (2, 24)
    assert node.key_at(("c",)) == (3, 3)
    assert node.at(("é", 7, "nothing")) == (2, 8)


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ('{"a": 1,\n "a": 2}', 2, 2, "`a` appears twice"),
        ("[1, NaN]", 1, 5, "`NaN` is not a JSON value"),
        ("[1]\nx", 2, 1, "after the end"),
        ("[1,]", 1, 3, "directly before `]`"),
        ('{"a" 1}', 1, 6, "expected `:`"),
        ("[1", 1, 3, "end of file"),
        ('"a\nb"', 1, 3, "line break"),
        ('"abc', 1, 1, "not closed"),
        ('"\\ud800"', 1, 2, "surrogate"),
        ("01", 1, 1, "not a JSON value"),
        ("1e999", 1, 1, "too large an exponent"),
        ("", 1, 1, "ends where a value"),
        ("[" * 100, 1, 66, "nested deeper"),
    ],
)
def test_broken_json_is_refused_at_its_place(text: str, line: int, column: int, said: str) -> None:
    with pytest.raises(PositionError, match="line") as caught:
        parse_json(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert said in caught.value.problem


@given(st.text(max_size=40) | st.text(alphabet='{}[]",:0123456789.eE+-truefalsn\\u \n', max_size=40))
def test_any_text_is_parsed_or_refused_but_never_crashes(text: str) -> None:
    places: list[tuple[int, int]] = []
    for parse in (parse_json, parse_toml):
        try:
            parse(text)
        except PositionError as refused:
            places.append((refused.line, refused.column))
    assert all(line >= 1 and column >= 1 for line, column in places)


def test_toml_tables_arrays_and_inline_tables_have_their_lines() -> None:
    node = parse_toml(
        'a.b = 1\n[[channel]]\nid = "p1"\n[[channel.device]]\nlist = [1, { "é" = "ü", u = 7 }]\n'
        '[channel.device.poll_group.fast]\ninterval = "1 s"\n[[channel]]\n"i d" = 2.50\n'
    )

    assert node.plain() == {
        "a": {"b": 1},
        "channel": [
            {
                "id": "p1",
                "device": [{"list": [1, {"é": "ü", "u": 7}], "poll_group": {"fast": {"interval": "1 s"}}}],
            },
            {"i d": Decimal("2.50")},
        ],
    }
    assert node.at(("channel", 0, "device", 0, "list", 1, "u")) == (5, 29)
    assert node.at(("channel", 0, "device", 0, "poll_group", "fast", "interval")) == (7, 12)
    assert node.key_at(("channel", 1, "i d")) == (9, 1)
    assert node.at(("channel", 1)) == (8, 1)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("a = 1\na = 2", 2, 6),
        ("x = nan", 1, 5),
        ("b = 1\nd = 2020-01-01", 2, 5),
        ("a = 1e999", 1, 5),
        ("a = [1", 1, 7),
        ("a = " + "[" * 100 + "]" * 100, 1, 70),
        ("a = " + "[" * 5000 + "]" * 5000, 1, 1),
        (".".join("a" * 3000) + " = 1", 1, 1),
    ],
)
def test_broken_toml_is_refused_at_its_place(text: str, line: int, column: int) -> None:
    with pytest.raises(PositionError, match="line") as caught:
        parse_toml(text)
    assert (caught.value.line, caught.value.column) == (line, column)
