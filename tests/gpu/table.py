"""The page of figures of one run: `python -m tests.gpu.table` writes it from what `make gpu` recorded."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_name("record.json")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "gpu.md"
_HEAD = "# Figures on a device\n\nWritten by `make gpu` from `tests/gpu/record.json`; not by hand.\n"


def page(record: Mapping[str, Any]) -> str:
    """Device, driver and versions, and a table with a row for each thing measured.

    A figure's name is `ROW: COLUMN`. Raises `KeyError` where a part of the record is missing.
    """
    told = {
        "device": record["device"],
        "driver": record["driver"],
        "provider": record["provider"],
        **record["versions"],
        "tests": f"{record['tests']}, of which {record['failed']} failed",
    }
    facts = [f"| {name} | {value} |" for name, value in told.items()]
    return "\n".join([_HEAD, "| | |", "|---|---|", *facts, "", *_rows(record["figures"]), ""])


def _rows(figures: Mapping[str, float]) -> list[str]:
    rows: dict[str, dict[str, float]] = {}
    for name, value in figures.items():
        row, _, column = name.rpartition(": ")
        rows.setdefault(row, {})[column] = value
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name, found in rows.items():
        cells = (_number(found[column]) if column in found else "" for column in columns)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _number(value: float) -> str:
    """Four digits, and no more of a large number's than its whole ones."""
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 1000 else f"{value:.4g}"


def main(record: Path = RECORD, target: Path = PAGE) -> int:
    """Write the page; 1 where there is no record to write it from, and the page stays as it is."""
    try:
        told = json.loads(record.read_text())
    except FileNotFoundError:
        sys.stderr.write(f"{record.name} is not there: nothing was measured, {target.name} stays as it is\n")
        return 1
    target.write_text(page(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
