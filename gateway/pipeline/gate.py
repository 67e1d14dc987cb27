"""The last gate: one pure function, called synchronously directly before the bytes (S17)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from gateway.core.decision import Mode
from gateway.core.tag import TagId


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFacts:
    """How things stand at the instant before the bytes, beside what the decision relied on."""

    writes_stopped: bool
    mode: Mode
    deadline_passed: bool
    remote: bool
    session_used: int
    session_now: int
    generation_used: int
    generation_now: int
    override_over: str  # which override of the rule set has ended (S25), in words; "" while all last
    unusable_input: str  # an input whose newest sample is not plain Good, "" when all are
    outside_proof: str  # which newest sample contradicts what the check proved, in words; "" when none does
    not_live: str  # why the device cannot be known to run its program (S14), in words; "" when it is
    previous_used: dict[TagId, tuple[Fraction, ...]]
    previous_now: dict[TagId, tuple[Fraction, ...]]


def gate(facts: GateFacts) -> str:
    """Why nothing may be written, in words; empty when the gate is open."""
    moved = next((t for t, used in facts.previous_used.items() if facts.previous_now.get(t) != used), "")
    closed_by = (
        (facts.writes_stopped, "writes are stopped by the kill switch"),
        (facts.mode is not Mode.ARMED, f"the decision point is in {facts.mode.value}, not armed"),
        (facts.deadline_passed, "the deadline passed"),
        (not facts.remote, "the PLC is in local"),
        (
            facts.session_used != facts.session_now,
            "the link to the PLC was renewed since the inputs were read",
        ),
        (
            facts.generation_used != facts.generation_now,
            f"rule set {facts.generation_now} came into force after the check under {facts.generation_used}",
        ),
        (bool(facts.override_over), facts.override_over),
        (bool(facts.not_live), facts.not_live),
        (bool(facts.unusable_input), f"the newest sample of `{facts.unusable_input}` is not Good"),
        (bool(facts.outside_proof), facts.outside_proof),
        (bool(moved), f"the value in force of `{moved}` changed since the check"),
    )
    return next((why for closed, why in closed_by if closed), "")
