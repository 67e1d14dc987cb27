"""Recordings for `o3ctl identify`: from the gateway's own decisions, or from a table anyone wrote."""

from __future__ import annotations

import csv
import datetime as dt
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from gateway.cli.offline import Tags, fail
from gateway.core.decision import PointId
from gateway.core.errors import StorageError
from gateway.core.tag import TagId
from gateway.solver.identify.series import Channel, Recording, Samples
from gateway.storage.moments import Moment, moments

Rows = dict[TagId, list[tuple[float, float | None, bool]]]

_QUALITY = ".quality"
_SAME = 1e-6  # s
_TRUTH = {"true": 1.0, "false": 0.0}


def of_decisions(path: Path, point: str, since_utc_ns: int, channels: Sequence[Channel]) -> Recording:
    """What decisions of the point saw and what was in force; ends the verb where the log cannot be read."""
    try:
        found = list(moments(path, PointId(point), since_utc_ns))
    except StorageError as exc:
        fail(f"o3ctl: {exc}")
    if not found:
        fail(f"o3ctl: `{path}` holds no decision of point `{point}` since then")
    found.reverse()
    rows: Rows = defaultdict(list)
    actions = {c.tag for c in channels if c.action}
    for moment in found:
        for tag, reading in moment.readings.items():
            rows[tag].append((reading.at, reading.value, reading.good))
    for tag in actions:
        rows[tag] = in_force(found, tag)
    return _recording(channels, rows)


def in_force(found: Iterable[Moment], tag: TagId) -> list[tuple[float, float | None, bool]]:
    """An output's value at each decision and when it changed in between; not good while nobody knew it."""
    rows: list[tuple[float, float | None, bool]] = []
    last = -math.inf
    for moment in found:
        entries = moment.in_force.get(tag, ())
        now = [value for value, ceased in entries if ceased >= moment.at - _SAME]
        # INVARIANT: newest first; a value began to act when the one behind it in the list ceased.
        for (value, _), (_, began) in pairwise(entries):
            if last < began < moment.at - _SAME:
                rows.append((began, value, True))
        sure = len(set(now)) == 1
        rows.append((moment.at, now[0] if sure else None, sure))
        last = moment.at
    return rows


def of_table(path: Path, time_column: str | None, channels: Sequence[Channel]) -> Recording:
    """A CSV with a time column and a column for each tag; an empty cell is no sample.

    `TAG.quality` may stand beside it: `Good`, or anything else for what must not be used. Ends the verb where
    the table cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as exc:
        fail(f"o3ctl: `{path}` cannot be read: {exc.strerror or exc}")
    except UnicodeDecodeError:
        fail(f"{path}:1:1: the file is not UTF-8 text")
    if not lines:
        fail(f"{path}:1:1: the table is empty")
    separator = max(",;\t", key=lines[0].count)
    reader = csv.DictReader(lines, delimiter=separator)
    columns = list(reader.fieldnames or ())
    time = columns[0] if time_column is None else time_column
    for wanted in (time, *(c.tag for c in channels)):
        if wanted not in columns:
            fail(f"{path}:1:1: there is no column `{wanted}`; the columns are {', '.join(columns)}")
    rows: Rows = defaultdict(list)
    for number, row in enumerate(reader, start=2):
        at = _instant(row[time], path, number)
        for channel in channels:
            cell = (row[channel.tag] or "").strip()
            if cell:
                quality = (row.get(channel.tag + _QUALITY) or "Good").strip()
                rows[channel.tag].append((at, _number(cell, path, number), quality in {"Good", "0"}))
    return _recording(channels, rows)


def table_columns(path: Path) -> list[str]:
    """The header of a table."""
    try:
        with path.open(encoding="utf-8-sig") as opened:
            first = opened.readline().strip("\r\n")
    except (OSError, UnicodeDecodeError) as exc:
        fail(f"o3ctl: `{path}` cannot be read: {exc}")
    if not first:
        fail(f"{path}:1:1: the table is empty")
    return next(csv.reader([first], delimiter=max(",;\t", key=first.count)), [])


def _recording(
    channels: Sequence[Channel], rows: Mapping[TagId, Sequence[tuple[float, float | None, bool]]]
) -> Recording:
    return Recording(
        channels=tuple(channels), samples={c.name: Samples.of(rows.get(c.tag, ())) for c in channels}
    )


def _instant(cell: str | None, path: Path, number: int) -> float:
    text = (cell or "").strip()
    try:
        found = float(text)
    except ValueError:
        try:
            stamp = dt.datetime.fromisoformat(text)
        except ValueError:
            fail(f"{path}:{number}:1: `{text}` is no time; write seconds, or 2026-05-04T07:00:00+00:00")
        found = (stamp if stamp.tzinfo else stamp.replace(tzinfo=dt.UTC)).timestamp()
    if not math.isfinite(found):
        fail(f"{path}:{number}:1: `{text}` is no time")
    return found


def _number(cell: str, path: Path, number: int) -> float | None:
    if cell.lower() in _TRUTH:
        return _TRUTH[cell.lower()]
    try:
        return float(cell)
    except ValueError:
        fail(f"{path}:{number}:1: `{cell}` is no number; leave a cell empty where nothing was recorded")


_NAME = re.compile(r"[^A-Za-z0-9_]+")


def variable_names(
    tags: Sequence[TagId], known: Mapping[TagId, str], reserved: frozenset[str]
) -> dict[TagId, str]:
    """A name for each tag: the known one, else the tag's own words without what all tags begin with."""
    words = {tag: [w for w in _NAME.sub(" ", tag).lower().split() if w] for tag in tags}
    shared = len(tags) > 1 and len({w[0] for w in words.values() if len(w) > 1}) == 1
    shared = shared and all(len(w) > 1 for w in words.values())
    found: dict[TagId, str] = {}
    for tag in tags:
        name = known.get(tag) or "_".join(words[tag][1:] if shared else words[tag])
        if not name or not name[0].isalpha() or name in reserved:
            name = f"x_{name}"
        while name in found.values():
            name += "_"
        found[tag] = name
    return found


def definitions_problem(tags: Sequence[TagId], known: Tags) -> str:
    """A sentence where a tag has no definition, else nothing."""
    missing = [tag for tag in tags if tag not in known]
    return f"no definition of {', '.join(f'`{t}`' for t in missing)} is known" if missing else ""
