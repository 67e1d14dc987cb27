from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from asyncua import ua
from asyncua.ua.uaprotocol_auto import DataChangeFilter

from gateway.link.messages import TagInfo, TagState
from gateway.protocols.opcua.monitored import GatewayItem, is_reportable
from gateway.protocols.opcua.points import latency_ms
from gateway.protocols.opcua.settings import Limits
from gateway.protocols.opcua.space import moment, node_id
from gateway.protocols.opcua.subscription import GatewaySubscription, revised
from gateway.protocols.opcua.tags import TagNode, data_value
from gateway.protocols.opcua.units import engineering_units, unit_id
from gateway.protocols.opcua.wire import Foreign, sample

NS = 1_700_000_000_123_456_789


def tag(kind: ua.VariantType, name: str = "real") -> TagNode:
    info = TagInfo(id="T", kind=name, unit="m", description="", low=0.0, high=5.0, writable=False)
    return TagNode(info, node_id("Tags/T"), kind)


def value_of(tag_: TagNode, value: Foreign, status: int = 0) -> tuple[Any, str]:
    state = TagState(id="T", value=value, status=status, source_ts_ns=NS, server_ts_ns=NS)
    made: Any = data_value(tag_, state)
    return made.Value.Value, made.StatusCode.name


@pytest.mark.parametrize(
    ("kind", "value", "status", "expected"),
    [
        (ua.VariantType.Double, 2, 0, (2.0, "Good")),
        (ua.VariantType.Double, 2.5, 0x40900000, (2.5, "UncertainLastUsableValue")),
        (ua.VariantType.Double, 2.5, 0x80310000, (None, "BadNoCommunication")),
        (ua.VariantType.Double, None, 0, (None, "BadWaitingForInitialData")),
        (ua.VariantType.Double, "2.5", 0, (None, "BadOutOfRange")),
        (ua.VariantType.Int32, 2**31, 0, (None, "BadOutOfRange")),
        (ua.VariantType.Int32, 3.5, 0, (None, "BadOutOfRange")),
        (ua.VariantType.Int32, 3.0, 0, (3, "Good")),
        (ua.VariantType.Boolean, 1, 0, (True, "Good")),
        (ua.VariantType.String, 7, 0, ("7", "Good")),
    ],
)
def test_a_value_fits_its_node_or_is_bad(
    kind: ua.VariantType, value: Foreign, status: int, expected: Foreign
) -> None:
    assert value_of(tag(kind), value, status) == expected


def test_the_source_time_survives_to_the_microsecond() -> None:
    assert moment(NS).microsecond == 123_456
    assert moment(NS).tzinfo is not None


def test_units_have_their_unece_code() -> None:
    assert unit_id("CEL") == 4_408_652  # OPC 10000-8, table of UNECE units
    known, unknown = engineering_units("degC"), engineering_units("furlong")
    assert (known.UnitId, known.DisplayName.Text) == (4_408_652, "degC")
    assert (unknown.UnitId, unknown.DisplayName.Text) == (-1, "furlong")


def item(kind: ua.DeadbandType, band: float, span: float | None = None) -> GatewayItem:
    made = GatewayItem()
    made.filter = DataChangeFilter(ua.DataChangeTrigger.StatusValue, kind, band)
    made.eu_span = span
    made.reported = sample(ua.Variant(10.0))
    return made


def test_a_deadband_is_measured_from_the_last_reported_value() -> None:
    watched = item(ua.DeadbandType.Absolute, 1.0)
    assert not is_reportable(watched, sample(ua.Variant(10.6)))
    assert not is_reportable(watched, sample(ua.Variant(11.0)))
    assert is_reportable(watched, sample(ua.Variant(11.2)))


def test_a_percent_deadband_is_of_the_eu_range() -> None:
    watched = item(ua.DeadbandType.Percent, 10.0, span=50.0)
    assert not is_reportable(watched, sample(ua.Variant(15.0)))
    assert is_reportable(watched, sample(ua.Variant(15.1)))


def test_a_status_is_told_inside_every_deadband() -> None:
    watched = item(ua.DeadbandType.Absolute, 1000.0)
    assert is_reportable(watched, sample(code=ua.StatusCodes.BadNoCommunication))
    assert is_reportable(watched, sample(ua.Variant(10.0), ua.StatusCodes.UncertainLastUsableValue))


def request(interval: float, lifetime: int, keep_alive: int) -> Foreign:
    return SimpleNamespace(
        RequestedPublishingInterval=interval,
        RequestedLifetimeCount=lifetime,
        RequestedMaxKeepAliveCount=keep_alive,
    )


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ((0.0, 0, 0), (100.0, 30, 10)),
        ((float("nan"), 0, 0), (100.0, 30, 10)),
        ((50.0, 100, 10), (100.0, 100, 10)),
        ((1000.0, 5, 10), (1000.0, 30, 10)),
        ((1000.0, 2**32 - 1, 2**32 - 1), (1000.0, 3600, 1200)),
        ((1e12, 1, 1), (1_200_000.0, 3, 1)),
    ],
)
def test_subscription_parameters_are_revised_into_bounds(wanted: Foreign, expected: Foreign) -> None:
    assert revised(request(*wanted), Limits()) == expected


def test_a_message_takes_no_more_notifications_than_asked_for_and_loses_none() -> None:
    queues: dict[int, list[Any]] = {1: ["a", "b", "c"], 2: ["d", "e"]}
    taken = [GatewaySubscription._take(queues, 2) for _ in range(3)]
    assert taken == [["a", "b"], ["c", "d"], ["e"]]
    assert not queues


def test_latency_is_the_measured_total_or_the_sum_of_stages() -> None:
    assert latency_ms({"check": 1.5, "propose": 2.0}) == 3.5
    assert latency_ms({"check": 1.5, "total": 4.0}) == 4.0
    assert latency_ms({}) is None
