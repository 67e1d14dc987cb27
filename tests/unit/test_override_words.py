"""Overrides as people meet them: o3ctl, HTTP, the alarm, roles. Every verdict under one says so (S25)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from gateway.cli.told.show import why
from gateway.cli.told.words import verdict_sentence
from gateway.config.model import GatewayConfig
from gateway.core.clock import FakeClock
from gateway.core.decision import Mode
from gateway.daemon.access import Access
from gateway.daemon.overrides import OverrideNews
from gateway.link.messages import Alarm, Ask, FeedBatch, OverrideState
from gateway.link.server import Peer
from gateway.pipeline.point import Point
from gateway.web.mirror import Mirror
from gateway.web.views import decision_view, status_view
from gateway.web.views import verdict_sentence as web_sentence
from tests.unit.cli.test_cli_verbs import NOW, Gateway, o3ctl, running
from tests.unit.web_fakes import decision, snapshot

UNDER = "with `tank/ramp` overridden until 2025-11-29 14:05:00 UTC by anna, confirmed by bert"
ACTIVE = OverrideState(
    id="tank/ramp",
    state="active",
    reason="valve test",
    requested_by="anna",
    confirmed_by="bert",
    since_ns=NOW,
    until_ns=1_764_425_100_000_000_000,
)
ASKED = msgspec.structs.replace(ACTIVE, id="tank/other", state="requested", confirmed_by="")


@pytest.mark.parametrize("outcome", ["permitted", "repaired", "refused", "undetermined"])
def test_every_verdict_under_an_override_says_so_s25(outcome: str) -> None:
    view = decision(1, outcome, overridden=UNDER)
    assert UNDER in verdict_sentence(view)
    assert UNDER in web_sentence(view)
    assert UNDER in why(view)
    assert decision_view(view)["overridden"] == UNDER
    without = decision(1, outcome)
    assert "overridden" not in verdict_sentence(without) + web_sentence(without) + why(without)


async def overriding(folder: Path, *words: str) -> tuple[Gateway, Any]:
    async with running(folder) as (gateway, path):
        gateway.results |= {
            f"override.{verb}": [ACTIVE, ASKED] for verb in ("list", "request", "confirm", "release")
        }
        return gateway, await o3ctl("override", *words, "--socket", str(path))


@pytest.mark.parametrize(
    ("words", "verb", "args"),
    [
        (
            ("request", "tank/ramp", "--reason", "valve test", "--for", "30 min"),
            "override.request",
            {"constraint": "tank/ramp", "reason": "valve test", "for": "30 min"},
        ),
        (("confirm", "tank/ramp"), "override.confirm", {"constraint": "tank/ramp"}),
        (("release", "tank/ramp"), "override.release", {"constraint": "tank/ramp"}),
        (("list",), "override.list", {}),
    ],
)
async def test_o3ctl_asks_for_what_was_said_and_shows_all(
    tmp_path: Path, words: tuple[str, ...], verb: str, args: dict[str, Any]
) -> None:
    gateway, done = await overriding(tmp_path, *words)
    assert gateway.asked == [(verb, args)]
    assert done.exit_code == 0
    for said in ("tank/ramp", "in force", "2025-11-29 14:05:00 UTC", "bert", "waits", "nobody yet"):
        assert said in done.stdout


async def test_o3ctl_lists_overrides_for_programs(tmp_path: Path) -> None:
    _, done = await overriding(tmp_path, "list", "--json")
    assert [entry["id"] for entry in json.loads(done.stdout)] == ["tank/ramp", "tank/other"]


def test_http_status_lists_overrides_until_they_end() -> None:
    mirror = Mirror(FakeClock())
    mirror.apply(FeedBatch(sequence=1, snapshot=True, items=[*snapshot(), ACTIVE]))
    assert status_view(mirror)["overrides"] == [
        {
            "constraint": "tank/ramp",
            "state": "active",
            "reason": "valve test",
            "requested_by": "anna",
            "confirmed_by": "bert",
            "since": status_view(mirror)["overrides"][0]["since"],
            "until": "2025-11-29T14:05:00.000+00:00",
        }
    ]
    ended = msgspec.structs.replace(ACTIVE, state="ended")
    mirror.apply(FeedBatch(sequence=2, snapshot=False, items=[ended]))
    assert status_view(mirror)["overrides"] == []
    mirror.apply(FeedBatch(sequence=3, snapshot=False, items=[ACTIVE]))
    mirror.apply(FeedBatch(sequence=4, snapshot=True, items=snapshot()))
    assert status_view(mirror)["overrides"] == []  # what a snapshot does not tell of is no more


def told(mode: Mode) -> tuple[OverrideNews, Any, list[dict[str, Any]], list[OverrideState]]:
    point = SimpleNamespace(mode=mode)
    raised: list[dict[str, Any]] = []
    published: list[OverrideState] = []
    news = OverrideNews(
        [cast("Point", point)],
        lambda source, **facts: raised.append({"source": source, **facts}),
        published.append,
    )
    return news, point, raised, published


def test_one_alarm_stands_while_anything_is_overridden_under_an_armed_point_s28() -> None:
    news, _, raised, published = told(Mode.ARMED)
    news.tell([ACTIVE, ASKED])
    news.tell([ACTIVE, ASKED])
    assert [(r["source"], r["active"], r["acknowledged"]) for r in raised] == [("overrides", True, False)]
    assert "`tank/ramp` is overridden until" in raised[0]["cause"]
    assert "tank/other" not in raised[0]["cause"]  # a request alone changes nothing
    assert "o3ctl override release tank/ramp" in raised[0]["action"]
    news.tell([])
    assert [(r["active"], r["acknowledged"]) for r in raised[1:]] == [(False, True)]
    assert {(s.id, s.state) for s in published[2:]} == {("tank/ramp", "ended"), ("tank/other", "ended")}


def test_no_alarm_is_raised_in_shadow_and_it_comes_with_the_arming_s28() -> None:
    news, point, raised, _ = told(Mode.SHADOW)
    news.tell([ACTIVE])
    assert raised == []
    point.mode = Mode.ARMED
    news.tell([ACTIVE])
    assert [r["active"] for r in raised] == [True]
    point.mode = Mode.SHADOW
    news.tell([ACTIVE])
    assert [r["active"] for r in raised] == [True, False]


@pytest.mark.parametrize(
    ("verb", "role", "may"),
    [
        ("override.list", "viewer", True),
        ("override.request", "viewer", False),
        ("override.request", "operator", True),
        ("override.release", "operator", True),  # its own; more is for an engineer, and judged with it
        ("override.confirm", "operator", False),
        ("override.confirm", "engineer", True),
    ],
)
def test_s25_the_second_person_has_the_role_engineer(verb: str, role: str, *, may: bool) -> None:
    users = (SimpleNamespace(name="carl", role=role),)
    config = SimpleNamespace(
        opcua=SimpleNamespace(user=users), access=SimpleNamespace(operators=(), engineers=())
    )
    access = Access(cast("GatewayConfig", config))
    refusal = access.refusal(Ask(id=1, verb=verb, args={}, user="carl"), Peer(1, os.getuid(), "o3"))
    assert (refusal == "") is may


def test_an_alarm_of_overrides_travels_like_any_other() -> None:
    alarm = Alarm("overrides", active=True, acknowledged=False, severity=700, cause="c", consequence="q",
                  action="a", since_ns=NOW)  # fmt: skip
    mirror = Mirror(FakeClock())
    mirror.apply(FeedBatch(sequence=1, snapshot=True, items=[*snapshot(), alarm]))
    assert "overrides" in mirror.alarms
