"""Reading a configuration: all files, all problems at once, or a configuration that can be run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from gateway.config.checks import Lost, PlacedTag, check
from gateway.config.model import ConfigFile, Device, GatewayConfig, TagRow
from gateway.config.partial import Place, usable_part
from gateway.config.positions import Loc, Node, PositionError
from gateway.config.problems import Problems, add_validation_errors
from gateway.config.tags import parse_csv
from gateway.config.toml import parse_toml
from gateway.core.errors import ConfigError


def load(path: Path) -> GatewayConfig:
    """The configuration at `path`; raises `ConfigError` with everything that is wrong with it."""
    reading = _Reading(path)
    config = reading.config()
    if config is None or reading.problems:
        raise ConfigError(reading.problems.sentences())
    return config


@dataclass(slots=True)
class _Reading:
    """One attempt to read one configuration."""

    path: Path
    problems: Problems = field(default_factory=Problems)
    _digest: hashlib._Hash = field(default_factory=hashlib.sha256)
    _tags: dict[tuple[int, int], list[PlacedTag]] = field(default_factory=dict)
    _named: set[str] = field(default_factory=set)  # ids of all rows, usable or not
    _unread: list[Path] = field(default_factory=list)  # tables of which nobody knows a row

    def config(self) -> GatewayConfig | None:
        """What could be read; None where that is too little to go on with."""
        node = self._document(self.path, parse_toml)
        if node is None:
            return None
        try:
            file = ConfigFile.model_validate(node.plain(), context={"folder": self.path.parent})
        except ValidationError as exc:
            add_validation_errors(self.problems, self.path, node, ConfigFile, exc)
            self._check_the_rest(node)
            return None
        file = self._with_tags(file, node)
        self._check(file, node, frozenset())
        sections = {name: getattr(file, name) for name in ConfigFile.model_fields}
        return GatewayConfig(path=self.path, digest=self._digest.hexdigest(), **sections)

    def _check_the_rest(self, node: Node) -> None:
        """One run tells everything: between the tables too, as far as what is wrong does not hide it."""
        self._read_tables_of_broken(node)
        found = usable_part(node, self.path.parent)
        if found is not None:
            part, document, cut = found
            self._check(self._with_tags(part, document), document, cut)

    def _check(self, file: ConfigFile, node: Node, cut: frozenset[Place]) -> None:
        placed = [tag for tags in self._tags.values() for tag in tags]
        check(
            file,
            node,
            self.path,
            placed,
            self.problems,
            Lost(frozenset(self._named), cut, tables=bool(self._unread)),
        )

    def _document(self, path: Path, parse: Callable[[str], Node]) -> Node | None:
        try:
            data = path.read_bytes()
            self._digest.update(hashlib.sha256(data).digest())
            return parse(data.decode())
        except OSError as exc:
            self.problems.add(path, (1, 1), f"the file cannot be read: {exc.strerror or exc}")
        except UnicodeDecodeError as exc:
            line = data[: exc.start].count(b"\n") + 1
            self.problems.add(path, (line, 1), "the file is not UTF-8 text")
        except PositionError as exc:
            self.problems.add(path, (exc.line, exc.column), exc.problem)
        return None

    def _read_tables_of_broken(self, node: Node) -> None:
        """CSVs and inline tags of every device, also of those that cannot be used."""
        plain = node.plain()
        channels = plain.get("channel") if isinstance(plain, dict) else None
        for channel in channels if isinstance(channels, list) else []:
            devices = channel.get("device") if isinstance(channel, dict) else None
            for device in devices if isinstance(devices, list) else []:
                name = device.get("tags_csv") if isinstance(device, dict) else None
                if isinstance(name, str):
                    self._table(self.path.parent / name)
                inline = device.get("tags") if isinstance(device, dict) else None
                for row in inline if isinstance(inline, list) else []:
                    self._name(row)

    def _with_tags(self, file: ConfigFile, node: Node) -> ConfigFile:
        """The file with the tags of its CSVs in its devices."""
        channels = []
        for c, channel in enumerate(file.channel):
            devices = []
            for d, device in enumerate(channel.device):
                self._tags[c, d] = self._device_tags(device, node, ("channel", c, "device", d))
                rows = tuple(tag.row for tag in self._tags[c, d])
                devices.append(device.model_copy(update={"tags": rows}))
            channels.append(channel.model_copy(update={"device": tuple(devices)}))
        return file.model_copy(update={"channel": tuple(channels)})

    def _device_tags(self, device: Device, node: Node, loc: Loc) -> list[PlacedTag]:
        inline = [
            PlacedTag(row, loc, self.path, node.get((*loc, "tags", i))) for i, row in enumerate(device.tags)
        ]
        if device.tags_csv is None:
            return inline
        return inline + [
            PlacedTag(row, loc, device.tags_csv, place) for row, place in self._table(device.tags_csv)
        ]

    def _table(self, path: Path) -> list[tuple[TagRow, Node]]:
        node = self._document(path, parse_csv)
        if node is None:
            self._unread.append(path)
        rows: list[tuple[TagRow, Node]] = []
        for item in node.value if node is not None and isinstance(node.value, tuple) else ():
            self._name(item.plain())
            try:
                rows.append((TagRow.model_validate(item.plain()), item))
            except ValidationError as exc:
                add_validation_errors(self.problems, path, item, TagRow, exc)
        return rows

    def _name(self, row: object) -> None:
        name = row.get("id") if isinstance(row, dict) else None
        if isinstance(name, str):
            self._named.add(name)


def sources(config: GatewayConfig) -> Mapping[Path, str]:
    """The files a configuration was read from, each with the digest of what it holds now."""
    paths = [config.path, *(d.tags_csv for c in config.channel for d in c.device if d.tags_csv)]
    return {p: hashlib.sha256(p.read_bytes()).hexdigest() for p in paths}
