"""What constraints have done, as OPC UA nodes that come and go with the rules in force."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from asyncua.ua.uaerrors import BadNodeIdUnknown

from gateway.link.messages import ConstraintCoverage
from tests.integration.opcua_peer import Rig, eventually, rig

pytestmark = pytest.mark.integration

RAMP = "tank/ramp"
COVERED = ConstraintCoverage(
    id=RAMP,
    kind="standard",
    revision=7,
    since_ns=1_764_424_800_000_000_000,
    judged=120,
    fired=3,
    unknown=0,
    judged_ns=1_764_425_100_000_000_000,
    fired_ns=1_764_425_100_000_000_000,
    bound_ns=0,
    least_margin=-1.5,
    least_ns=1_764_425_100_000_000_000,
    margin_unit="%/s",
)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path) as made:
        yield made


async def test_a_constraint_in_force_has_nodes_and_one_that_is_gone_has_none(gateway: Rig) -> None:
    viewer = await gateway.client("viewer")
    mirror = gateway.running.mirror
    gateway.main.publish(COVERED)
    await eventually(lambda: RAMP in mirror._coverage.names)
    base = f"ns=1;s=Coverage/{RAMP}"
    assert await viewer.get_node(f"{base}/Fired").read_value() == 3
    assert await viewer.get_node(f"{base}/LeastMargin").read_value() == -1.5
    assert await viewer.get_node(f"{base}/MarginUnit").read_value() == "%/s"
    fired = await viewer.get_node(f"{base}/LastFired").read_value()
    assert f"{fired:%Y-%m-%d %H:%M:%S}" == "2025-11-29 14:05:00"
    gateway.main.publish(msgspec.structs.replace(COVERED, gone=True))
    await eventually(lambda: RAMP not in mirror._coverage.names)
    with pytest.raises(BadNodeIdUnknown):
        await viewer.get_node(f"{base}/Fired").read_value()
