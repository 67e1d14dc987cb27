"""A back-test told to people: what changes first, then each constraint, with examples."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.cli.backtest.report import JUDGES, BacktestReport, Row, Told
from gateway.cli.told import words

KIND_WORDS = {
    "newly_refused": ("newly refused", "red"),
    "newly_permitted": ("newly permitted", "yellow"),
    "not_shown": ("not shown", "magenta"),
    "still_permitted": ("permitted as before", "green"),
    "still_refused": ("refused as before", "bright_black"),
}
_BLOCKS = " ▁▂▃▄▅▆▇█"
_WIDTH = 60


def show(report: BacktestReport, out: Console | None = None) -> None:
    """Print a report."""
    out = out or Console(soft_wrap=True)
    beside = f", with {', '.join(report.against)}" if report.against else ""
    out.print(Text(f"{report.file}: module `{report.module}` revision {report.revision}{beside}", "bold"))
    span = f"{words.local_time(report.first_ns)} to {words.local_time(report.last_ns)}"
    rate = report.decisions / report.took_s if report.took_s > 0 else 0.0
    out.print(
        f"{report.decisions} decisions of {report.log}, {span}; {report.judged} could be judged "
        f"({report.took_s:.1f} s, {rate:.0f} a second)"
    )
    out.print(Text(JUDGES, style="bright_black"))
    out.print()
    for kind, (said, style) in KIND_WORDS.items():
        out.print(Text.assemble((f"{report.kinds[kind]:10}  ", "bold"), (said, style)))
    for reason, count in report.cannot.items():
        out.print(Text.assemble((f"{count:10}  ", "bold"), ("cannot be judged: ", "magenta"), reason))
    _constraints(out, report)
    _examples(out, report)
    if report.asked_exactly:
        why = f": {report.one_by_one}" if report.one_by_one else ", within rounding of a limit"
        out.print(f"\n{report.asked_exactly} were asked of the exact judge one by one{why}")
    if report.assumed_tags:
        out.print("\ntags were taken as the module says they are; name them by --config or --tags")


def draw(report: BacktestReport, out: Console | None = None) -> None:
    """Timeline and margins in letters."""
    out = out or Console(soft_wrap=True)
    slots = dict(report.timeline)
    if slots:
        first, last = min(slots), max(slots)
        every = [first + n * report.slot_ns for n in range((last - first) // report.slot_ns + 1)][-_WIDTH:]
        out.print()
        for kind in ("newly_refused", "newly_permitted"):
            said, style = KIND_WORDS[kind]
            counts = [slots.get(at, {}).get(kind, 0) for at in every]
            out.print(Text.assemble(f"{said:16} ", (_bars(counts), style), f"  at most {max(counts)} a slot"))
        out.print(f"{'':16} {words.local_time(every[0])} to {words.local_time(every[-1] + report.slot_ns)}")
    for row in report.constraints:
        if row.margins and row.id in _worth_drawing(report):
            _margins(out, row)


def _worth_drawing(report: BacktestReport) -> set[str]:
    """The constraints nearest to their limits; the rest is in the JSON."""
    return {row.id for row in report.constraints if "." not in row.id or row.newly_refused}


def _margins(out: Console, row: Row) -> None:
    in_unit = f" in {row.margin_unit}" if row.margin_unit else ""
    out.print(Text(f"\nmargins of {row.id}{in_unit}", style="bold"))
    most = max(count for _, _, count in row.margins)
    for low, high, count in row.margins:
        ends = f"{'below' if low is None else f'{low:g}'} .. {'more' if high is None else f'{high:g}'}"
        style = "red" if high is not None and high <= 0 else ""
        out.print(
            Text.assemble(f"  {ends:>18} ", ("█" * max(1, round(count / most * 40)), style), f" {count}")
        )


def _bars(counts: list[int]) -> str:
    most = max(counts, default=0)
    if not most:
        return _BLOCKS[0] * len(counts)
    return "".join(_BLOCKS[0 if not n else 1 + (n * (len(_BLOCKS) - 2)) // most] for n in counts)


def _constraints(out: Console, report: BacktestReport) -> None:
    table = Table(box=None, padding=(0, 2), header_style="bright_black")
    table.add_column("constraint", overflow="fold")
    for column in ("newly refused", "violated", "not shown", "least margin"):
        table.add_column(column, justify="right")
    for row in report.constraints:
        refused = Text(str(row.newly_refused), "red" if row.newly_refused else "")
        least = "-" if row.least_margin is None else f"{row.least_margin:.4g}"
        least = words.with_unit(least, row.margin_unit) if row.least_margin is not None else least
        name = row.id if row.kind != "informational" else f"{row.id} (informational)"
        table.add_row(name, refused, str(row.violated), str(row.not_shown), least)
    out.print()
    out.print(table)


def _examples(out: Console, report: BacktestReport) -> None:
    refused = [example for row in report.constraints for example in row.examples]
    for title, examples in (("newly refused", refused), ("newly permitted", report.newly_permitted)):
        if examples:
            out.print(Text(f"\n{title}, such as", style="bold"))
        for example in examples:
            out.print(Text(f"  {sentence(example)}"))


def sentence(example: Told) -> str:
    """One example."""
    values = ", ".join(f"{tag} {value}" for tag, value in example.values.items())
    by = words.with_unit(example.margin.removeprefix("-"), example.unit)
    missed = f" misses its limit by {by}" if example.margin else " is violated"
    against = f"{example.constraint}{missed}; " if example.constraint else ""
    place = f" ({example.where})" if example.where else ""
    at = words.local_time(example.at_ns)
    return f"{example.decision} at {at}, {example.judged}: {against}{values}{place}"
