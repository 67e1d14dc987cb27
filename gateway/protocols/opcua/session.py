"""One client's session: every service is its own only, bounded, and answered with the standard's codes."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from asyncua import ua
from asyncua.common.utils import ServiceError, create_nonce
from asyncua.server.internal_session import InternalSession, SessionState

from gateway.protocols.opcua.access import ANONYMOUS, GatewayUser
from gateway.protocols.opcua.monitored import stamped
from gateway.protocols.opcua.subscription import GatewaySubscription
from gateway.protocols.opcua.wire import Foreign, opaque, sample, status

if TYPE_CHECKING:
    from gateway.protocols.opcua.processor import GatewayProcessor
    from gateway.protocols.opcua.server import GatewayInternalServer

_TOKEN_BYTES = 32
_VALUE = ua.AttributeIds.Value


class GatewaySession(InternalSession):
    """A session from outside. Its authentication token is random; nothing in it is writable."""

    iserver: GatewayInternalServer
    user: GatewayUser

    def __init__(self, internal_server: GatewayInternalServer, name: str) -> None:
        service = internal_server.subscription_service
        super().__init__(
            internal_server, internal_server.aspace, service, name, user=ANONYMOUS, external=False
        )
        self.external = True
        self.auth_token = opaque(secrets.token_bytes(_TOKEN_BYTES))
        internal_server.register_external_session(self)
        self.client_certificate: bytes | None = None
        self.processor: GatewayProcessor | None = None
        self._pages: dict[bytes, tuple[list[ua.ReferenceDescription], int]] = {}

    def bind(self, certificate: bytes | None, address: str) -> None:
        """Remember whose channel made this session; only the same certificate may take it over."""
        self.client_certificate, self.address = certificate, address

    @property
    def idle_since(self) -> float:
        """Monotonic time of its last request."""
        return self._last_activity

    def is_left(self) -> bool:
        """True when its connection is gone and no subscription waits for another one."""
        return self.processor is not None and self.processor.gone and not self._subscriptions()

    def is_closed(self) -> bool:
        """True when its token opens nothing any more."""
        return self.state is SessionState.Closed

    def activate(self, user: GatewayUser, processor: GatewayProcessor) -> ua.ActivateSessionResult:
        """Speak for `user` on `processor`'s channel from now on."""
        if self.state is SessionState.Created:
            InternalSession._current_connections += 1  # noqa: SLF001  # close_session takes it back
        if self.processor is not processor:
            for subscription in self._subscriptions():
                subscription.rebind(processor)
            self.processor = processor
        self.user, self.state = user, SessionState.Activated
        self.nonce = create_nonce(_TOKEN_BYTES)
        result = ua.ActivateSessionResult()
        result.ServerNonce = self.nonce
        self.touch()
        self._start_timeout_watchdog()
        return result

    async def read(self, params: ua.ReadParameters) -> list[ua.DataValue]:
        """Values with the timestamps asked for."""
        nodes = self._counted(params.NodesToRead)
        if params.MaxAge < 0:
            raise ServiceError(ua.StatusCodes.BadMaxAgeInvalid)
        stamps = _timestamps(params.TimestampsToReturn)
        return [self._read_one(node, stamps) for node in nodes]

    def _read_one(self, wanted: ua.ReadValueId, stamps: tuple[bool, bool]) -> ua.DataValue:
        attribute = wanted.AttributeId
        if wanted.IndexRange:
            return sample(code=ua.StatusCodes.BadIndexRangeNoData)
        value = self.aspace.read_attribute_value(wanted.NodeId, attribute)
        if attribute == ua.AttributeIds.UserExecutable and wanted.NodeId in self.iserver.methods:
            return sample(ua.Variant(self.user.may(self.iserver.methods[wanted.NodeId].role)))
        if attribute != _VALUE:
            return dataclasses.replace(value, SourceTimestamp=None, ServerTimestamp=None)
        if _is_null(value) and self._is_scalar(wanted.NodeId):
            value = sample(code=ua.StatusCodes.BadNotSupported)
        return stamped(value, stamps)

    def _is_scalar(self, node: ua.NodeId) -> bool:
        rank = self.aspace.read_attribute_value(node, ua.AttributeIds.ValueRank).Value
        return rank is not None and rank.Value is not None and rank.Value < 0

    async def write(self, params: ua.WriteParameters) -> list[ua.StatusCode]:
        """Nothing is writable by a client; a wish for a setpoint is the method RequestDecision."""
        return [self._write_refusal(node) for node in self._counted(params.NodesToWrite)]

    def _write_refusal(self, wanted: ua.WriteValue) -> ua.StatusCode:
        if wanted.NodeId not in self.aspace:
            return status(ua.StatusCodes.BadNodeIdUnknown)
        found = self.aspace.read_attribute_value(wanted.NodeId, wanted.AttributeId)
        if found.StatusCode is not None and found.StatusCode.value == ua.StatusCodes.BadAttributeIdInvalid:
            return found.StatusCode
        return status(ua.StatusCodes.BadNotWritable)

    async def browse(self, params: ua.BrowseParameters) -> list[ua.BrowseResult]:
        """References in pages of what the client asked for, never more than the limit."""
        nodes = self._counted(params.NodesToBrowse)
        if params.View is not None and not params.View.ViewId.is_null():
            raise ServiceError(ua.StatusCodes.BadViewIdUnknown)
        limit = self.iserver.settings.limits.references_per_browse
        page = min(params.RequestedMaxReferencesPerNode or limit, limit)
        results = []
        for node in nodes:
            result = self.iserver.view_service._browse(node)  # noqa: SLF001  # the public name takes whole requests
            if node.NodeId not in self.aspace:
                result.StatusCode = status(ua.StatusCodes.BadNodeIdUnknown)
            results.append(self._paged(result, result.References, page))
        return results

    def browse_more(self, points: Iterable[bytes], *, release: bool) -> list[ua.BrowseResult]:
        """The next page of each continuation point, or its release."""
        results = []
        for point in points:
            result = ua.BrowseResult()
            kept = self._pages.pop(point or b"", None)
            if kept is None:
                result.StatusCode = status(ua.StatusCodes.BadContinuationPointInvalid)
            elif not release:
                result = self._paged(result, kept[0], kept[1])
            results.append(result)
        return results

    def _paged(self, result: ua.BrowseResult, references: list[Any], page: int) -> ua.BrowseResult:
        result.References = references[:page]
        if len(references) > page:
            if len(self._pages) >= self.iserver.settings.limits.continuation_points:
                result.References = []
                result.StatusCode = status(ua.StatusCodes.BadNoContinuationPoints)
                return result
            point = secrets.token_bytes(16)
            self._pages[point] = (references[page:], page)
            result.ContinuationPoint = point
        return result

    async def translate_browsepaths_to_nodeids(
        self, params: list[ua.BrowsePath]
    ) -> list[ua.BrowsePathResult]:
        """As asyncua does it, bounded."""
        return await super().translate_browsepaths_to_nodeids(self._counted(params))

    async def call(self, params: list[ua.CallMethodRequest]) -> list[ua.CallMethodResult]:
        """Only our own methods can be called, each by its role; one after the other."""
        if len(params) > self.iserver.settings.limits.methods_per_call:
            raise ServiceError(ua.StatusCodes.BadTooManyOperations)
        return [await self.iserver.call(request, self.user) for request in params]

    async def create_subscription(
        self,
        params: ua.CreateSubscriptionParameters,
        callback: Callable[..., Any],
        request_callback: Foreign = None,
    ) -> ua.CreateSubscriptionResult:
        """A subscription that belongs to this user and this client certificate."""
        result = await super().create_subscription(params, callback, request_callback)
        subscription = self.subscription_service.subscriptions[result.SubscriptionId]
        if isinstance(subscription, GatewaySubscription):
            subscription.owner = (self.user.name or "", self.client_certificate)
        return result

    def modify_subscription(self, params: ua.ModifySubscriptionParameters) -> ua.ModifySubscriptionResult:
        """New publishing parameters, in force from the next cycle."""
        return self._own(params.SubscriptionId).modify(params, self.iserver.settings.limits)

    async def delete_subscriptions(self, ids: list[int]) -> list[ua.StatusCode]:
        """Own ones are deleted; another's is as unknown as one that never was."""
        results = []
        for number in ids or []:
            if self._find(number) is None:
                results.append(status(ua.StatusCodes.BadSubscriptionIdInvalid))
            else:
                results += await super().delete_subscriptions([number])
        return results

    async def create_monitored_items(self, params: ua.CreateMonitoredItemsParameters) -> list[Any]:
        """Items in an own subscription, within the limits."""
        subscription = self._own(params.SubscriptionId)
        wanted = len(self._counted(params.ItemsToCreate))
        limits = self.iserver.settings.limits
        own = sum(s.item_count() for s in self._subscriptions())
        if (
            own + wanted > limits.monitored_items_per_session
            or self.iserver.item_count() + wanted > limits.monitored_items
        ):
            raise ServiceError(ua.StatusCodes.BadTooManyMonitoredItems)
        return await subscription.items.create(params, _timestamps(params.TimestampsToReturn))

    async def modify_monitored_items(self, params: ua.ModifyMonitoredItemsParameters) -> list[Any]:
        """New queue and filter of own items."""
        return self._own(params.SubscriptionId).items.modify(self._counted(params.ItemsToModify))

    async def delete_monitored_items(self, params: ua.DeleteMonitoredItemsParameters) -> list[ua.StatusCode]:
        """Own items only."""
        return self._own(params.SubscriptionId).items.delete_monitored_items(params.MonitoredItemIds or [])

    async def set_monitoring_mode(self, params: ua.SetMonitoringModeParameters) -> list[ua.StatusCode]:
        """Own items only."""
        items = self._own(params.SubscriptionId).items
        return await items.set_monitoring_mode(params.MonitoringMode, params.MonitoredItemIds or [])

    async def set_publishing_mode(self, params: ua.SetPublishingModeParameters) -> list[ua.StatusCode]:
        """Own subscriptions only."""
        results = []
        for number in params.SubscriptionIds or []:
            subscription = self._find(number)
            if subscription is None:
                results.append(status(ua.StatusCodes.BadSubscriptionIdInvalid))
                continue
            await subscription.set_publishing_mode(params.PublishingEnabled)
            results.append(status(ua.StatusCodes.Good))
        return results

    def republish(self, params: ua.RepublishParameters) -> ua.NotificationMessage:
        """A message not yet acknowledged, as often as asked for."""
        return self._own(params.SubscriptionId).repeat(params.RetransmitSequenceNumber)

    def publish(self, acks: Iterable[Any] | None = None) -> tuple[int, list[ua.StatusCode]]:
        """How many subscriptions are ours, and a code for each acknowledgement."""
        own = len(self._subscriptions())
        if not own:
            raise ServiceError(ua.StatusCodes.BadNoSubscription)
        results = []
        for ack in acks or []:
            subscription = self._find(ack.SubscriptionId)
            code = ua.StatusCodes.BadSubscriptionIdInvalid
            if subscription is not None:
                known = subscription.acknowledge(ack.SequenceNumber)
                code = ua.StatusCodes.Good if known else ua.StatusCodes.BadSequenceNumberUnknown
            results.append(status(code))
        return own, results

    async def take_over(self, ids: Iterable[int], processor: GatewayProcessor) -> list[ua.TransferResult]:
        """Transfer of subscriptions, for the same user and client certificate only (OPC 10000-4, 5.14.7)."""
        results = []
        for number in ids:
            result = ua.TransferResult()
            subscription = self.subscription_service.subscriptions.get(int(number))
            if not isinstance(subscription, GatewaySubscription):
                result.StatusCode = status(ua.StatusCodes.BadSubscriptionIdInvalid)
            elif subscription.owner != (self.user.name or "", self.client_certificate) or not self.user.name:
                result.StatusCode = status(ua.StatusCodes.BadUserAccessDenied)
            else:
                before = subscription.session_id
                subscription.session_id = self.session_id
                subscription.rebind(processor)
                await self.iserver.close_if_left(before)
                result.AvailableSequenceNumbers = subscription.available()
            results.append(result)
        return results

    def _find(self, number: int) -> GatewaySubscription | None:
        subscription = self.subscription_service.subscriptions.get(number)
        if isinstance(subscription, GatewaySubscription) and subscription.session_id == self.session_id:
            return subscription
        return None

    def _own(self, number: int) -> GatewaySubscription:
        subscription = self._find(number)
        if subscription is None:
            raise ServiceError(ua.StatusCodes.BadSubscriptionIdInvalid)
        return subscription

    def _subscriptions(self) -> list[GatewaySubscription]:
        every = self.subscription_service.subscriptions.values()
        return [s for s in every if isinstance(s, GatewaySubscription) and s.session_id == self.session_id]

    def _counted(self, operations: list[Any] | None) -> list[Any]:
        if not operations:
            raise ServiceError(ua.StatusCodes.BadNothingToDo)
        if len(operations) > self.iserver.settings.limits.nodes_per_call:
            raise ServiceError(ua.StatusCodes.BadTooManyOperations)
        return operations


def _timestamps(wanted: ua.TimestampsToReturn) -> tuple[bool, bool]:
    """Whether the source's and the server's timestamp are wanted."""
    answers = {
        ua.TimestampsToReturn.Source: (True, False),
        ua.TimestampsToReturn.Server: (False, True),
        ua.TimestampsToReturn.Both: (True, True),
        ua.TimestampsToReturn.Neither: (False, False),
    }
    if wanted not in answers:
        raise ServiceError(ua.StatusCodes.BadTimestampsToReturnInvalid)
    return answers[wanted]


def _is_null(value: ua.DataValue) -> bool:
    good = value.StatusCode is None or value.StatusCode.value == ua.StatusCodes.Good
    return good and (value.Value is None or value.Value.Value is None)
