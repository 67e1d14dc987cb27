"""Binding sheets (S26): what each tag of a decision point is bound to, and what a person saw at the plant.

A sheet is a table with a header row, one line a tag. The columns of `FACTS` repeat the configuration; those
of `SEEN` are the person's: the raw count and the value the gateway showed, what the local indicator showed at
the same place, who read it and when.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path

from gateway.config.model import Channel, Device, GatewayConfig, TagRow
from gateway.config.positions import Node, PositionError
from gateway.config.problems import Problems, nearest
from gateway.config.tags import parse_csv, tag_definition
from gateway.core.errors import ConfigError
from gateway.core.tag import TagDefinition, TagKind, decimal_text

FACTS = (
    *("role", "channel", "endpoint", "device", "unit_id", "table", "address", "type", "byte_order"),
    *("scale", "offset", "unit", "eu_low", "eu_high", "bits"),
)
SEEN = ("raw", "value", "indicator", "checked_by", "checked_at")
COLUMNS = ("tag", *FACTS, *SEEN)
LIMIT_BYTES = 1 << 18
_NUMBERS = frozenset({"scale", "offset", "eu_low", "eu_high", "unit_id", "address"})
_MEASURED = frozenset({"input", "output", "read_back"})  # roles whose indicator is a value to compare
_AGREES_WITHIN = Fraction(2, 100)  # of the range: what a local indicator and a transmitter may differ by
_SWITCH = {"on": 1, "true": 1, "yes": 1, "1": 1, "off": 0, "false": 0, "no": 0, "0": 0}


@dataclass(frozen=True, slots=True)
class Bound:
    """One tag of a decision point as it is configured: every fact as canonical text, "" for none."""

    definition: TagDefinition
    facts: Mapping[str, str]

    @property
    def tag(self) -> str:
        """The tag's id."""
        return self.definition.id


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a sheet: facts as they were bound, and what was seen; `number` is its line in the file."""

    tag: str
    facts: Mapping[str, str]
    seen: Mapping[str, str]
    number: int


@dataclass(frozen=True, slots=True)
class Sheet:
    """A sheet as it was read. `digest` is over its content, not over how the file spells it."""

    lines: tuple[Line, ...]

    @property
    def digest(self) -> str:
        """SHA-256 over the lines in the order of their tags, as canonical JSON."""
        content = [
            [x.tag, _filled(x.facts), _filled(x.seen)] for x in sorted(self.lines, key=lambda x: x.tag)
        ]
        body = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(body.encode()).hexdigest()


def bound_tags(config: GatewayConfig, point: str) -> tuple[Bound, ...]:
    """Every tag a decision point stands on: inputs, outputs, read-backs and the words that vouch for them."""
    configured = config.point(point)
    roles = [(tag, "input") for tag in configured.inputs] + [(tag, "output") for tag in configured.outputs]
    bits: dict[str, str] = {}
    word = config.device_of(configured.outputs[0])[1].hand_over
    if word is not None:
        roles += [(word.read_back[output], "read_back") for output in configured.outputs]
        roles.append((word.status_tag, "status"))
        bits[word.status_tag] = f"remote={word.remote_bit} in_control={word.in_control_bit}"
    for tag in tuple(tag for tag, _ in roles):
        device = config.device_of(tag)[1]
        row = _row(device, tag)
        if row.flag_tag is not None:
            roles.append((row.flag_tag, "flag"))
            bits[tag] = f"forced={row.flag_tag}.{row.flag_bit}"
        if device.liveness_tag is not None:
            roles.append((device.liveness_tag, "liveness"))
    found = []
    for tag in dict.fromkeys(tag for tag, _ in roles):
        channel, device = config.device_of(tag)
        row = _row(device, tag)
        names = list(dict.fromkeys(role for other, role in roles if other == tag))
        found.append(Bound(tag_definition(row), _facts(channel, device, row, names, bits.get(tag, ""))))
    return tuple(found)


def read_sheet(text: str, file: Path) -> Sheet:
    """The sheet in a table's text; raises `ConfigError` with everything about its form that is wrong."""
    problems = Problems()
    try:
        node = parse_csv(text)
    except PositionError as exc:
        raise ConfigError((f"{file}:{exc.line}:{exc.column}: {exc.problem}",)) from exc
    lines: list[Line] = []
    for row in node.value if isinstance(node.value, tuple) else ():
        cells = row.plain()
        given = {str(k): str(v) for k, v in cells.items()} if isinstance(cells, dict) else {}
        for name in given:
            if name not in COLUMNS:
                hint = nearest(name, COLUMNS) or f"; known: {', '.join(COLUMNS)}"
                problems.add(file, row.key_at((name,)), f"unknown column `{name}`{hint}")
        if not given.get("tag"):
            problems.add(file, (row.line, row.column), "the line names no tag")
            continue
        if any(line.tag == given["tag"] for line in lines):
            problems.add(file, (row.line, row.column), f"`{given['tag']}` has a line already")
        lines.append(_line(row, given))
    if problems:
        raise ConfigError(problems.sentences())
    return Sheet(tuple(lines))


def changes(sheet: Sheet, bound: Iterable[Bound]) -> tuple[str, ...]:
    """What the configuration binds otherwise than the sheet says, a sentence each; empty when nothing."""
    now = {item.tag: item for item in bound}
    known = {line.tag: line for line in sheet.lines}
    found = [f"`{tag}` has no line" for tag in now if tag not in known]
    for line in sheet.lines:
        item = now.get(line.tag)
        if item is None:
            found.append(f"line {line.number}: `{line.tag}` is no tag of this decision point any more")
            continue
        for name in FACTS:
            was, is_now = line.facts.get(name, ""), item.facts[name]
            if was != is_now:
                found.append(
                    f"line {line.number}: `{line.tag}`: {name} is {was or 'blank'} in the sheet and "
                    f"{is_now or 'blank'} in the configuration"
                )
    return tuple(found)


def unsigned_problems(sheet: Sheet, bound: Iterable[Bound], file: Path) -> tuple[str, ...]:
    """Why a person cannot sign the sheet as it stands: bound otherwise, not filled in, not adding up."""
    items = tuple(bound)
    found = [f"{file}: {sentence}" for sentence in changes(sheet, items)]
    by_tag = {item.tag: item for item in items}
    for line in sheet.lines:
        if line.tag in by_tag:
            found += [
                f"{file}: line {line.number}: `{line.tag}`: {why}" for why in _unread(line, by_tag[line.tag])
            ]
    return tuple(found)


def signed_by(sheet: Sheet, name: str) -> Sheet:
    """The sheet with `name` where no line says who read it."""
    return Sheet(
        tuple(
            Line(x.tag, x.facts, {**x.seen, "checked_by": x.seen.get("checked_by") or name}, x.number)
            for x in sheet.lines
        )
    )


def sheet_text(sheet: Sheet) -> str:
    """The sheet as a table that `read_sheet` reads back to the same digest."""
    rows = [",".join(COLUMNS)]
    for line in sheet.lines:
        cells = {"tag": line.tag, **line.facts, **line.seen}
        rows.append(",".join(_cell(cells.get(name, "")) for name in COLUMNS))
    return "\n".join(rows) + "\n"


def drafted(bound: Iterable[Bound], seen: Mapping[str, tuple[str, str]]) -> Sheet:
    """A sheet to take to the plant: facts from the configuration, raw count and value as seen now."""
    lines = []
    for number, item in enumerate(bound, start=2):
        raw, value = seen.get(item.tag, ("", ""))
        lines.append(Line(item.tag, dict(item.facts), {"raw": raw, "value": value}, number))
    return Sheet(tuple(lines))


def _row(device: Device, tag: str) -> TagRow:
    return next(row for row in device.tags if row.id == tag)


def _facts(channel: Channel, device: Device, row: TagRow, roles: list[str], bits: str) -> dict[str, str]:
    return {
        "role": "+".join(roles),
        "channel": channel.id,
        "endpoint": channel.endpoint,
        "device": device.id,
        "unit_id": str(device.unit_id),
        "table": row.table,
        "address": str(row.address),
        "type": row.type,
        "byte_order": row.order or device.byte_order,
        "scale": _canonical("scale", str(row.scale)),
        "offset": _canonical("offset", str(row.offset)),
        "unit": row.unit,
        "eu_low": _canonical("eu_low", str(row.eu_low)) if row.eu_low is not None else "",
        "eu_high": _canonical("eu_high", str(row.eu_high)) if row.eu_high is not None else "",
        "bits": bits,
    }


def _line(row: Node, given: Mapping[str, str]) -> Line:
    facts = {name: _canonical(name, given[name]) for name in FACTS if given.get(name)}
    seen = {name: given[name] for name in SEEN if given.get(name)}
    return Line(given["tag"], facts, seen, row.line)


def _canonical(name: str, text: str) -> str:
    """One spelling for one number: a spreadsheet may turn 0.10 into 0.1."""
    number = _number(text) if name in _NUMBERS else None
    return text if number is None else decimal_text(number)


def _number(text: str) -> Fraction | None:
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return Fraction(value) if value.is_finite() and abs(value.adjusted()) < 40 else None  # noqa: PLR2004


def _unread(line: Line, item: Bound) -> list[str]:
    """What a person has not filled in, or what contradicts itself, in one line."""
    blank = [name for name in SEEN if not line.seen.get(name)]
    if blank:
        return [f"fill in {', '.join(blank)}"]
    found = []
    try:
        datetime.fromisoformat(line.seen["checked_at"])
    except ValueError:
        found.append(
            f"checked_at `{line.seen['checked_at']}` is not a time; write 2026-03-01 or 2026-03-01T14:30"
        )
    raw, value = _number(line.seen["raw"]), _reading(line.seen["value"], item.definition)
    if raw is None or value is None:
        return [*found, "raw and value must be numbers"]
    counted = raw * item.definition.scale + item.definition.offset
    if abs(counted - value) > _rounding(item.definition, value):
        counts = f"raw {line.seen['raw']} is {decimal_text(counted)} by scale and offset"
        return [*found, f"{counts}, not {line.seen['value']}"]
    if _MEASURED & set(item.facts["role"].split("+")):
        found += _indicated(line.seen["indicator"], value, item)
    return found


def _indicated(shown: str, value: Fraction, item: Bound) -> list[str]:
    """Whether the local indicator shows what the gateway shows."""
    indicator = _reading(shown, item.definition)
    if indicator is None:
        return [f"the indicator's `{shown}` is not a number: write what it shows, without its unit"]
    limits = item.definition.eu_range
    span = limits[1] - limits[0] if limits is not None else abs(value)
    allowed = max(_AGREES_WITHIN * span, abs(item.definition.scale))
    if item.definition.kind is not TagKind.REAL:
        allowed = Fraction(0)
    if abs(indicator - value) > allowed:
        ours = f"{decimal_text(value)} {item.facts['unit']}".rstrip()
        apart = f"the local indicator shows {shown} and the gateway {ours}"
        return [f"{apart}, more than {decimal_text(allowed)} apart: the tag may be bound to another place"]
    return []


def _reading(text: str, definition: TagDefinition) -> Fraction | None:
    if definition.kind is TagKind.BOOLEAN:
        switch = _SWITCH.get(text.strip().lower())
        return None if switch is None else Fraction(switch)
    return _number(text)


def _rounding(definition: TagDefinition, value: Fraction) -> Fraction:
    """Counts are exact; a floating-point register is shown with about seven digits."""
    return Fraction(0) if definition.raw_range is not None else abs(value) / 1_000_000


def _cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',;"\t#') else text


def _filled(cells: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in cells.items() if text}
