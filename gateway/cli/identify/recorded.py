"""Recordings for `o3ctl identify`: from the gateway's own decisions, or from a table anyone wrote."""

from __future__ import annotations

import csv
import datetime as dt
import math
import re
import sys
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from gateway.cli.offline import Tags, fail
from gateway.core.decision import PointId
from gateway.core.errors import StorageError, cause
from gateway.core.tag import TagId
from gateway.solver.identify.series import Channel, Recording, Samples
from gateway.storage.moments import Moment, moments

_QUALITY = ".quality"
_SAME = 1e-6  # s
_APART_S = 3_600.0  # more than any step: nothing is known in between
_TRUTH = {"true": 1.0, "false": 0.0}


class Columns:
    """The samples of one tag, in the order they come: 17 bytes each."""

    def __init__(self) -> None:
        self._at, self._value, self._good = array("d"), array("d"), array("b")

    def add(self, at: float, value: float | None, good: bool) -> None:
        """One sample more; None is no number."""
        self._at.append(at)
        self._value.append(math.nan if value is None else value)
        self._good.append(good)

    def samples(self) -> Samples:
        """All of them, by time."""
        return Samples.of(
            np.array(self._at, dtype=np.float64),
            np.array(self._value, dtype=np.float64),
            np.array(self._good, dtype=np.bool_),
        )


def of_decisions(path: Path, point: str, since_utc_ns: int, channels: Sequence[Channel]) -> Recording:
    """What decisions of the point saw and what was in force; ends the verb where the log cannot be read."""
    columns: defaultdict[TagId, Columns] = defaultdict(Columns)
    actions = [c.tag for c in channels if c.action]
    later: Moment | None = None
    try:
        for moment in _apart(_counted(moments(path, PointId(point), since_utc_ns))):
            for tag, reading in moment.readings.items():
                columns[tag].add(reading.at, reading.value, reading.good)
            if later is not None:
                _in_force(columns, actions, later, moment.at)
            later = moment
    except StorageError as exc:
        fail(f"o3ctl: {exc}")
    if later is None:
        fail(f"o3ctl: `{path}` holds no decision of point `{point}` since then")
    _in_force(columns, actions, later, -math.inf)
    return _recording(channels, columns)


def _apart(newest_first: Iterator[Moment]) -> Iterator[Moment]:
    """The same, with what was recorded before the clock was set back as if an hour before the rest."""
    later, moved, times = math.inf, 0.0, 0
    for moment in newest_first:
        if moment.at + moved >= later:
            moved, times = later - moment.at - _APART_S, times + 1
        later = moment.at + moved
        yield _moved(moment, moved) if moved else moment
    if times:
        often = "once" if times == 1 else f"{times} times"
        print(
            f"the clock was set back {often}: what was recorded before is taken as an hour before the rest",
            file=sys.stderr,
        )


def _moved(moment: Moment, by: float) -> Moment:
    return Moment(
        at=moment.at + by,
        readings={tag: replace(reading, at=reading.at + by) for tag, reading in moment.readings.items()},
        in_force={
            tag: tuple((value, ceased + by) for value, ceased in entries)
            for tag, entries in moment.in_force.items()
        },
    )


def _counted(found: Iterator[Moment]) -> Iterator[Moment]:
    """The same, counted on standard error where a person looks."""
    if not sys.stderr.isatty():
        yield from found
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress, TextColumn  # noqa: PLC0415

    with Progress(
        TextColumn("{task.completed:.0f} decisions read"), console=Console(stderr=True), transient=True
    ) as progress:
        yield from progress.track(found)


def _in_force(
    columns: Mapping[TagId, Columns], actions: Sequence[TagId], moment: Moment, before: float
) -> None:
    """Outputs at a decision, and when they changed since the one `before`; not good while nobody knew."""
    for tag in actions:
        entries = moment.in_force.get(tag, ())
        now = {value for value, ceased in entries if ceased >= moment.at - _SAME}
        # INVARIANT: newest first; a value began to act when the one behind it in the list ceased.
        for (value, _), (_, began) in pairwise(entries):
            if before < began < moment.at - _SAME:
                columns[tag].add(began, value, True)
        sure = len(now) == 1
        columns[tag].add(moment.at, now.pop() if sure else None, sure)


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
    found: defaultdict[TagId, Columns] = defaultdict(Columns)
    order = _Order(path)
    for number, row in enumerate(reader, start=2):
        at = _instant(row[time], path, number)
        order.take(at, row[time], number)
        for channel in channels:
            cell = (row[channel.tag] or "").strip()
            if cell:
                quality = (row.get(channel.tag + _QUALITY) or "Good").strip()
                found[channel.tag].add(at, _number(cell, path, number), quality in {"Good", "0"})
    return _recording(channels, found)


class _Order:
    """Ends the verb where the times of a table run to and fro: what was recorded twice may not be mixed."""

    def __init__(self, path: Path) -> None:
        self._path, self._before, self._rising = path, math.nan, 0

    def take(self, at: float, text: str | None, number: int) -> None:
        """The time of the next line."""
        step = (at > self._before) - (at < self._before)
        if step and self._rising and step != self._rising:
            way = "back" if step < 0 else "on"
            fail(
                f"{self._path}:{number}:1: the time goes {way} to `{text}`: sort the table by time, and "
                "leave out what was recorded under the same times twice (a clock set back, the end of summer)"
            )
        self._before, self._rising = at, step or self._rising


def table_columns(path: Path) -> list[str]:
    """The header of a table."""
    try:
        with path.open(encoding="utf-8-sig") as opened:
            first = opened.readline().strip("\r\n")
    except (OSError, UnicodeDecodeError) as exc:
        fail(f"o3ctl: `{path}` cannot be read: {cause(exc)}")
    if not first:
        fail(f"{path}:1:1: the table is empty")
    return next(csv.reader([first], delimiter=max(",;\t", key=first.count)), [])


def _recording(channels: Sequence[Channel], found: Mapping[TagId, Columns]) -> Recording:
    samples = {c.name: found.get(c.tag, Columns()).samples() for c in channels}
    return Recording(channels=tuple(channels), samples=samples)


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
