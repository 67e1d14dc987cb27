"""Tables for people, by rich: colours only on a terminal, whole values when piped."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.cli.told import words
from gateway.core.override import utc_text
from gateway.link.messages import (
    Alarm,
    DecisionView,
    GatewayState,
    ModelState,
    ModuleState,
    OverrideState,
    PointState,
    TagInfo,
    TagState,
)

_PIPED_WIDTH = 200
_FOUND = 2  # of an analysis, after its summary
_REASONS = 4  # a table is no place for a thousand of them
_REASON_CHARACTERS = 200
_IN_FORCE = {"active", "shadow", "pending"}  # a pending change leaves the module as it was
_MODEL = {"ready": "green", "swapping": "yellow", "replaced": "red"}


def console() -> Console:
    """Standard output. Piped, it is wide and plain: no colours, nothing cut at 80 columns.

    Texts are shown as they are: a `[` in an operator's words is no markup.
    """
    terminal = sys.stdout.isatty()
    return Console(highlight=False, markup=False, emoji=False, width=None if terminal else _PIPED_WIDTH)


def show_status(
    out: Console,
    gateway: GatewayState,
    points: list[PointState],
    modules: list[ModuleState],
    alarms: list[Alarm],
    overrides: list[OverrideState],
    models: list[ModelState],
) -> None:
    """The whole on one screen, what needs a person first."""
    now = time.time_ns()
    if gateway.writes_stopped:
        out.print(Text("WRITES ARE STOPPED; resume with: o3ctl stop-writes --resume", style="bold red"))
    standing = [a for a in alarms if a.active or not a.acknowledged]
    if standing:
        out.print(alarm_table(standing, now))
    health = Text("healthy", "green") if gateway.healthy else Text("NOT HEALTHY", "bold red")
    up = words.ago(gateway.started_ns, now)
    head = f"gateway {gateway.id}, version {gateway.version}, up {up}, "
    out.print(Text.assemble(head, health))
    rules = gateway.rule_set_digest[:19] or "none"
    out.print(f"rule set {gateway.generation} ({rules}), configuration {gateway.config_digest[:19]}")
    if files := gateway.counters.get("modules_files_to_do", 0):
        done = gateway.counters.get("modules_files_done", 0)
        out.print(Text(f"module files being taken: {done} of {files}", style="yellow"))
    _show_engines(out, gateway, models, now)
    for part, text in gateway.parts.items():
        if text != "ok":
            out.print(Text(f"{part}: {text}", style="red"))
    out.print(point_table(points))
    for point in points:
        text = words.assumptions_sentence(point)
        out.print(Text(f"{point.id}: {text}", style="red" if "outside" in text else ""))
        if point.repair == "nearest":
            out.print(f"{point.id}: a repair is looked for wherever it is nearest to what was proposed")
        if point.guided:
            out.print(f"{point.id}: {words.guidance_sentence(point)}")
    out.print(module_table(modules, now))
    if overrides:
        out.print(override_table(overrides))


def _show_engines(out: Console, gateway: GatewayState, models: list[ModelState], now_ns: int) -> None:
    if gateway.inference:
        out.print(words.engine_sentence(gateway.inference))
    for model in models:
        if told := words.memory_sentence(model, now_ns):
            out.print(told)


def alarm_table(alarms: list[Alarm], now_ns: int) -> Table:
    """Standing alarms: what, what of it, what to do."""
    table = _table("source", "state", "for", "cause", "consequence", "action", title="alarms")
    for alarm in sorted(alarms, key=lambda a: -a.severity):
        state = "active" if alarm.active else "ended"
        state += "" if alarm.acknowledged else ", unacknowledged"
        style = "bold red" if alarm.active else "yellow"
        since = words.ago(alarm.since_ns, now_ns)
        table.add_row(alarm.source, Text(state, style), since, alarm.cause, alarm.consequence, alarm.action)
    return table


def point_table(points: list[PointState]) -> Table:
    """Decision points: mode, control, and why one cannot write."""
    table = _table("point", "mode", "in control", "model", "last decision", "cannot write because")
    for point in points:
        mode = Text(point.mode, "bold green" if point.mode == "armed" else "")
        table.add_row(
            point.id,
            mode,
            "yes" if point.in_control else "no",
            point.model,
            point.last_decision or "-",
            point.blocked or "-",
        )
    return table


def module_table(modules: list[ModuleState], now_ns: int) -> Table:
    """Constraint modules: what is in force, the last attempt and the last success, apart."""
    table = _table("module", "state", "revision", "priority", "in force since", "last attempt", "because")
    styles = {"active": "green", "shadow": "cyan", "pending": "yellow", "refused": "red"}
    for module in modules:
        table.add_row(
            module.id or module.file,
            Text(module.state, styles.get(module.state, "bright_black")),
            str(module.revision) if module.digest else "-",
            _priority(module),
            words.ago(module.last_success_ns, now_ns)
            if module.state in _IN_FORCE and module.last_success_ns
            else "-",
            words.ago(module.last_attempt_ns, now_ns),
            _reasons(module),
        )
    return table


def model_table(models: list[ModelState], now_ns: int) -> Table:
    """Models: which bundle serves, since when and by whom, and what a rollback goes back to."""
    table = _table("model", "served by", "revision", "digest", "state", "since", "by", "before", "points")
    for model in models:
        table.add_row(
            model.id,
            model.bundle,
            model.revision,
            model.digest[:12],
            Text(f"{model.state}: {model.problem}" if model.problem else model.state, _MODEL[model.state]),
            words.ago(model.at_ns, now_ns) if model.at_ns else "-",
            model.by or "the configuration",
            model.previous or "-",
            ", ".join(model.points),
        )
    return table


def override_table(overrides: list[OverrideState]) -> Table:
    """Overrides: what is set aside, or asked to be, by whom, until when and why."""
    table = _table("overridden", "state", "until", "asked for by", "confirmed by", "reason")
    for override in overrides:
        active = override.state == "active"
        table.add_row(
            override.id,
            Text("in force" if active else "waits", "bold yellow" if active else "bright_black"),
            utc_text(override.until_ns),
            override.requested_by,
            override.confirmed_by or "nobody yet: o3ctl override confirm",
            override.reason,
        )
    return table


def tag_table(tags: list[tuple[TagInfo, TagState]]) -> Table:
    """Values never without their quality and age."""
    now = time.time_ns()
    table = _table("tag", "value", "quality", "age", "range", "writable", "description")
    for info, state in tags:
        good = state.status == 0
        limits = "-" if info.low is None or info.high is None else f"{info.low:g} to {info.high:g}"
        table.add_row(
            info.id,
            words.value_text(state, info),
            Text(words.quality_text(state.status), "green" if good else "red"),
            words.ago(state.server_ts_ns, now),
            limits,
            "yes" if info.writable else "no",
            info.description,
        )
    return table


def decision_table(views: list[DecisionView]) -> Table:
    """Decisions, one a row."""
    table = _table("at", "decision", "point", "mode", "outcome", "let out", "by", "write", "why")
    for view in views:
        table.add_row(
            words.local_time(view.at_ns),
            view.id or "-",
            view.point,
            view.mode,
            Text(view.outcome, words.OUTCOME_STYLE.get(view.outcome, "")),
            words.registers_text(view.setpoints),
            view.written_by or "-",
            Text(view.write_outcome or "-", words.WRITE_STYLE.get(view.write_outcome, "red")),
            why(view),
        )
    return table


def decision_line(view: DecisionView) -> Text:
    """One decision as one line, for following; the margin before what follows from it."""
    margin = words.margin_phrase(view)
    rest = "" if view.margins and not (view.reason or view.violated) else why(view)
    return Text.assemble(
        f"{words.local_time(view.at_ns)} {view.id or '-'} {view.point} ",
        (f"{view.outcome:<12}", words.OUTCOME_STYLE.get(view.outcome, "")),
        f" {margin}{words.registers_text(view.setpoints)} ",
        (
            view.write_outcome or f"not written ({view.mode})",
            words.WRITE_STYLE.get(view.write_outcome, "red"),
        ),
        f"; {rest}" if rest not in {"", "-"} else "",
    )


def why(view: DecisionView) -> str:
    """The one thing to know: the reason, else what is violated, else the nearest margin; and overrides."""
    said = _why(view)
    return f"{said}; {view.overridden}" if view.overridden else said


def _why(view: DecisionView) -> str:
    if view.reason:
        return view.reason
    if view.violated:
        return "violates " + ", ".join(view.violated)
    if not view.margins:
        return "-"
    name, margin, unit = view.margins[0]
    return f"margin {words.with_unit(margin, unit)} to {name}"


def _priority(module: ModuleState) -> str:
    """A file that could not be read has none."""
    if not module.digest:
        return "-"
    return f"{module.priority} (by {module.priority_by})" if module.priority_by else str(module.priority)


def _reasons(module: ModuleState) -> str:
    said = [_shortened(reason) for reason in module.refused_because[:_REASONS]]
    if module.changed_by:
        said.append(f"changed by {', '.join(module.changed_by)}")
    if module.change:
        said.append(f"approve just this: --change {module.change}")
    if (more := len(module.refused_because) - _REASONS) > 0:
        said.append(f"and {more} more: o3ctl runtime list --json, or the .refused.txt beside the file")
    said += [f"analysis: {_shortened(line)}" for line in module.analysis[: 1 + _FOUND]]
    if len(module.analysis) > 1 + _FOUND:
        said.append("more of it: o3ctl runtime list --json, or the .accepted.txt beside the file")
    return "\n".join(said) or "-"


def _shortened(text: str) -> str:
    return text if len(text) <= _REASON_CHARACTERS else f"{text[:_REASON_CHARACTERS]} ..."


def _table(*columns: str, title: str | None = None) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
