"""What no single key can tell: names that must exist, times that must fit, safety rules that span tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.config.broker import broker_problems
from gateway.config.inference import inference_problems
from gateway.config.keys import is_loopback
from gateway.config.model import ConfigFile, DecisionPoint, Device, HandOver, TagRow
from gateway.config.partial import Place, last_place
from gateway.config.positions import Loc, Node
from gateway.config.problems import Problems, nearest
from gateway.config.tags import REGISTERS

_BLOCK_HEAD = 5  # sequence, owner, epoch, lease, control valid
_MAX_BLOCK = 123  # registers of one FC16 request (Modbus Application Protocol 1.1b3, 6.12)
_BIT_TABLES = {"coil", "discrete"}
_READ_ONLY_TABLES = {"input", "discrete"}
_NOT_OPEN_YET = (
    "until the OPC UA session and trust holes are closed every listener binds loopback; use 127.0.0.1"
)


@dataclass(frozen=True, slots=True)
class PlacedTag:
    """A tag, the loc of its device, and where its row stands."""

    row: TagRow
    device: Loc
    file: Path
    place: Node


@dataclass(frozen=True, slots=True)
class Lost:
    """What is there and cannot be used: tags whose row is broken, and where something was taken out.

    `tables`: one could not be read, so that no tag is unknown for certain.
    """

    named: frozenset[str] = frozenset()
    cut: frozenset[Place] = frozenset()
    tables: bool = False

    def hides(self, node: Node, loc: Loc) -> bool:
        """Whether a problem at a loc may be there only because something was taken out."""
        return bool(self.cut) and last_place(node, loc) in self.cut


def check(
    file: ConfigFile,
    node: Node,
    path: Path,
    placed: Sequence[PlacedTag],
    problems: Problems,
    lost: Lost,
) -> None:
    """Note everything that is wrong between tables."""
    _Checks(file, node, path, {tag.row.id: tag for tag in placed}, problems, lost).run(placed)


@dataclass(frozen=True, slots=True)
class _Checks:
    file: ConfigFile
    node: Node
    path: Path
    tags: Mapping[str, PlacedTag]
    problems: Problems
    lost: Lost

    def run(self, placed: Sequence[PlacedTag]) -> None:
        self._unique(placed)
        self._listeners()
        for key, sentence in broker_problems(self.file.mqtt):
            self._add(("mqtt", *key), sentence)
        for name, sentence in inference_problems(self.file.inference):
            self._add(("inference", name), sentence)
        for c, channel in enumerate(self.file.channel):
            for d, device in enumerate(channel.device):
                self._device(device, ("channel", c, "device", d))
        for tag in placed:
            self._tag(tag)
        for index, point in enumerate(self.file.decision_point):
            self._point(point, ("decision_point", index))
        self._one_point_per_setpoint()

    def _add(self, loc: Loc, sentence: str) -> None:
        if self.lost.hides(self.node, loc):
            return
        self.problems.add(self.path, self.node.at(loc), sentence)

    def _known(self, loc: Loc, tag: str) -> bool:
        if tag in self.tags:
            return True
        if tag in self.lost.named or self.lost.tables:
            return False  # its row is there, or may be, and what is wrong with that was said
        self._add(loc, f"unknown tag `{tag}`{nearest(tag, self.tags)}")
        return False

    def _unique(self, placed: Sequence[PlacedTag]) -> None:
        seen: dict[str, PlacedTag] = {}
        for tag in placed:
            first = seen.setdefault(tag.row.id, tag)
            if first is not tag:
                where = f"{first.file}:{first.place.line}"
                self.problems.add(
                    tag.file, tag.place.at(("id",)), f"tag `{tag.row.id}` exists already ({where})"
                )
        for table in ("channel", "decision_point"):
            self._unique_ids((table,), [item.id for item in getattr(self.file, table)])
        for c, channel in enumerate(self.file.channel):
            self._unique_ids(("channel", c, "device"), [d.id for d in channel.device])
            units = [d.unit_id for d in channel.device]
            for d, unit in enumerate(units):
                if unit in units[:d]:
                    self._add(("channel", c, "device", d, "unit_id"), f"unit {unit} is configured twice")

    def _unique_ids(self, loc: Loc, ids: Sequence[str]) -> None:
        for index, name in enumerate(ids):
            if name in ids[:index]:
                self._add((*loc, index, "id"), f"`{name}` is the id of another {loc[-1]} already")

    def _listeners(self) -> None:
        for name, section in (("opcua", self.file.opcua), ("web", self.file.web)):
            if section is not None and not is_loopback(section.host):
                self._add((name, "host"), f"`{section.host}` is refused: {_NOT_OPEN_YET}")

    def _tag(self, tag: PlacedTag) -> None:
        row = tag.row

        def wrong(column: str, sentence: str) -> None:
            self.problems.add(tag.file, tag.place.at((column,)), f"tag `{row.id}`: {sentence}")

        device = self.node.get((*tag.device, "poll_group"))
        groups = device.keys
        if row.poll_group not in groups and not self.lost.hides(self.node, (*tag.device, "poll_group")):
            wrong("poll_group", f"unknown poll group `{row.poll_group}`{nearest(row.poll_group, groups)}")
        self._flag_and_range(row, wrong)
        if row.table in _BIT_TABLES and row.type != "bool":
            wrong("type", f"table {row.table} holds bits; its type is bool, not {row.type}")
        if row.writable and row.table in _READ_ONLY_TABLES:
            wrong("writable", f"table {row.table} cannot be written")
        self._changes(row, wrong)
        if row.writable and row.protected:
            wrong("protected", "a protected tag cannot be writable")
        if row.address + REGISTERS[row.type] > 1 << 16:
            wrong("address", "the value reaches past address 65535")

    def _changes(self, row: TagRow, wrong: Callable[[str, str], None]) -> None:
        """The smallest change that is written, and the largest that a model proposes."""
        is_output = row.writable and row.type != "bool"
        if row.min_change is not None and not is_output:
            wrong("min_change", "only a writable number has a smallest change")
        if row.max_change is None:
            return
        if not is_output:
            wrong("max_change", "only a writable number has a largest change")
        elif row.max_change < abs(row.scale):
            wrong(
                "max_change", f"{row.max_change} is less than one count, {abs(row.scale)}: nothing could move"
            )
        elif row.min_change is not None and row.max_change < row.min_change:
            wrong(
                "max_change", f"{row.max_change} is less than min_change {row.min_change}: nothing could move"
            )

    def _flag_and_range(self, row: TagRow, wrong: Callable[[str, str], None]) -> None:
        if (row.eu_low is None) != (row.eu_high is None):
            wrong("eu_low", "eu_low and eu_high are given together or not at all")
        elif row.eu_low is not None and row.eu_high is not None and row.eu_low >= row.eu_high:
            wrong("eu_low", f"eu_low {row.eu_low} is not below eu_high {row.eu_high}")
        if (row.flag_tag is None) != (row.flag_bit is None):
            wrong("flag_tag", "flag_tag and flag_bit are given together or not at all")
        known = {*self.tags, *self.lost.named}
        if row.flag_tag is not None and row.flag_tag not in known and not self.lost.tables:
            wrong("flag_tag", f"unknown tag `{row.flag_tag}`{nearest(row.flag_tag, self.tags)}")

    def _device(self, device: Device, loc: Loc) -> None:
        if device.tags_csv is None and not device.tags:
            self._add(loc, f"device `{device.id}` has no tags; give tags_csv or tags")
        if device.liveness_tag is not None and self._known((*loc, "liveness_tag"), device.liveness_tag):
            self._liveness(device, self.tags[device.liveness_tag], loc)
        if device.hand_over is not None:
            self._hand_over(device.hand_over, loc)

    def _liveness(self, device: Device, counter: PlacedTag, loc: Loc) -> None:
        """What would let the counter seem to stand still for ever, so that nothing could be armed (S14)."""
        name, limit_s = counter.row.id, device.liveness_timeout
        if counter.device != loc:
            self._add(
                (*loc, "liveness_tag"), f"`{name}` belongs to another device; a counter vouches for its own"
            )
            return
        group = device.poll_group.get(counter.row.poll_group)
        if group is not None and group.interval >= limit_s and self._decides_on(loc):
            self._add(
                (*loc, "liveness_timeout"),
                f"liveness_timeout {limit_s:g} s is not longer than {group.interval:g} s, the interval of "
                f"poll group `{counter.row.poll_group}`, which reads `{name}`: between two readings it would "
                "count as standing still, and nothing could be armed: read it more often, or give it longer",
            )

    def _decides_on(self, device: Loc) -> bool:
        used = (t for point in self.file.decision_point for t in (*point.inputs, *point.outputs))
        return any(tag in self.tags and self.tags[tag].device == device for tag in used)

    def _hand_over(self, block: HandOver, device: Loc) -> None:
        loc = (*device, "hand_over")
        if _BLOCK_HEAD + len(block.outputs) + 1 > _MAX_BLOCK:
            self._add((*loc, "outputs"), f"a hand-over block has at most {_MAX_BLOCK} registers")
        self._known((*loc, "status_tag"), block.status_tag)
        for index, output in enumerate(block.outputs):
            place = (*loc, "outputs", index)
            if output in block.outputs[:index]:
                self._add(place, f"`{output}` is listed twice")
            if self._known(place, output):
                self._place_in_block(block, index, device)
            if output not in block.read_back:
                self._add((*loc, "read_back"), f"no read-back tag for output `{output}`")
        for output, working in block.read_back.items():
            place = (*loc, "read_back", output)
            if output not in block.outputs:
                self._add(place, f"`{output}` is no output of the block{nearest(output, block.outputs)}")
            self._known(place, working)

    def _place_in_block(self, block: HandOver, index: int, device: Loc) -> None:
        output = block.outputs[index]
        place = (*device, "hand_over", "outputs", index)
        tag = self.tags[output]
        expected = block.address + _BLOCK_HEAD + index
        if tag.device != device:
            self._add(place, f"`{output}` belongs to another device; one block is one device's")
        if (tag.row.table, tag.row.address) != ("holding", expected):
            self._add(
                place,
                f"`{output}` is at {tag.row.table} {tag.row.address}, but its place in the block is "
                f"holding {expected}",
            )
        if REGISTERS[tag.row.type] != 1:
            self._add(place, f"`{output}` is a {tag.row.type}; a block's output is one register")

    def _point(self, point: DecisionPoint, loc: Loc) -> None:
        for index, tag in enumerate(point.inputs):
            self._known((*loc, "inputs", index), tag)
        self._doubles(loc, "inputs", point.inputs)
        self._doubles(loc, "outputs", point.outputs)
        self._outputs(point, loc)
        period = point.trigger.period
        if period is None and not point.trigger.on_request:
            self._add((*loc, "trigger"), "nothing triggers it; give a period or on_request = true")
        if period is not None and point.deadline >= period:
            self._add(
                (*loc, "deadline"),
                f"deadline {point.deadline:g} s is not shorter than the period {period:g} s",
            )
        if "value" in point.fallback:
            for output in point.outputs:
                if output not in point.fallback_values:
                    self._add((*loc, "fallback"), f"fallback `value` needs fallback_values for `{output}`")
        for output in point.fallback_values:
            if output not in point.outputs:
                hint = nearest(output, point.outputs)
                self._add((*loc, "fallback_values", output), f"`{output}` is no output of the point{hint}")
        if point.mode == "armed":
            self._armed(point, loc)

    def _armed(self, point: DecisionPoint, loc: Loc) -> None:
        if not point.required_modules:
            self._add((*loc, "mode"), "armed needs required_modules: an empty rule set permits nothing")
        if point.binding_sheet is None:
            self._add((*loc, "mode"), "armed needs a binding_sheet")
        for _, device in self._devices_of(point.outputs):
            if device.liveness_tag is None:
                self._add((*loc, "mode"), f"armed needs a liveness_tag on device `{device.id}`")

    def _outputs(self, point: DecisionPoint, loc: Loc) -> None:
        for index, output in enumerate(point.outputs):
            place = (*loc, "outputs", index)
            if not self._known(place, output):
                continue
            row = self.tags[output].row
            if row.protected:
                self._add(place, f"`{output}` is protected: no path may write it")
            elif not row.writable:
                self._add(place, f"`{output}` is not writable")
            if output in point.inputs:
                self._add(place, f"`{output}` is an input of the same point")
        for place, device in self._devices_of(point.outputs):
            if self.lost.hides(self.node, (*place, "hand_over", "outputs")):
                continue
            block = device.hand_over.outputs if device.hand_over is not None else ()
            missing = [o for o in point.outputs if o not in block and o in self.tags]
            if missing:
                names = ", ".join(f"`{m}`" for m in missing)
                self._add((*loc, "outputs"), f"the hand-over block of `{device.id}` does not hold {names}")
            foreign = [o for o in block if o not in point.outputs]
            if block and foreign:
                names = ", ".join(f"`{f}`" for f in foreign)
                self._add(
                    (*loc, "outputs"),
                    f"the hand-over block of `{device.id}` is written whole, so {names} must be outputs too",
                )

    def _devices_of(self, outputs: Iterable[str]) -> list[tuple[Loc, Device]]:
        locs = {self.tags[o].device for o in outputs if o in self.tags}
        return [
            (("channel", c, "device", d), device)
            for c, channel in enumerate(self.file.channel)
            for d, device in enumerate(channel.device)
            if ("channel", c, "device", d) in locs
        ]

    def _doubles(self, loc: Loc, key: str, names: Sequence[str]) -> None:
        for name, count in Counter(names).items():
            if count > 1:
                self._add((*loc, key), f"`{name}` is listed {count} times")

    def _one_point_per_setpoint(self) -> None:
        owner: dict[str, str] = {}
        for index, point in enumerate(self.file.decision_point):
            for position, output in enumerate(point.outputs):
                first = owner.setdefault(output, point.id)
                if first != point.id:
                    self._add(
                        ("decision_point", index, "outputs", position),
                        f"`{output}` is an output of decision point `{first}` already: "
                        "one setpoint, one decision point",
                    )
