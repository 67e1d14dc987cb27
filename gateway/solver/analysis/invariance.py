"""S1: whether the backup keeps the safe or the terminal set, or the state that escapes and how."""

from __future__ import annotations

from collections.abc import Collection
from math import ceil

from gateway.solver.analysis.asking import Allowance
from gateway.solver.analysis.findings import NOT_KNOWN, Finding
from gateway.solver.proofs.safeset import UNANSWERED, Progress, Proof, prove
from gateway.solver.rules.ruleset import RuleSet


def examine(
    rules: RuleSet,
    allowance: Allowance,
    progress: Progress = lambda _done, _of: None,
    proved: Collection[str] = (),
) -> tuple[Finding, bool]:
    """The finding, and whether the set is known to be invariant. `proved`: digests that were shown before."""
    if not rules.forms:
        said = "it has no dynamics: it claims the snapshot only, and no point is armed under it alone"
        return Finding(question="safe set", level="note", said=said), False
    if not rules.backup or not rules.invariant:
        return _missing(rules), False
    known = rules.proof_digest in proved
    proof = (
        Proof(digest=rules.proof_digest)
        if known
        else prove(rules, budget_s=allowance.left_s, progress=progress)
    )
    what = "terminal" if rules.terminal and not rules.safe_set else "safe"
    if proof.holds:
        how = "shown before, by the digest of everything it rests on" if known else "for every disturbance"
        return Finding(
            question="safe set",
            level="fine",
            said=f"proved: the {what} set is invariant under the backup, and the rules hold there ({how})",
        ), True
    if proof.escape.startswith(UNANSWERED):
        said = f"whether the {what} set is invariant under the backup: {NOT_KNOWN}"
        return Finding(question="safe set", level="unknown", said=f"{said} ({proof.escape})"), False
    return Finding(
        question="safe set",
        level="refused",
        said=f"the {what} set is not invariant under the backup: {proof.escape}",
        story=proof.course,
        todo="make the set smaller or the backup quicker; o3ctl analyze --suggest-safe-set looks for a set",
    ), False


def _missing(rules: RuleSet) -> Finding:
    lacks = "`backup`" if not rules.backup else "`safe_set`, and no `terminal` set"
    return Finding(
        question="safe set",
        level="warning",
        said=f"it has dynamics and no {lacks}: a permitted value may lead to where none is permitted, and no "
        "point is armed under it",
        todo="o3ctl analyze --suggest-safe-set looks for a safe set"
        if rules.backup
        else "say in `backup` what to do when nothing else may be done",
    )


def horizon(rules: RuleSet, silence_s: float) -> Finding | None:
    """S11: whether the horizon of a terminal set outlasts the longest hold; None where there is none."""
    if not rules.terminal or not silence_s:
        return None
    step = float(rules.modules[0].step)
    covers = rules.horizon * step
    said = f"the horizon covers {covers:g} s, and the last values may act for {silence_s:g} s"
    if covers >= silence_s:
        return Finding(question="safe set", level="fine", said=said)
    return Finding(
        question="safe set",
        level="refused",
        said=f"{said}: a point cannot be armed under it",
        todo=f"raise `horizon` to {ceil(silence_s / step)}",
    )
