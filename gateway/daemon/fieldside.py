"""The field side from configuration."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.config.model import Channel, Device, GatewayConfig, TagRow
from gateway.config.model import HandOver as HandOverBlock
from gateway.config.tags import tag_definition
from gateway.core.clock import Clock
from gateway.core.tag import TagId
from gateway.core.tagstore import TagStore
from gateway.pipeline.point import Point
from gateway.protocols.modbus.block import HandOverLayout, HandOverOutput
from gateway.protocols.modbus.channel import ModbusChannel
from gateway.protocols.modbus.handover import HandOver
from gateway.protocols.modbus.model import ModbusDevice, ModbusEndpoint, ModbusTag
from gateway.protocols.modbus.plan import PlanLimits


@dataclass(frozen=True, slots=True)
class FieldSide:
    """The links to the plant: one channel each, and the sink of every device with a hand-over block."""

    channels: dict[str, ModbusChannel]
    sinks: dict[str, HandOver]  # by device id
    devices: dict[TagId, tuple[ModbusChannel, str]]  # channel and device id of every tag
    counted: frozenset[str]  # ids of devices with a liveness counter

    def not_live(self, point: Point) -> str:
        """Why a point's devices cannot be known to run their programs now, in words, or "" (S14).

        The device it writes to must have a liveness counter; of those it only reads from, one that is there
        must move. Every input and status word must be read in one request with its device's counter.
        """
        settings = point.settings
        written = {self.devices[tag][1] for tag in settings.outputs}
        status = () if settings.status_tag is None else (settings.status_tag,)
        by_device: dict[str, tuple[ModbusChannel, list[TagId]]] = {}
        for tag in settings.outputs:
            channel, device = self.devices[tag]
            by_device.setdefault(device, (channel, []))
        for tag in (*settings.inputs, *status, *settings.read_back.values()):
            channel, device = self.devices[tag]
            by_device.setdefault(device, (channel, []))[1].append(tag)
        for device, (channel, tags) in by_device.items():
            if device not in written | self.counted:
                continue
            why = channel.not_live(device, tags)
            if why:
                return why
        return ""


def field_side(config: GatewayConfig, store: TagStore, clock: Clock) -> FieldSide:
    """Channels and sinks as configured."""
    channels: dict[str, ModbusChannel] = {}
    sinks: dict[str, HandOver] = {}
    owners: dict[TagId, tuple[ModbusChannel, str]] = {}
    for channel in config.channel:
        devices = tuple(_device(device) for device in channel.device)
        link = ModbusChannel(channel.id, _endpoint(channel), devices, store, clock)
        channels[channel.id] = link
        for device in channel.device:
            owners |= {TagId(row.id): (link, device.id) for row in device.tags}
            if device.hand_over is not None:
                block = device.hand_over
                sinks[device.id] = HandOver(
                    link, _layout(device, block), owner=block.owner, epoch=block.epoch, clock=clock
                )
    counted = frozenset(d.id for c in config.channel for d in c.device if d.liveness_tag is not None)
    return FieldSide(channels, sinks, owners, counted)


def _endpoint(channel: Channel) -> ModbusEndpoint:
    return ModbusEndpoint(
        host=channel.host,
        port=channel.port,
        timeout_s=channel.timeout,
        back_off_first_s=channel.reconnect_first,
        back_off_cap_s=channel.reconnect_longest,
    )


def _device(device: Device) -> ModbusDevice:
    return ModbusDevice(
        id=device.id,
        unit_id=device.unit_id,
        tags=tuple(_tag(device, row) for row in device.tags),
        poll_groups={name: group.interval for name, group in device.poll_group.items()},
        liveness_tag=TagId(device.liveness_tag) if device.liveness_tag is not None else None,
        liveness_limit_s=device.liveness_timeout,
        limits=PlanLimits(max_gap=device.max_gap, max_registers=device.max_registers),
    )


def _tag(device: Device, row: TagRow) -> ModbusTag:
    return ModbusTag(
        definition=tag_definition(row),
        table=row.table,
        address=row.address,
        raw_type=row.type,
        order=row.order or device.byte_order,
        poll_group=row.poll_group,
        flag_tag=TagId(row.flag_tag) if row.flag_tag is not None else None,
        flag_bit=row.flag_bit or 0,
    )


def _layout(device: Device, block: HandOverBlock) -> HandOverLayout:
    rows = {row.id: row for row in device.tags}
    liveness = rows[device.liveness_tag] if device.liveness_tag is not None else None
    return HandOverLayout(
        unit_id=device.unit_id,
        outputs=tuple(
            HandOverOutput(
                definition=tag_definition(rows[output]),
                working_address=rows[block.read_back[output]].address,
                signed=rows[output].type.startswith("int"),
            )
            for output in block.outputs
        ),
        block_address=block.address,
        status_address=rows[block.status_tag].address,
        accepted_address=block.accepted_address,
        reject_address=block.reject_address,
        owner_address=block.owner_address,
        epoch_address=block.epoch_address,
        liveness_address=liveness.address if liveness is not None else None,
        answer_table=block.answer_table,
        remote_bit=block.remote_bit,
        in_control_bit=block.in_control_bit,
    )
