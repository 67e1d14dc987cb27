"""Monitored items: filters against the last reported value, never against the last sample."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import TYPE_CHECKING, Any

from asyncua import ua
from asyncua.server.address_space import AddressSpace
from asyncua.server.monitored_item_service import (
    MonitoredItemData,
    MonitoredItemService,
    WhereClauseEvaluator,
)
from asyncua.ua.uaprotocol_auto import DataChangeFilter  # what the decoder makes; `ua` names a subclass

from gateway.protocols.opcua.wire import Foreign, sample, standard, status

if TYPE_CHECKING:
    from gateway.protocols.opcua.subscription import GatewaySubscription

_EVENT_QUEUE = 1_000
_PERCENT = 100.0
Stamps = tuple[bool, bool]


class GatewayItem(MonitoredItemData):
    """What one item watches, and what it last told the client."""

    def __init__(self) -> None:
        super().__init__()
        self.reported: ua.DataValue | None = None
        self.discard_oldest = True
        self.stamps: Stamps = (True, True)
        self.eu_span: float | None = None


class GatewayItems(MonitoredItemService):
    """The monitored items of one subscription."""

    def __init__(self, isub: GatewaySubscription, aspace: AddressSpace) -> None:
        super().__init__(isub, aspace)
        self._stamps: Stamps = (True, True)

    def discards_oldest(self, mid: int) -> bool:
        """What the client chose for a full queue."""
        item = self._monitored_items.get(mid)
        return not isinstance(item, GatewayItem) or item.discard_oldest

    async def create(
        self, params: ua.CreateMonitoredItemsParameters, stamps: Stamps
    ) -> list[ua.MonitoredItemCreateResult]:
        """Items as asked for, each with its own StatusCode."""
        self._stamps = stamps
        results = []
        for request in params.ItemsToCreate:
            request.RequestedParameters.Filter = _given(request.RequestedParameters.Filter)
            code = self._refusal(request)
            if code is not None:
                result = ua.MonitoredItemCreateResult()
                result.StatusCode = status(code)
                results.append(result)
            elif request.ItemToMonitor.AttributeId == ua.AttributeIds.EventNotifier:
                results.append(self._create_events_monitored_item(request))
            else:
                results.append(await self._create_data_change_monitored_item(request))
        return results

    def _refusal(self, request: ua.MonitoredItemCreateRequest) -> int | None:
        """Why an item cannot be made, or None."""
        watched, filter_ = request.ItemToMonitor, request.RequestedParameters.Filter
        if watched.NodeId not in self.aspace:
            return ua.StatusCodes.BadNodeIdUnknown
        if watched.IndexRange:
            return ua.StatusCodes.BadIndexRangeNoData
        if watched.AttributeId == ua.AttributeIds.EventNotifier:
            return None if isinstance(filter_, ua.EventFilter) else ua.StatusCodes.BadEventFilterInvalid
        return self._filter_refusal(watched, filter_)

    def _filter_refusal(self, watched: ua.ReadValueId, filter_: Foreign) -> int | None:
        if filter_ is None:
            return None
        if not isinstance(filter_, DataChangeFilter) or watched.AttributeId != ua.AttributeIds.Value:
            return ua.StatusCodes.BadFilterNotAllowed
        match filter_.DeadbandType:
            case ua.DeadbandType.None_:
                return None
            case ua.DeadbandType.Absolute:
                valid = filter_.DeadbandValue >= 0
            case ua.DeadbandType.Percent:
                valid = 0 <= filter_.DeadbandValue <= _PERCENT and self._span(watched.NodeId) is not None
            case _:
                return ua.StatusCodes.BadMonitoredItemFilterUnsupported
        return None if valid else ua.StatusCodes.BadDeadbandFilterInvalid

    def _span(self, node: ua.NodeId) -> float | None:
        """Width of the EURange of a node, where it has one."""
        data = self.aspace.get(node)
        for reference in data.references if data is not None else []:
            if reference.IsForward and reference.BrowseName == ua.QualifiedName("EURange", 0):
                variant = self.aspace.read_attribute_value(reference.NodeId, ua.AttributeIds.Value).Value
                if variant is not None and variant.Value is not None:
                    return float(variant.Value.High - variant.Value.Low)
        return None

    def _make_monitored_item_common(
        self, params: ua.MonitoredItemCreateRequest
    ) -> tuple[ua.MonitoredItemCreateResult, MonitoredItemData]:
        result, plain = super()._make_monitored_item_common(params)
        item = GatewayItem()
        item.mode, item.read_value_id, item.filter = plain.mode, plain.read_value_id, plain.filter
        item.client_handle, item.monitored_item_id = plain.client_handle, plain.monitored_item_id
        item.discard_oldest, item.stamps = params.RequestedParameters.DiscardOldest, self._stamps
        events = params.ItemToMonitor.AttributeId == ua.AttributeIds.EventNotifier
        item.queue_size = self._queue(params.RequestedParameters.QueueSize, events=events)
        result.RevisedQueueSize = item.queue_size
        if isinstance(item.filter, DataChangeFilter) and item.filter.DeadbandType == ua.DeadbandType.Percent:
            item.eu_span = self._span(params.ItemToMonitor.NodeId)
        return result, item

    def _queue(self, wanted: int, *, events: bool) -> int:
        default = _EVENT_QUEUE if events else 1
        return min(wanted or default, self.isub.max_queue_size)

    def _create_events_monitored_item(
        self, params: ua.MonitoredItemCreateRequest
    ) -> ua.MonitoredItemCreateResult:
        result = super()._create_events_monitored_item(params)
        item = self._monitored_items.get(result.MonitoredItemId)
        if item is not None:
            where = item.filter.WhereClause
            item.where_clause_evaluator = SubtypeWhere(self.logger, self.aspace, where)
        return result

    def modify(self, requests: list[ua.MonitoredItemModifyRequest]) -> list[ua.MonitoredItemModifyResult]:
        """New queue, filter and client handle of items."""
        results = []
        for request in requests:
            result = ua.MonitoredItemModifyResult()
            results.append(result)
            item = self._monitored_items.get(request.MonitoredItemId)
            if not isinstance(item, GatewayItem) or item.read_value_id is None:
                result.StatusCode = status(ua.StatusCodes.BadMonitoredItemIdInvalid)
                continue
            wanted, watched = request.RequestedParameters, item.read_value_id
            wanted.Filter = _given(wanted.Filter)
            events = watched.AttributeId == ua.AttributeIds.EventNotifier
            code = None if events else self._filter_refusal(watched, wanted.Filter)
            if code is not None:
                result.StatusCode = status(code)
                continue
            item.queue_size = self._queue(wanted.QueueSize, events=events)
            item.client_handle, item.discard_oldest = wanted.ClientHandle, wanted.DiscardOldest
            if wanted.Filter is not None:
                item.filter = wanted.Filter
                item.eu_span = self._span(watched.NodeId)
            result.RevisedQueueSize = item.queue_size
            result.RevisedSamplingInterval = self.isub.data.RevisedPublishingInterval
        return results

    async def datachange_callback(
        self, handle: int, value: ua.DataValue, error: ua.StatusCode | None = None
    ) -> None:
        """A sample: queued when it differs from what was last reported."""
        mid = self._monitored_datachange[handle]
        item = self._monitored_items[mid]
        if not isinstance(item, GatewayItem) or item.mode != ua.MonitoringMode.Reporting:
            return
        if error is not None:
            value = sample(code=error.value)
        if not is_reportable(item, value):
            return
        item.reported = value
        notification = ua.MonitoredItemNotification()
        notification.ClientHandle = item.client_handle
        notification.Value = value if item.stamps == (True, True) else stamped(value, item.stamps)
        await self.isub.enqueue_datachange_event(mid, notification, item.queue_size)


class SubtypeWhere(WhereClauseEvaluator):
    """Where clauses whose OfType also matches subtypes (OPC 10000-4, 7.7.3)."""

    def _eval_el(self, index: int, event: Foreign) -> Foreign:
        element = self.elements[index]
        if element.FilterOperator != ua.FilterOperator.OfType:
            return super()._eval_el(index, event)
        wanted, found = self._eval_op(element.FilterOperands[0], event), event.EventType
        while found is not None:
            if found == wanted:
                return True
            found = self._supertype(found)
        return False

    def _supertype(self, node: ua.NodeId) -> ua.NodeId | None:
        data = self._aspace.get(node)
        for reference in data.references if data is not None else []:
            if not reference.IsForward and reference.ReferenceTypeId == standard(ua.ObjectIds.HasSubtype):
                parent: ua.NodeId = reference.NodeId
                return parent
        return None


def is_reportable(item: GatewayItem, value: ua.DataValue) -> bool:
    """True when `value` must be told: another status always, another value beyond the deadband."""
    old = item.reported
    if old is None or _code(old) != _code(value):
        return True
    trigger = item.filter.Trigger if item.filter else ua.DataChangeTrigger.StatusValue
    if trigger == ua.DataChangeTrigger.StatusValueTimestamp and old.SourceTimestamp != value.SourceTimestamp:
        return True
    if trigger == ua.DataChangeTrigger.Status or old.Value == value.Value:
        return False
    return _beyond_deadband(item, old, value)


def _beyond_deadband(item: GatewayItem, old: ua.DataValue, new: ua.DataValue) -> bool:
    if not item.filter or item.filter.DeadbandType == ua.DeadbandType.None_:
        return True
    before = old.Value.Value if old.Value is not None else None
    now = new.Value.Value if new.Value is not None else None
    if isinstance(before, bool) or not isinstance(before, int | float) or not isinstance(now, int | float):
        return True
    band = float(item.filter.DeadbandValue)
    if item.filter.DeadbandType == ua.DeadbandType.Percent:
        band = band / _PERCENT * (item.eu_span or 0.0)
    return abs(now - before) > band


def _given(filter_: Foreign) -> Foreign:
    """The filter, or None for the null object that clients send for `no filter`."""
    null = isinstance(filter_, ua.ExtensionObject) and filter_.TypeId.is_null()
    return None if null or type(filter_) is ua.MonitoringFilter else filter_


def _code(value: ua.DataValue) -> int:
    return value.StatusCode.value if value.StatusCode is not None else 0


def stamped(value: ua.DataValue, stamps: Stamps) -> ua.DataValue:
    """`value` with the source's and the server's timestamp, or without."""
    source, server = stamps
    server_ts = (value.ServerTimestamp or dt.datetime.now(dt.UTC)) if server else None
    kept: Any = value  # asyncua's own DateTime is never made
    stamped_value: ua.DataValue = dataclasses.replace(
        kept, SourceTimestamp=value.SourceTimestamp if source else None, ServerTimestamp=server_ts
    )
    return stamped_value
