"""`o3ctl runtime coverage`: constraints that never fired first, for they are for an engineer to look at."""

from __future__ import annotations

import json
import time

import msgspec
from rich.table import Table
from rich.text import Text

from gateway.cli.live.asking import CommandError, ask, typed
from gateway.cli.live.operating import Operator, failed
from gateway.cli.told import show, words
from gateway.link.messages import ConstraintCoverage

_NS = 1_000_000_000
_BLOCKS = "▁▂▃▄▅▆▇█"


def told(operator: Operator, quiet_s: int) -> int:
    """Ask and show; the exit status."""
    try:
        result = ask(operator.socket, "runtime.coverage", {})
        found = typed(result, list[ConstraintCoverage])
    except CommandError as exc:
        return failed(exc)
    quiet = {c.id for c in found if is_quiet(c, quiet_s, time.time_ns())}
    if operator.as_json:
        rows = [{**msgspec.to_builtins(c), "never_fired": c.id in quiet} for c in found]
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return 0
    out = show.console()
    out.print(table(found, quiet, time.time_ns()))
    for constraint in found:
        if constraint.id in quiet:
            out.print(Text(finding(constraint, time.time_ns()), "yellow"), soft_wrap=True)
    return 0


def is_quiet(state: ConstraintCoverage, quiet_s: int, now_ns: int) -> bool:
    """Whether a constraint was in force that long and never fired; what is only reported does not count."""
    old = now_ns - state.since_ns >= quiet_s * _NS
    return old and not state.fired_ns and state.kind != "informational"


def finding(state: ConstraintCoverage, now_ns: int) -> str:
    """What to make of a constraint that never fired."""
    days = (now_ns - state.since_ns) / (86_400 * _NS)
    if not state.judged:
        return f"{state.id} was judged in no decision for {days:.0f} d: is its decision point running?"
    nearest = "it has no distance" if state.least_margin is None else f"nearest {_least(state)}"
    return (
        f"{state.id} never fired in {days:.0f} d and {state.judged} decisions ({nearest}): is its limit "
        "where it should be, does another rule always act first, can its inputs reach it? o3ctl analyze asks"
    )


def table(found: list[ConstraintCoverage], quiet: set[str], now_ns: int) -> Table:
    """One row a constraint, those that never fired first."""
    rows = Table(box=None, padding=(0, 2), header_style="bright_black")
    rows.add_column("constraint", overflow="fold")
    for column in ("judged", "fired", "last fired", "last bound", "least margin"):
        rows.add_column(column, justify="right")
    rows.add_column("margins")
    for state in sorted(found, key=lambda c: (c.id not in quiet, c.id)):
        rows.add_row(
            Text(state.id, "yellow" if state.id in quiet else ""),
            str(state.judged),
            Text(str(state.fired), "red" if state.fired else ""),
            words.ago(state.fired_ns, now_ns),
            words.ago(state.bound_ns, now_ns),
            _least(state),
            margins(state),
        )
    return rows


def _least(state: ConstraintCoverage) -> str:
    if state.least_margin is None:
        return "-"
    return words.with_unit(f"{state.least_margin:.4g}", state.margin_unit)


def margins(state: ConstraintCoverage) -> Text:
    """The histogram in letters, violated ones in red."""
    most = max((count for _, _, count in state.margins), default=1)
    shown = Text()
    for _, high, count in state.margins:
        letter = _BLOCKS[min(len(_BLOCKS) - 1, count * len(_BLOCKS) // (most + 1))]
        shown.append(letter, "red" if high is not None and high <= 0 else "")
    return shown
