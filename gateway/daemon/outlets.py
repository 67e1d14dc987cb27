"""Where news of the gateway goes: the internal port, and MQTT where there is a broker."""

from __future__ import annotations

from gateway.core.decision import PointId
from gateway.core.tag import TagId, TagValue
from gateway.daemon.views import tag_state
from gateway.link.messages import Alarm, DecisionView, FeedItem, PointState
from gateway.link.server import LinkServer
from gateway.protocols.mqtt.bridge import MqttBridge


class Outlets:
    """Tells everybody who looks. Nobody does before it is opened, so that it comes before all others."""

    def __init__(self) -> None:
        self._link: LinkServer | None = None
        self._mqtt: MqttBridge | None = None

    def open(self, link: LinkServer, mqtt: MqttBridge | None) -> None:
        """From now on."""
        self._link, self._mqtt = link, mqtt

    def item(self, item: FeedItem) -> None:
        """What only the internal port tells."""
        if self._link is not None:
            self._link.publish(item)

    def tag(self, tag: TagId, value: TagValue) -> None:
        """A new sample."""
        self.item(tag_state(tag, value))
        if self._mqtt is not None:
            self._mqtt.publish_tag(tag, value)

    def decision(self, view: DecisionView) -> None:
        """A verdict, or what became of its write."""
        self.item(view)
        if self._mqtt is not None:
            self._mqtt.publish_verdict(PointId(view.point), view)

    def alarm(self, alarm: Alarm) -> None:
        """An alarm that came, went or was acknowledged."""
        self.item(alarm)
        if self._mqtt is not None:
            self._mqtt.publish_state(f"alarms/{alarm.source.replace(':', '/')}", alarm)

    def point(self, point: PointId, state: PointState) -> None:
        """How a decision point stands."""
        self.item(state)
        if self._mqtt is not None:
            self._mqtt.publish_point_state(point, state)
