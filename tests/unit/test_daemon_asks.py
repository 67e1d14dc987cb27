"""Questions over the internal port that name what is not there."""

from __future__ import annotations

import os
import pwd
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from gateway.config.model import GatewayConfig
from gateway.daemon.access import _NEEDS, Access
from gateway.daemon.asked import MAY_SAY, NotGivenError
from gateway.daemon.asks import Asks
from gateway.link.messages import Answer, Ask
from gateway.link.server import Peer
from tests.fakes.pipeline import LEVEL, PUMP, House


def asks(modes: object = None, operators: tuple[str, ...] = ()) -> Asks:
    """A gateway with the one point `tank` and nothing decided yet."""

    async def recent(_limit: int, _point: str | None, _before: str | None) -> list[Any]:
        return []

    config = SimpleNamespace(opcua=None, access=SimpleNamespace(operators=operators, engineers=()))
    house = House()
    nothing = Mock()  # never reached
    return Asks(
        clock=house.clock,
        access=Access(cast("GatewayConfig", config)),
        lanes={house.point.settings.id: house.lane},
        store=house.store,
        modes=cast("Any", modes or nothing),
        bindings=nothing,
        runtime=nothing,
        overrides=nothing,
        overview=nothing,
        reporter=cast("Any", SimpleNamespace(recent=OrderedDict())),
        coverage=nothing,
        models={},
        audit=cast("Any", SimpleNamespace(recent=recent)),
    )


async def asked(verb: str, /, **args: Any) -> Answer:  # noqa: ANN401  # plain data
    ask = Ask(id=1, verb=verb, args=args, deadline_ms=1000.0, user="")
    return await asks().answer(ask, Peer(uid=os.getuid(), user="anna", pid=1))


@pytest.mark.parametrize(
    "verb", ["decisions", "mode", "binding.print", "binding.show", "binding.sign", "decide"]
)
async def test_a_point_that_is_nowhere_is_an_error_that_names_the_nearest(verb: str) -> None:
    mode = {"mode": "armed"} if verb == "mode" else {}
    answer = await asked(verb, point="tnak", **mode)
    assert not answer.ok
    assert answer.error == "unknown decision point `tnak`; did you mean `tank`?; known: `tank`"


@pytest.mark.parametrize(
    ("verb", "args", "said"),
    [
        ("mode", {"mode": "fast"}, "`fast` is not a mode; known: off, shadow, advisory, armed"),
        ("decide", {"deadline_ms": -1}, "a deadline of -1 ms has no meaning"),
        ("decide", {"class": "P9"}, "`P9` is not a class of requests; known: P0, P1, P2"),
        ("decide", {"what_if": [1]}, "give inputs as a table of tag and number"),
        ("decide", {"what_if": {"X": 1}}, "`X` is not an input of this decision point; known: "),
        ("decide", {"proposal": {"X": 1}}, "`X` is not an output of this decision point; known: "),
        ("decide", {"proposal": {PUMP: "much"}}, f"`much` for `{PUMP}` is not a number"),
        ("decide", {"proposal": {PUMP: "1e999999999"}}, f"`1e999999999` for `{PUMP}` is not a number"),
        ("decide", {"what_if": {LEVEL: "1e301"}}, f"`1e301` for `{LEVEL}` is not a number"),
        ("decide", {"what_if": {LEVEL: 10**350}}, f"`1{'0' * 59}` for `{LEVEL}` is not a number"),
        ("decide", {"proposal": {PUMP: 10**5000}}, f"`a number of thousands of digits` for `{PUMP}` is not"),
        ("decide", {"proposal": {PUMP: "1/0"}}, f"`1/0` for `{PUMP}` is not a number"),
        ("decide", {"proposal": {PUMP: "9" * 500}}, f"`{'9' * 60}` for `{PUMP}` is not a number"),
        ("stop-writes", {"resume": "false"}, "`resume` is true or false, not `false`"),
        ("stop-writes", {"resume": 0}, "`resume` is true or false, not `0`"),
        (
            "runtime.load",
            {"name": "m.json", "data": b"{}", "shadow": "no"},
            "`shadow` is true or false, not `no`",
        ),
        ("runtime.load", {"data": 7}, "give the module file's bytes as `data`, and its file name as `name`"),
        (
            "runtime.load",
            {"data": b"{}", "priority": 16},
            "a priority is a whole number from 0 to 15, not 16",
        ),
    ],
)
async def test_a_question_that_says_something_impossible_is_told_what(
    verb: str, args: dict[str, Any], said: str
) -> None:
    point = {"point": "tank"} if verb in {"decide", "mode"} else {}
    answer = await asked(verb, **point, **args)
    assert not answer.ok
    assert answer.error.startswith(said)


# S20: a misspelled wish would let the model decide instead; `shadw` would put a module in force.
@pytest.mark.parametrize(
    ("verb", "args", "said"),
    [
        ("decide", {"proposl": {PUMP: "50"}}, "`proposl`; did you mean `proposal`?; it takes `class`, "),
        ("runtime.load", {"data": b"{}", "shadw": True}, "`shadw`; did you mean `shadow`?; it takes "),
        ("stop-writes", {"resum": True}, "`resum`; did you mean `resume`?; it takes `resume`"),
        ("status", {"x": 1}, "`x`; it takes nothing"),
        ("decide", {"_deadline_ms": 5.0}, "`_deadline_ms`; did you mean `deadline_ms`?"),
    ],
)
async def test_a_word_that_nobody_reads_is_refused_with_the_nearest(
    verb: str, args: dict[str, Any], said: str
) -> None:
    point = {"point": "tank"} if verb == "decide" else {}
    answer = await asked(verb, **point, **args)
    assert not answer.ok
    assert answer.error.startswith(f"what `{verb}` was given is unknown to it: {said}")


def test_what_each_verb_may_say_is_written_down() -> None:
    verbs = set(asks()._verbs) | {"model.list", "model.load", "model.unload", "model.rollback"}
    assert verbs == MAY_SAY.keys() == _NEEDS.keys()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"proposl": {}}, "did you mean `proposal`"),
        ({"point": "other"}, "asked of decision point `tank`, and says it means `other`"),
        ({"class": "P9"}, "`P9` is not a class of requests; known: P0, P1, P2"),
        ({"deadline_ms": "soon"}, "what it was given does not fit"),
    ],
)
async def test_a_front_end_in_this_process_is_told_what_cannot_be_meant(
    args: dict[str, Any], said: str
) -> None:
    with pytest.raises(NotGivenError, match=said):
        await asks().decide("tank", args, "mqtt")


async def test_decisions_of_a_known_point_or_of_all_are_no_error() -> None:
    for point in ("tank", "", None):
        answer = await asked("decisions", point=point)
        assert answer.ok
        assert answer.result == []


class Latched:
    """Modes with one point that is latched."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[str, str]] = []

    def holds(self, source: str) -> str:
        return "broken assumption (S16): whatever" if source == "point:tank" else ""

    async def acknowledge(self, source: str, who: str) -> str:
        self.acknowledged.append((source, who))
        return ""


async def test_s16_s27_what_lets_a_point_be_armed_again_is_acknowledged_by_an_engineer_only() -> None:
    modes, nobody = Latched(), pwd.getpwnam("nobody")
    gateway = asks(modes, operators=("nobody",))
    operator, engineer = (
        Peer(uid=nobody.pw_uid, user="nobody", pid=1),
        Peer(uid=os.getuid(), user="anna", pid=1),
    )

    async def ack(source: str, peer: Peer) -> Answer:
        return await gateway.answer(
            Ask(id=1, verb="ack", args={"source": source}, deadline_ms=1000.0, user=""), peer
        )

    refused = await ack("point:tank", operator)
    assert refused.error == (
        "acknowledging `point:tank` needs the role engineer; `nobody` is operator: "
        "broken assumption (S16): whatever"
    )
    assert (await ack("module:tank", operator)).ok
    assert (await ack("point:tank", engineer)).ok
    assert modes.acknowledged == [("module:tank", "nobody"), ("point:tank", "anna")]
