"""Nodes by name: every NodeId is a string in our namespace that never changes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from asyncua import ua
from asyncua.server.address_space import AddressSpace, NodeData, NodeManagementService

from gateway.protocols.opcua.methods import Method, Parameter
from gateway.protocols.opcua.wire import Foreign, named, sample, standard

NAMESPACE = 1  # index of the ApplicationUri, by the standard (OPC 10000-5, 6.3.1)
_READ = 1 << ua.AccessLevel.CurrentRead
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

OBJECTS = standard(ua.ObjectIds.ObjectsFolder)


def node_id(name: str) -> ua.NodeId:
    """The NodeId of a thing of ours."""
    return named(name, NAMESPACE)


def moment(utc_ns: int) -> dt.datetime:
    """A UTC time from nanoseconds, to the microsecond."""
    return _EPOCH + dt.timedelta(microseconds=utc_ns // 1000)


class Space:
    """Adds and removes our nodes; values are written through `put`."""

    def __init__(self, aspace: AddressSpace, nodes: NodeManagementService) -> None:
        self._aspace, self._nodes = aspace, nodes

    def __contains__(self, node: ua.NodeId) -> bool:
        return node in self._aspace

    def folder(self, name: str, parent: ua.NodeId, browse_name: str) -> ua.NodeId:
        """A folder, made when it is not there."""
        return self.object(name, parent, browse_name, ua.ObjectIds.FolderType)

    def object(
        self,
        name: str,
        parent: ua.NodeId,
        browse_name: str,
        type_id: int = ua.ObjectIds.BaseObjectType,
        *,
        description: str = "",
    ) -> ua.NodeId:
        """An object, made when it is not there."""
        attributes = ua.ObjectAttributes()
        attributes.EventNotifier = 0
        node = node_id(name)
        item = self._item(node, parent, browse_name, attributes, description=description)
        item.NodeClass = ua.NodeClass.Object
        item.TypeDefinition = standard(type_id)
        item.ReferenceTypeId = standard(
            ua.ObjectIds.Organizes
            if parent == OBJECTS or type_id == ua.ObjectIds.FolderType
            else ua.ObjectIds.HasComponent
        )
        self._add(item)
        return node

    def variable(
        self,
        name: str,
        parent: ua.NodeId,
        browse_name: str,
        kind: ua.VariantType,
        *,
        type_id: int = ua.ObjectIds.BaseDataVariableType,
        array: bool = False,
        description: str = "",
        display_name: str = "",
    ) -> ua.NodeId:
        """A read-only variable that waits for its first value."""
        node = node_id(name)
        attributes = self._variable_attributes(ua.Variant(None, ua.VariantType.Null), standard(kind.value))
        attributes.ValueRank = 1 if array else -1
        if array:
            attributes.ArrayDimensions = [0]
        item = self._item(
            node, parent, browse_name, attributes, description=description, display_name=display_name
        )
        item.NodeClass = ua.NodeClass.Variable
        item.TypeDefinition = standard(type_id)
        item.ReferenceTypeId = standard(ua.ObjectIds.HasComponent)
        self._add(item)
        waiting = ua.StatusCodes.BadWaitingForInitialData
        stored = self._aspace[node].attributes[ua.AttributeIds.Value]
        stored.value = sample(code=waiting, server=dt.datetime.now(dt.UTC))
        return node

    def property(
        self,
        name: str,
        parent: ua.NodeId,
        browse_name: str,
        value: ua.Variant,
        *,
        type_id: ua.NodeId,
        namespace: int = 0,
    ) -> None:
        """A property with its value; the standard's own properties have their name in its namespace."""
        attributes = self._variable_attributes(value, type_id)
        attributes.ValueRank = 1 if value.is_array else -1
        item = self._item(node_id(name), parent, browse_name, attributes, namespace=namespace)
        item.NodeClass = ua.NodeClass.Variable
        item.TypeDefinition = standard(ua.ObjectIds.PropertyType)
        item.ReferenceTypeId = standard(ua.ObjectIds.HasProperty)
        self._add(item)

    def method(self, name: str, browse_name: str, method: Method, description: str) -> ua.NodeId:
        """A method of `method.object_id`, with its arguments described."""
        node = node_id(name)
        attributes = ua.MethodAttributes()
        attributes.Executable = attributes.UserExecutable = True
        item = self._item(node, method.object_id, browse_name, attributes, description=description)
        item.NodeClass = ua.NodeClass.Method
        item.ReferenceTypeId = standard(ua.ObjectIds.HasComponent)
        self._add(item)
        for suffix, parameters in (("InputArguments", method.inputs), ("OutputArguments", method.outputs)):
            if parameters:
                value = ua.Variant(
                    [_argument(p) for p in parameters], ua.VariantType.ExtensionObject, is_array=True
                )
                self.property(
                    f"{name}/{suffix}", node, suffix, value, type_id=standard(ua.ObjectIds.Argument)
                )
        return node

    def event_type(self, name: str, browse_name: str, fields: Iterable[Parameter]) -> ua.NodeId:
        """A subtype of BaseEventType with further fields."""
        node = node_id(name)
        attributes = ua.ObjectTypeAttributes()
        attributes.IsAbstract = False
        item = self._item(node, standard(ua.ObjectIds.BaseEventType), browse_name, attributes)
        item.NodeClass = ua.NodeClass.ObjectType
        item.ReferenceTypeId = standard(ua.ObjectIds.HasSubtype)
        self._add(item)
        for field in fields:
            self.property(
                f"{name}/{field.name}",
                node,
                field.name,
                ua.Variant(None, ua.VariantType.Null),
                type_id=standard(field.kind.value),
                namespace=NAMESPACE,
            )
        return node

    async def put(self, node: ua.NodeId, value: ua.DataValue) -> None:
        """A new sample for readers and subscribers."""
        await self._aspace.write_attribute_value(node, ua.AttributeIds.Value, value)

    async def remove(self, name: str) -> None:
        """Remove a node and all below it; who watches a value is told BadNodeIdUnknown once."""
        root, every = node_id(name), list(self._aspace.keys())
        doomed = [n for n in every if _below(n, name)] + [root]
        for node in doomed:
            data = self._aspace.get(node)
            if data is None:
                continue
            value = data.attributes.get(ua.AttributeIds.Value)
            if value is not None:
                gone = sample(code=ua.StatusCodes.BadNodeIdUnknown)
                for handle, callback in list(value.datachange_callbacks.items()):
                    await callback(handle, gone)
            for reference in data.references:
                other = self._aspace.get(reference.NodeId)
                if other is not None and not reference.IsForward:
                    other.references = [r for r in other.references if r.NodeId != node]
            self._forget(node, data)

    def _forget(self, node: ua.NodeId, data: Foreign) -> None:
        value = data.attributes.get(ua.AttributeIds.Value)
        for handle in list(value.datachange_callbacks) if value is not None else []:
            self._aspace.delete_datachange_callback(handle)
        del self._aspace[node]

    def _item(
        self,
        node: ua.NodeId,
        parent: ua.NodeId,
        browse_name: str,
        attributes: Foreign,
        *,
        description: str = "",
        display_name: str = "",
        namespace: int = NAMESPACE,
    ) -> ua.AddNodesItem:
        attributes.DisplayName = ua.LocalizedText(display_name or browse_name)
        attributes.Description = ua.LocalizedText(description or browse_name)
        attributes.WriteMask = attributes.UserWriteMask = 0
        item = ua.AddNodesItem()
        item.RequestedNewNodeId, item.ParentNodeId = node, parent
        item.BrowseName = ua.QualifiedName(browse_name, namespace)
        item.NodeAttributes = attributes
        return item

    def _variable_attributes(self, value: ua.Variant, data_type: ua.NodeId) -> ua.VariableAttributes:
        attributes = ua.VariableAttributes()
        attributes.Value, attributes.DataType = value, data_type
        attributes.AccessLevel = attributes.UserAccessLevel = _READ
        attributes.Historizing = False
        attributes.MinimumSamplingInterval = 0.0
        return attributes

    def _add(self, item: ua.AddNodesItem) -> None:
        """Cheaply: asyncua compares a new node with all its siblings: 1.7 ms a tag in a full folder."""
        if item.RequestedNewNodeId in self._aspace:
            return
        data, parent = NodeData(item.RequestedNewNodeId), self._aspace[item.ParentNodeId]
        nodes: Foreign = self._nodes  # the steps of its `add_nodes`, which have no public names
        nodes._add_node_attributes(data, item, add_timestamps=False)  # noqa: SLF001  # as above
        self._aspace[data.nodeid] = data
        below = ua.ReferenceDescription()
        below.ReferenceTypeId, below.NodeId = item.ReferenceTypeId, data.nodeid
        below.NodeClass, below.BrowseName = item.NodeClass, item.BrowseName
        below.DisplayName, below.TypeDefinition = item.NodeAttributes.DisplayName, item.TypeDefinition
        below.IsForward = True
        parent.references.append(below)
        nodes._add_ref_to_parent(data, item, parent)  # noqa: SLF001  # as above
        if not item.TypeDefinition.is_null():
            nodes._add_type_definition(data, item)  # noqa: SLF001  # as above


def _below(node: ua.NodeId, name: str) -> bool:
    text = node.Identifier
    return node.NamespaceIndex == NAMESPACE and isinstance(text, str) and text.startswith(f"{name}/")


def _argument(parameter: Parameter) -> ua.Argument:
    argument = ua.Argument()
    argument.Name = parameter.name
    argument.DataType = standard(parameter.kind.value)
    argument.ValueRank = -1
    argument.Description = ua.LocalizedText(parameter.description)
    return argument
