"""How times, numbers and verdicts are said to people (S29). Pure functions from messages to text."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gateway.core.quality import StatusCode, severity
from gateway.link.messages import DecisionView, ModelState, PointState, TagInfo, TagState, Value

OUTCOME_STYLE = {
    "permitted": "green",
    "repaired": "yellow",
    "refused": "red",
    "undetermined": "magenta",
    "rejected": "bright_black",
}
WRITE_STYLE = {"confirmed": "green", "": "bright_black"}
_NS_PER_S = 1_000_000_000
_START = "start:"  # where a state began, in an assignment


@dataclass(frozen=True, slots=True)
class Said:
    """Parts of a counterexample that has been through JSON."""

    constraint: str
    margin: str
    where: str
    assignment: dict[str, str]


def local_time(utc_ns: int) -> str:
    """Local wall-clock time to the millisecond; `never` for 0."""
    if not utc_ns:
        return "never"
    moment = datetime.fromtimestamp(utc_ns // _NS_PER_S, UTC).astimezone()
    return f"{moment:%Y-%m-%d %H:%M:%S}.{utc_ns % _NS_PER_S // 1_000_000:03d}"


def ago(utc_ns: int, now_ns: int) -> str:
    """How long ago, in the unit a person would use; `-` when unknown."""
    if not utc_ns:
        return "-"
    seconds = max(0.0, (now_ns - utc_ns) / _NS_PER_S)
    for limit, unit, size in ((90, "s", 1), (5400, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / size:.1f} {unit}" if unit == "s" else f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def quality_text(status: int) -> str:
    """The StatusCode by name, or its severity with the code where we have no name for it."""
    for known in StatusCode:
        if known == status:
            return known.name
    return f"{severity(status).name.capitalize()} 0x{status:08X}"


def value_text(state: TagState, info: TagInfo) -> str:
    """A value with its unit; a tag without a value is a dash."""
    if state.value is None:
        return "-"
    return f"{_plain(state.value)} {info.unit}".rstrip()


def verdict_sentence(view: DecisionView) -> str:
    """The verdict, margin first; it never says more than was shown."""
    rules = f"rule set {view.generation}"
    under = f", {view.overridden}" if view.overridden else ""
    nearest = margin_phrase(view)
    match view.outcome:
        case "permitted":
            return f"{nearest}permitted by {rules} under its assumptions{under}{_told(view)}"
        case "repaired":
            return (
                f"{nearest}the proposal is not permitted by {rules}; the nearest setpoints found that it "
                f"permits under its assumptions are given instead{under}{_told(view)}"
            )
        case "refused":
            violated = ", ".join(view.violated) or "a constraint"
            return f"{nearest}refused by {rules}: {violated} can be violated within its assumptions{under}"
        case "undetermined":
            return (
                f"undetermined: {view.reason or 'no reason was recorded'}; what nobody knows is not permitted"
                f"{under}"
            )
        case "rejected":
            return f"rejected, never examined: {view.reason or 'no reason was recorded'}"
        case other:
            return f"{other}: {view.reason}"


def _told(view: DecisionView) -> str:
    """What the verdict itself says; where a write went wrong the reason is about that."""
    return f"; {view.reason}" if view.reason and view.write_outcome in {"", "confirmed"} else ""


def writing_sentence(view: DecisionView) -> str:
    """What was let out and what became of it."""
    if not view.setpoints:
        return "nothing was let out"
    by = (
        "the verdict's setpoints"
        if view.written_by == "verdict"
        else f"the setpoints of the checked fallback `{view.written_by}`"
    )
    match view.write_outcome:
        case "":
            done = (
                "were not written" if view.mode == "armed" else f"were not written: the mode is {view.mode}"
            )
        case "confirmed":
            done = "were written, and the PLC's working values confirm it"
        case "unconfirmed":
            done = "were sent, and whether they arrived is not known; they are not repeated"
        case "refused":
            done = "were stopped at the last gate"
        case "mismatch":
            done = "were written, and the PLC works with other values"
        case other:
            done = f"have the write outcome `{other}`"
    because = f" ({view.reason})" if view.write_outcome not in {"", "confirmed"} and view.reason else ""
    return f"{by} {done}{because}"


def assumptions_sentence(point: PointState) -> str:
    """What the newest measurements say of the assumptions (S16), the tag nearest to its band's end."""
    if not point.residuals:
        return "assumptions: nothing measured against a prediction yet"
    worst = max(point.residuals, key=lambda r: r.used_share)
    over = "one step" if worst.window == 1 else f"{worst.window} steps"
    longest = max(r.window for r in point.residuals)
    watched = f"assumptions: watched over up to {longest} step{'s' if longest > 1 else ''}"
    if worst.outside > 0:
        return f"{watched}; {worst.tag} is outside what was predicted over {over}, by {worst.outside:.4g}"
    percent = math.floor(100 * worst.used_share)
    return f"{watched}; {worst.tag} uses {percent} % of the band predicted over {over}"


def guidance_sentence(point: PointState) -> str:
    """That a point's model is guided, and how far it leans on what is masked out."""
    if not point.drift:
        return "the model is guided; nothing decoded yet"
    tag, mass = max(point.drift.items(), key=lambda item: item[1])
    return (
        f"the model is guided; up to {100 * mass:.1f} % of its probability is masked out ({tag}, on average)"
    )


def counterexample_parts(view: DecisionView) -> Said | None:
    """The counterexample's parts, or None where the view carries none that can be read."""
    try:
        document: Any = json.loads(view.counterexample_json or "null")
    except json.JSONDecodeError:
        return None
    if not isinstance(document, dict):
        return None
    assignment = document.get("assignment")
    return Said(
        constraint="/".join(str(document[k]) for k in ("module", "constraint") if document.get(k)),
        margin=_margin_of(document),
        where=str(document.get("where", "")),
        assignment={str(k): str(v) for k, v in assignment.items()} if isinstance(assignment, dict) else {},
    )


def _margin_of(document: dict[str, Any]) -> str:
    margin = document.get("margin")
    return with_unit(str(margin), str(document.get("unit") or "")) if margin else ""


def plant_terms(assignment: dict[str, str]) -> dict[str, str]:
    """Of a counterexample what a plant has: tags where the limit is missed, where they began, and when."""
    shown = {name: value for name, value in assignment.items() if ":" not in name and name != "at_s"}
    begun = {name.removeprefix(_START): v for name, v in assignment.items() if name.startswith(_START)}
    shown |= {f"{name} when read": v for name, v in begun.items() if shown.get(name) != v}
    if (at := assignment.get("at_s", "0")) != "0":
        shown["seconds after the reading"] = at
    return shown


def sample_parts(text: str) -> tuple[str, str]:
    """Value and quality of an input as a decision shows it: `1.98`, or `1.98 (BadSensorFailure)`."""
    value, bracket, quality = text.partition(" (")
    return value, quality.rstrip(")") if bracket else "Good"


def registers_text(values: dict[str, str]) -> str:
    """Setpoints on one line."""
    return ", ".join(f"{tag}={value}" for tag, value in values.items()) or "-"


def engine_sentence(facts: dict[str, str]) -> str:
    """Which model runs where, on one line; timings and the rest are in --json."""
    asked, actual = facts.get("ep_requested", ""), facts.get("ep_actual", "")
    wish = f" (asked for {asked})" if asked else ""
    said = (
        f"inference {facts.get('bundle', '')}".rstrip(),
        f"folder {facts['folder']}" if facts.get("folder") else "",
        f"digest {facts['digest'][:19]}" if facts.get("digest") else "",
        facts.get("quantization", ""),
        f"{actual or 'no provider yet'}{wish}",
        facts.get("state", ""),
        f"a rollback goes to {facts['previous']}" if facts.get("previous") else "",
        facts.get("passed_over", ""),
    )
    return ", ".join(part for part in said if part)


def count(number: float, thing: str) -> str:
    """`1 session`, `3 sessions`."""
    return f"{number:.0f} {thing}{'' if number == 1 else 's'}"


def memory_sentence(model: ModelState, now_ns: int) -> str:
    """What a model's worker holds, on one line; empty where it has not counted yet."""
    held = model.memory
    if not held:
        return ""
    said = [f"{model.id}: {count(held['sessions'], 'session')}"]
    if "pages" in held:
        used = held["pages"] - held["pages_free"]
        said += [
            f"{used:.0f} of {held['pages']:.0f} pages in use, at most {held['pages_peak']:.0f}",
            f"{100 * held['internal_fragmentation']:.1f} % of their slots unfilled",
            f"{count(held['cold_sessions'], 'session')} moved out now",
            f"{held['prefix_found']:.0f} of {held['prefix_lookups']:.0f} pages looked up were found",
            f"{held['pages_refused']:.0f} refused for room",
        ]
    said.append(f"counted {ago(model.counted_ns, now_ns)} ago")
    return ", ".join(said)


def margin_phrase(view: DecisionView) -> str:
    """The nearest margin, for the beginning of a sentence; empty where there is none."""
    if not view.margins:
        return ""
    name, margin, unit = view.margins[0]
    if margin == "-":
        return f"{name} does not hold; "
    if margin.startswith("-"):
        return f"limit of {name} missed by {with_unit(margin[1:], unit)}; "
    return f"margin {with_unit(margin, unit)} to {name}; "


def with_unit(number: str, unit: str) -> str:
    """A number as people read it; a unit that nobody can tell is left out."""
    return f"{number} {unit}" if unit else number


def _plain(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:.6g}"
        case _:
            return str(value)
