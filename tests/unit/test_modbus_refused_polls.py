"""A poll that a device answers with an exception: in the log once, with the device's words."""

from __future__ import annotations

from typing import Any, cast

from structlog.testing import capture_logs

from gateway.core.clock import FakeClock
from gateway.core.quality import StatusCode
from gateway.core.tag import TagDefinition, TagId, TagKind
from gateway.core.tagstore import TagStore
from gateway.protocols.modbus.link import ModbusExceptionError, Reply
from gateway.protocols.modbus.model import ModbusDevice, ModbusEndpoint, ModbusTag
from gateway.protocols.modbus.reader import DeviceReader

LEVEL = TagId("LT")
DEFINITION = TagDefinition(id=LEVEL, kind=TagKind.INTEGER)
DEVICE = ModbusDevice(
    id="TK1",
    unit_id=1,
    tags=(ModbusTag(definition=DEFINITION, address=7, table="input"),),
    poll_groups={"fast": 1.0},
)


class Plc:
    """Answers 42, or the exception that is set."""

    code = 0

    async def read(self, unit_id: int, _table: str, _address: int, _count: int) -> Reply:
        if self.code:
            raise ModbusExceptionError("plc1", unit_id, self.code)
        return Reply(words=(42,), at=0.0)


async def test_a_refused_poll_is_told_once_and_again_when_it_is_answered() -> None:
    clock = FakeClock()
    store = TagStore([DEFINITION], clock)
    reader = DeviceReader(DEVICE, ModbusEndpoint(host="127.0.0.1"), store, clock)
    plc = Plc()
    with capture_logs() as logs:
        for code in (0, 4, 4, 4, 6, 0, 0):
            plc.code = code
            await reader.poll(cast("Any", plc), "fast")
            assert store[LEVEL].status.is_plain_good is (code == 0)

    told = [(entry["event"], entry.get("reason", "")) for entry in logs]
    assert told == [
        ("poll_refused", "unit 1 answered exception 4 (server device failure)"),
        ("poll_refused", "unit 1 answered exception 6 (server device busy)"),
        ("poll_answered_again", ""),
    ]
    assert (logs[0]["table"], logs[0]["address"]) == ("input", 7)
    assert logs[0]["tags_turn"] == StatusCode.BadDeviceFailure.name
