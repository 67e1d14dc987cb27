"""An operating-window table as constraints, and back: limits of a variable, inside its alarm limits."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from gateway.config.problems import nearest
from gateway.core.tag import decimal_text
from gateway.solver.language.schema import decimal
from gateway.solver.tables.hand import ByHandError, differing
from gateway.solver.tables.matrix import KINDS, Rule
from gateway.solver.tables.rows import Row, Table, read_table

COLUMNS = ("row", "variable", "alarm_low", "low", "high", "alarm_high", "gap", "kind", "message")

_SAID = ("id", "row", "variable", "require", "kind", "message", "always")


def import_windows(data: bytes, source: str, module: Mapping[str, Any]) -> list[Rule]:
    """Constraints of a table over a module file; raises `ModuleRefusedError` with everything that is wrong.

    A limit must lie inside the alarm limit of its side by at least `gap`, and where there is none by the
    variable's `error`: else the alarm would sound before the limit holds anything back. One with dynamics
    is held at every moment (`always`), any other on the snapshot.
    """
    table = read_table(data, source, ("row", "variable"), COLUMNS)
    rules = [rule for row in table.rows for rule in _rules(table, row, module)]
    if table.problems:
        table.refuse()
    return rules


def export_windows(rules: list[Mapping[str, Any]]) -> str:
    """The table of all rules that came from one: alarm limits and gaps stay in the table they came from.

    Raises `ByHandError` where a table would say otherwise than the rules do.
    """
    ours = [rule for rule in rules if rule.get("row") and not rule.get("when")]
    placed = [{**rule, "variable": place[0]} for rule in ours if (place := _place(rule)) is not None]
    by_hand = differing(placed, ("variable", "kind", "message"), _SAID)
    by_hand += [
        f"row `{rule['row']}`: rule `{rule['id']}` is `{rule['require']}`, which is no window of one variable"
        for rule in ours
        if _place(rule) is None and rule["id"] in {f"{rule['row']}-low", f"{rule['row']}-high"}
    ]
    if by_hand:
        raise ByHandError(by_hand)
    rows: dict[str, dict[str, str]] = {}
    for rule in rules:
        place = _place(rule)
        if place is None:
            continue
        name, side, limit = place
        cells = rows.setdefault(
            str(rule["row"]),
            {
                "row": str(rule["row"]),
                "variable": name,
                "kind": str(rule["kind"]),
                "message": str(rule.get("message", "")),
            },
        )
        cells[side] = limit
    found = io.StringIO()
    writer = csv.DictWriter(found, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows.values())
    return found.getvalue()


def _place(rule: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Variable, side and limit of a rule as `_rules` writes it."""
    words = str(rule["require"]).split(" ")
    if not rule.get("row") or rule.get("when") or len(words) != 3:  # noqa: PLR2004  name, sign, limit
        return None
    side = {">=": "low", "<=": "high"}.get(words[1])
    return None if side is None or rule["id"] != f"{rule['row']}-{side}" else (words[0], side, words[2])


def _rules(table: Table, row: Row, module: Mapping[str, Any]) -> Iterator[Rule]:
    variables = module.get("variables", {})
    name = row.cells["variable"]
    shape = variables.get(name)
    if not isinstance(shape, dict):
        table.wrong(
            row.line, "variable", f"`{name}` is not a variable of the module{nearest(name, variables)}"
        )
        return
    kind = row.cells.get("kind", "") or "standard"
    if kind not in KINDS:
        table.wrong(row.line, "kind", f"`{kind}` is no kind; there are {', '.join(KINDS)}")
    low, high = _number(table, row, "low"), _number(table, row, "high")
    alarm_low, alarm_high = _number(table, row, "alarm_low"), _number(table, row, "alarm_high")
    gap = _number(table, row, "gap")
    if gap is not None and gap < 0:
        table.wrong(row.line, "gap", f"row `{row.id}`: a gap of {_text(gap)} would be none; write 0 or more")
    if gap is None:
        gap = _error(table, row, shape)
    if not row.cells.get("low") and not row.cells.get("high"):
        table.wrong(row.line, "row", f"row `{row.id}` has neither a `low` nor a `high` limit")
    if low is not None and high is not None and low > high:
        table.wrong(row.line, "low", f"the low limit {_text(low)} is above the high limit {_text(high)}")
    _inside(table, row, "low", low, alarm_low, gap)
    _inside(table, row, "high", high, alarm_high, gap)
    for side, sign, limit in (("low", ">=", low), ("high", "<=", high)):
        if limit is None:
            continue
        rule: Rule = {"id": f"{row.id}-{side}", "kind": kind, "require": f"{name} {sign} {_text(limit)}"}
        if name in module.get("dynamics", {}):
            rule["always"] = True
        message = row.cells.get("message", "")
        yield rule | {"row": row.id} | ({"message": message} if message else {})


def _inside(
    table: Table, row: Row, side: str, limit: Fraction | None, alarm: Fraction | None, gap: Fraction
) -> None:
    if limit is None or alarm is None:
        return
    room = limit - alarm if side == "low" else alarm - limit
    if room < 0:
        table.wrong(
            row.line,
            side,
            f"row `{row.id}`: the {side} limit {_text(limit)} is outside the alarm at {_text(alarm)}",
        )
    elif room < gap:
        table.wrong(
            row.line,
            side,
            f"row `{row.id}`: the {side} limit {_text(limit)} is {_text(room)} from the alarm at "
            f"{_text(alarm)}; at least {_text(gap)} are needed, or readings would alarm first",
        )


def _number(table: Table, row: Row, column: str) -> Fraction | None:
    text = row.cells.get(column, "")
    if not text:
        return None
    try:
        return decimal(text)
    except ValueError:
        table.wrong(row.line, column, f"`{text}` is not a decimal number; write 3.5, with a point")
        return None


def _error(table: Table, row: Row, shape: Mapping[str, Any]) -> Fraction:
    """What the variable's readings may be off by, as its module says; 0 where that is wrong, and told."""
    try:
        return decimal(shape.get("error", 0))
    except ValueError as exc:
        name = row.cells["variable"]
        table.wrong(row.line, "variable", f"the `error` of `{name}` in the module: {exc}")
        return Fraction(0)


def _text(value: Fraction) -> str:
    return decimal_text(value)
