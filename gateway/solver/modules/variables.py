"""Declarations of variables against the tags they name."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from gateway.config.positions import Node
from gateway.config.problems import nearest
from gateway.core.quality import StatusCode
from gateway.core.tag import TagDefinition, TagId, TagKind
from gateway.solver.language.parse import FORMS, FUNCTIONS, KEYWORDS
from gateway.solver.language.schema import VariableShape
from gateway.solver.language.units import canonical, per_second
from gateway.solver.modules.expressions import Report
from gateway.solver.modules.module import Interval, Variable

_KINDS = {
    "real": TagKind.REAL,
    "int": TagKind.INTEGER,
    "bool": TagKind.BOOLEAN,
    "enum": TagKind.INTEGER,
}
_BOOLEAN_RANGE = (Fraction(0), Fraction(1))
_MOST_VALUES = 64
RESERVED = KEYWORDS | FORMS | FUNCTIONS
_NOT_OF_STATES = (
    "tag",
    "values",
    "error",
    "error_reason",
    "max_age",
    "max_rate",
    "min_on",
    "min_off",
    "accept_quality",
)


def compile_variable(
    name: str,
    shape: VariableShape,
    node: Node,
    tags: Mapping[TagId, TagDefinition],
    report: Report,
    module: str,
) -> Variable | None:
    """The variable, or None with its problems reported."""
    before = len(report.found)
    if not name.isidentifier() or not name.isascii() or name in RESERVED:
        report.add(node, f"`{name}` cannot be the name of a variable")
    if shape.role == "state":
        return _state(name, shape, node, tags, report, module)
    definition = _tagged(name, shape, node, tags, report)
    labels = _labels(name, shape, node, report)
    span = _range(name, shape, labels, node, definition, report)
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
        range=span,
        error=shape.error or Fraction(0),
        max_age=shape.max_age,
        max_rate=rate,
        physical=shape.physical,
        min_on=shape.min_on or Fraction(0),
        min_off=shape.min_off or Fraction(0),
        accept_quality=frozenset(shape.accept_quality),
        labels=labels,
        error_reason=shape.error_reason or "",
        definition=definition,
    )


def _tagged(
    name: str, shape: VariableShape, node: Node, tags: Mapping[TagId, TagDefinition], report: Report
) -> TagDefinition | None:
    """The tag a variable is bound to."""
    if shape.tag is None:
        report.add(node, f'`{name}` needs a `tag`; only a variable of `"role": "state"` has none')
        return None
    definition = tags.get(TagId(shape.tag))
    if definition is None:
        report.add(node.get(("tag",)), f"unknown tag `{shape.tag}`{nearest(shape.tag, tags)}")
    else:
        _against_tag(shape, node, definition, report)
    return definition


def _state(
    name: str,
    shape: VariableShape,
    node: Node,
    tags: Mapping[TagId, TagDefinition],
    report: Report,
    module: str,
) -> Variable | None:
    """A variable that nobody measures: known by its dynamics and by where it may be at all."""
    before = len(report.found)
    tag = TagId(f"{module}.{name}")
    for key in _NOT_OF_STATES:
        if getattr(shape, key) not in (None, []):
            report.key(node, (key,), f"`{name}` is a state that nobody measures, and has no `{key}`")
    if shape.type != "real":
        report.add(node.get(("type",)), f"`{name}` is a state that nobody measures; it must be `real`")
    if tag in tags:
        report.add(node, f"there is a tag `{tag}`; give the state `{name}` another name")
    if shape.range is None:
        report.add(node, f"`{name}` needs a `range`")
    if shape.physical is None:
        report.add(
            node,
            f"`{name}` is never measured and needs `physical`: where it may be when nothing is known of it, "
            "at a start and after a gap",
        )
    elif shape.range and not shape.range[0] <= shape.physical[0] <= shape.physical[1] <= shape.range[1]:
        report.add(node.get(("physical",)), f"`physical` of `{name}` is not wholly inside its `range`")
    if len(report.found) > before or shape.range is None:
        return None
    return Variable(
        name=name,
        tag=tag,
        sort="real",
        unit=shape.unit,
        action=False,
        range=shape.range,
        physical=shape.physical,
        hidden=True,
        definition=TagDefinition(id=tag, kind=TagKind.REAL, unit=shape.unit, raw_type=""),
    )


def _labels(name: str, shape: VariableShape, node: Node, report: Report) -> dict[str, int] | None:
    """The labels of an enum with their register values; what is wrong with them is reported."""
    if shape.type != "enum":
        if shape.values is not None:
            report.key(node, ("values",), f'`{name}` is no enum; `values` belongs to `"type": "enum"`')
        return None
    if not shape.values:
        report.add(node, f'`{name}` is an enum and needs `values`, such as ["stop", "clear"]')
        return {}
    listed = shape.values
    found = dict(listed) if isinstance(listed, Mapping) else {t: n for n, t in enumerate(listed)}
    if len(found) < len(listed) or len(set(found.values())) < len(found):
        report.add(node.get(("values",)), f"a label or a register value of `{name}` appears twice")
    if len(found) > _MOST_VALUES:
        report.add(node.get(("values",)), f"`{name}` has more than {_MOST_VALUES} labels")
    for label in found:
        if not label.isidentifier() or not label.isascii() or label in RESERVED:
            report.add(node.get(("values",)), f"`{label}` cannot be a label; write one word")
    return found


def _range(
    name: str,
    shape: VariableShape,
    labels: Mapping[str, int] | None,
    node: Node,
    definition: TagDefinition | None,
    report: Report,
) -> Interval:
    if labels is not None:
        if shape.range is not None:
            report.key(node, ("range",), f"`{name}` is an enum; its `values` are its range")
        numbers = labels.values() or (0,)
        return Fraction(min(numbers)), Fraction(max(numbers))
    if shape.range is not None:
        return shape.range
    if shape.type == "bool":
        return _BOOLEAN_RANGE
    if shape.type == "int" and shape.role == "measured" and definition is not None and definition.raw_range:
        ends = [definition.engineering(raw) for raw in definition.raw_range]
        return min(ends), max(ends)
    report.add(node, f"`{name}` needs a `range`")
    return _BOOLEAN_RANGE


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
    if shape.error_reason is not None and (shape.error or shape.type != "real"):
        report.key(
            node, ("error_reason",), f"`error_reason` of `{name}` explains an `error` of 0 and no other"
        )
    if shape.error == 0 and shape.type == "real" and not (shape.error_reason or "").strip():
        report.add(
            node.get(("error",)),
            f"`{name}` claims an error of 0, which no instrument has; state its accuracy, or why it has none "
            "in `error_reason`",
        )
    if shape.max_age is None:
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
    for key in ("error", "error_reason", "max_age", "max_rate", "physical"):
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
    if canonical(unit) not in {per_second(shape.unit), f"{canonical(shape.unit)}/s"}:
        report.add(
            node.get(("max_rate",)), f"`max_rate` of `{name}` is per second: write `{per_second(shape.unit)}`"
        )
    if number < 0:
        report.add(node.get(("max_rate",)), f"`max_rate` of `{name}` is negative")
    return number
