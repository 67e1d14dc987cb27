"""The HTTP API over a mirror, asked as a client asks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.core.clock import FakeClock
from gateway.link.messages import FeedBatch
from gateway.web.app import create_app, policy_for
from gateway.web.guard import host_name
from gateway.web.mirror import DECISIONS_KEPT, Mirror
from tests.unit.web_fakes import decision, gateway, snapshot

DATA = ("status", "tags", "points", "decisions", "modules", "decisions/d-1")


@pytest.fixture
def mirror() -> Mirror:
    held = Mirror(FakeClock())
    items = [
        *snapshot(),
        decision(1),
        decision(2, "refused", violated=["buffer-tank/high-level"]),
        decision(3),
    ]
    held.apply(FeedBatch(sequence=1, snapshot=True, items=items))
    return held


@pytest.fixture
async def client(mirror: Mirror) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(mirror))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8480") as http:
        yield http


async def body(client: httpx.AsyncClient, path: str) -> Any:  # noqa: ANN401 - JSON
    answer = await client.get(f"/api/v1/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_tags_come_with_quality_times_unit_and_range(client: httpx.AsyncClient) -> None:
    tags = {t["id"]: t for t in (await body(client, "tags"))["tags"]}
    level = tags["TK1.LT101"]
    assert (level["value"], level["unit"], level["high"], level["status_name"]) == (2.013, "m", 5.0, "Good")
    assert level["server_ts"] == "2023-11-14T22:13:20.123+00:00"
    assert (tags["TK1.X"]["value"], tags["TK1.X"]["severity"]) == (None, "bad")


async def test_decisions_come_newest_first_limited_and_by_point(client: httpx.AsyncClient) -> None:
    assert [d["id"] for d in (await body(client, "decisions?limit=2"))["decisions"]] == ["d-3", "d-2"]
    assert (await body(client, "decisions?point=other"))["decisions"] == []
    assert (await body(client, "decisions/d-2"))[
        "sentence"
    ] == "refused by rule set 12: buffer-tank/high-level"
    assert (await client.get("/api/v1/decisions/none")).status_code == 404
    for limit in ("0", "501", "x"):
        assert (await client.get(f"/api/v1/decisions?limit={limit}")).status_code == 422


async def test_a_permitted_decision_is_said_relative_to_its_rule_set_and_margin_first(
    client: httpx.AsyncClient,
) -> None:
    view = await body(client, "decisions/d-1")
    assert view["sentence"] == "permitted by rule set 12 under its assumptions"
    assert list(view)[:3] == ["id", "margins", "sentence"]
    assert view["margins"][0] == {
        "constraint": "buffer-tank/high-level",
        "margin": "0.126",
        "exact": "0.1266",
        "unit": "m",
    }
    assert "confidence" not in view
    assert view["model"]["confidence"] == 0.91


async def test_health_and_ready_tell_part_by_part(client: httpx.AsyncClient, mirror: Mirror) -> None:
    health = await client.get("/health")
    assert (health.status_code, health.json()["parts"]["audit"]) == (200, "ok")
    assert (await client.get("/ready")).json() == {"ready": True}
    sick = gateway(healthy=False, parts={"audit": "disk full"})
    mirror.apply(FeedBatch(sequence=2, snapshot=False, items=[sick]))
    health = await client.get("/health")
    assert health.status_code == 503
    assert health.json()["parts"] == {"web": "ok", "link": "ok", "audit": "disk full"}
    assert (await client.get("/ready")).status_code == 200


async def test_with_the_link_lost_no_old_value_is_told(client: httpx.AsyncClient, mirror: Mirror) -> None:
    mirror.lose("link `o3`: the gateway closed the connection")
    for path in ("health", "ready", *(f"api/v1/{p}" for p in DATA)):
        answer = await client.get(f"/{path}")
        assert answer.status_code == 503, path
        assert "closed the connection" in answer.text
        assert "2.013" not in answer.text
    metrics = (await client.get("/metrics")).text
    assert "o3_web_link_up 0" in metrics
    assert "o3_decisions_permitted_total" not in metrics
    mirror.apply(FeedBatch(sequence=1, snapshot=True, items=snapshot()))
    assert (await client.get("/health")).status_code == 200


async def test_metrics_are_prometheus_text(client: httpx.AsyncClient) -> None:
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {
        (s.name, *s.labels.values()): s.value
        for family in text_string_to_metric_families(answer.text)
        for s in family.samples
    }
    assert samples["o3_decisions_permitted_total",] == 41
    assert samples["o3_verdicts_refused_total",] == 2
    assert samples["o3_tags", "bad"] == 1
    assert samples["o3_part_ok", "modbus plc1"] == 1
    assert samples["o3_modules", "refused"] == 1
    level = ("buffer-tank", "TK1.LT101", "10")
    assert samples["o3_assumption_residual", *level] == -0.0125
    assert samples["o3_assumption_outside", *level] == 0
    assert samples["o3_assumption_used_share", *level] == 0.25
    assert samples["o3_assumption_missed", *level] == 1
    drift = ("buffer-tank", "TK1.P101.SP")
    assert samples["o3_decoding_masked_out", *drift] == 0.125


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8480", "127.0.0.1.evil.example", "[::2]", ""])
async def test_a_rebound_host_name_gets_nothing(client: httpx.AsyncClient, host: str) -> None:
    answer = await client.get("/api/v1/tags", headers={"host": host})
    assert answer.status_code == 421
    assert "TK1" not in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9000", "LOCALHOST", "[::1]:8480"])
async def test_a_loopback_host_name_is_answered(client: httpx.AsyncClient, host: str) -> None:
    assert (await client.get("/ready", headers={"host": host})).status_code == 200
    assert host_name(host) in {"127.0.0.1", "localhost", "[::1]"}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_nothing_can_be_changed_over_http(client: httpx.AsyncClient, method: str) -> None:
    assert (await client.request(method, "/api/v1/points")).status_code == 405


async def test_the_page_needs_nothing_from_elsewhere_and_its_policy_says_so(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.get("/")
    assert answer.headers["content-type"].startswith("text/html")
    assert not re.search(r"https?://|//[a-z]+\.|@import|url\(", answer.text)
    assert answer.headers["content-security-policy"] == policy_for(answer.text)
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "innerHTML" not in answer.text


async def test_words_never_promise_more_than_the_proof(client: httpx.AsyncClient) -> None:
    said = (await client.get("/")).text + (await client.get("/api/v1/decisions")).text
    assert "proved safe" not in said.lower()
    assert " trip" not in said.lower()


async def test_decisions_are_bounded_and_a_repeated_one_keeps_its_place(mirror: Mirror) -> None:
    mirror.apply(FeedBatch(sequence=2, snapshot=False, items=[decision(2, write_outcome="mismatch")]))
    assert [d.id for d in mirror.latest_decisions(9)] == ["d-3", "d-2", "d-1"]
    assert mirror.decisions["d-2"].write_outcome == "mismatch"
    many = [decision(n) for n in range(10, 10 + DECISIONS_KEPT + 5)]
    await asyncio.to_thread(mirror.apply, FeedBatch(sequence=3, snapshot=False, items=list(many)))
    assert len(mirror.decisions) == DECISIONS_KEPT
