"""What a Modbus channel is made of. Data only; the composition root maps the configuration onto it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.core.tag import TagDefinition, TagId
from gateway.protocols.modbus.codec import WordFormat
from gateway.protocols.modbus.plan import Item, PlanLimits, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class ModbusEndpoint:
    """Where a link goes, and how patiently. `timeout_s` bounds every connect and every single request."""

    host: str
    port: int = 502
    timeout_s: float = 0.5
    settle_s: float = 0.0  # pause after connecting that some devices need
    gap_s: float = 0.0  # shortest pause between an answer and the next request
    back_off_first_s: float = 0.1
    back_off_cap_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModbusTag:
    """One tag's place on a device. `address` counts from 0.

    `argument`, `registers` and `invalid_raw` are `WordFormat`'s. While bit `flag_bit` of `flag_tag` is set
    the sensor is forced or failed, and the value is never better than UncertainSubstituteValue (S15).
    """

    definition: TagDefinition
    table: Table
    address: int
    raw_type: str = "uint16"
    order: str = "ABCD"
    argument: str = ""
    registers: int = 0
    invalid_raw: int | None = None
    poll_group: str = "fast"
    flag_tag: TagId | None = None
    flag_bit: int = 0

    @property
    def id(self) -> TagId:
        """The tag's name."""
        return self.definition.id

    def word_format(self) -> WordFormat:
        """How its registers become a value; raises ValueError where they cannot."""
        return WordFormat(
            raw_type="bool" if self.table in {"coil", "discrete"} else self.raw_type,
            order=self.order,
            argument=self.argument,
            scale=self.definition.scale,
            offset=self.definition.offset,
            invalid_raw=self.invalid_raw,
            registers=self.registers,
        )

    def item(self) -> Item:
        """Its place in a poll plan."""
        return Item(self.id, self.table, self.address, self.word_format().count)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModbusDevice:
    """One unit on a link. `poll_groups` gives each group's interval in seconds.

    `liveness_tag` names a counter that the device's program moves; while it stands longer than
    `liveness_limit_s` nothing the device says is Good (S14).
    """

    id: str
    unit_id: int
    tags: tuple[ModbusTag, ...]
    poll_groups: Mapping[str, float]
    liveness_tag: TagId | None = None
    liveness_limit_s: float = 1.0
    limits: PlanLimits = field(default_factory=PlanLimits)

    def __post_init__(self) -> None:
        known = {tag.id for tag in self.tags}
        for tag in self.tags:
            if tag.poll_group not in self.poll_groups:
                raise ValueError(f"tag `{tag.id}`: device `{self.id}` has no poll group `{tag.poll_group}`")
            if tag.flag_tag is not None and tag.flag_tag not in known:
                raise ValueError(f"tag `{tag.id}`: flag tag `{tag.flag_tag}` is not on device `{self.id}`")
        if self.liveness_tag is not None and self.liveness_tag not in known:
            raise ValueError(f"liveness tag `{self.liveness_tag}` is not on device `{self.id}`")

    def fastest_group(self) -> str:
        """The liveness counter's group where there is one, else the one read most often."""
        for tag in self.tags:
            if tag.id == self.liveness_tag:
                return tag.poll_group
        return min(self.poll_groups, key=lambda name: self.poll_groups[name])
