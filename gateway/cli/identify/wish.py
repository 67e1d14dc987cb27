"""What `o3ctl identify` was asked for, settled: which tags, as which variables, at which step, from where."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pydantic
import typer

from gateway.cli.identify.recorded import table_columns, variable_names
from gateway.cli.offline import Tags, fail, file_bytes, tags_of
from gateway.config.load import load
from gateway.config.model import DecisionPoint, GatewayConfig
from gateway.config.positions import PositionError, parse_json
from gateway.core.errors import ConfigError
from gateway.core.tag import TagDefinition, TagId, TagKind
from gateway.solver.identify.series import Channel
from gateway.solver.language.schema import ModuleShape, VariableShape, decimal
from gateway.solver.modules.variables import RESERVED

_FILE = "audit.sqlite"
_CONFIGS = (Path("/etc/o3-gateway/gateway.toml"), Path("var/demo/gateway.toml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """As given on the command line."""

    point: str | None
    table: Path | None
    config: Path | None
    tags: Path | None
    like: Path | None
    state_dir: Path | None
    step: float | None
    errors: Sequence[str]
    targets: Sequence[str]
    leave_out: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """As it will be done. `targets` are variables; None where the record decides."""

    module: str
    point: str
    channels: tuple[Channel, ...]
    targets: tuple[str, ...] | None
    step_s: float
    audit: Path
    watched: Path | None


def told(options: Options) -> Told:
    """Everything settled; ends the verb where something is missing or unknown."""
    config = _config(options)
    point = _point(options, config)
    like = _like(options.like)
    known = _definitions(options, config)
    tags = _tags(options, point, known)
    errors = _errors(options.errors, tags)
    shapes = {TagId(v.tag): (n, v) for n, v in like.variables.items() if v.tag} if like else {}
    names = variable_names(tags, {tag: name for tag, (name, _) in shapes.items()}, RESERVED)
    outputs = set(point.outputs) if point is not None else None
    channels = tuple(
        _channel(names[tag], known[tag], shapes.get(tag, ("", None))[1], errors.get(tag), outputs)
        for tag in tags
    )
    if not any(c.action for c in channels):
        fail("o3ctl: none of the tags is an action: nothing would be left to decide in such a module")
    targets = tuple(names[_one_of(TagId(t), tags, "--target")] for t in options.targets)
    return Told(
        module=_module_id(point.id if point is not None else (options.table or Path()).stem),
        point=point.id if point is not None else "",
        channels=channels,
        targets=targets or None,
        step_s=_step(options, point, like),
        audit=_audit(options, config),
        watched=config.gateway.constraints_dir if config is not None else None,
    )


def _module_id(word: str) -> str:
    """The word as a module may be called: a letter first, then letters, digits, `_` and `-`."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", word).strip("-")[:60]
    return plain if plain[:1].isalpha() else f"m-{plain}"


def _config(options: Options) -> GatewayConfig | None:
    path = options.config
    if path is None and options.table is None:
        path = next((p for p in _CONFIGS if p.exists()), None)
        if path is None:
            fail(
                "o3ctl: no configuration is found; name it with --config gateway.toml, or a table with --csv"
            )
    try:
        found = None if path is None else load(path)
    except ConfigError as exc:
        fail(str(exc))
    return found


def _point(options: Options, config: GatewayConfig | None) -> DecisionPoint | None:
    if config is None or (options.point is None and options.table is not None):
        return None
    points = {p.id: p for p in config.decision_point}
    wanted = options.point if options.point is not None else next(iter(points), "")
    known = ", ".join(f"`{point}`" for point in points) or "none"
    if options.point is not None and wanted not in points:
        fail(f"o3ctl: unknown decision point `{wanted}`; known: {known}")
    if wanted not in points or (options.point is None and len(points) > 1):
        fail(f"o3ctl: name one decision point with --point; known: {known}")
    return points[wanted]


def _like(path: Path | None) -> ModuleShape | None:
    if path is None:
        return None
    try:
        found = ModuleShape.model_validate(parse_json(file_bytes(path).decode()).plain())
    except (UnicodeDecodeError, PositionError, pydantic.ValidationError) as exc:
        fail(f"o3ctl: `{path}` is no module: {str(exc).splitlines()[0]}; o3ctl schema validate says more")
    return found


def _definitions(options: Options, config: GatewayConfig | None) -> Tags:
    if options.tags is None and config is None and options.like is None:
        fail("o3ctl: a table does not say what its tags are; name --config, --tags CSV or --like M.json")
    if options.tags is not None or options.like is None or config is not None:
        return tags_of(b"", options.tags, config.path if config is not None and not options.tags else None)
    return tags_of(file_bytes(options.like), None, None)


def _tags(options: Options, point: DecisionPoint | None, known: Tags) -> list[TagId]:
    """Inputs and outputs of the point, else every column that is a known tag."""
    if point is not None:
        found = [TagId(t) for t in dict.fromkeys([*point.inputs, *point.outputs])]
    else:
        found = [TagId(c) for c in table_columns(options.table or Path()) if c in known]
    for tag in options.leave_out:
        found.remove(_one_of(TagId(tag), found, "--leave-out"))
    texts = [t for t in found if known[t].kind is TagKind.TEXT]
    found = [t for t in found if t not in texts]
    if not found:
        fail("o3ctl: no column of the table is a known tag")
    return found


def _one_of(tag: TagId, tags: Iterable[TagId], option: str) -> TagId:
    if tag not in set(tags):
        raise typer.BadParameter(f"`{tag}` of {option} is none of the tags: {', '.join(tags)}")
    return tag


def _errors(given: Sequence[str], tags: Sequence[TagId]) -> Mapping[TagId, Fraction]:
    found: dict[TagId, Fraction] = {}
    for text in given:
        tag, equals, number = text.rpartition("=")
        try:
            error = decimal(number.strip())
        except ValueError as exc:
            raise typer.BadParameter(f"`{text}` of --error: {exc}; write TAG=0.01") from exc
        if not equals or error <= 0:
            raise typer.BadParameter(f"`{text}` of --error is not TAG=VALUE with a value above 0")
        found[_one_of(TagId(tag.strip()), tags, "--error")] = error
    return found


def _channel(
    name: str,
    definition: TagDefinition,
    shape: VariableShape | None,
    error: Fraction | None,
    outputs: set[str] | None,
) -> Channel:
    sort = {TagKind.BOOLEAN: "bool", TagKind.INTEGER: "int"}.get(definition.kind, "real")
    action = definition.writable if outputs is None else definition.id in outputs
    if error is None and shape is not None:
        error = shape.error or None
    counted = definition.raw_range is not None
    return Channel(
        name=name,
        tag=definition.id,
        sort=sort,  # type: ignore[arg-type]  # one of the three by the table above
        unit=definition.unit,
        action=action,
        error=error,
        rounding=(abs(definition.scale) / 2 if counted else Fraction(0)) + definition.deadband,
        range=(shape.range if shape is not None and shape.range is not None else definition.eu_range),
        max_age=shape.max_age if shape is not None else None,
    )


def _step(options: Options, point: DecisionPoint | None, like: ModuleShape | None) -> float:
    found = options.step
    if found is None and like is not None:
        found = float(like.step)
    if found is None and point is not None:
        found = point.trigger.period
    if found is None:
        fail("o3ctl: nothing says how long a step is; name it, such as --step 1s")
    return found


def _audit(options: Options, config: GatewayConfig | None) -> Path:
    if options.state_dir is not None:
        return options.state_dir / _FILE
    return (config.gateway.state_dir if config is not None else Path()) / _FILE
