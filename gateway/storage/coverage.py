"""What each constraint has done so far: how often it was judged and fired, when it last bound, its margins.

Kept in one file of the state folder, bounded, and no part of any decision: where the file cannot be read it
begins anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import structlog

from gateway.core.decision import DecisionRecord, Unknown, Violated
from gateway.core.durable import write_durably
from gateway.core.errors import StorageError, cause
from gateway.core.margins import BINS, bin_of

log = structlog.get_logger().bind(component="coverage")

MOST = 4_000  # constraints that are kept; of more the one judged longest ago is forgotten
_FORMAT = 1

Revision = Callable[[int, str], int | None]  # of a module in a generation of rules; None: not known any more


class Covered(msgspec.Struct, kw_only=True):
    """One constraint of one revision of its module. Times are UTC ns, 0: never.

    `fired`: judged on a proposal and violated. `bound`: fired, or left no margin at all. `unknown` decisions
    could not tell. `margins` counts by `core.margins.bin_of`; rules without a distance are in none.
    """

    module: str
    constraint: str
    revision: int
    since_ns: int
    judged: int = 0
    fired: int = 0
    unknown: int = 0
    judged_ns: int = 0
    fired_ns: int = 0
    bound_ns: int = 0
    least: float | None = None
    least_ns: int = 0
    unit: str = ""  # of the least margin
    margins: list[int] = msgspec.field(default_factory=lambda: [0] * BINS)


class _File(msgspec.Struct, kw_only=True):
    format: int = _FORMAT
    constraints: list[Covered] = []


class CoverageBook:
    """All constraints seen, in memory and in a file. Used from one event loop; `flush` writes in a thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = asyncio.Lock()
        self.problem = ""
        self.forgotten = 0
        self._changed = False
        self._held: dict[tuple[str, str], Covered] = {(c.module, c.constraint): c for c in self._loaded()}

    def rows(self) -> Iterable[Covered]:
        """Every constraint, as it is now."""
        return self._held.values()

    def of(self, module: str, constraint: str) -> Covered | None:
        """What is known of one."""
        return self._held.get((module, constraint))

    def watch(self, module: str, revision: int, constraints: Iterable[str], now_ns: int) -> None:
        """These are in force: what is known of another revision of them is forgotten."""
        for constraint in constraints:
            self._entry(module, constraint, revision, now_ns)

    def note(self, record: DecisionRecord, revision: Revision) -> None:
        """One decision's findings: those of the proposal, whatever was let out in the end."""
        now = record.received_utc_ns
        for finding in record.findings:
            known = revision(record.generation, finding.module)
            if known is None:
                continue  # its rules are gone: nobody could say what it was judged by
            entry = self._entry(finding.module, finding.constraint, known, now)
            entry.judged, entry.judged_ns = entry.judged + 1, now
            self._changed = True
            if isinstance(finding, Unknown):
                entry.unknown += 1
                continue
            margin = None if finding.margin is None else float(finding.margin)
            if margin is not None:
                entry.margins[bin_of(margin)] += 1
                if entry.least is None or margin < entry.least:
                    entry.least, entry.least_ns, entry.unit = margin, now, finding.unit
            fired = isinstance(finding, Violated)
            if fired:
                entry.fired, entry.fired_ns = entry.fired + 1, now
            if fired or (margin is not None and margin <= 0):
                entry.bound_ns = now

    async def flush(self) -> None:
        """Durable when this returns; raises `StorageError`."""
        async with self._lock:
            if not self._changed:
                return
            self._changed = False
            body = msgspec.json.encode(_File(constraints=list(self._held.values())))
            try:
                await asyncio.to_thread(write_durably, self._path, body)
            except OSError as exc:
                self._changed = True
                raise StorageError(f"coverage file `{self._path}` cannot be written: {cause(exc)}") from exc

    def _entry(self, module: str, constraint: str, revision: int, now_ns: int) -> Covered:
        key = (module, constraint)
        held = self._held.get(key)
        if held is None or held.revision != revision:
            held = Covered(module=module, constraint=constraint, revision=revision, since_ns=now_ns)
            self._held[key] = held
            self._changed = True
            if len(self._held) > MOST:
                del self._held[
                    min(self._held, key=lambda k: self._held[k].judged_ns or self._held[k].since_ns)
                ]
                self.forgotten += 1
        return held

    def _loaded(self) -> list[Covered]:
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=_File)
        except FileNotFoundError:
            return []
        except (OSError, msgspec.MsgspecError) as exc:
            self.problem = f"coverage began anew: `{self._path}` cannot be read: {cause(exc)}"
            log.warning("coverage_unreadable", path=str(self._path), problem=cause(exc))
            return []
        fitting = [c for c in found.constraints if len(c.margins) == BINS]
        return fitting[:MOST] if found.format == _FORMAT else []
