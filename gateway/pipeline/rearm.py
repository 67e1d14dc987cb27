"""Start rules (S23): whether a point may be armed, by a person or again by itself, and why not."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.core.residual import broken
from gateway.core.tagstore import TagStore
from gateway.pipeline.point import Point
from gateway.pipeline.rules import RulesInForce
from gateway.pipeline.writer import SetpointWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmedBefore:
    """What was true when the point was last armed, from durable state."""

    armed: bool
    rule_set_digest: str | None  # None: not known, which is no digest's like
    model_digest: str | None
    starts_last_hour: int
    starts_limit: int | None  # None: lifted, which only the demo's configuration does


def not_armable(
    point: Point, rules: RulesInForce, store: TagStore, writer: SetpointWriter, *, writes_stopped: bool
) -> str:
    """Why the point cannot be armed now, in words; empty when a person may arm it."""
    settings = point.settings
    if writes_stopped:
        return "writes are stopped by the kill switch; resume with `o3ctl stop-writes --resume`"
    if not settings.required_modules:
        return "`required_modules` is empty: name the modules that must be in force"
    why = rules.unusable_for(settings.required_modules) or rules.not_armable
    why = why or rules.too_seldom(settings.period_s)
    if why:
        return why
    why = _bad_input(point, store) or writer.not_live(point) or _contradicted(point)
    if why:
        return why
    if not writer.status_bit(point, settings.remote_bit):
        return "the PLC is in local: switch it to remote"
    unknown = next((t for t, h in point.histories.items() if not h.known), None)
    return f"the value in force of `{unknown}` is not known yet" if unknown else ""


def _bad_input(point: Point, store: TagStore) -> str:
    bad = next((t for t in point.settings.inputs if not store[t].status.is_plain_good), None)
    return f"input `{bad}` is {store[bad].status.name}" if bad is not None else ""


def _contradicted(point: Point) -> str:
    """What the newest readings say against the module's assumptions, also in shadow (S16)."""
    why = broken(point.residuals)
    return f"{why}; try again once the readings agree with what is predicted" if why else ""


def not_rearmable(rules: RulesInForce, before: ArmedBefore, model_digest: str) -> str:
    """Why a point does not go back to armed by itself after a start; empty when it does.

    That its outputs are what was confirmed last is the PLC's to say, and asked of it besides.
    """
    limit = before.starts_limit
    reasons = (
        (not before.armed, "it was not armed before the start"),
        (before.rule_set_digest != rules.digest, "the rule set changed since it was armed"),
        (before.model_digest != model_digest, "the model changed since it was armed"),
        (
            limit is not None and before.starts_last_hour >= limit,
            f"{before.starts_last_hour} starts within an hour, not fewer than {limit}",
        ),
    )
    return next((reason for holds, reason in reasons if holds), "")
