"""The nearest permitted block of a small plant by brute force, and repairs that may lie anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from gateway.core.decision import CheckResult, Proposal, RegisterValue
from gateway.core.ports import CheckRequest
from gateway.core.restraint import UNRESTRAINED, Restraint
from gateway.core.tag import TagId
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from tests.unit.solver_demo import PATIENT
from tests.unit.solver_next import ORDER, TAGS, Enumerated, Here

P, R, H, S = ORDER
SPANS: Mapping[TagId, int] = {P: 50, R: 40}  # of the declared ranges
VALUES: Mapping[TagId, tuple[int, ...]] = {H: (0, 1), S: (0, 2, 3)}

Block = Mapping[TagId, int]
Nearness = tuple[int, Fraction, tuple[int, ...]]


def proposal(block: Block) -> Proposal:
    """A block of counts as a model proposes it."""
    values = tuple(RegisterValue(t, block[t], TAGS[t].engineering(block[t])) for t in ORDER)
    return Proposal(values=values, by="model")


def asked(
    here: Here, block: Block, restraint: Restraint = UNRESTRAINED, *, may_repair: bool = True
) -> CheckRequest:
    """A request whose repair may lie anywhere."""
    return replace(
        here.request(),
        proposal=proposal(block),
        may_repair=may_repair,
        restraint=restraint,
        repair="nearest",
    )


def block_of(values: Iterable[RegisterValue]) -> dict[TagId, int]:
    """The counts of a verdict."""
    return {v.tag: v.raw for v in values}


def nearness(wanted: Block, found: Block, ties: Sequence[TagId] = (H, P, R, S)) -> Nearness:
    """Switches turned, then shares of ranges moved, then counts moved in the order of ties.

    Of one module the order of ties is that of the names.
    """
    turned = sum(wanted[tag] != found[tag] for tag in VALUES)
    moves = {
        tag: abs(TAGS[tag].engineering(found[tag]) - TAGS[tag].engineering(wanted[tag])) for tag in SPANS
    }
    far = sum((move / SPANS[tag] for tag, move in moves.items()), Fraction(0))
    changes = {
        tag: abs(found[tag] - wanted[tag]) if tag in SPANS else int(found[tag] != wanted[tag])
        for tag in ORDER
    }
    return turned, far, tuple(changes[tag] for tag in ties)


def one_step() -> Fraction:
    """The greatest step of a register, as a share of its range."""
    return max(abs(TAGS[tag].scale) / span for tag, span in SPANS.items())


class Judged:
    """A small plant in one state, every block of it judged by the full check."""

    def __init__(self, rules: RuleSet, here: Here, named: Iterable[TagId] = ()) -> None:
        """`named`: switches that a repair may turn."""
        self.here = here
        self._named = frozenset(named)
        self.permitted: Sequence[Block] = Enumerated(rules, here).permitted
        self._checks = Checks(rules, PATIENT)

    def checked(self, block: Block, restraint: Restraint = UNRESTRAINED) -> CheckResult:
        """A proposal, with a repair wherever it is nearest."""
        return self._checks.check(asked(self.here, block, restraint))[0]

    def best(self, wanted: Block, restraint: Restraint = UNRESTRAINED) -> Nearness | None:
        """How near the nearest permitted block is, of those that a repair may choose; None without one."""
        found = [
            nearness(wanted, block)
            for block in self.permitted
            if all(block[t] == wanted[t] or (t in self._named and block[t] in VALUES[t]) for t in VALUES)
            and not any(self._too_small(tag, block[tag], restraint) for tag in SPANS)
        ]
        return min(found, default=None)

    def _too_small(self, tag: TagId, raw: int, restraint: Restraint) -> bool:
        least, before = restraint.least_change.get(tag), TAGS[tag].engineering(self.here.old[tag])
        certain = all(ago > 0 for _, ago in self.here.older.get(tag, ()))  # else nothing is too small
        return certain and least is not None and 0 < abs(TAGS[tag].engineering(raw) - before) < least
