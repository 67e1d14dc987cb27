"""The draft of a module: all that the record shows, and one line that only a person can fill in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from gateway.core.tag import decimal_text
from gateway.solver.identify.identify import RATE_MARGIN, Identified
from gateway.solver.identify.notes import Target
from gateway.solver.identify.rounding import rounded_out
from gateway.solver.identify.series import Channel
from gateway.solver.identify.windows import CONSTANT
from gateway.solver.language import units
from gateway.solver.language.schema import LANGUAGE
from gateway.solver.language.units import canonical

FILL_IN = "fill_in_what_must_hold"
_MESSAGE = (
    "a draft: replace this rule by what must hold, with cases, `backup` and `safe_set` to follow from it"
)


def draft(found: Identified, module: str) -> dict[str, Any]:
    """The module as JSON data. Its one constraint is no expression: no gateway takes the file as it is."""
    targets = {t.fit.target: t for t in found.targets}
    dynamics: dict[str, Any] = {name: expression(t, found) for name, t in targets.items()}
    dynamics["disturbance"] = {
        disturbance(name): [_decimal(t.band.low), _decimal(t.band.high)] for name, t in targets.items()
    }
    return {
        "id": module,
        "revision": 1,
        "language": LANGUAGE,
        "step": f"{decimal_text(_exact(found.grid.step_s))} s",
        "variables": {c.name: _variable(c, found, targets) for c in found.recording.channels},
        "dynamics": dynamics,
        "constraints": [{"id": "fill-in", "kind": "critical", "require": FILL_IN, "message": _MESSAGE}],
    }


def text(module: Mapping[str, Any]) -> str:
    """The file: one variable, one formula and one rule a line."""
    lines = ["{"]
    for key, value in module.items():
        if isinstance(value, dict):
            rows = [f"    {_json(k)}: {_json(v)}" for k, v in value.items()]
            lines += [f"  {_json(key)}: {{", ",\n".join(rows), "  },"]
        elif isinstance(value, list):
            lines += [f"  {_json(key)}: [", ",\n".join(f"    {_json(v)}" for v in value), "  ],"]
        else:
            lines.append(f"  {_json(key)}: {_json(value)},")
    lines[-1] = lines[-1].removesuffix(",")
    return "\n".join([*lines, "}"]) + "\n"


def disturbance(name: str) -> str:
    """The name of what moves a variable beside its dynamics."""
    return f"{name}_unexplained"


def expression(target: Target, found: Identified) -> str:
    """One variable's value a step later, in the module language."""
    name, fit = target.fit.target, target.fit
    parts = [name]
    for effect in fit.effects:
        value = _exact(effect.value)
        sign, size = ("+" if value >= 0 else "-"), decimal_text(abs(value))
        if effect.name == CONSTANT:
            parts.append(f"{sign} {size}")
            continue
        channel = found.recording.channel(effect.name)
        # A temperature has no natural zero: what a coefficient multiplies must be a difference.
        factor = f"({effect.name} - 0)" if _affine(channel.unit) else effect.name
        parts.append(f"{sign} {size}*{factor}")
    return " ".join([*parts, "+", disturbance(name)])


def _affine(unit: str) -> bool:
    return canonical(unit) == canonical("degC")


def _variable(channel: Channel, found: Identified, targets: Mapping[str, Target]) -> dict[str, Any]:
    said: dict[str, Any] = {"tag": channel.tag, "type": channel.sort}
    if channel.unit:
        said["unit"] = channel.unit
    if channel.sort != "bool":
        said["range"] = [decimal_text(end) for end in _range(channel, found)]
    if channel.action:
        return said | {"role": "action"}
    if channel.sort == "real":
        error = found.errors[channel.name] - float(channel.rounding)
        said["error"] = decimal_text(channel.error) if channel.error is not None else _decimal_up(error)
    said["max_age"] = f"{decimal_text(channel.max_age or _exact(2 * found.grid.step_s))} s"
    if channel.sort == "real" and channel.name not in targets:
        said["max_rate"] = f"{_decimal_up(RATE_MARGIN * found.rates[channel.name])} {per_second(channel)}"
    return said


def per_second(channel: Channel) -> str:
    """The unit of the variable's rate."""
    return units.per_second(channel.unit)


def _range(channel: Channel, found: Identified) -> tuple[Fraction, Fraction]:
    """The tag's own range, else what was seen and a tenth of it on either side."""
    if channel.range is not None:
        return channel.range
    values = found.grid.at[channel.name]
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    room = 0.1 * (high - low) or 1.0
    return -rounded_out(Fraction(room - low), 4), rounded_out(Fraction(high + room), 4)


def _decimal_up(value: float) -> str:
    return decimal_text(rounded_out(Fraction(max(value, 0.0)), 3))


def _decimal(value: float) -> str:
    return decimal_text(_exact(value))


def _exact(value: float) -> Fraction:
    return Fraction(repr(value))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
