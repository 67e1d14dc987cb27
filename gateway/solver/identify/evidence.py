"""What the draft's numbers rest on: as data for programs, and as words and tables for people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gateway.core.tag import number_text
from gateway.solver.identify.band import MARGIN, Band
from gateway.solver.identify.draft import disturbance, expression, per_second
from gateway.solver.identify.fit import SURE
from gateway.solver.identify.identify import HELD_OUT, RATE_MARGIN, Identified
from gateway.solver.identify.notes import Target
from gateway.solver.identify.windows import CONSTANT

RULES = (
    (
        f"An effect is stated where it is at least {SURE:g} standard errors (jackknife over 20 blocks of "
        "time) from 0; the least sure is dropped first."
    ),
    (
        "The window length is the one that predicts best 10 and 60 steps ahead in the last fifth of the "
        "fitting part; in the first, where a tag moved in the last alone."
    ),
    (
        "Noise of the readings pulls effects of measured tags towards 0. The pull is reckoned to first "
        "order from the noise seen, no more than the stated error allows, given back, and shown as `noise "
        "bias`. That holds for noise that is new in every sample; a slow error of a transmitter looks like "
        "the plant and is not found."
    ),
    (
        "Effects are those of prediction: what nobody measures and moves two tags at once is credited to "
        "the one that is measured. Only an action that was moved for no other reason shows what it does by "
        "itself."
    ),
    (
        "The band is the range of the mean residual over the window where that range is least, with what "
        "no sensor error explains over any window, and where one step's spread is told from noise the "
        f"range of one step's residuals, shrunk by what is noise of it; then {MARGIN:.0%} of the width more "
        "on either side."
    ),
    (
        f"Coverage is judged on the last {HELD_OUT:.0%} of the time, which no number was fitted to; "
        "readings count as inside where band and sensor errors allow them."
    ),
    f"`max_rate` is the fastest change seen that sensor errors do not explain, times {RATE_MARGIN:g}.",
    "It holds where the plant was: nothing is known of states and actions the record does not hold.",
)


def evidence(found: Identified, module: str, source: str) -> dict[str, Any]:
    """The sidecar's data; numbers are text."""
    grid = found.grid
    return {
        "draft_of": module,
        "source": source,
        "step_s": _n(grid.step_s),
        "steps": grid.steps,
        "usable_steps": found.usable,
        "begins_s": _n(grid.start),
        "fitted_steps": list(found.train),
        "held_out_steps": list(found.held_out),
        "rules": list(RULES),
        "tags": [_tag(found, c.name) for c in found.recording.channels],
        "dynamics": [_dynamics(found, t) for t in found.targets],
        "without_dynamics": dict(found.without),
        "notes": list(found.notes),
    }


def _tag(found: Identified, name: str) -> dict[str, Any]:
    channel, seen, moved = found.recording.channel(name), found.grid.seen[name], found.moved[name]
    said: dict[str, Any] = {
        "name": name,
        "tag": channel.tag,
        "action": channel.action,
        "samples": seen.samples,
        "not_good": seen.bad,
        "not_numbers": seen.not_numbers,
        "gaps": seen.gaps,
        "interval_s": _n(seen.interval_s),
        "known_share": _n(seen.known),
        "moves": moved.moves,
        "least": _n(moved.least),
        "most": _n(moved.most),
    }
    if not channel.action:
        said["error"] = _n(found.errors[name])
        said["error_is"] = "stated" if channel.error is not None else "seen: state the transmitter's own"
        said["noise"] = _n(found.noise[name])
        said["fastest_per_s"] = _n(found.rates[name])
    return said


def _dynamics(found: Identified, target: Target) -> dict[str, Any]:
    fit, band = target.fit, target.band
    return {
        "variable": fit.target,
        "formula": expression(target, found),
        "window_steps": fit.window,
        "windows": fit.windows,
        "effects": [
            {
                "of": e.name,
                "value": _n(e.value),
                "standard_error": _n(e.error),
                "noise_bias": _n(e.bias),
                "moved_alone": _n(e.alone),
            }
            for e in fit.effects
        ],
        "left_out": {name: _n(ratio) for name, ratio in fit.left_out.items()},
        "alike": [{"tags": [a, b], "correlation": _n(much)} for a, b, much in fit.alike],
        "missed_of_staying": _n(target.worth),
        "band": _band(band),
    }


def _band(band: Band) -> dict[str, Any]:
    return {
        "low": _n(band.low),
        "high": _n(band.high),
        "of_the_fitting_part": [_n(end) for end in band.trained],
        "window_steps": band.window,
        "mean_range": [_n(end) for end in band.mean_range],
        "certain": None if band.certain is None else [_n(end) for end in band.certain],
        "spread": None if band.spread is None else _n(band.spread),
        "hidden_below": _n(band.hidden_below),
        "alike_next": _n(band.alike_next),
        "coverage": [
            {
                "steps_ahead": c.steps,
                "starts": c.starts,
                "inside": c.inside,
                "share": _n(c.share),
                "half_width": _n(c.half_width),
                "rms_missed": _n(c.rms),
            }
            for c in band.coverage
        ],
    }


def report(found: Identified, module: str, source: str) -> list[str]:
    """The same for people, line by line."""
    grid = found.grid
    lines = [
        f"draft of module `{module}` from {source}",
        (
            f"{found.usable} of {grid.steps} steps of {grid.step_s:g} s have every tag; the first "
            f"{found.train[1]} steps were fitted, the last {found.held_out[1] - found.held_out[0]} held out"
        ),
        "",
        *_table(
            (
                "tag",
                "as",
                "samples",
                "not Good",
                "no number",
                "gaps",
                "moves",
                "from",
                "to",
                "error",
                "fastest",
            ),
            [_tag_row(found, c.name) for c in found.recording.channels],
        ),
    ]
    for target in found.targets:
        lines += ["", *_target_lines(found, target)]
    if found.without:
        lines += ["", "without dynamics:", *(f"  {why}" for why in found.without.values())]
    if found.notes:
        lines += ["", "to be known:", *(f"  {note}" for note in found.notes)]
    return [*lines, "", "how:", *(f"  {rule}" for rule in RULES)]


def _tag_row(found: Identified, name: str) -> tuple[str, ...]:
    channel, seen, moved = found.recording.channel(name), found.grid.seen[name], found.moved[name]
    error = "exact" if channel.action or channel.sort != "real" else f"{found.errors[name]:.3g}"
    error += "" if channel.action or channel.error is not None or channel.sort != "real" else " (seen)"
    fastest = "" if channel.action else f"{found.rates[name]:.3g} {per_second(channel)}"
    numbers = (seen.samples, seen.bad, seen.not_numbers, seen.gaps, moved.moves)
    return (channel.tag, name, *map(str, numbers), f"{moved.least:g}", f"{moved.most:g}", error, fastest)


def _target_lines(found: Identified, target: Target) -> list[str]:
    fit, band = target.fit, target.band
    name = fit.target
    rows = [
        (_called(e.name, name), f"{e.value:.6g}", f"{e.error:.2g}", f"{e.bias:.2g}", f"{100 * e.alone:.3g} %")
        for e in fit.effects
    ]
    left = ", ".join(f"{_called(n, name)} ({r:.1f})" for n, r in fit.left_out.items())
    certain = "sensor errors could explain all of it"
    if band.certain is not None:
        certain = f"no sensor error explains {band.certain[0]:.3g} to {band.certain[1]:.3g}"
    lines = [
        f"{name}(next) = {expression(target, found)}",
        f"  {disturbance(name)} from {band.low:g} to {band.high:g} in every step of {found.grid.step_s:g} s",
        (
            f"  fitted over {fit.windows} windows of {fit.window} steps; misses {100 * target.worth:.2g} % "
            "(mean square) of "
            'what "it stays as it is" misses 10 steps ahead'
        ),
        *(
            "  " + line
            for line in _table(("effect of", "value", "standard error", "noise bias", "moved alone"), rows)
        ),
        f"  left out, with |effect|/standard error: {left or 'none'}",
        (
            f"  band: means over {band.window} steps ran from {band.mean_range[0]:.3g} to "
            f"{band.mean_range[1]:.3g}; {certain}; {_spread(band)}"
        ),
    ]
    covered = [
        (str(c.steps), str(c.starts), f"{100 * c.share:.3f} %", f"{c.half_width:.3g}", f"{c.rms:.3g}")
        for c in band.coverage
    ]
    heads = ("steps ahead", "held out", "inside", "half width", "rms missed")
    return lines + ["  " + line for line in _table(heads, covered)]


def _called(name: str, target: str) -> str:
    return {target: "itself, less 1", CONSTANT: "constant"}.get(name, name)


def _spread(band: Band) -> str:
    if band.spread is not None:
        return f"standard deviation in one step {band.spread:.3g}"
    if math.isnan(band.hidden_below):
        return "too few neighbouring steps to tell it from sensor noise"
    return f"what varies from step to step by less than about {band.hidden_below:.2g} is lost in sensor noise"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [heads, *rows]
    widths = [max(len(row[k]) for row in cells) for k in range(len(heads))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def _n(value: float) -> str | None:
    return number_text(float(value)) if math.isfinite(value) else None
