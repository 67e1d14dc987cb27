"""Declarations of variables against the tags they name."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from gateway.config.positions import Node
from gateway.config.problems import nearest
from gateway.core.quality import StatusCode
from gateway.core.tag import TagDefinition, TagId, TagKind
from gateway.solver.expressions import Report
from gateway.solver.module import Variable
from gateway.solver.parse import FORMS, FUNCTIONS, KEYWORDS, LATER
from gateway.solver.schema import VariableShape
from gateway.solver.units import canonical, per_second

_KINDS = {"real": TagKind.REAL, "int": TagKind.INTEGER, "bool": TagKind.BOOLEAN}
_BOOLEAN_RANGE = (Fraction(0), Fraction(1))


def compile_variable(
    name: str, shape: VariableShape, node: Node, tags: Mapping[TagId, TagDefinition], report: Report
) -> Variable | None:
    """The variable, or None with its problems reported."""
    before = len(report.found)
    definition = tags.get(TagId(shape.tag))
    if not name.isidentifier() or not name.isascii() or name in KEYWORDS | FORMS | FUNCTIONS | LATER:
        report.add(node, f"`{name}` cannot be the name of a variable")
    if definition is None:
        report.add(node.get(("tag",)), f"unknown tag `{shape.tag}`{nearest(shape.tag, tags)}")
    else:
        _against_tag(shape, node, definition, report)
    if shape.range is None and shape.type != "bool":
        report.add(node, f"`{name}` needs a `range`")
    if shape.role == "measured":
        _measured(name, shape, node, report)
    else:
        _action(name, shape, node, definition, report)
    rate = _rate(name, shape, node, report)
    if definition is None or len(report.found) > before:
        return None
    return Variable(
        name=name,
        tag=definition.id,
        sort=shape.type,
        unit=shape.unit,
        action=shape.role == "action",
        range=shape.range or _BOOLEAN_RANGE,
        error=shape.error or Fraction(0),
        max_age=shape.max_age,
        max_rate=rate,
        physical=shape.physical,
        min_on=shape.min_on or Fraction(0),
        min_off=shape.min_off or Fraction(0),
        accept_quality=frozenset(shape.accept_quality),
        definition=definition,
    )


def _against_tag(shape: VariableShape, node: Node, definition: TagDefinition, report: Report) -> None:
    if canonical(shape.unit) != canonical(definition.unit):
        report.add(
            node.get(("unit",)),
            f"unit `{shape.unit}` is not the unit `{definition.unit}` of tag `{shape.tag}`",
        )
    if definition.kind is not _KINDS[shape.type]:
        report.add(node.get(("type",)), f"tag `{shape.tag}` is {definition.kind.value}, not `{shape.type}`")


def _measured(name: str, shape: VariableShape, node: Node, report: Report) -> None:
    if shape.error is None and shape.type == "real":
        report.add(node, f"`{name}` is measured and needs an `error`")
    if shape.error and shape.type != "real":
        report.add(node.get(("error",)), f"`{name}` counts exactly and has no `error`")
    if shape.max_age is None and shape.type == "real":
        report.add(node, f"`{name}` is measured and needs a `max_age`")
    if shape.min_on is not None or shape.min_off is not None:
        report.add(node, "`min_on` and `min_off` belong to boolean actions")
    known = {code.name for code in StatusCode}
    for index, quality in enumerate(shape.accept_quality):
        if quality not in known:
            report.add(
                node.get(("accept_quality", index)), f"unknown quality `{quality}`{nearest(quality, known)}"
            )


def _action(
    name: str, shape: VariableShape, node: Node, definition: TagDefinition | None, report: Report
) -> None:
    for key in ("error", "max_age", "max_rate", "physical"):
        if getattr(shape, key) is not None:
            report.key(node, (key,), f"`{name}` is an action; `{key}` belongs to measured variables")
    if shape.type != "bool" and (shape.min_on is not None or shape.min_off is not None):
        report.add(node, "`min_on` and `min_off` belong to boolean actions")
    if definition is not None and (not definition.writable or definition.protected):
        report.add(node.get(("tag",)), f"tag `{shape.tag}` is not writable")


def _rate(name: str, shape: VariableShape, node: Node, report: Report) -> Fraction | None:
    if shape.max_rate is None:
        return None
    number, unit = shape.max_rate
    if canonical(unit) != canonical(per_second(shape.unit)):
        report.add(
            node.get(("max_rate",)), f"`max_rate` of `{name}` is per second: write `{per_second(shape.unit)}`"
        )
    if number < 0:
        report.add(node.get(("max_rate",)), f"`max_rate` of `{name}` is negative")
    return number
