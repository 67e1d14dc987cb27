"""One target as found, and what a person should know before using its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gateway.solver.identify.band import Band, Coverage
from gateway.solver.identify.fit import Fit
from gateway.solver.identify.series import Grid, Recording
from gateway.solver.identify.windows import CONSTANT, Model, misses, starts, table

_ALIKE_NEXT = 0.5
_TOGETHER = 10  # steps
_LEAST = 100  # windows
_ALONE = 0.2  # of a regressor's movement


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One tag's dynamics as the draft states them. `worth`: mean square missed, of "it stays as it is"."""

    fit: Fit  # with the decimals of the draft
    model: Model
    band: Band  # of that model; ends rounded outward
    worth: float


def notes(recording: Recording, grid: Grid, found: Sequence[Target], worth: float) -> Iterator[str]:
    """Sentences; above `worth` a model is called no better than none."""
    for channel in recording.channels:
        seen = grid.seen[channel.name]
        if seen.bad or seen.not_numbers or seen.gaps:
            left_out = f"{seen.bad} samples not Good, {seen.not_numbers} no numbers and {seen.gaps} gaps"
            missing = f"{100 * (1 - seen.known):.2f} % of the steps have no value"
            yield f"`{channel.name}`: {left_out} were left out; {missing}"
    actions = [c.name for c in recording.channels if c.action]
    for one in found:
        yield from _of_fit(one, actions)
        if np.isnan(one.worth):
            yield f"`{one.fit.target}`: nothing in the held-out part says what its model is worth"
        if one.worth > worth:
            missed = f'misses {100 * one.worth:.0f} % of what "it stays as it is" misses'
            yield f"`{one.fit.target}`: the model {missed}; it was asked for by name"
        yield from _of_band(one)
    for k, one in enumerate(found):
        for other in found[:k]:
            yield from _together(grid, one, other)


def _together(grid: Grid, one: Target, other: Target) -> Iterator[str]:
    """Whether what one model misses goes with what the other misses: then something unseen moves both."""
    names = sorted({one.fit.target, other.fit.target, *one.model.effects, *other.model.effects})
    here = starts(table(grid, names[0], names[1:]), _TOGETHER, 0, grid.steps - 1)
    if len(here) < _LEAST:
        return
    pair = [misses(grid, t.model, here, _TOGETHER) for t in (one, other)]
    kept = np.isfinite(pair[0]) & np.isfinite(pair[1])
    if kept.sum() < _LEAST or not min(np.std(p[kept]) for p in pair):
        return
    much = float(np.corrcoef(pair[0][kept], pair[1][kept])[0, 1])
    if abs(much) > _ALIKE_NEXT:
        yield (
            f"what is missed of `{one.fit.target}` and of `{other.fit.target}` goes together (correlation "
            f"{much:.2f}): something nobody measures moves both, and effects of the one on the other may be "
            "its; log it if you can"
        )


def _of_fit(one: Target, actions: Sequence[str]) -> Iterator[str]:
    name, fit = one.fit.target, one.fit
    for a, b, much in fit.alike:
        together = f"`{a}` and `{b}` moved nearly together (correlation {much:.3f})"
        yield f"{together} where `{name}` was fitted: how the effect is shared between them is not sure"
    if one.model.keep > 1:
        yield f"`{name}` grows by itself (factor {one.model.keep:.6g} a step): doubt it, or the record"
    for effect in fit.effects:
        if abs(effect.bias) > effect.error and effect.name != CONSTANT:
            yield (
                f"`{name}`: sensor noise had moved the effect of `{effect.name}` by {effect.bias:.2g}, more "
                f"than its standard error {effect.error:.2g}; it was given back to first order"
            )
    led = [e for e in fit.effects if e.alone < _ALONE]
    if led:
        shares = ", ".join(f"`{e.name}` {100 * (1 - e.alone):.0f} %" for e in led)
        yield (
            f"`{name}`: much of these movements came with those of other tags, as under a controller: "
            f"{shares}; such an effect may be off by more than its standard error says"
        )
    missing = [action for action in actions if action in fit.left_out]
    if missing:
        yield f"`{name}`: no effect of {', '.join(f'`{m}`' for m in missing)} could be told from 0"


def _of_band(one: Target) -> Iterator[str]:
    name, band = one.fit.target, one.band
    if band.alike_next > _ALIKE_NEXT:
        alike = f"what is missed in one window of {band.window} steps is much like what is missed in the next"
        yield (
            f"`{name}`: {alike} (correlation {band.alike_next:.2f}): something slow that nobody measures "
            'moves it, and the band holds it all; a `"role": "state"` for it may give a narrower one'
        )
    for covered in band.coverage:
        if covered.starts > covered.inside:
            yield f"`{name}`: {_outside(covered)}"


def _outside(covered: Coverage) -> str:
    steps = f"{covered.steps} step{'s' if covered.steps > 1 else ''} ahead"
    out = f"{covered.starts - covered.inside} of {covered.starts} held-out steps"
    return (
        f"{out} lay outside the band of the fitting part {steps}; the draft's band was widened by what no "
        "sensor error explains of them"
    )
