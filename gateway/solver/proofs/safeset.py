"""The proof that lets a point be armed: from every state of the safe set the backup keeps every rule.

Of a `terminal` set it is shown that the backup, acting at any moment of the step, keeps the rules and ends in
the set again: how the plant comes there, also when the gateway is silent, each check shows over its horizon.
And that rules about outputs alone, ramps among them, let the backup begin from any values in force.

Of a safe set three things are shown. All with Z3, for every state in the set, every disturbance, and both
values of every guard that a sensor error could turn:
`loop`: the backup's action, acting at any moment of the step, keeps the rules and ends in the set again;
`moment`: the set holds at every quarter of that step, because a decision may come at any moment;
`lease`: when the gateway falls silent, the values in force may act for `lease_s` more, then the PLC's own
fallback (the same backup) acts: the rules hold all the way, and the end lies in the set again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import cast

import z3

from gateway.config.model import TagRow
from gateway.config.tags import parse_csv, tag_definition
from gateway.solver.checking.condense import LEASE_S
from gateway.solver.checking.terms import Terms, fraction
from gateway.solver.checking.way import SLOWEST_RAMP
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.language.affine import negated
from gateway.solver.modules.compile import compile_module
from gateway.solver.modules.module import Ramp
from gateway.solver.proofs.story import Story
from gateway.solver.rules.ruleset import RuleSet

Progress = Callable[[int, int], None]
UNANSWERED = "no answer in the budget"

_LONGEST = 40  # steps after which a fallback must be back in the set


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What was shown of one rule set; `escape` says in plant terms how a state leaves, or is empty."""

    digest: str
    escape: str = ""
    course: tuple[str, ...] = ()  # of the escape, moment by moment

    @property
    def holds(self) -> bool:
        """Whether the set is invariant."""
        return not self.escape


_QUARTERS = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), Fraction(1))


def _loop(rules: RuleSet) -> Story:
    story = Story(rules)
    after = story.backup()
    story.must("already in the set", story.state, story.acting)
    story.must("when the backup begins to act", story.state, after)
    story.must_at_once(after)
    story.must_be_safe("when the backup begins to act", story.state, after)
    before = story.state
    for part, state in zip(_QUARTERS, story.move(after, _QUARTERS), strict=True):
        said = f"{float(part * story.step):g} s after the backup was asked"
        for acting in (story.acting, after):
            story.must(said, state, acting)
            story.must_between(said, before, state, acting)
        story.must_change(said, state, after)
        before = state
        story.must_be_safe(said, state, after)
    return story


def _terminal(rules: RuleSet) -> Story:
    story = Story(rules)
    after = story.backup()
    story.must("already in the set", story.state, story.acting)
    story.must("when the backup goes on", story.state, after)
    story.must_at_once(after)
    states = story.move(after, _QUARTERS)
    for part, before, state in zip(_QUARTERS, (story.state, *states), states, strict=False):
        said = f"{float(part * story.step):g} s later"
        for acting in (story.acting, after):
            story.must(said, state, acting)
            story.must_between(said, before, state, acting)
        story.must_change(said, state, after)
    story.must_be_safe("a step later", states[-1], after)
    return story


def _taken_over(rules: RuleSet) -> Story:
    """The backup may begin wherever the outputs are: no ramp and no sequence stands against it."""
    story = Story(rules, anywhere=True)
    story.must_at_once(story.backup(), of_outputs=True)
    return story


def _lease(rules: RuleSet, lease_s: Fraction) -> Story:
    story = Story(rules)
    held = -(-lease_s // story.step)
    for k in range(held):
        before, story.state = story.state, story.settle(story.move(story.acting, (Fraction(1),))[0])
        said = f"{_steps(k + 1)} after the gateway fell silent"
        story.must(said, story.state, story.acting)
        story.must_between(said, before, story.state, story.acting)
    for k in range(held, held + _fallback_steps(rules)):
        after = story.backup()
        before, story.state = story.state, story.settle(story.move(after, (Fraction(1),))[0])
        said = f"{_steps(k + 1)} after the gateway fell silent"
        for acting in (story.acting, after):
            story.must(said, story.state, acting)
            story.must_between(said, before, story.state, acting)
        story.acting = after
    story.must_be_safe("when the PLC's fallback has done its work", story.state, story.acting)
    return story


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _fallback_steps(rules: RuleSet) -> int:
    """Steps in which every ramp has certainly arrived."""
    longest = 1
    for step in rules.backup:
        for tag, move in step.entry.moves.items():
            if isinstance(move, Ramp):
                low, high = next(v.range for v in rules.actions if v.tag == tag)
                each = move.rate * rules.modules[0].step * SLOWEST_RAMP
                longest = max(longest, -(-(high - low) // each) + 1)
    return min(longest, _LONGEST)


def _stories(rules: RuleSet, lease_s: Fraction) -> tuple[Story, ...]:
    if rules.terminal and not rules.safe_set:
        return _terminal(rules), _taken_over(rules)
    return _loop(rules), _lease(rules, lease_s)


def prove(
    rules: RuleSet,
    *,
    budget_s: float = 60.0,
    lease_s: Fraction = LEASE_S,
    progress: Progress = lambda _done, _of: None,
) -> Proof:
    """Whether the set is invariant; no answer within the budget counts as no.

    `progress` is told how many of how many instants are done.
    """
    if not rules.backup or not rules.invariant or not rules.forms:
        return Proof(
            digest=rules.proof_digest, escape="there is no dynamics, `backup` or `safe_set` to prove"
        )
    ends = time.monotonic() + budget_s
    stories = _stories(rules, lease_s)
    of = sum(len({needed for needed, _ in story.obligations}) for story in stories)
    done = 0
    for story in stories:
        for found in _escapes(story, ends):
            if found is not None:
                return Proof(digest=rules.proof_digest, escape=found[0], course=found[1])
            done += 1
            progress(done, of)
    return Proof(digest=rules.proof_digest)


_Escape = tuple[str, tuple[str, ...]]


def _escapes(story: Story, ends: float) -> Iterator[_Escape | None]:
    """Every way out of a story's premises, None for each instant that has none.

    All obligations of one instant are asked at once first.
    """
    context = z3.Context()
    terms = Terms(context)
    solver = z3.SimpleSolver(ctx=context)
    solver.set("arith.solver", 2)  # half the time on these queries, a third on sets of many chords

    def asked(*goals: z3.BoolRef) -> str:
        left_ms = int((ends - time.monotonic()) * 1000)
        if left_ms <= 0:
            return "unknown"
        solver.set("timeout", left_ms)
        return str(solver.check(*goals))

    stated = 0
    for needed, group in itertools.groupby(story.obligations, key=lambda o: o[0]):
        solver.add([terms.formula(premise) for premise in story.premises[stated:needed]])
        stated = needed
        missed: list[tuple[str, z3.BoolRef]] = []
        for index, (_, obligation) in enumerate(group):
            goal = z3.Bool(f"missed {needed} {index}", context)
            solver.add(z3.Implies(goal, terms.formula(negated(obligation.formula))))
            missed.append((obligation.said, goal))
        together = z3.Bool(f"missed {needed}", context)
        solver.add(z3.Implies(together, z3.Or([goal for _, goal in missed])))
        if asked(together) == "unsat":
            yield None
            continue
        found = ((said, asked(goal)) for said, goal in missed)
        for said, answer in found:
            if answer != "unsat":
                model = solver.model() if answer == "sat" else None
                yield _escape(story, terms, said, model)
    if (last := asked()) != "sat":
        empty = "the safe set is empty: nothing is shown of it"
        yield (empty if last == "unsat" else f"{UNANSWERED}: whether the safe set is empty"), ()


def _escape(story: Story, terms: Terms, said: str, model: z3.ModelRef | None) -> _Escape:
    if model is None:
        return f"{UNANSWERED}: {said}", ()
    told = f"{said} is not kept from {_plant_terms(story, terms, model)}"
    return told, tuple(_course(story, terms, said, model))


def _course(story: Story, terms: Terms, escaped: str, model: z3.ModelRef) -> Iterator[str]:
    """What happens on the way to the escape, moment by moment."""
    before = ""
    for moment in story.moments:
        values = {**moment.state, **moment.acting}
        parts: list[str] = []
        for variable in (*story.rules.measured, *story.rules.actions):
            form = values[variable.tag]
            point = {n: fraction(model.eval(terms.name(n), model_completion=True)) for n in form.symbols}
            parts.append(f"{variable.name} {variable.text(form.at(point))}")
        line = ", ".join(parts)
        if line != before:
            yield f"{moment.said}: {line}"
        before = line
        if escaped.endswith(moment.said):
            return


def _plant_terms(story: Story, terms: Terms, model: z3.ModelRef) -> str:
    """The start of the escaping course of events."""
    parts: list[str] = []
    for index, variable in enumerate((*story.rules.measured, *story.rules.actions), start=1):
        value = fraction(model.eval(terms.name(f"{variable.tag}#{index}"), model_completion=True))
        parts.append(f"{variable.name} {float(value):.6g} {variable.unit}".strip())
    return ", ".join(parts)


def read_proofs(path: Path) -> frozenset[str]:
    """The committed proof digests; none where there is no file."""
    if not path.exists():
        return frozenset()
    return frozenset(entry["digest"] for entry in json.loads(path.read_text(encoding="utf-8"))["proved"])


def write_proof(path: Path, proof: Proof, rules: RuleSet) -> None:
    """Note a proof in a proofs file, in place of an older one of the same modules."""
    entry = {"modules": sorted(m.id for m in rules.modules), "digest": proof.digest, "lease_s": str(LEASE_S)}
    known = json.loads(path.read_text(encoding="utf-8"))["proved"] if path.exists() else []
    kept = [e for e in known if e["modules"] != entry["modules"]]
    proved = sorted([*kept, entry], key=lambda e: e["modules"])
    path.write_text(json.dumps({"proved": proved}, indent=2) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Prove the given modules together and note the digest in the proofs file."""
    parser = argparse.ArgumentParser(prog="gateway.solver.proofs.safeset", description=main.__doc__)
    parser.add_argument("modules", nargs="+", type=Path)
    parser.add_argument("--tags", type=Path, default=Path("packaging/demo/tk1.csv"), help="CSV of tags")
    parser.add_argument("--proofs", type=Path, default=Path("constraints/proofs.json"))
    parser.add_argument("--budget", type=float, default=300.0, metavar="SECONDS")
    asked = parser.parse_args(arguments)
    rows = parse_csv(asked.tags.read_text(encoding="utf-8")).plain()
    tags = {
        d.id: d for d in (tag_definition(TagRow.model_validate(row)) for row in cast("list[object]", rows))
    }
    try:
        modules = [compile_module(path.read_bytes(), path.name, tags) for path in asked.modules]
        rules = RuleSet.of(modules, 0)
    except ModuleRefusedError as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    proof = prove(rules, budget_s=asked.budget)
    if not proof.holds:
        sys.stderr.write(f"not invariant: {proof.escape}\n")
        return 1
    write_proof(asked.proofs, proof, rules)
    sys.stdout.write(f"{proof.digest}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
