from __future__ import annotations

import pytest

from gateway.solver.modules.compile import ModuleRefusedError, compile_module
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.solver_demo import BUFFER_TANK, HEATER, LEVEL, LOWER_LEVEL, MIXER, PUMP, TAGS, module


def problems(*changes: tuple[str, str]) -> list[str]:
    with pytest.raises(ModuleRefusedError) as refused:
        module(BUFFER_TANK, *changes)
    return [str(p) for p in refused.value.problems]


def test_the_demo_module_compiles_and_its_cases_are_judged_as_they_say() -> None:
    demo = module()

    assert (demo.id, demo.revision, demo.source) == ("buffer-tank", 7, "buffer-tank.json")
    assert demo.actions == (PUMP, HEATER, MIXER)
    assert demo.tags["level"] == LEVEL
    assert {
        "no-overflow",
        "no-dry-run",
        "no-dry-fire",
        "heater-needs-mixing",
        "max-temperature",
    } <= demo.critical
    assert len(demo.cases) >= 7


def test_an_unknown_name_is_told_with_line_column_the_users_words_and_the_nearest_name() -> None:
    (problem,) = problems(('"require": "level <= 3.6"', '"require": "levl <= 3.6"'))

    line = next(n for n, text in enumerate(BUFFER_TANK.read_text().splitlines(), 1) if "no-overflow" in text)
    column = BUFFER_TANK.read_text().splitlines()[line - 1].index("level <= 3.6") + 1
    assert problem == (
        f"constraint module `buffer-tank.json`, line {line}, column {column}: "
        "`levl` is not a variable of this module; did you mean `level`?, in `levl <= 3.6`"
    )


def test_all_problems_are_told_at_once() -> None:
    found = problems(
        ('"require": "level <= 3.6"', '"require": "level <= inflow"'),
        ('"require": "temp <= 75"', '"require": "temp <= "'),
        ('"require": "pump <= 80"', '"require": "pump == 80 and level == 2"'),
    )

    assert len(found) == 3
    assert "`m` and `m3/h` are unlike units" in found[0]
    assert "expected a value" in found[1]
    assert "abs(a - b) <= tolerance" in found[2]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"tag": "TK1.LT101"', '"tag": "TK1.LT102"', "unknown tag `TK1.LT102`; did you mean `TK1.LT101`?"),
        ('"unit": "m",', '"unit": "mm",', "unit `mm` is not the unit `m` of tag `TK1.LT101`"),
        ('"error": "0.01", ', "", "`level` is measured and needs an `error`"),
        ('"error": "0.01"', '"error": "0"', "claims an error of 0, which no instrument has"),
        ('"priority": 8', '"prioritty": 8', "unknown key `prioritty`; did you mean `priority`?"),
        ('"max_rate": "2 m3/h/s"', '"max_rate": "2 m3/h"', "is per second: write `m3/h/s`"),
        ('"heater": false}', '"heatr": false}', "`heatr` is not an action; did you mean `heater`?"),
        ('"step": "1 s"', '"step": "1"', "`1` is not a duration"),
        ('"require": "pump <= 80"', '"require": "pump * level * inflow <= 80"', "more than two variables"),
        ('"require": "pump <= 80"', '"require": "rate(level) <= inflow"', "are unlike units"),
        ('"require": "pump <= 80"', '"require": "pump <= 80 $"', "`$` is not part of the language"),
        ('"physical": ["0", "36"]', '"physical": ["36", "0"]', "is above the upper end"),
        ('{"mixer": "hold"}]', '{"pump": "hold"}]', "the backup leaves `mixer` open"),
        ('"level": "3.61"', '"level": "3.5"', "the case expects `no-overflow` and finds nothing violated"),
        ('"language": 1', '"language": 2', "language 2 is not known here"),
    ],
)
def test_what_is_wrong_is_said_in_the_users_words(old: str, new: str, said: str) -> None:
    assert any(said in p for p in problems((old, new))), problems((old, new))


# S26: a critical constraint that no case violates could be vacuous and nobody would notice.
# One mistake, one sentence: rules and cases that use a variable which is wrong itself are not told of.
def test_a_wrong_variable_brings_no_errors_of_its_cases() -> None:
    (problem,) = problems(
        (
            '"tag": "TK1.LT101", "type": "real", "unit": "m"',
            '"tag": "TK1.LT101", "type": "real", "unit": "bar"',
        )
    )

    assert problem.endswith("unit `bar` is not the unit `m` of tag `TK1.LT101`")


def test_s26_a_critical_constraint_without_a_violating_case_is_refused() -> None:
    found = problems(
        ('"expect": {"violated": ["max-temperature"]}', '"expect": "permitted"'),
        ('"temp": "75.1"', '"temp": "70"'),
    )

    assert any("no case violates critical constraint `max-temperature`" in p for p in found)


@pytest.mark.parametrize("data", [b"\xff\xfe", b"", b"{", b"[]", b'{"id": "a", "id": "b"}', b"null"])
def test_what_is_no_module_is_refused_and_never_crashes(data: bytes) -> None:
    with pytest.raises(ModuleRefusedError) as refused:
        compile_module(data, "x.json", TAGS)

    assert all(p.line >= 1 and p.column >= 1 for p in refused.value.problems)


# S1: two backups for one output would leave nobody knowing which one the safe set was proved for.
def test_s1_modules_with_different_backups_for_a_shared_action_are_refused_together() -> None:
    other = module(LOWER_LEVEL, ('"pump": "ramp(100, 10)"', '"pump": "ramp(100, 5)"'))

    with pytest.raises(ModuleRefusedError, match=r"backup for `TK1\.P101\.SP` differs"):
        RuleSet.of((module(), other), 1)


# S3: assumptions are never strengthened by adding a module: the widest error, the smallest max_age.
def test_s3_a_second_module_can_only_weaken_assumptions_and_add_rules() -> None:
    wider = module(LOWER_LEVEL, ('"error": "0.01", "max_age": "2 s"', '"error": "0.02", "max_age": "1 s"'))
    alone, both = RuleSet.of((module(),), 1), RuleSet.of((module(), wider), 2)

    assert float(both.variables[LEVEL].error) == 0.02
    assert both.variables[LEVEL].max_age == 1
    assert len(both.rules) > len(alone.rules)
    assert both.digest != alone.digest
    assert both.forms.keys() == alone.forms.keys()  # the dynamics of the first serve the second's rule


def test_the_digest_of_a_set_does_not_depend_on_the_order_of_its_modules() -> None:
    first, second = module(), module(LOWER_LEVEL)

    assert RuleSet.of((first, second), 1).digest == RuleSet.of((second, first), 2).digest
