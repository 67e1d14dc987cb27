"""S7: whole modules drawn at random mean the same to evaluator, exact forms, Z3 and the second reader.

At single points, on cases, and played for some cycles: what is let out stands before the second judge, the
bounds of every claim are what the module says, and every witness of a refusal violates what it is said to.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import pytest
import z3

from gateway.config.positions import parse_json
from gateway.recheck.cases import misjudged_cases
from gateway.recheck.language import row_named
from gateway.recheck.source import read_source
from gateway.recheck.words import words
from gateway.solver.checking.terms import Terms
from gateway.solver.language.affine import Atom, Every, Formula
from gateway.solver.language.evaluate import truth
from gateway.solver.language.schema import CaseShape
from gateway.solver.language.syntax import Expr, timed
from gateway.solver.modules.cases import compile_case, violations
from gateway.solver.modules.expressions import Report
from gateway.solver.modules.module import Constraint, Module, Variable
from tests.unit.whole_loop import Loop
from tests.unit.whole_modules import whole, whole_module

FAST, NIGHTLY = range(10), range(1_000, 2_000)
LATTICE = tuple(map(Fraction, ("-1", "0", "0.25", "0.5", "1", "1.5", "2", "3", "40", "41")))


def value(v: Variable, dice: random.Random) -> Fraction:
    """Where ties are likely; an enum may hold what no label stands for."""
    if v.labels is not None:
        return Fraction(dice.choice([*v.labels.values(), *v.labels.values(), 7]))
    if v.sort != "real":
        return Fraction(dice.randrange(2 if v.sort == "bool" else 5))
    low, high = v.range
    return dice.choice([n for n in LATTICE if low <= n <= high] + [low, high])


def point(module: Module, dice: random.Random) -> dict[str, Fraction]:
    """Everything that a rule can ask for, by the solver's keys."""
    found: dict[str, Fraction] = {}
    for v in module.variables.values():
        found[v.name], found[f"prev({v.name})"] = value(v, dice), value(v, dice)
        change = (found[v.name] - found[f"prev({v.name})"]) / module.step
        found[f"rate({v.name})"] = dice.choice([change, Fraction(-1), Fraction(0), Fraction(2)])
        held, old = Fraction(dice.choice([0, 2, 3, 5, 60, 1_000])), found[f"prev({v.name})"]
        found[f"held({v.name})"] = held
        found[f"kept_on({v.name})"] = Fraction(old >= 1 and held < v.min_on)
        found[f"may_rise({v.name})"] = Fraction(old >= 1 or held >= v.min_off)
        found[f"good({v.name})"] = Fraction(dice.randrange(2))
        found[f"age({v.name})"] = Fraction(dice.choice([0, 1, 2, 3]), 2)
    return found


def told(module: Module, tree: Expr, at: dict[str, Fraction], dice: random.Random) -> dict[str, Fraction]:
    """The point by the second reader's names; answers of rows are added to both."""
    tags = {v.name: str(v.tag) for v in module.variables.values()}
    env: dict[str, Fraction] = {}
    for key, number in at.items():
        form, _, rest = key.partition("(")
        env[f"{form} {tags[rest[:-1]]}" if rest else tags[form]] = number
    for lasting in timed(tree):
        at[lasting.key] = Fraction(dice.randrange(2))
        env[f"lasted {row_named(lasting.row)} {lasting.seconds}"] = at[lasting.key]
    return env


def kept(formula: Formula, at: Mapping[str, Fraction]) -> bool:
    """A formula over exact forms, at a point."""
    if isinstance(formula, Atom):
        found = formula.form.at(at)
        return found < 0 or (found == 0 and not formula.strict)
    parts = (kept(part, at) for part in formula.parts)
    return all(parts) if isinstance(formula, Every) else any(parts)


def by_z3(formula: Formula, at: Mapping[str, Fraction]) -> bool:
    context = z3.Context()
    terms, solver = Terms(context), z3.SimpleSolver(ctx=context)
    solver.add(*(terms.name(name) == terms.number(number) for name, number in at.items()))
    solver.add(terms.formula(formula))
    return str(solver.check()) == "sat"


def rules_of(module: Module) -> tuple[Constraint, ...]:
    return (*module.rules, *module.safe_set, *module.terminal)


def differences(module: Module, dice: random.Random, points: int) -> Iterator[str]:
    """Rules that two judges judge differently somewhere."""
    source = read_source(module.text)
    for rule in rules_of(module):
        holds, tree = words(source, f"{module.id}/{rule.id}"), whole(rule)
        assert holds is not None, rule.id
        for number in range(points):
            at = point(module, dice)
            env = told(module, tree, at, dice)
            said = {
                "evaluator": truth(tree, at),
                "forms": kept(rule.formula, at),
                "recheck": bool(holds(env)),
            }
            if number == 0:
                said["z3"] = by_z3(rule.formula, at)
            if len(set(said.values())) > 1:
                yield f"{rule.text}: {said} at {at}"


def drawn_case(module: Module, dice: random.Random) -> dict[str, Any]:
    """A case with something of everything."""

    def given(v: Variable) -> Any:  # noqa: ANN401  a JSON value
        if v.labels is not None:
            return dice.choice(list(v.labels))
        if v.sort == "bool":
            return bool(dice.randrange(2))
        return str(dice.randrange(5)) if v.sort == "int" else dice.choice(["0.5", "1", "1.5", "2", "4.99"])

    variables = list(module.variables.values())
    seen = [v.name for v in variables if not v.action and not v.hidden]
    times = ("0 s", "1 s", "500 ms", "2 s", "3 s", "1 min")
    previous = {v.name: given(v) for v in variables if dice.random() < 0.6}
    previous |= {f"{v.name}_for": dice.choice(times) for v in variables if v.action and dice.random() < 0.7}
    return {
        "given": {v.name: given(v) for v in variables},
        "previous": previous,
        "age": {name: dice.choice(times) for name in dice.sample(seen, dice.randrange(3))},
        "bad": dice.sample(seen, dice.randrange(3)),
        "held": {name: dice.choice(times) for name in dice.sample(seen, dice.randrange(4))},
        "expect": "permitted",
    }


def with_cases(module: Module, dice: random.Random, count: int) -> str:
    """The module with cases that expect what the compiler finds."""
    cases = [drawn_case(module, dice) for _ in range(count)]
    node, report = parse_json(json.dumps({"cases": cases})), Report("cases")
    for index, case in enumerate(cases):
        shape = CaseShape.model_validate(case)
        made = compile_case(shape, node, ("cases", index), module.variables, report)
        assert made is not None, report.found
        violated = sorted(violations(module, made))
        case["expect"] = {"violated": violated} if violated else "permitted"
    return json.dumps({**json.loads(module.text), "cases": cases})


def all_alike(seeds: range, points: int, cases: int) -> None:
    rules = 0
    for seed in seeds:
        module, dice = whole_module(seed), random.Random(seed)  # noqa: S311  # a repeatable sample
        rules += len(rules_of(module))
        assert list(differences(module, dice, points)) == [], seed
        assert misjudged_cases(with_cases(module, dice, cases)) == [], seed
    assert rules > 8 * len(seeds)


def test_s7_every_reader_judges_a_module_alike_at_every_point_and_on_every_case() -> None:
    all_alike(FAST, points=8, cases=8)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_s7_every_reader_judges_a_thousand_modules_alike() -> None:
    all_alike(NIGHTLY, points=20, cases=20)


def played(seeds: range, cycles: int, *, exactly: bool) -> Counter[str]:
    tally = Counter[str]()
    for seed in seeds:
        dice = random.Random(seed)  # noqa: S311  # a repeatable sample
        loop = Loop([whole_module(seed)], dice, exactly=exactly)
        loop.run(cycles)
        assert loop.against == [], seed
        tally += loop.tally
    return tally


def test_s7_the_second_judge_has_nothing_against_what_is_decided() -> None:
    tally = played(FAST[:4], 5, exactly=False)

    assert min(tally["permitted"], tally["refused"]) >= 3, tally


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_s7_the_second_judge_has_nothing_against_hundreds_of_modules() -> None:
    tally = played(NIGHTLY[:300], 10, exactly=True)

    assert min(tally["permitted"], tally["refused"]) > 400, tally
