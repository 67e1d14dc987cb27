"""Tags as Data Access variables (OPC 10000-8): type, unit, range, and one DataValue a sample."""

from __future__ import annotations

from dataclasses import dataclass

from asyncua import ua

from gateway.core.quality import StatusCode
from gateway.link.messages import TagInfo, TagState, Value
from gateway.protocols.opcua.space import Space, moment
from gateway.protocols.opcua.units import engineering_units
from gateway.protocols.opcua.wire import sample, standard

FOLDER_LIMIT = 500
_INT32 = (-(2**31), 2**31 - 1)
_INT64 = (-(2**63), 2**63 - 1)
_DOUBLE, _BOOLEAN, _STRING = ua.VariantType.Double, ua.VariantType.Boolean, ua.VariantType.String


@dataclass(frozen=True, slots=True)
class TagNode:
    """Where a tag's value goes, and as what."""

    info: TagInfo
    node: ua.NodeId
    kind: ua.VariantType


class TagFolders:
    """`Tags/<device>/<tag>`; a folder holds at most 500, the next ones are `<device> (2)` and on."""

    def __init__(self, space: Space, root: ua.NodeId) -> None:
        self._space, self._root = space, root
        self._filled: dict[str, int] = {}

    def add(self, info: TagInfo) -> TagNode:
        """The variable of a tag, which waits for its first value."""
        device, _, rest = info.id.partition(".")
        if not rest:
            parent, name = self._root, info.id
        else:
            parent, name = self._folder(device), rest
        key, kind = f"Tags/{info.id}", _kind(info)
        node = self._space.variable(
            key,
            parent,
            name,
            kind,
            type_id=_type_definition(info),
            description=info.description,
            display_name=info.id,
        )
        self._properties(info, key, node)
        return TagNode(info, node, kind)

    async def remove(self, tag: TagNode) -> None:
        """Take a tag out that is no longer configured."""
        await self._space.remove(f"Tags/{tag.info.id}")

    def _folder(self, device: str) -> ua.NodeId:
        count = self._filled[device] = self._filled.get(device, 0) + 1
        number = (count - 1) // FOLDER_LIMIT + 1
        name = device if number == 1 else f"{device} ({number})"
        return self._space.folder(f"TagFolders/{name}", self._root, name)

    def _properties(self, info: TagInfo, key: str, node: ua.NodeId) -> None:
        text = standard(ua.ObjectIds.LocalizedText)
        if info.kind == "boolean":
            for name, word in (("TrueState", "On"), ("FalseState", "Off")):
                value = ua.Variant(ua.LocalizedText(word), ua.VariantType.LocalizedText)
                self._space.property(f"{key}/{name}", node, name, value, type_id=text)
            return
        if info.unit:
            units = ua.Variant(engineering_units(info.unit), ua.VariantType.ExtensionObject)
            unit_type = standard(ua.ObjectIds.EUInformation)
            self._space.property(
                f"{key}/EngineeringUnits", node, "EngineeringUnits", units, type_id=unit_type
            )
        if (limits := _limits(info)) is not None:
            span = ua.Variant(ua.Range(Low=limits[0], High=limits[1]), ua.VariantType.ExtensionObject)
            span_type = standard(ua.ObjectIds.Range)
            self._space.property(f"{key}/EURange", node, "EURange", span, type_id=span_type)


def data_value(tag: TagNode, state: TagState) -> ua.DataValue:
    """One immutable DataValue of a sample; a Bad one carries no value (OPC 10000-4, 7.11.1)."""
    code, variant = state.status, _NULL
    if state.value is not None and not _is_bad(code):
        value = _fitted(state.value, tag.kind)
        if value is None:
            code = StatusCode.BadOutOfRange
        else:
            variant = ua.Variant(value, tag.kind)
    elif not _is_bad(code):
        code = StatusCode.BadWaitingForInitialData  # never null with Good
    source = state.source_ts_ns if state.source_ts_ns is not None else state.server_ts_ns
    return sample(variant, int(code), moment(source), moment(state.server_ts_ns))


_NULL = ua.Variant(None, ua.VariantType.Null)


def _kind(info: TagInfo) -> ua.VariantType:
    match info.kind:
        case "real":
            return _DOUBLE
        case "boolean":
            return _BOOLEAN
        case "integer":
            limits = _limits(info)
            small = limits is not None and _INT32[0] <= limits[0] and limits[1] <= _INT32[1]
            return ua.VariantType.Int32 if small else ua.VariantType.Int64
        case _:
            return _STRING


def _type_definition(info: TagInfo) -> int:
    if info.kind == "boolean":
        return int(ua.ObjectIds.TwoStateDiscreteType)
    if info.kind == "text":
        return int(ua.ObjectIds.DataItemType)
    if _limits(info) is not None:
        return int(ua.ObjectIds.AnalogItemType)
    return int(ua.ObjectIds.AnalogUnitType if info.unit else ua.ObjectIds.DataItemType)


def _limits(info: TagInfo) -> tuple[float, float] | None:
    if info.low is None or info.high is None or not info.low < info.high:
        return None
    return info.low, info.high


def _fitted(value: Value, kind: ua.VariantType) -> Value:
    """The value as the node's type holds it, or None when it does not."""
    if kind is _STRING:
        return str(value)
    if isinstance(value, str) or value is None:
        return None
    if kind is _BOOLEAN:
        return bool(value)
    if kind is _DOUBLE:
        return float(value)
    low, high = _INT32 if kind is ua.VariantType.Int32 else _INT64
    whole = int(value)
    return whole if whole == value and low <= whole <= high else None


def _is_bad(status: int) -> bool:
    return status >= 0x8000_0000  # noqa: PLR2004  # the Bad bit of a StatusCode
