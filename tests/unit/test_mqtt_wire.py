"""Topics, payloads and what waits for the broker."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.quality import StatusCode
from gateway.core.tag import Scalar, TagId, TagValue
from gateway.protocols.mqtt import wire
from gateway.protocols.mqtt.backlog import Backlog, Message


def sample(value: Scalar | None, status: StatusCode = StatusCode.Good) -> TagValue:
    return TagValue(value=value, status=status, source_ts_ns=1, server_ts_ns=2, confirmed_at=0.0)


def backlog(events: int = 3, limit_bytes: int = 1000, topics: int = 3) -> Backlog:
    return Backlog(topic_capacity=topics, event_capacity=events, event_limit_bytes=limit_bytes)


def event(n: int) -> Message:
    return Message("e", str(n).encode(), retain=False, event=True)


def state(topic: str, payload: bytes, *, retain: bool = True) -> Message:
    return Message(topic, payload, retain=retain)


def drain(waiting: Backlog) -> list[bytes]:
    return [m.payload for m in iter(waiting.take, None)]


def test_a_tags_dots_become_levels_and_what_mqtt_reserves_is_escaped() -> None:
    assert wire.tag_topic("o3", TagId("TK1.P101.SP")) == "o3/tags/TK1/P101/SP"
    assert wire.tag_topic("o3", TagId("a/b.+#%")) == "o3/tags/a%2Fb/%2B%23%25"


@given(st.text(min_size=1), st.text(min_size=1))
def test_two_names_never_share_a_topic_level(first: str, second: str) -> None:
    assert (wire.level(first) == wire.level(second)) == (first == second)
    assert not set(wire.level(first)) & set("+#/\0")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_json_cannot_carry_is_null_and_never_good(number: float) -> None:
    body = json.loads(wire.tag_payload(sample(number)))
    assert body["value"] is None
    assert body["status_name"] == "BadDecodingError"


def test_integers_a_reader_would_round_travel_as_text() -> None:
    assert json.loads(wire.tag_payload(sample(2**53 - 1)))["value"] == 2**53 - 1
    assert json.loads(wire.tag_payload(sample(2**53)))["value"] == str(2**53)
    assert json.loads(wire.tag_payload(sample(5), wide=True))["value"] == "5"
    assert json.loads(wire.tag_payload(sample(True), wide=True))["value"] is True  # noqa: FBT003 - the tag's value


def test_quality_travels_as_number_and_name() -> None:
    body = json.loads(wire.tag_payload(sample(1.0, StatusCode.BadNoCommunication)))
    assert (body["value"], body["status"], body["status_name"]) == (1.0, 0x80310000, "BadNoCommunication")
    assert body["source_ts"] == "1970-01-01T00:00:00.000000001Z"


class View(msgspec.Struct):
    at_ns: int
    confidence: float
    margins: list[tuple[str, int]]


def test_records_become_json_with_exact_times_and_no_nan() -> None:
    payload = wire.json_payload(View(at_ns=7, confidence=float("nan"), margins=[("m/c", 2**60)]))
    assert json.loads(payload) == {"at_ns": "7", "confidence": None, "margins": [["m/c", str(2**60)]]}
    assert wire.json_payload(b"as it is") == b"as it is"


def test_an_unsent_state_gives_way_and_an_event_never_does() -> None:
    waiting = backlog()
    for n in range(3):
        waiting.put(state("t", str(n).encode()))
        waiting.put(event(n))
    assert drain(waiting) == [b"0", b"2", b"1", b"2"]
    assert waiting.statistics().coalesced == 2


def test_a_full_backlog_drops_the_oldest_event_and_counts_it() -> None:
    waiting = backlog(events=2)
    for n in range(5):
        waiting.put(event(n))
    assert waiting.statistics().events_dropped == 3
    assert drain(waiting) == [b"3", b"4"]
    small = backlog(limit_bytes=2)
    for n in range(5):
        small.put(event(n))
    assert (small.statistics().event_bytes, drain(small)) == (2, [b"3", b"4"])


def test_what_was_not_acknowledged_goes_out_first_and_in_order() -> None:
    waiting = backlog(events=9)
    for n in range(4):
        waiting.put(event(n))
    sent = [m for m in (waiting.take(), waiting.take()) if m is not None]
    waiting.put(state("t", b"old"))
    old = waiting.take()
    assert old is not None
    waiting.put(state("t", b"new"))
    waiting.give_back([*sent, old])
    out = drain(waiting)
    assert [p for p in out if p.isdigit()] == [b"0", b"1", b"2", b"3"]
    assert [p for p in out if not p.isdigit()] == [b"new"]


def test_a_new_link_gets_every_retained_state_again_and_only_those() -> None:
    waiting = backlog()
    waiting.put(state("kept", b"1"))
    waiting.put(state("passing", b"2", retain=False))
    assert drain(waiting) == [b"1", b"2"]
    waiting.renew()
    assert drain(waiting) == [b"1"]


def test_topics_are_bounded_and_a_further_one_is_counted() -> None:
    waiting = backlog(topics=1)
    waiting.put(state("a", b"1"))
    waiting.put(state("b", b"2"))
    waiting.put(state("a", b"3"))
    assert drain(waiting) == [b"3"]
    assert waiting.statistics().topics_refused == 1


@given(st.lists(st.sampled_from(["event", "state", "take", "lose"]), max_size=60))
def test_every_event_is_taken_waiting_or_counted(steps: list[str]) -> None:
    waiting, put, taken, window = backlog(events=4), 0, 0, [event(-1)]
    window.clear()
    for step in steps:
        if step == "event":
            waiting.put(event(put))
            put += 1
        elif step == "state":
            waiting.put(state("t", b"s"))
        elif step == "take" and (message := waiting.take()) is not None:
            taken += message.event
            window.append(message)
        elif step == "lose":
            waiting.give_back(window)
            taken -= sum(m.event for m in window)
            window.clear()
    counts = waiting.statistics()
    assert put == taken + counts.events_due + counts.events_dropped
