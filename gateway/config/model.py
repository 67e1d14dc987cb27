"""gateway.toml as its author writes it: every key, its type and its default. Data only."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt, ValidationInfo, field_validator

from gateway.config.inference import InferenceSection
from gateway.config.keys import (
    Bit,
    Duration,
    Endpoint,
    FileBeside,
    Name,
    Period,
    Port,
    RawType,
    Register,
    Section,
    Table,
    TagName,
    WordOrder,
)

_PUBLIC_KEY = re.compile(r"[0-9a-f]{64}")  # Ed25519


class GatewaySection(Section):
    """The gateway itself. `starts_per_hour` is the limit of S23 for arming by itself after a start.

    A weakening of the rules waits for an engineer's approval; with `weakening = "confirm"` and a point armed,
    for that of another account than the one that made it. With `model_change = "keep"` an engineer may let a
    point stay armed when another model takes over; else it leaves armed.
    """

    id: Name
    state_dir: FileBeside
    constraints_dir: FileBeside
    bundles_dir: FileBeside
    weakening: Literal["confirm", "allow"] = "confirm"
    model_change: Literal["shadow", "keep"] = "shadow"
    starts_per_hour: Annotated[StrictInt, Field(ge=1)] | Literal["unlimited"] = 3


class TagRow(Section):
    """One tag as a CSV row or an inline table."""

    id: TagName
    table: Table
    address: Annotated[int, Field(ge=0, le=65535)]
    type: RawType = "uint16"
    unit: str = ""
    scale: Decimal = Decimal(1)
    offset: Decimal = Decimal(0)
    deadband: Annotated[Decimal, Field(ge=0)] = Decimal(0)  # a change the source may keep to itself
    eu_low: Decimal | None = None
    eu_high: Decimal | None = None
    order: WordOrder | None = None  # None: the device's byte_order
    poll_group: str
    writable: bool = False
    protected: bool = False
    min_change: Annotated[Decimal, Field(gt=0)] | None = None  # of a writable tag: less is not written (S12)
    max_change: Annotated[Decimal, Field(gt=0)] | None = None  # of a writable tag: no model proposes more
    description: str = ""
    flag_tag: TagName | None = None  # a status word; while its bit is set the value is forced or failed
    flag_bit: Bit | None = None

    @field_validator("scale")
    @classmethod
    def _scale_turns_counts_into_values(cls, scale: Decimal) -> Decimal:
        if scale == 0 or not scale.is_finite():
            raise ValueError("the scale must be a number other than 0")
        return scale


class PollGroup(Section):
    """Tags read together."""

    interval: Period


class HandOver(Section):
    """The block a PLC copies in one scan (S18).

    It holds sequence, owner, epoch, lease, control valid, then `outputs` in their order, then the checksum.
    The PLC's answers are read from `answer_table`.
    """

    address: Register
    owner: Annotated[StrictInt, Field(ge=0, le=65535)] = 1
    epoch: Annotated[StrictInt, Field(ge=0, le=65535)] = 1
    outputs: Annotated[tuple[TagName, ...], Field(min_length=1)]
    read_back: dict[TagName, TagName]  # output -> tag of the PLC's working value (S22)
    answer_table: Literal["holding", "input"] = "input"
    accepted_address: Register
    reject_address: Register
    owner_address: Register
    epoch_address: Register
    status_tag: TagName
    remote_bit: Annotated[StrictInt, Field(ge=0, le=15)] = 0
    in_control_bit: Annotated[StrictInt, Field(ge=0, le=15)] = 1
    lease: Period = 3.0
    scan: Period = 0.02
    fallback_ramp: Duration = 0.0


class Device(Section):
    """One unit on a channel."""

    id: Name
    unit_id: Annotated[StrictInt, Field(ge=0, le=255)]
    byte_order: WordOrder = "ABCD"
    tags_csv: FileBeside | None = None
    tags: tuple[TagRow, ...] = ()
    poll_group: dict[str, PollGroup]
    max_gap: Annotated[StrictInt, Field(ge=0, le=125)] = 8
    max_registers: Annotated[StrictInt, Field(ge=1, le=125)] = 120
    liveness_tag: TagName | None = None
    liveness_timeout: Period = 1.0
    hand_over: HandOver | None = None


class Channel(Section):
    """A link to a bus or server."""

    id: Name
    protocol: Literal["modbus-tcp"]
    endpoint: Endpoint
    timeout: Period = 0.5
    reconnect_first: Period = 0.1
    reconnect_longest: Period = 5.0
    device: Annotated[tuple[Device, ...], Field(min_length=1)]

    @property
    def host(self) -> str:
        """Host of the endpoint."""
        return self.endpoint.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """Port of the endpoint."""
        return int(self.endpoint.rpartition(":")[2])


class OpcUaUser(Section):
    """A user of the OPC UA server. `password_file` holds the argon2id hash, never the password."""

    name: Name
    role: Literal["viewer", "operator", "engineer", "admin", "auditor"]
    password_file: FileBeside


class OpcUaSection(Section):
    """The OPC UA server. `loopback_none` opens a read-only unencrypted endpoint for this machine."""

    host: str = "127.0.0.1"
    port: Port = 4840
    loopback_none: StrictBool = False
    user: tuple[OpcUaUser, ...] = ()


class MqttTlsSection(Section):
    """An encrypted link to the broker, whose certificate and name are always verified. All files are PEM."""

    ca: FileBeside | None = None  # None: the system's own authorities
    certificate: FileBeside | None = None
    key: FileBeside | None = None


class MqttSection(Section):
    """The broker to publish to; `requests` lets anyone who may publish there ask for decisions (S20).

    `password_file` holds the password in its first line. A password, and requests, need `tls` where the
    broker is not on this machine.
    """

    host: str
    port: Port = 1883
    topic_prefix: str = "o3"
    client_id: str | None = None  # None: the gateway's id
    username: str | None = None
    password_file: FileBeside | None = None
    tls: MqttTlsSection | None = None
    requests: StrictBool = False


class WebSection(Section):
    """The HTTP interface."""

    host: str = "127.0.0.1"
    port: Port = 8480


class SolverSection(Section):
    """The solver's worker processes, and how much of the armed decisions is judged again beside them (S7).

    There are at least two workers, so that one is warm when another is lost or renewed.
    """

    workers: Annotated[StrictInt, Field(ge=2, le=64)] = 2
    recheck_share: Annotated[Decimal, Field(ge=0, le=1)] = Decimal("0.01")


class ModulesSection(Section):
    """Constraint modules. Those named in `shadow` begin there: judged beside the others, without effect.

    `proof_grace` is how long a point stays armed under a tightened rule set whose safe set is not proved yet.
    A module signed by one of `trusted_keys` needs no second person for a weakening; under `signed_only` no
    other module is taken. No override lasts longer than `override_longest`; under 10 s there are none.
    `analysis_budget` is for all that is asked of a module once it is in force or waits; 0 asks nothing.
    Answers are kept, and signed with the private key in the file `answers_key` where one is named.
    """

    shadow: tuple[Name, ...] = ()
    proof_grace: Duration = 10.0
    override_longest: Duration = 28_800.0
    analysis_budget: Duration = 20.0
    answers_key: Path | None = None
    trusted_keys: tuple[str, ...] = ()  # public keys in hex
    signed_only: StrictBool = False

    @field_validator("trusted_keys")
    @classmethod
    def _keys_are_keys(cls, keys: tuple[str, ...]) -> tuple[str, ...]:
        for key in keys:
            if not _PUBLIC_KEY.fullmatch(key):
                raise ValueError(
                    f"`{key}` is not a public key of 64 small hex digits; `o3ctl key generate` prints one"
                )
        return keys

    @field_validator("signed_only")
    @classmethod
    def _signatures_need_a_key(cls, wanted: bool, info: ValidationInfo) -> bool:  # noqa: FBT001  # as pydantic calls
        if wanted and info.data.get("trusted_keys") == ():
            raise ValueError(
                "`signed_only` without `trusted_keys` would refuse every module; name the key that "
                "`o3ctl key generate` printed"
            )
        return wanted


class AccessSection(Section):
    """Unix users who may do more than read over the internal port; the daemon's own user always may."""

    operators: tuple[str, ...] = ()
    engineers: tuple[str, ...] = ()


class LogSection(Section):
    """How events are written."""

    format: Literal["json", "console"] = "json"
    level: Literal["debug", "info", "warning", "error"] = "info"


class Trigger(Section):
    """When a decision is due."""

    period: Period | None = None
    on_request: StrictBool = False


class RepairLimits(Section):
    """More repairs of a model's proposals, or more reversals they cause, within `window`: advisory (S12)."""

    repairs: Annotated[StrictInt, Field(ge=1)] = 60
    reversals: Annotated[StrictInt, Field(ge=1)] = 20
    window: Period = 300.0


class DecisionPoint(Section):
    """A named decision: inputs, outputs, model, modules, trigger, deadline, mode.

    An output that a repair kept back goes on towards a proposal only with room for `release_margin` of its
    range to spare, until no repair has kept it back for `release_after` (S12). With `guided` the model
    decodes among what the rules in force can still permit; of its `n_best` proposals the first that is
    permitted is taken, before one is repaired. The check is the same. `repair` says where a repair is looked
    for: on the way from the values in force to the proposal, or nearest to the proposal wherever it lies.
    """

    id: Name
    mode: Literal["off", "shadow", "advisory", "armed"] = "shadow"
    model: Name
    inputs: Annotated[tuple[TagName, ...], Field(min_length=1)]
    outputs: Annotated[tuple[TagName, ...], Field(min_length=1)]
    trigger: Trigger
    deadline: Period
    priority: Literal["P0", "P1", "P2"] = "P1"
    fallback: tuple[Literal["backup", "value_in_force", "value"], ...] = ("backup", "value_in_force")
    fallback_values: dict[TagName, Decimal] = Field(default_factory=dict)
    required_modules: tuple[Name, ...] = ()
    max_skew: Period = 0.2
    write_delay: Duration = 0.05
    rearm_after: Duration = 60.0
    release_margin: Annotated[Decimal, Field(ge=0, le=1)] = Decimal("0.1")
    release_after: Duration = 60.0
    repair_limit: RepairLimits | Literal["off"] = RepairLimits()
    repair: Literal["segment", "nearest"] = "segment"
    guided: StrictBool = False
    n_best: Annotated[StrictInt, Field(ge=1, le=8)] = 1
    binding_sheet: FileBeside | None = None


class ConfigFile(Section):
    """The whole file."""

    gateway: GatewaySection
    channel: tuple[Channel, ...] = ()
    decision_point: tuple[DecisionPoint, ...] = ()
    opcua: OpcUaSection | None = None
    mqtt: MqttSection | None = None
    web: WebSection | None = None
    inference: InferenceSection = InferenceSection()
    solver: SolverSection = SolverSection()
    modules: ModulesSection = ModulesSection()
    access: AccessSection = AccessSection()
    log: LogSection = LogSection()


class GatewayConfig(ConfigFile):
    """A checked configuration, where it was read and the digest over its file and CSVs."""

    path: Path
    digest: str

    def point(self, point: str) -> DecisionPoint:
        """The decision point of that id; `KeyError` when there is none."""
        return {p.id: p for p in self.decision_point}[point]

    def device_of(self, tag: str) -> tuple[Channel, Device]:
        """Channel and device that hold a tag; `KeyError` when none does."""
        for channel in self.channel:
            for device in channel.device:
                if any(row.id == tag for row in device.tags):
                    return channel, device
        raise KeyError(tag)
