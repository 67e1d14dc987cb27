"""Worked examples of the constraint language, computed by hand from its text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fractions import Fraction

from gateway.recheck.language import read
from gateway.recheck.tree import Kind, Sort

COLOURS = {"stop": Fraction(0), "caution": Fraction(1), "clear": Fraction(4)}
NAMES = {name: name for name in ("x", "y", "z", "w", "p", "q", "e", "f")}
SORTS = {
    **{name: Sort(Kind.NUMBER) for name in ("x", "y", "z", "w")},
    **{name: Sort(Kind.BOOLEAN) for name in ("p", "q")},
    "e": Sort(Kind.ENUM, COLOURS),
    "f": Sort(Kind.ENUM, {"clear": Fraction(0), "caution": Fraction(1), "stop": Fraction(2)}),
}
ENV: Mapping[str, Fraction] = {
    "x": Fraction(3), "y": Fraction("-1.5"), "z": Fraction(2), "w": Fraction(0),
    "p": Fraction(1), "q": Fraction(0), "e": Fraction(4), "f": Fraction(0),
    "prev x": Fraction(1), "rate x": Fraction("0.25"), "prev p": Fraction(0),
    "prev e": Fraction(1), "good x": Fraction(1), "good y": Fraction(0), "age x": Fraction("2.5"),
    "for m/p 10": Fraction(1), "for m/x > 1 10": Fraction(0), "for m/q 10": Fraction(1),
    "for m/x > 1 and p 60": Fraction(1),
}  # fmt: skip

NUMBERS: Mapping[str, str] = {
    "x + y": "1.5",
    "x - y - z": "2.5",
    "x - (y - z)": "6.5",
    "x*y": "-4.5",
    "x*y*z": "-9",
    "x + y*z": "0",
    "(x + y)*z": "3",
    "x / z": "1.5",
    "x / 4": "0.75",
    "12 / x / z": "2",
    "12 / (x / z)": "8",
    "1 / 3": "1/3",
    "x*z / y": "-4",
    "-x*y": "4.5",
    "-x + z": "-1",
    "- -x": "3",
    "2 - -x": "5",
    "0.1 + 0.2": "0.3",
    "2e-3*x": "0.006",
    "90*p + 5*q": "90",
    "abs(y)": "1.5",
    "abs(x)": "3",
    "min(x, y, z)": "-1.5",
    "max(x, y, z)": "3",
    "sum(x, y, z)": "3.5",
    "max(x - 1, z*z)": "4",
    "count(p, q, x > z, y > 0)": "2",
    "10*count(p, p) - 1": "19",
    "vote(median, x, y, z)": "2",
    "vote(median, x, y, z, w, 9)": "2",
    "vote(max, x, y)": "3",
    "vote(min, x, y)": "-1.5",
    "if p then x else y": "3",
    "if q then x else y": "-1.5",
    "if q then x else y + z": "0.5",
    "if q then x else if p then z else y": "2",
    "if x > 1 then if q then 1 else 2 else 3": "2",
    "x + (if q then 10 else 50)": "53",
    "prev(x)": "1",
    "x - prev(x)": "2",
    "rate(x)*4": "1",
    "age(x)": "2.5",
}

CONDITIONS: Mapping[str, bool] = {
    "true": True,
    "false": False,
    "p": True,
    "not p": False,
    "not q": True,
    "p and q": False,
    "p and not q": True,
    "p or q": True,
    "q or q": False,
    "q and q or p": True,
    "p or q and q": True,
    "(p or q) and q": False,
    "not q and q": False,
    "not (q and q)": True,
    "not q or p": True,
    "p implies q": False,
    "q implies p": True,
    "q implies q": True,
    "p implies p": True,
    "q implies q implies q": True,
    "(q implies q) implies q": False,
    "p and q implies q": True,
    "p implies q or p": True,
    "p iff p": True,
    "p iff q": False,
    "q iff q": True,
    "q iff q iff q": False,
    "q iff p implies q": True,
    "p iff (q iff p)": False,
    "x > z and x < 4 iff p": True,
    "x < 3": False,
    "x <= 3": True,
    "x > 3": False,
    "x >= 3": True,
    "x == 3": True,
    "x != 3": False,
    "x < 4": True,
    "x <= 2": False,
    "x > 2": True,
    "x >= 4": False,
    "x == 4": False,
    "x != 4": True,
    "x != 2": True,
    "x == 2": False,
    "x == 4 or x == 2": False,
    "x >= 2": True,
    "x <= 4": True,
    "at_most(2, p, q, q)": True,
    "at_most(3, p, q, x > 1)": True,
    "y < z < x": True,
    "y < x < z": False,
    "x > y < z": True,
    "1 < x <= 3 < 3": False,
    "0.3 == 0.1 + 0.2": True,
    "x + y < z*z": True,
    "x*x + y == 7.5": True,
    "x in (1, 3)": True,
    "y in (1, -1.5)": True,
    "x + y in (1, 2)": False,
    "p in (0)": False,
    "e == clear": True,
    "e == stop": False,
    "e != caution": True,
    "e != clear": False,
    "e in (stop, clear)": True,
    "e in (stop, caution)": False,
    "prev(e) == caution": True,
    "prev(e) in (stop, clear)": False,
    "e == f": True,
    "e != f": False,
    "f == stop": False,
    "prev(e) != f": True,
    "prev(p)": False,
    "p and not prev(p)": True,
    "good(x)": True,
    "good(y)": False,
    "not good(y) or x > 9": True,
    "age(x) <= 2.5": True,
    "age(x) < 2.5": False,
    "at_most(1, p, q)": True,
    "at_most(1, p, x > 1, q)": False,
    "at_most(2, p, x > 1, q)": True,
    "exactly(2, p, x > 1, q)": True,
    "exactly(1, p, x > 1, q)": False,
    "exactly(3, p, x > 1, q)": False,
    "exactly(0, q)": True,
    "count(p, q) == 1": True,
    "if p then q else p": False,
    "if q then q else p": True,
    "if p then x > 2 else x > 4": True,
    "p for 10 s": True,
    "x > 1 for 10 s": False,
    "q for 10 s": False,
    "not p for 10 s": False,
    "not x > 1 for 10 s": True,
    "q or p for 10 s": True,
    "p and x > 1 for 10 s": False,
    "(x > 1 and p) for 1 min": True,
    "p for 10000 ms and true": True,
    "x / z <= 1.5": True,
    "x / z < 1.5": False,
    "x / w <= 100": False,
    "x / w >= 100": False,
    "not (x / w <= 100)": True,
    "x / w != 1": False,
    "x / w in (1, 2)": False,
    "x / (w - 2) <= -1.5": True,
    "p or x / w < 1": True,
    "0 <= x / w <= 1 or x / z == 1.5": True,
    "max(x / z, z) == 2": True,
    "abs(y / z) == 0.75": True,
    "x*z / y == -4 and -(x / z) < 0": True,
    "(if p then x / z else 0) == 1.5": True,
}

REFUSED = (
    "", "x +", "(x", "x y", "u > 1", "abs(x, y)", "x in (y)", "x $ y", "(" * 99, "x < y and",
    "p == true", "(x > 1) + 1", "x > 1 > (p or q)", "1 + not p", "x and p", "not x", "x implies p",
    "count(x)", "at_most(p, q)", "at_most(1.5, p)", "at_most(1)", "vote(mean, x, y)",
    "vote(median, x, y)", "e < clear", "e == red", "e == x", "e + 1 > 2", "clear == clear", "clear",
    "e in (1)", "x in (clear)", "p for 10", "p for 10 d", "x for 10 s", "p for 10 s for 5 s",
    "(p for 10 s and q) for 5 s", "x <= if p then 1 else 2", "if p then x", "x / 0 < 1",
    "x > 1 / (2 - 2)", "prev(1)", "prev(x", "good(x + 1)", "if x then 1 else 2",
    "(if p then x else p or q) > 1", "x < y in (1)", "sum()", "rate(e) > 1", "1.2.3 > x", "true < x",
)  # fmt: skip


def wrong_examples() -> Iterator[str]:
    """Worked examples that come out otherwise."""
    for text, told in NUMBERS.items():
        found = _value(text)
        if found != Fraction(told):
            yield f"{text}: {found}"
    for text, expected in CONDITIONS.items():
        found = _value(text)
        if found is not expected:
            yield f"{text}: {found}"


def _value(text: str) -> Fraction | bool | str:
    try:
        found = read(text, NAMES, SORTS, "m")(ENV)
    except Exception as exc:  # noqa: BLE001  a changed judge may fail in any way
        return repr(exc)
    return found if text in NUMBERS else bool(found)


def module(**changes: object) -> str:
    """A small module: a tank `x` in metres, filled by `p`, with what is to be changed."""
    told: dict[str, object] = {
        "id": "m", "revision": 1, "language": 1, "step": "1 s",
        "variables": {
            "x": {"tag": "X", "type": "real", "range": ["0", "10"], "error": "0.1", "max_age": "2 s"},
            "p": {"tag": "P", "type": "real", "range": ["0", "4"], "role": "action"},
        },
        "constraints": [{"id": "full", "kind": "critical", "require": "x <= 5", "always": True}],
    }  # fmt: skip
    return json.dumps(told | changes)
