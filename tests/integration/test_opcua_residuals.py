"""S16: residual and used share of the band as nodes below their decision point, by tag and window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from asyncua import Client, ua

from gateway.link.messages import ResidualState
from tests.integration.opcua_peer import POINT, Rig, eventually, gateway_state, rig

pytestmark = pytest.mark.integration

BASE = "ns=1;s=DecisionPoints/buffer-tank/Assumptions/TK1.LT101"


async def read(client: Client, name: str) -> tuple[Any, str]:
    value: Any = await client.get_node(f"{BASE}/{name}").read_data_value(raise_on_bad_status=False)
    return value.Value.Value, value.StatusCode.name


async def shown(gateway: Rig, *residuals: ResidualState) -> None:
    """The point says so, and the mirror has taken it."""
    gateway.main.publish(msgspec.structs.replace(POINT, residuals=list(residuals)))
    expected = {(r.tag, r.window): r for r in residuals}
    await eventually(lambda: gateway.running.mirror._residuals._shown.get(POINT.id) == expected)


async def test_s16_residuals_are_nodes_and_never_old_values(tmp_path: Path) -> None:
    async with rig(tmp_path) as gateway:
        client = await gateway.client("viewer")
        one = ResidualState("TK1.LT101", 1, -0.005, 0.0, 0.2, 0)
        ten = ResidualState("TK1.LT101", 10, 0.03, 0.004, 1.15, 3)
        await shown(gateway, one, ten)
        point = await client.nodes.objects.get_child(
            ["1:O3Gateway", "1:DecisionPoints", "1:buffer-tank", "1:Assumptions", "1:TK1.LT101", "1:Window10"]
        )
        assert {(await n.read_browse_name()).Name for n in await point.get_children()} == {
            "Residual",
            "Outside",
            "UsedShare",
            "Missed",
        }
        names = ("Residual", "Outside", "UsedShare", "Missed")
        assert [(await read(client, f"Window10/{name}")) for name in names] == [
            (0.03, "Good"),
            (0.004, "Good"),
            (1.15, "Good"),
            (3, "Good"),
        ]
        await shown(gateway, one)  # the windows began anew
        assert await read(client, "Window10/UsedShare") == (None, "BadNoData")
        assert await read(client, "Window1/UsedShare") == (0.2, "Good")
        await gateway.stop_main()
        await eventually(lambda: not gateway.running.mirror.synchronised)
        assert await read(client, "Window1/UsedShare") == (None, "BadNoCommunication")
        gateway.main.items = [POINT, gateway_state()]
        await gateway.start_main()
        await eventually(lambda: gateway.running.mirror.synchronised)
        await shown(gateway, one)
        assert await read(client, "Window1/Residual") == (-0.005, "Good")
        gateway.main.items = [gateway_state()]
        await gateway.stop_main()
        await eventually(lambda: not gateway.running.mirror.synchronised)
        await gateway.start_main()
        await eventually(lambda: gateway.running.mirror.synchronised)
        with pytest.raises(ua.UaStatusCodeError) as gone:
            await client.get_node(f"{BASE}/Window1/Residual").read_value()
        assert ua.StatusCode(gone.value.code).name == "BadNodeIdUnknown"
