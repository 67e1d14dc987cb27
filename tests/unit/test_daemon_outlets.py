"""Every piece of news reaches the internal port, and MQTT where there is a broker."""

from __future__ import annotations

from typing import cast
from unittest.mock import Mock

from gateway.core.decision import PointId
from gateway.core.quality import StatusCode
from gateway.core.tag import TagId, TagValue
from gateway.daemon.outlets import Outlets
from gateway.link.messages import Alarm, DecisionView, FeedItem, PointState

ALARM = Alarm(
    source="point:tank",
    active=True,
    acknowledged=False,
    severity=1,
    cause="a",
    consequence="b",
    action="c",
    since_ns=1,
)


def test_news_goes_nowhere_before_anybody_is_there_and_to_both_from_then_on() -> None:
    outlets, link, mqtt = Outlets(), Mock(), Mock()
    outlets.alarm(ALARM)
    outlets.open(link, mqtt)
    sample = TagValue(value=1.0, status=StatusCode.Good, source_ts_ns=None, server_ts_ns=1, confirmed_at=1.0)
    decision, point = Mock(spec=DecisionView, point="tank"), Mock(spec=PointState)
    outlets.tag(TagId("LT"), sample)
    outlets.decision(decision)
    outlets.alarm(ALARM)
    outlets.point(PointId("tank"), point)
    outlets.item(cast("FeedItem", "modules"))
    assert [call.args[0] for call in link.publish.call_args_list[1:]] == [decision, ALARM, point, "modules"]
    assert link.publish.call_args_list[0].args[0].id == "LT"
    mqtt.publish_tag.assert_called_once_with("LT", sample)
    mqtt.publish_verdict.assert_called_once_with("tank", decision)
    mqtt.publish_state.assert_called_once_with("alarms/point/tank", ALARM)
    mqtt.publish_point_state.assert_called_once_with("tank", point)


def test_without_a_broker_the_internal_port_hears_all() -> None:
    outlets, link = Outlets(), Mock()
    outlets.open(link, None)
    outlets.alarm(ALARM)
    outlets.decision(Mock(spec=DecisionView, point="tank"))
    assert link.publish.call_count == 2
