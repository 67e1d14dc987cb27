"""Binding sheets of the running gateway: drafted from what it sees, signed, voided by a change (S26).

What "signed" means here: an engineer known to this gateway handed in the sheet; its digest stands in the
durable state and, with who asked and in whose name, in the audit chain. No key of the person's is involved,
and whoever may write the state directory may write both.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import structlog

from gateway.config.binding import (
    LIMIT_BYTES,
    Bound,
    Sheet,
    bound_tags,
    changes,
    drafted,
    read_sheet,
    sheet_text,
    signed_by,
    unsigned_problems,
)
from gateway.config.model import GatewayConfig
from gateway.core.clock import Clock
from gateway.core.decision import PointId
from gateway.core.durable import write_durably
from gateway.core.errors import ConfigError, StorageError, cause
from gateway.core.tag import TagDefinition, TagId, TagValue, decimal_text, exact
from gateway.core.tagstore import TagStore
from gateway.storage.audit import AuditLog
from gateway.storage.state import BindingMemory, DurableState

log = structlog.get_logger().bind(component="binding")

_SHOWN_CHANGES = 4
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Standing:
    """The sheet that is signed for a point, as it was found; `problem` where it cannot be relied on."""

    sheet: Sheet | None
    problem: str = ""


class Bindings:
    """The binding sheet of every decision point. Sheets lie in `state_dir/bindings`, one file a point."""

    def __init__(
        self, config: GatewayConfig, store: TagStore, state: DurableState, audit: AuditLog, clock: Clock
    ) -> None:
        self._store, self._state, self._audit, self._clock = store, state, audit, clock
        self._folder = config.gateway.state_dir / "bindings"
        self._bound: dict[PointId, tuple[Bound, ...]] = {
            PointId(point.id): bound_tags(config, point.id) for point in config.decision_point
        }
        self._standing = {point: self._found(point) for point in self._bound}
        self._why_not = {point: self._void(point) for point in self._bound}

    def why_not(self, point: PointId) -> str:
        """Why the point's binding does not let it be armed, and what to do; empty when it does."""
        return self._why_not[point]

    def digest(self, point: PointId) -> str:
        """Digest of the sheet that stands for the point; empty when none does."""
        sheet = self._standing[point].sheet
        return sheet.digest if sheet is not None else ""

    def draft(self, point: PointId) -> dict[str, Any]:
        """A sheet from the configuration and what is read now, for a person to take to the plant."""
        seen: dict[str, tuple[str, str]] = {}
        unseen: dict[str, str] = {}
        for item in self._bound[point]:
            value = self._store[TagId(item.tag)]
            if value.status.is_plain_good:
                seen[item.tag] = _seen(item.definition, value)
            else:
                unseen[item.tag] = value.status.name
        return {"sheet": sheet_text(drafted(self._bound[point], seen)), "not_good": unseen}

    def standing(self, point: PointId) -> dict[str, Any]:
        """What is signed for the point, and why it does not count where it does not."""
        memory = self._state.point(point).binding
        return {
            "point": point,
            "digest": memory.digest if memory is not None else "",
            "signed_by": memory.signed_by if memory is not None else "",
            "user": memory.user if memory is not None else "",
            "at_ns": memory.at_utc if memory is not None else 0,
            "void": self.why_not(point),
        }

    async def sign(self, point: PointId, text: str, file: str, name: str, who: str) -> str:
        """Let a filled-in sheet stand for the point; why not, or "". Audited before it counts."""
        if len(text.encode()) > LIMIT_BYTES:
            return f"{file}: a binding sheet has at most {LIMIT_BYTES} bytes"
        try:
            sheet = signed_by(read_sheet(text, Path(file)), name or who)
        except ConfigError as exc:
            return str(exc)
        problems = unsigned_problems(sheet, self._bound[point], Path(file))
        if problems:
            return "\n".join((f"the binding sheet of `{point}` cannot be signed:", *problems))
        memory = BindingMemory(
            digest=sheet.digest, signed_by=name or who, user=who, at_utc=self._clock.utc_ns()
        )
        try:
            await asyncio.to_thread(write_durably, self._path(point), sheet_text(sheet).encode())
        except OSError as exc:
            problem = f"the binding sheet cannot be kept: {cause(exc)}"
            raise StorageError(problem) from exc
        facts = {"point": point, "digest": sheet.digest, "signed_by": memory.signed_by, "file": file}
        await self._audit.append_event("binding", who, facts, point)
        self._state.sign_binding(point, memory)
        await self._state.flush()
        self._standing[point] = _Standing(sheet)
        self._why_not[point] = self._void(point)
        log.info("binding_signed", point=point, by=who, signed_by=memory.signed_by, digest=sheet.digest[:16])
        return ""

    def _void(self, point: PointId) -> str:
        standing, memory = self._standing[point], self._state.point(point).binding
        if memory is None or standing.sheet is None:
            why = standing.problem or "no binding sheet is signed"
            return f"{why}: {_todo(point)}"
        changed = changes(standing.sheet, self._bound[point])
        if not changed:
            return ""
        more = f"; and {len(changed) - _SHOWN_CHANGES} more" if len(changed) > _SHOWN_CHANGES else ""
        said = "; ".join(changed[:_SHOWN_CHANGES])
        return (
            f"the binding changed since {memory.signed_by} signed it on {_time(memory.at_utc)}: "
            f"{said}{more}. {_todo(point)}"
        )

    def _path(self, point: PointId) -> Path:
        return self._folder / f"{point}.csv"

    def _found(self, point: PointId) -> _Standing:
        memory = self._state.point(point).binding
        if memory is None:
            return _Standing(None)
        path = self._path(point)
        try:
            sheet = read_sheet(path.read_text(), path)
        except (OSError, ConfigError, UnicodeDecodeError) as exc:
            return _Standing(None, f"the signed binding sheet cannot be read ({cause(exc)})")
        if sheet.digest != memory.digest:
            return _Standing(None, f"{path} is not the binding sheet that was signed")
        return _Standing(sheet)


def _seen(definition: TagDefinition, value: TagValue) -> tuple[str, str]:
    """Raw count and engineering value as a sheet writes them; blank for what is no number."""
    if value.value is None or isinstance(value.value, str):
        return "", ""
    number = exact(value.value)
    if isinstance(value.value, bool):
        return str(int(value.value)), "on" if value.value else "off"
    raw = (number - definition.offset) / definition.scale
    if definition.raw_range is not None:
        raw = Fraction(definition.counts(number))
        number = definition.engineering(int(raw))
    return decimal_text(raw), decimal_text(number)


def _todo(point: PointId) -> str:
    return (
        f"`o3ctl binding print {point} > binding.csv`, read every local indicator at the plant and fill it "
        f"in, then `o3ctl binding sign {point} --file binding.csv`"
    )


def _time(utc_ns: int) -> str:
    return f"{datetime.fromtimestamp(utc_ns / _NS_PER_S, UTC):%Y-%m-%d %H:%M} UTC"
