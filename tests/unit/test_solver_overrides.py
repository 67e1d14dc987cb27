"""Overrides in a rule set (S25): what may be set aside, what is judged then, and what a proof still says."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.decision import Holds, Permitted, Refused, Violated
from gateway.core.override import Override, overrides_of, phrase, plain
from gateway.solver.checking.condense import LEASE_S
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.modules.module import Module
from gateway.solver.proofs import safeset
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.rules.setting_aside import why_not
from gateway.solver.workers.check import Checks
from tests.unit.solver_demo import PATIENT, Situation, proposal, rule_set
from tests.unit.solver_small import small

RAMP = Override(
    module="buffer-tank",
    constraint="pump-ramp",
    reason="valve test",
    requested_by="anna",
    confirmed_by="bert",
    since_ns=1_764_424_800_000_000_000,
    until_ns=1_764_425_100_000_000_000,
)
JUMP = Situation(pump="40", may_repair=False).request(proposal("70"))


def under(*overrides: Override, generation: int = 1) -> RuleSet:
    return RuleSet.of(rule_set().modules, generation, overrides)


def test_an_overridden_standard_rule_is_reported_and_refuses_nothing_s25() -> None:
    before, _ = Checks(rule_set(), PATIENT).check(JUMP)
    assert isinstance(before.verdict, Refused), before.verdict
    assert before.verdict.counterexample.constraint == "pump-ramp"

    result, _ = Checks(under(RAMP), PATIENT).check(JUMP)

    assert isinstance(result.verdict, Permitted), result.verdict
    assert result.overrides == (RAMP,)
    told = next(f for f in result.findings if f.constraint == "pump-ramp")
    assert isinstance(told, Violated)
    assert told.kind == "informational"


def test_critical_rules_and_the_safe_set_refuse_as_before_under_an_override_s25() -> None:
    high = Situation(level=3.58, pump="0", may_repair=False).request(proposal("0"))

    result, _ = Checks(under(RAMP), PATIENT).check(high)

    assert isinstance(result.verdict, Refused)
    assert not any(f.constraint == "pump-ramp" and isinstance(f, Holds) for f in result.findings[:1])


@pytest.mark.parametrize(
    ("constraint", "said"),
    [
        ("no-overflow", "is critical, and a critical constraint is never overridden"),
        ("pump.range", "is a declared range of `pump`"),
        ("heater.min_on", "is a minimum time of `heater`"),
        ("heater.min_off", "is a minimum time of `heater`"),
        ("pump", "has no constraint `pump`"),
        ("nothing.range", "has no constraint `nothing.range`"),
        ("safe_set[1]", "is a part of the safe set"),
        ("safe_set", "is a part of the safe set"),
        ("terminal[1]", "is a part of the terminal set"),
        ("prefer-slow", "is informational"),
        ("pump-rmap", "did you mean `pump-ramp`"),
        ("", "those that may be overridden: `pump-ramp`"),
    ],
)
def test_what_may_not_be_overridden_is_refused_with_a_sentence_s25(constraint: str, said: str) -> None:
    module = rule_set().modules[0]
    assert said in why_not(module, constraint)
    with pytest.raises(ModuleRefusedError) as refused:
        under(replace(RAMP, constraint=constraint))
    assert said in str(refused.value)


def test_a_module_that_is_not_in_force_and_a_rule_named_twice_are_refused() -> None:
    for asked, source, said in (
        ([replace(RAMP, module="boiler")], "boiler", "module `boiler` is not in force"),
        ([RAMP, replace(RAMP, reason="again")], "buffer-tank.json", f"`{RAMP.name}` is overridden twice"),
        (
            [replace(RAMP, confirmed_by="anna")],
            "buffer-tank.json",
            f"`{RAMP.name}` is overridden by one person alone, `anna`",
        ),
    ):
        with pytest.raises(ModuleRefusedError) as refused:
            under(*asked)
        assert str(refused.value) == f"constraint module `{source}`, line 1, column 1: {said}"


ANY_RULE = st.sampled_from(
    [r.constraint.id for r in (*rule_set().rules, *rule_set().safe_set)] + ["no-overflow ", "NO-OVERFLOW"]
)


# The property that matters most: whatever is asked for, every critical rule goes on refusing.
@settings(max_examples=30)
@given(names=st.lists(ANY_RULE, max_size=4))
def test_no_override_ever_weakens_a_critical_rule_s25(names: list[str]) -> None:
    before = rule_set()
    try:
        after = under(*(replace(RAMP, constraint=name) for name in names))
    except ModuleRefusedError:
        assert set(names) - {"pump-ramp"} or len(names) > 1
        return
    assert set(names) <= {"pump-ramp"}
    assert after.safe_set == before.safe_set
    critical = [r for r in before.rules if r.constraint.kind == "critical"]
    assert critical
    assert [r for r in after.rules if r.constraint.kind == "critical"] == critical
    assert all(r.binding for r in after.rules if r.constraint.kind == "critical")


def test_overrides_belong_to_the_identity_of_the_rule_set_s25() -> None:
    digests = {
        rule_set().digest,
        under(RAMP).digest,
        under(replace(RAMP, confirmed_by="carl")).digest,
        under(replace(RAMP, until_ns=RAMP.until_ns + 1)).digest,
    }
    assert len(digests) == 4
    assert under().digest == rule_set().digest


# Rules are only ever what a proof must show, never what it is shown from.
def test_a_proof_of_the_set_holds_with_fewer_standard_rules_and_not_the_other_way_s25() -> None:
    whole, fewer = rule_set(), under(RAMP)
    assert fewer.proof_digest != whole.proof_digest
    assert fewer.proved_by({whole.proof_digest})
    assert not whole.proved_by({fewer.proof_digest})
    assert fewer.armable((), {whole.proof_digest}) == whole.armable((), {whole.proof_digest}) == ""
    for all_of_it, less in zip(
        safeset._stories(whole, LEASE_S), safeset._stories(fewer, LEASE_S), strict=True
    ):
        assert less.premises == all_of_it.premises
        owed = [(at, str(o)) for at, o in all_of_it.obligations]
        kept = [(at, str(o)) for at, o in less.obligations]
        assert set(kept) <= set(owed)
        gone = [said for said in owed if said not in kept]
        assert all("pump-ramp" in said for _, said in gone)
    assert any("pump-ramp" in o.said for _, o in safeset._stories(whole, LEASE_S)[0].obligations)


def test_the_words_name_the_rule_its_end_and_both_persons() -> None:
    assert phrase([RAMP]) == (
        "with `buffer-tank/pump-ramp` overridden until 2025-11-29 14:05:00 UTC by anna, confirmed by bert"
    )
    assert phrase([]) == ""
    assert overrides_of(plain([RAMP])) == (RAMP,)


@pytest.mark.parametrize(
    "said",
    [
        None,
        [{}],
        [{**plain([RAMP])[0], "until_ns": "soon"}],
        [{**plain([RAMP])[0], "until_ns": True}],
        [{**plain([RAMP])[0], "more": 1}],
        plain([RAMP]) * 2,
    ],
)
def test_what_is_no_list_of_overrides_is_not_read_as_one(said: object) -> None:
    with pytest.raises(ValueError, match=r"override"):
        overrides_of(said)


CYCLE = {
    "id": "cycle",
    "variable": "s",
    "cyclic": True,
    "states": [{"state": "idle"}, {"state": "run", "min": "5 s", "max": "9 s"}],
}
KINDS = st.sampled_from(["critical", "standard", "informational"])


# Whatever mixture of kinds a module has: only what refuses and is not critical is ever set aside.
@settings(max_examples=25)
@given(plain_kind=st.sampled_from(["standard", "informational"]), sequence_kind=KINDS, monitor=st.booleans())
def test_exactly_the_standard_rules_that_refuse_may_be_overridden_s25(
    plain_kind: str, sequence_kind: str, *, monitor: bool
) -> None:
    module = mixed(plain_kind, sequence_kind, watched=monitor)
    before = RuleSet.of([module], 1)
    for rule in before.rules:
        name, kind = rule.constraint.id, rule.constraint.kind
        able = (
            kind == "standard" and rule.binding and name.split(".")[-1] not in {"range", "min_on", "min_off"}
        )
        assert (why_not(module, name) == "") is able, name
        asked = replace(RAMP, module=module.id, constraint=name)
        if not able:
            with pytest.raises(ModuleRefusedError):
                RuleSet.of([module], 1, [asked])
            continue
        after = RuleSet.of([module], 1, [asked])
        assert [r.constraint.id for r in before.rules if r.binding] == [
            r.constraint.id for r in after.rules if r.binding or r.constraint.id == name
        ]
        assert {r.constraint.id for r in after.rules if r.overridden} == {name}


@cache
def mixed(plain_kind: str, sequence_kind: str, *, watched: bool) -> Module:
    """A module with a limit, a sequence and a heater with minimum times, of these kinds."""
    limit: dict[str, object] = {"id": "limit", "kind": plain_kind, "require": "l <= 4"}
    if watched:
        limit["monitor"] = True
    return small(limit, sequences=[{**CYCLE, "kind": sequence_kind}])


def test_a_sequence_is_overridden_rule_by_rule_and_never_a_critical_one_s25() -> None:
    module = mixed("standard", "standard", watched=False)
    assert "name one of its rules: cycle.order, cycle.min, cycle.max" in why_not(module, "cycle")
    critical = mixed("standard", "critical", watched=False)
    for end in ("order", "min", "max"):
        assert why_not(module, f"cycle.{end}") == ""
        assert "is critical" in why_not(critical, f"cycle.{end}")


def test_a_rule_named_as_a_set_or_as_what_is_declared_may_be_overridden_s25() -> None:
    names = ("terminal", "safe_set", "range", "min_on")
    module = small(*({"id": name, "kind": "standard", "require": "l <= 4"} for name in names))

    for name in names:
        assert why_not(module, name) == "", name
        made = RuleSet.of([module], 1, [replace(RAMP, module=module.id, constraint=name)])
        assert {r.constraint.id for r in made.rules if r.overridden} == {name}
    assert "is a declared range of `p`" in why_not(module, "p.range")
    assert "is a part of the terminal set" in why_not(module, "terminal[1]")
