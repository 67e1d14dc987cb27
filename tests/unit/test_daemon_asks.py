"""Questions over the internal port that name what is not there."""

from __future__ import annotations

import os
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from gateway.config.model import GatewayConfig
from gateway.daemon.access import Access
from gateway.daemon.asks import Asks
from gateway.link.messages import Answer, Ask
from gateway.link.server import Peer
from tests.fakes.pipeline import House


def asks() -> Asks:
    """A gateway with the one point `tank` and nothing decided yet."""

    async def recent(_limit: int, _point: str | None) -> list[Any]:
        return []

    config = SimpleNamespace(opcua=None, access=SimpleNamespace(operators=(), engineers=()))
    house = House()
    nothing = Mock()  # never reached
    return Asks(
        clock=house.clock,
        access=Access(cast("GatewayConfig", config)),
        lanes={house.point.settings.id: house.lane},
        store=house.store,
        modes=nothing,
        bindings=nothing,
        runtime=nothing,
        overview=nothing,
        reporter=cast("Any", SimpleNamespace(recent=OrderedDict())),
        audit=cast("Any", SimpleNamespace(recent=recent)),
    )


async def asked(verb: str, **args: Any) -> Answer:  # noqa: ANN401  # plain data
    ask = Ask(id=1, verb=verb, args=args, deadline_ms=1000.0, user="")
    return await asks().answer(ask, Peer(uid=os.getuid(), user="anna", pid=1))


@pytest.mark.parametrize(
    "verb", ["decisions", "mode", "binding.print", "binding.show", "binding.sign", "decide"]
)
async def test_a_point_that_is_nowhere_is_an_error_that_names_the_nearest(verb: str) -> None:
    answer = await asked(verb, point="tnak", mode="armed")
    assert not answer.ok
    assert answer.error == "unknown decision point `tnak`; did you mean `tank`?; known: `tank`"


async def test_decisions_of_a_known_point_or_of_all_are_no_error() -> None:
    for point in ("tank", "", None):
        answer = await asked("decisions", point=point)
        assert answer.ok
        assert answer.result == []
