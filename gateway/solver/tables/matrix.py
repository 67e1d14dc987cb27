"""A cause-and-effect matrix as constraints, and back: each marked cell is one rule `cause` -> `effect`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.solver.tables.hand import ByHandError, differing
from gateway.solver.tables.rows import Row, Table, read_table

Rule = dict[str, Any]  # one constraint as the module file holds it

COLUMNS = ("row", "cause", "kind", "message")
KINDS = ("critical", "standard", "informational")
_SAID = ("id", "row", "when", "require", "kind", "message")
_MARKS = frozenset(("x", "X"))


def import_matrix(data: bytes, source: str) -> list[Rule]:
    """Constraints of a matrix; raises `ModuleRefusedError` with everything that is wrong.

    The columns `row` and `cause` must be there, `kind` and `message` may. Every other column is an effect,
    and its header is a condition in the constraint language. Both are judged when the module is compiled.
    """
    table = read_table(data, source, ("row", "cause"), None)
    effects = [name for name in table.header if name not in COLUMNS]
    if not effects:
        table.wrong(
            1, "", "the matrix has no effect: add a column whose header is a condition, as `pump == 0`"
        )
    rules = [rule for row in table.rows for rule in _rules(table, row, effects)]
    if table.problems:
        table.refuse()
    return rules


def export_matrix(rules: list[Mapping[str, Any]]) -> str:
    """The matrix of all rules that have a `row` and a `when`: each row once, each effect a column.

    Raises `ByHandError` where a matrix would say otherwise than the rules do.
    """
    chosen = [rule for rule in rules if rule.get("row") and rule.get("when")]
    if by_hand := differing(chosen, ("when", "kind", "message"), _SAID):
        raise ByHandError(by_hand)
    effects = list(dict.fromkeys(str(rule["require"]) for rule in chosen))
    rows: dict[str, dict[str, str]] = {}
    for rule in chosen:
        cells = rows.setdefault(
            str(rule["row"]),
            {
                "row": str(rule["row"]),
                "cause": str(rule["when"]),
                "kind": str(rule["kind"]),
                "message": str(rule.get("message", "")),
            },
        )
        cells[str(rule["require"])] = "X"
    found = io.StringIO()
    writer = csv.DictWriter(found, [*COLUMNS, *effects], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows.values())
    return found.getvalue()


def _rules(table: Table, row: Row, effects: list[str]) -> Iterator[Rule]:
    kind = row.cells.get("kind", "") or "standard"
    if kind not in KINDS:
        table.wrong(row.line, "kind", f"`{kind}` is no kind; there are {', '.join(KINDS)}")
    if not row.cells["cause"]:
        table.wrong(row.line, "cause", f"row `{row.id}` has no cause")
    marked = 0
    for number, effect in enumerate(effects, start=1):
        cell = row.cells[effect]
        if not cell:
            continue
        marked += 1
        if cell not in _MARKS:
            table.wrong(
                row.line, effect, f"`{cell}` in row `{row.id}`: mark an effect with `X`, or leave it empty"
            )
            continue
        rule = {
            "id": f"{row.id}-{number}",
            "kind": kind,
            "when": row.cells["cause"],
            "require": effect,
            "row": row.id,
        }
        message = row.cells.get("message", "")
        yield rule | ({"message": message} if message else {})
    if not marked:
        table.wrong(row.line, "row", f"row `{row.id}` has no effect: mark one with `X`")
