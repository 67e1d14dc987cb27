"""Seeded rule sets of every kind of rule: what may come next, against every block judged in full."""

from __future__ import annotations

import random

import pytest

from tests.unit.solver_next import ORDER, Enumerated, anywhere, rules

BACKUP = [
    {"when": "l >= 2", "p": "ramp(0, 10)"},
    {"p": "ramp(20, 5)"},
    {"r": "hold"},
    {"h": False},
    {"s": "idle"},
]
SAFE = {"backup": BACKUP, "safe_set": ["l <= 2.3 - 0.002*p", "r > 0 implies l >= 1.7 + 0.002*r"]}
TERMINAL = {"backup": BACKUP, "terminal": ["l <= 2.3"], "horizon": 2}
PLAIN = [{"p": "ramp(0, 10)"}, {"r": "ramp(40, 8)"}, {"h": False}, {"s": "idle"}]
RESTING = {"backup": PLAIN, "terminal": ["l <= 2.1", "l >= 1.7"], "horizon": 6}


def any_rule(chance: random.Random) -> str | dict[str, object]:
    one, other = chance.choice(["p", "r"]), chance.choice(["p", "r"])
    first, second, limit = chance.choice([1, 1, 2, 3]), chance.choice([1, 1, 2, 3]), chance.randrange(150)
    shapes: list[str | dict[str, object]] = [
        f"{first}*p + {second}*r <= {limit}",
        f"{first}*p + {second}*r >= {limit // 2}",
        f"{first}*p - {second}*r <= {chance.randrange(-40, 60)}",
        f"abs(rate(p)) <= {chance.choice([6, 7, 13])}",
        f"abs(rate(r)) <= {chance.choice([4, 5, 11])}",
        {"require": f"l <= {chance.choice([2.05, 2.1, 2.2])}", "always": True},
        {"require": f"l >= {chance.choice([1.75, 1.8, 1.9])}", "always": True},
        {"when": f"{one} > {chance.randrange(30)}", "require": f"{other} >= {chance.randrange(30)}"},
        {"when": "h", "require": f"{one} >= {chance.randrange(40)}"},
        "s in (run, stop) implies h",
        f"l + 0.01*p + 0.02*r <= {chance.choice([2.5, 2.8, 3.0])}",
        {"when": f"{one} > 10", "require": f"l + 0.01*{other} <= 2.3", "always": True},
        f"n + r <= {chance.randrange(5, 40)}",
        f"count(h, s == run, p > 10) <= {chance.choice([1, 2])}",
        "abs(l - k) >= 0.1",
        "l*p <= 60",
        "n*p <= 100",
        "p*r <= 600",
        "l*l - k*k <= 0.5",
        "if l > 2 then p <= 20 else p <= 30",
        "n == 3 implies r > 8",
        "prev(p) > 10 implies p <= 20 or r >= prev(r)",
        "prev(h) implies p > prev(r)",
    ]
    return chance.choice(shapes)


@pytest.mark.parametrize("seed", range(8))
def test_nothing_permitted_is_left_out_and_exact_answers_hold_nothing_else(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  repeatable on purpose
    more = chance.choice([{}, {}, SAFE, TERMINAL, RESTING, RESTING])
    here = anywhere(chance, ["nothing", "older", "both"])
    found = Enumerated(rules(*(any_rule(chance) for _ in range(chance.randrange(2, 6))), **more), here)
    order = list(ORDER)
    chance.shuffle(order)

    exact, more_at_most = found.compared(order)  # asserts both for every answer there is

    assert exact + more_at_most > 0
