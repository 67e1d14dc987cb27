"""What must survive a restart: confirmed values, modes, starts, the kill switch, acknowledgements."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import msgspec
import structlog

from gateway.core.decision import Mode, PointId
from gateway.core.durable import write_durably
from gateway.core.errors import StorageError, cause, remedy
from gateway.core.tag import TagId

log = structlog.get_logger().bind(component="storage")

_FORMAT = 1
_STARTS_KEPT = 64
_NS_PER_S = 1_000_000_000


class BindingMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The binding sheet that is signed for one decision point (S26): which one, by whom, when (UTC ns).

    `user` is who asked, as the gateway knows them; `signed_by` the name they gave.
    """

    digest: str
    signed_by: str
    user: str
    at_utc: int


class PointMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What the start rules (S23) need to know of one decision point.

    `digests` names what was in force when it was armed (rule set, model, binding sheet); `last_confirmed`
    holds the register counts the PLC confirmed, at `confirmed_at_utc` nanoseconds. `latched` says why it may
    not be armed until a person has acknowledged that.
    """

    mode: Mode = Mode.SHADOW
    armed_before: bool = False
    digests: dict[str, str] = {}
    last_confirmed: dict[TagId, int] = {}
    confirmed_at_utc: int | None = None
    binding: BindingMemory | None = None
    latched: str = ""


class GatewayMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The whole state file."""

    format: int = _FORMAT
    points: dict[PointId, PointMemory] = {}
    starts: list[int] = []  # UTC ns, oldest first
    writes_stopped: bool = False
    acknowledged: list[str] = []  # alarm sources


class DurableState:
    """Typed get and set in memory; `flush` makes all of it durable. Used from one event loop.

    A file that cannot be read is the worst history (S23): it is copied to `NAME.unreadable`, no point was
    armed before, writes are stopped until a person resumes them, and `problem` says so.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = asyncio.Lock()
        self.problem = ""
        # INVARIANT: the file holds `_memory` as it was at change number `_saved`, and `_saved <= _changes`.
        self._changes = self._saved = 0
        self._memory = self._loaded()

    @property
    def memory(self) -> GatewayMemory:
        """Everything, as one frozen value."""
        return self._memory

    def point(self, point: PointId) -> PointMemory:
        """What is remembered of a decision point; of an unknown one: shadow, never armed."""
        return self._memory.points.get(point, PointMemory())

    def set_point(self, point: PointId, memory: PointMemory) -> None:
        """Remember `memory` for `point`."""
        self._replace(points={**self._memory.points, point: memory})

    def set_mode(self, point: PointId, mode: Mode, digests: dict[str, str] | None = None) -> None:
        """Remember the mode a person chose; arming also remembers under which `digests`.

        Not for the shadow every start begins in (S23): that would forget that the point was armed.
        """
        armed = mode is Mode.ARMED
        changes: dict[str, object] = {"mode": mode, "armed_before": armed}
        if armed:
            changes["digests"] = dict(digests or {})
        self.set_point(point, msgspec.structs.replace(self.point(point), **changes))

    def confirm(self, point: PointId, raw: dict[TagId, int], at_utc_ns: int) -> None:
        """Remember the register counts the PLC confirmed."""
        known = self.point(point)
        merged = {**known.last_confirmed, **raw}
        self.set_point(
            point, msgspec.structs.replace(known, last_confirmed=merged, confirmed_at_utc=at_utc_ns)
        )

    def sign_binding(self, point: PointId, binding: BindingMemory) -> None:
        """Remember which binding sheet stands for the point."""
        self.set_point(point, msgspec.structs.replace(self.point(point), binding=binding))

    def latch(self, point: PointId, why: str) -> None:
        """Remember why the point may not be armed until somebody acknowledged it; "" lets go."""
        if self.point(point).latched != why:
            self.set_point(point, msgspec.structs.replace(self.point(point), latched=why))

    def record_start(self, at_utc_ns: int) -> None:
        """Remember one start of the daemon; the newest 64 are kept."""
        self._replace(starts=[*self._memory.starts, at_utc_ns][-_STARTS_KEPT:])

    def starts_within(self, seconds: float, now_utc_ns: int) -> int:
        """Starts in the last `seconds`. One stamped in the future counts: a stepped clock hides nothing."""
        return sum(1 for start in self._memory.starts if now_utc_ns - start <= seconds * _NS_PER_S)

    @property
    def writes_stopped(self) -> bool:
        """The kill switch."""
        return self._memory.writes_stopped

    def stop_writes(self) -> None:
        """Remember that the kill switch is on."""
        self._replace(writes_stopped=True)

    def resume_writes(self) -> None:
        """Remember that a person took the kill switch off."""
        self._replace(writes_stopped=False)
        self.problem = ""

    def acknowledge(self, source: str) -> None:
        """Remember that the alarm of `source` was acknowledged."""
        if source not in self._memory.acknowledged:
            self._replace(acknowledged=[*self._memory.acknowledged, source])

    def forget_acknowledgement(self, source: str) -> None:
        """The alarm ended or came again: it needs a new acknowledgement."""
        self._replace(acknowledged=[s for s in self._memory.acknowledged if s != source])

    async def flush(self) -> None:
        """Durable when this returns; raises `StorageError`. Concurrent calls share one write."""
        wanted = self._changes
        async with self._lock:
            if self._saved >= wanted:
                return
            number, body = self._changes, msgspec.json.format(msgspec.json.encode(self._memory))
            try:
                await asyncio.to_thread(write_durably, self._path, body)
            except OSError as exc:
                raise StorageError(
                    f"state file `{self._path}` cannot be written: {cause(exc)}: {remedy(exc)}"
                ) from exc
            self._saved = number

    def _replace(self, **changes: object) -> None:
        changed = msgspec.structs.replace(self._memory, **changes)
        if changed != self._memory:
            self._memory = changed
            self._changes += 1

    def _loaded(self) -> GatewayMemory:
        try:
            body = self._path.read_bytes()
        except FileNotFoundError:
            return GatewayMemory()
        except OSError as exc:
            raise StorageError(
                f"state file `{self._path}` cannot be read: {cause(exc)}: {remedy(exc)}"
            ) from exc
        try:
            memory = msgspec.json.decode(body, type=GatewayMemory)
        except msgspec.MsgspecError as exc:
            return self._worst(body, str(exc))
        if memory.format != _FORMAT:
            return self._worst(body, f"format {memory.format} is not known")
        return memory

    def _worst(self, body: bytes, why: str) -> GatewayMemory:
        # The file itself stays until the next flush: a kill before that must not forget the worst.
        aside = self._path.with_name(self._path.name + ".unreadable")
        with contextlib.suppress(OSError):  # evidence for a person; the rules below do not need it
            aside.write_bytes(body)
        self._changes += 1
        self.problem = f"state file `{self._path}` was unreadable ({why}): writes are stopped"
        log.error("state_unreadable", path=str(self._path), kept_as=str(aside), why=why)
        return GatewayMemory(writes_stopped=True)
