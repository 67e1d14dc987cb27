"""Start rules (S23): whether a point may be armed, by a person or again by itself, and why not."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.core.tagstore import TagStore
from gateway.pipeline.point import Point
from gateway.pipeline.rules import RulesInForce
from gateway.pipeline.writer import SetpointWriter

MAX_STARTS_PER_HOUR = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmedBefore:
    """What was true when the point was last armed, from durable state."""

    armed: bool
    rule_set_digest: str
    model_digest: str
    last_confirmed: dict[str, int]  # output -> register count
    starts_last_hour: int
    start_limit_lifted: bool  # the demo says so in its configuration


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
    if why:
        return why
    for tag in settings.inputs:
        if not store[tag].status.is_plain_good:
            return f"input `{tag}` is {store[tag].status.name}"
    if not writer.status_bit(point, settings.remote_bit):
        return "the PLC is in local: switch it to remote"
    unknown = next((t for t, h in point.histories.items() if not h.known), None)
    return f"the value in force of `{unknown}` is not known yet" if unknown else ""


def not_rearmable(
    point: Point,
    rules: RulesInForce,
    before: ArmedBefore,
    model_digest: str,
    store: TagStore,
    *,
    in_control: bool,
) -> str:
    """Why the point does not go back to armed by itself after a start; empty when it does."""
    if not before.armed:
        return "it was not armed before the start"
    if before.rule_set_digest != rules.digest:
        return "the rule set changed since it was armed"
    if before.model_digest != model_digest:
        return "the model changed since it was armed"
    if before.starts_last_hour > MAX_STARTS_PER_HOUR and not before.start_limit_lifted:
        return f"{before.starts_last_hour} starts within an hour, more than {MAX_STARTS_PER_HOUR}"
    if not in_control:
        return ""  # the PLC's own fallback has the outputs: the first write is what it left in force
    for tag, raw in before.last_confirmed.items():
        history = next((h for t, h in point.histories.items() if t == tag), None)
        value = history.current if history is not None else None
        definition = next((d for t, d in store.definitions.items() if t == tag), None)
        if value is None or definition is None or definition.counts(value) != raw:
            return f"the value in force of `{tag}` is not the last one confirmed"
    return ""
