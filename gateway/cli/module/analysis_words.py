"""An analysis told to people: nearest trouble first, then what was found of errors, units and times."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gateway.solver.analysis.findings import Finding, Report
from gateway.solver.analysis.telling import counted

_STYLES = {"refused": "red", "unknown": "magenta", "warning": "yellow", "note": "cyan", "fine": "green"}
_WORDS = {"unknown": "not known"}


def show(report: Report, *, assumed: bool, out: Console | None = None) -> None:
    """Print a report. `assumed`: the tags were taken as the module says they are."""
    out = out or Console(soft_wrap=True)
    against = f", against {', '.join(report.against)}" if report.against else ""
    out.print(Text(f"{report.file}: module `{report.module}` revision {report.revision}{against}", "bold"))
    for finding in report.findings:
        _finding(out, finding)
    _errors(out, report)
    _units(out, report)
    if report.times:
        total = sum(seconds for _, seconds in report.times)
        parts = " + ".join(f"{name} {seconds:g}" for name, seconds in report.times)
        out.print(Text(f"\na proposal acts from {total:g} s after acquisition at the latest: {parts}"))
    if assumed:
        out.print(Text("\ntags were taken as the module says they are; name them by --config or --tags"))
    out.print(Text(f"\n{counted(report)}", "bold"))


def _finding(out: Console, finding: Finding) -> None:
    word = _WORDS.get(finding.level, finding.level)
    place = f"{finding.where}: " if finding.where else ""
    out.print(
        Text.assemble(
            (f"{word:10}", _STYLES[finding.level]),
            (f"{finding.question:13}", "bright_black"),
            place + finding.said,
        )
    )
    for line in finding.story:
        out.print(Text(f"{'':23}{line}"))
    if finding.todo:
        out.print(Text(f"{'':23}what to do: {finding.todo}"))
    for line in finding.lines:
        out.print(Text(line))


def _errors(out: Console, report: Report) -> None:
    if report.errors:
        out.print(Text("\nhow far a reading may be from the truth, rounded up", style="bold"))
    for row in report.errors:
        unit = f" {row.unit}" if row.unit else ""
        parts = [f"error {row.error}"]
        parts += [f"half a count {row.half_count}"] if row.half_count != "0" else []
        parts += [f"deadband {row.deadband}"] if row.deadband != "0" else []
        aged = f", and {row.drift} more while it ages: {row.worst}{unit}" if row.drift else ""
        out.print(Text(f"  {row.name}: {' + '.join(parts)} = {row.reading}{unit}{aged}; then {row.after}"))


def _units(out: Console, report: Report) -> None:
    """One row for all numbers of one place that took one unit."""
    if not report.units:
        return
    rows: dict[tuple[str, str, str], list[str]] = {}
    for row in report.units:
        rows.setdefault((row.where, row.subject, row.unit), []).append(row.number)
    table = _table("where", "of", "unit", "numbers")
    for (where, subject, unit), numbers in rows.items():
        table.add_row(where, subject, unit, ", ".join(numbers))
    _section(out, "bare numbers and the units they took", table)


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="bright_black")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _section(out: Console, title: str, table: Table) -> None:
    out.print()
    out.print(Text(title, style="bold"))
    out.print(Padding(table, 0))
