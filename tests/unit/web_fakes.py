"""A gateway as the web process would see it, without one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from gateway.core.errors import LinkBrokenError, LinkTimeoutError
from gateway.link.messages import (
    Alarm,
    Answer,
    DecisionView,
    FeedBatch,
    FeedItem,
    GatewayState,
    ModuleState,
    PointState,
    ResidualState,
    TagInfo,
    TagState,
)

AT = 1_700_000_000_123_000_000


def gateway(**changes: Any) -> GatewayState:  # noqa: ANN401 - any field
    fields: dict[str, Any] = {
        "id": "line-3",
        "version": "0.1.0",
        "started_ns": AT,
        "healthy": True,
        "parts": {"modbus plc1": "ok", "audit": "ok", "opcua": "ok"},
        "generation": 12,
        "rule_set_digest": "5f3b8c0e" * 8,
        "counters": {"decisions_permitted": 41, "verdicts.refused": 2},
        "writes_stopped": False,
        "config_digest": "ab" * 32,
        "inference": {"ep_requested": "cuda", "ep_actual": "cpu", "bundle": "buffer-tank"},
    }
    return GatewayState(**(fields | changes))


def decision(number: int = 1, outcome: str = "permitted", **changes: Any) -> DecisionView:  # noqa: ANN401
    fields: dict[str, Any] = {
        "id": f"d-{number}",
        "point": "buffer-tank",
        "mode": "armed",
        "requested_by": "period",
        "at_ns": AT + number * 1_000_000_000,
        "outcome": outcome,
        "reason": "",
        "proposal": {"TK1.P101.SP": "42.5", "TK1.H101.CMD": "1"},
        "setpoints": {"TK1.P101.SP": "42.5", "TK1.H101.CMD": "1"},
        "written_by": "verdict",
        "violated": [],
        "counterexample": "",
        "counterexample_json": "",
        "margins": [("buffer-tank/high-level", "0.1266", "m"), ("buffer-tank/max-temperature", "29.4", "K")],
        "generation": 12,
        "rule_set_digest": "5f3b8c0e" * 8,
        "model_digest": "cd" * 32,
        "certificate_digest": "",
        "confidence": 0.91,
        "write_outcome": "confirmed",
        "timings_ms": {"propose": 2.1, "check": 3.4, "write": 4.0},
        "inputs": {"TK1.LT101": "2.013", "TK1.TT101": "44.8"},
    }
    return DecisionView(**(fields | changes))


def tag(name: str, value: float | None, unit: str, high: float, status: int = 0) -> list[FeedItem]:
    info = TagInfo(
        id=name, kind="real", unit=unit, description=f"{name} of tank 1", low=0.0, high=high, writable=False
    )
    return [info, TagState(id=name, value=value, status=status, source_ts_ns=None, server_ts_ns=AT)]


def snapshot(**changes: Any) -> list[FeedItem]:  # noqa: ANN401 - fields of the gateway's state
    module = ModuleState(
        id="buffer-tank",
        file="buffer-tank.json",
        state="active",
        revision=3,
        digest="ef" * 32,
        priority=8,
        last_attempt_ns=AT,
        last_success_ns=AT,
        refused_because=[],
        constraints=["high-level", "heater-needs-mixing", "max-temperature"],
    )
    broken = ModuleState(
        id="broken",
        file="broken.json",
        state="refused",
        revision=0,
        digest="",
        priority=0,
        last_attempt_ns=AT,
        last_success_ns=0,
        refused_because=["broken.json, line 4, column 12: unknown tag `TK1.LT999`"],
        constraints=[],
    )
    point = PointState(
        id="buffer-tank",
        mode="armed",
        inputs=["TK1.LT101", "TK1.FT101", "TK1.TT101"],
        outputs=["TK1.P101.SP", "TK1.H101.CMD", "TK1.M101.STAGE"],
        model="buffer-tank",
        alarm="",
        last_decision="d-3",
        in_control=True,
        blocked="",
        residuals=[ResidualState("TK1.LT101", 10, -0.0125, 0.0, 0.25, 1)],
        guided=True,
        drift={"TK1.P101.SP": 0.125},
    )
    alarm = Alarm(
        source="module:broken",
        active=True,
        acknowledged=False,
        severity=400,
        cause="constraint module `broken.json` was refused",
        consequence="the last good rule set stays in force",
        action="correct the file; see broken.json.refused.txt",
        since_ns=AT,
    )
    return [
        *tag("TK1.LT101", 2.013, "m", 5.0),
        *tag("TK1.FT101", 12.41, "m3/h", 40.0),
        *tag("TK1.TT101", 44.8, "degC", 100.0),
        *tag("TK1.P101.PV", 42.5, "%", 100.0),
        *tag("TK1.H101.PV", True, "", 1.0),  # noqa: FBT003 - a boolean tag
        *tag("TK1.X", None, "bar", 1.0, 0x80310000),
        point,
        module,
        broken,
        alarm,
        gateway(**changes),
    ]


class FakeLink:
    """The twin of `LinkClient`: batches are put in, `break_off` ends it, `mute` silences it."""

    def __init__(self) -> None:
        self.batches: asyncio.Queue[FeedBatch | None] = asyncio.Queue()
        self.mute = False
        self.closed = asyncio.Event()
        self.asked: asyncio.Queue[str] = asyncio.Queue()

    def put(self, sequence: int, items: list[FeedItem], *, snapshot: bool = False) -> None:
        self.batches.put_nowait(FeedBatch(sequence=sequence, snapshot=snapshot, items=items))

    def break_off(self) -> None:
        self.batches.put_nowait(None)

    async def feed(self) -> AsyncIterator[FeedBatch]:
        while (batch := await self.batches.get()) is not None:
            yield batch
            self.batches.task_done()  # the reader came back for the next one: this one was taken
        raise LinkBrokenError("o3", "the gateway closed the connection")

    async def ask(
        self, verb: str, args: dict[str, Any] | None = None, *, user: str = "", deadline_ms: float = 2000.0
    ) -> Answer:
        del args, user
        self.asked.put_nowait(verb)
        if self.mute:
            raise LinkTimeoutError("o3", f"no answer to `{verb}` within {deadline_ms:.0f} ms")
        return Answer(id=1, ok=True)

    async def aclose(self) -> None:
        self.closed.set()
