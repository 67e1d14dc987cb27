"""Subscriptions and monitored items as the standard has them (OPC 10000-4, 5.13 and 5.14)."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from asyncua import ua
from asyncua.common.utils import ServiceError
from asyncua.server.internal_subscription import InternalSubscription
from asyncua.server.subscription_service import SubscriptionService

from gateway.protocols.opcua.monitored import GatewayItems
from gateway.protocols.opcua.settings import Limits
from gateway.protocols.opcua.wire import Foreign, status

if TYPE_CHECKING:
    from gateway.protocols.opcua.processor import GatewayProcessor

_MAX_INTERVAL_MS = 1_200_000.0
_MAX_LIFETIME, _MAX_LIFETIME_MS = 15_000, 3_600_000.0
_OVERFLOW = 0x480  # InfoType DataValue and the Overflow bit (OPC 10000-4, 7.39.1)


class GatewaySubscription(InternalSubscription):
    """One subscription; `owner` is the user name and client certificate it was made by."""

    def __init__(self, *args: Foreign, max_notifications: int = 0, **kwargs: Foreign) -> None:
        super().__init__(*args, **kwargs)
        self.items = GatewayItems(self, self.monitored_item_srv.aspace)
        self.monitored_item_srv = self.items
        self.owner: tuple[str, bytes | None] = ("", None)
        self._max_notifications = max_notifications
        self.overflows = 0

    def item_count(self) -> int:
        """Monitored items in it."""
        return len(self.items._monitored_items)  # noqa: SLF001  # the base class has no public name

    def rebind(self, processor: GatewayProcessor) -> None:
        """Answer on another channel from now on, and nowhere else."""
        old = getattr(self.pub_result_callback, "__self__", None)
        if old is not None and old is not processor:
            old.forget_subscription(self.data.SubscriptionId)
        self.pub_result_callback = processor.forward_publish_response
        take: Any = processor.get_publish_request
        self.pub_request_callback = take
        self._publish_cycles_count = 0

    def modify(self, params: ua.ModifySubscriptionParameters, limits: Limits) -> ua.ModifySubscriptionResult:
        """Take new parameters; the loop reads them every cycle."""
        interval, lifetime, keep_alive = revised(params, limits)
        self.data.RevisedPublishingInterval = interval
        self.data.RevisedLifetimeCount, self.data.RevisedMaxKeepAliveCount = lifetime, keep_alive
        self._max_notifications = params.MaxNotificationsPerPublish
        result = ua.ModifySubscriptionResult()
        result.RevisedPublishingInterval = interval
        result.RevisedLifetimeCount, result.RevisedMaxKeepAliveCount = lifetime, keep_alive
        return result

    def acknowledge(self, sequence: int) -> bool:
        """True when that message was waiting for it."""
        return self._not_acknowledged_results.pop(sequence, None) is not None

    def available(self) -> list[int]:
        """Sequence numbers that can be republished."""
        return sorted(self._not_acknowledged_results)

    def repeat(self, sequence: int) -> ua.NotificationMessage:
        """The message again; it stays until it is acknowledged."""
        kept = self._not_acknowledged_results.get(sequence)
        if kept is None:
            raise ServiceError(ua.StatusCodes.BadMessageNotAvailable)
        message: ua.NotificationMessage = kept.NotificationMessage
        return message

    async def publish_results(self, requestdata: Foreign = None) -> bool:
        """One cycle; what does not fit into one message follows at once while requests wait."""
        sent = await super().publish_results(requestdata)
        while sent and self._more():
            if not await super().publish_results():
                break
        return sent

    async def _subscription_loop(self) -> None:
        due = time.monotonic()
        await self.publish_results()
        while not self._closing:
            due = max(due + self.data.RevisedPublishingInterval / 1000.0, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
            await self.publish_results()

    def _more(self) -> bool:
        return bool(self._publishing_enabled and (self._triggered_datachanges or self._triggered_events))

    def _pop_publish_result(self) -> ua.PublishResult:
        result = super()._pop_publish_result()
        result.MoreNotifications = self._more()
        return result

    def _pop_triggered_datachanges(self, result: ua.PublishResult) -> None:
        taken = self._take(self._triggered_datachanges, self._max_notifications)
        if taken:
            notification = ua.DataChangeNotification()
            notification.MonitoredItems = taken
            result.NotificationMessage.NotificationData.append(notification)

    def _pop_triggered_events(self, result: ua.PublishResult) -> None:
        room = self._max_notifications
        if room and result.NotificationMessage.NotificationData:
            room -= len(result.NotificationMessage.NotificationData[0].MonitoredItems)
            if room <= 0:
                return
        taken = self._take(self._triggered_events, room)
        if taken:
            notification = ua.EventNotificationList()
            notification.Events = taken
            result.NotificationMessage.NotificationData.append(notification)

    @staticmethod
    def _take(queues: dict[int, list[Any]], limit: int) -> list[Any]:
        taken: list[Any] = []
        for item in list(queues):
            queue = queues[item]
            room = len(queue) if not limit else limit - len(taken)
            taken += queue[:room]
            if room >= len(queue):
                del queues[item]
            else:
                queues[item] = queue[room:]
                break
        return taken

    async def _enqueue_event(
        self, mid: int, eventdata: Foreign, size: int, queue: dict[int, list[Any]]
    ) -> None:
        waiting = queue.setdefault(mid, [])
        if size and len(waiting) >= size:
            self.overflows += 1
            if self.items.discards_oldest(mid):
                waiting.pop(0)
                waiting.append(eventdata)
                self._mark_overflow(waiting, 0, size)
            else:
                waiting[-1] = eventdata
                self._mark_overflow(waiting, -1, size)
            return
        waiting.append(eventdata)

    @staticmethod
    def _mark_overflow(waiting: list[Any], index: int, size: int) -> None:
        entry = waiting[index]
        if size == 1 or not isinstance(entry, ua.MonitoredItemNotification):
            return  # OPC 10000-4, 5.13.1.5: not for a queue of one
        code = entry.Value.StatusCode.value if entry.Value.StatusCode is not None else 0
        value = dataclasses.replace(entry.Value, StatusCode=status(code | _OVERFLOW))
        marked = ua.MonitoredItemNotification()
        marked.ClientHandle, marked.Value = entry.ClientHandle, value
        waiting[index] = marked


class GatewaySubscriptions(SubscriptionService):
    """All subscriptions of the server."""

    limits: Limits = Limits()

    async def create_subscription(
        self,
        params: ua.CreateSubscriptionParameters,
        callback: Foreign,
        session_id: ua.NodeId,
        request_callback: Foreign = None,
    ) -> ua.CreateSubscriptionResult:
        """A new subscription with revised parameters; BadTooManySubscriptions when there are enough."""
        if len(self.subscriptions) >= self.limits.subscriptions:
            raise ServiceError(ua.StatusCodes.BadTooManySubscriptions)
        result = ua.CreateSubscriptionResult()
        interval, lifetime, keep_alive = revised(params, self.limits)
        result.RevisedPublishingInterval = interval
        result.RevisedLifetimeCount, result.RevisedMaxKeepAliveCount = lifetime, keep_alive
        self._sub_id_counter += 1
        result.SubscriptionId = self._sub_id_counter
        forget: Callable[[], Any] = lambda: self.subscriptions.pop(result.SubscriptionId, None)  # noqa: E731  # a callback
        subscription = GatewaySubscription(
            result,
            self.aspace,
            callback,
            session_id,
            request_callback=request_callback,
            delete_callback=forget,
            no_acks_limit=100,
            max_queue_size=1_000,
            publishing_enabled=params.PublishingEnabled,
            max_notifications=params.MaxNotificationsPerPublish,
        )
        await subscription.start()
        self.subscriptions[result.SubscriptionId] = subscription
        return result


def revised(
    params: ua.CreateSubscriptionParameters | ua.ModifySubscriptionParameters, limits: Limits
) -> tuple[float, int, int]:
    """Publishing interval in ms, lifetime count and keep-alive count (OPC 10000-4, 5.14.2)."""
    wanted = params.RequestedPublishingInterval
    if not wanted > 0:  # NaN too
        wanted = limits.publishing_interval_ms
    interval = min(max(wanted, limits.publishing_interval_ms), _MAX_INTERVAL_MS)
    longest = max(3, min(_MAX_LIFETIME, int(_MAX_LIFETIME_MS // interval)))
    keep_alive = min(params.RequestedMaxKeepAliveCount or 10, longest // 3)
    lifetime = min(max(params.RequestedLifetimeCount, 3 * keep_alive), longest)
    return interval, lifetime, keep_alive
