"""Which decision requests over MQTT may be asked at all (S20)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.errors import ConfigError
from gateway.protocols.mqtt.requests import Arrival, DecideRequest, RequestDesk, RequestRefused
from gateway.protocols.mqtt.settings import MqttSettings, MqttTls

ARRIVAL = Arrival(
    point="buffer-tank",
    payload=b'{"setpoints": {}}',
    retained=False,
    duplicate=False,
    response_topic="clients/1",
    correlation=b"1",
    user_properties=(("deadline_ms", "100"),),
    received_at=10.0,
)


def desk(*, accept: bool = True) -> RequestDesk:
    return RequestDesk("o3", accept=accept, default_deadline_ms=1000.0)


def refusal(arrival: Arrival, at: RequestDesk | None = None, *, now: float = 10.0, in_flight: int = 0) -> str:
    decided = (at or desk()).examine(arrival, now=now, in_flight=in_flight, capacity=16)
    assert isinstance(decided, RequestRefused)
    return decided.reason


def test_a_plain_request_is_asked_with_its_own_deadline() -> None:
    decided = desk().examine(ARRIVAL, now=10.05, in_flight=0, capacity=16)
    assert isinstance(decided, DecideRequest)
    assert (decided.point, decided.deadline_ms, decided.received_at) == ("buffer-tank", 100.0, 10.0)
    assert (decided.args, decided.requested_by) == ({"setpoints": {}}, "mqtt")


def test_without_a_deadline_the_configured_one_applies() -> None:
    decided = desk().examine(replace(ARRIVAL, user_properties=()), now=10.0, in_flight=0, capacity=16)
    assert isinstance(decided, DecideRequest)
    assert decided.deadline_ms == 1000.0


@pytest.mark.parametrize(
    ("changed", "begins"),
    [
        ({"retained": True}, "retained"),
        ({"duplicate": True}, "duplicate"),
        ({"response_topic": None}, "no response topic"),
        ({"payload": b"{" * 70_000}, "the payload exceeds"),
        ({"payload": b"[1]"}, "the payload is not a JSON object"),
        ({"payload": b'{"a": NaN}'}, "the payload is not JSON"),
        ({"payload": b'{"a":' * 5_000}, "the payload is not JSON"),
        ({"payload": b"\xff"}, "the payload is not JSON"),
        ({"payload": b'{"deadline_ms": 50}'}, "deadline_ms is a user property of the message"),
        ({"user_properties": (("deadline_ms", "0"),)}, "expired"),
        ({"user_properties": (("deadline_ms", "-1"),)}, "expired"),
        ({"user_properties": (("deadline_ms", "nan"),)}, "deadline_ms"),
        ({"user_properties": (("deadline_ms", "soon"),)}, "deadline_ms"),
        ({"user_properties": (("deadline_ms", "1e9"),)}, "deadline_ms"),
        ({"user_properties": (("deadline_ms", "5"), ("deadline_ms", "9"))}, "deadline_ms"),
    ],
)
def test_what_may_not_be_asked_is_refused_with_the_reason(changed: dict[str, object], begins: str) -> None:
    assert refusal(replace(ARRIVAL, **changed)).startswith(begins)  # type: ignore[arg-type]  # one field at a time


def test_a_request_that_waited_past_its_deadline_is_expired() -> None:
    assert refusal(ARRIVAL, now=10.11).startswith("expired")
    assert isinstance(desk().examine(ARRIVAL, now=10.05, in_flight=0, capacity=16), DecideRequest)


def test_a_full_desk_refuses_the_newest() -> None:
    assert "in flight" in refusal(ARRIVAL, in_flight=16)


def test_a_read_only_desk_refuses_everything() -> None:
    assert "read-only" in refusal(ARRIVAL, desk(accept=False))


def test_the_same_correlation_data_twice_is_a_duplicate_for_a_minute() -> None:
    at = desk()
    assert isinstance(at.examine(ARRIVAL, now=10.0, in_flight=0, capacity=16), DecideRequest)
    assert refusal(replace(ARRIVAL, received_at=20.0), at, now=20.0).startswith("duplicate")
    other = replace(ARRIVAL, correlation=b"2", received_at=20.0)
    assert isinstance(at.examine(other, now=20.0, in_flight=0, capacity=16), DecideRequest)
    late = replace(ARRIVAL, received_at=75.0)
    assert isinstance(at.examine(late, now=75.0, in_flight=0, capacity=16), DecideRequest)


@pytest.mark.parametrize(
    "topic", ["", "a/+", "a/#", "$SYS/x", "o3/status", "o3/tags/A", "o3/points/p/verdict", "o3/decide/p"]
)
def test_an_answer_never_goes_where_the_gateway_itself_speaks_or_listens(topic: str) -> None:
    decided = desk().examine(replace(ARRIVAL, response_topic=topic), now=10.0, in_flight=0, capacity=16)
    assert isinstance(decided, RequestRefused)
    assert decided.response_topic is None


def test_a_claimed_name_is_shown_as_a_claim() -> None:
    named = replace(ARRIVAL, user_properties=(("user", "eve\n"),))
    decided = desk().examine(named, now=10.0, in_flight=0, capacity=16)
    assert isinstance(decided, DecideRequest)
    assert decided.requested_by == "mqtt (says `eve`)"


def test_settings_name_everything_wrong_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        MqttSettings(
            host="192.0.2.1",
            port=0,
            client_id="",
            prefix="a/#",
            username="u",
            password="p",  # noqa: S106 - a test's password
            accept_requests=True,
        )
    keys = [p.split(":")[0] for p in caught.value.problems]
    assert keys == ["mqtt.prefix", "mqtt.port", "mqtt.client_id", "mqtt.password", "mqtt.accept_requests"]


def test_a_password_may_travel_inside_tls() -> None:
    settings = MqttSettings(
        host="192.0.2.1",
        port=8883,
        client_id="a",
        prefix="o3",
        username="u",
        password="p",  # noqa: S106 - a test's password
        tls=MqttTls(),
    )
    assert not settings.accept_requests
