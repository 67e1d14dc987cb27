"""From a recording to fitted models with their bands, or the sentences that say why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from gateway.solver.identify.band import banded, observed_noise, observed_rate
from gateway.solver.identify.fit import fitted
from gateway.solver.identify.notes import Target, notes
from gateway.solver.identify.rounding import rounded_fit, rounded_out
from gateway.solver.identify.series import Channel, Grid, Recording, resampled
from gateway.solver.identify.windows import Model, misses, starts, table

HELD_OUT = 0.3  # of the steps, the last ones
LEAST_STEPS = 600  # with every tag known
LEAST_MOVES = 5  # of an action, in the fitting part
WORTH = 0.9  # of "it stays as it is": a model that misses more ahead is no better than none
RATE_MARGIN = 1.25
ERROR_MARGIN = 1.1
_AHEAD = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is wanted: `targets` get dynamics, None for every real tag that an action moves."""

    step_s: float
    targets: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """How an action, or another tag, moved in the fitting part."""

    moves: int
    least: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Identified:
    """Everything found. `errors` bound each reading, rounding included."""

    recording: Recording
    grid: Grid
    train: tuple[int, int]
    held_out: tuple[int, int]
    usable: int
    moved: Mapping[str, Moved]
    errors: Mapping[str, float]
    noise: Mapping[str, float]
    rates: Mapping[str, float]
    targets: tuple[Target, ...]
    without: Mapping[str, str]  # measured tags without dynamics, and why
    notes: tuple[str, ...]


def identified(recording: Recording, wish: Wish) -> Identified | tuple[str, ...]:
    """What the recording shows, or why nothing may be concluded from it. O(steps * tags^2)."""
    grid = resampled(recording, wish.step_s)
    if isinstance(grid, str):
        return (grid,)
    names = [c.name for c in recording.channels]
    known = grid.known(names)
    places = np.flatnonzero(known)
    if len(places) < LEAST_STEPS:
        return (_too_little(grid, names, len(places)),)
    cut = int(places[int((1 - HELD_OUT) * len(places))])
    train, held_out = (0, cut), (cut, grid.steps)
    moved = {name: _moved(grid, name, train) for name in names}
    if still := _still(recording, moved):
        return tuple(still)
    errors = _errors(recording, grid)
    if isinstance(errors, str):
        return (errors,)
    return _of_ground(_Ground(recording, grid, train, held_out, len(places), moved, *errors), wish)


@dataclass(frozen=True, slots=True)
class _Ground:
    """What every target stands on."""

    recording: Recording
    grid: Grid
    train: tuple[int, int]
    held_out: tuple[int, int]
    usable: int
    moved: Mapping[str, Moved]
    errors: Mapping[str, float]
    noise: Mapping[str, float]


def _of_ground(ground: _Ground, wish: Wish) -> Identified | tuple[str, ...]:
    found, without = _targets(ground, wish)
    if not found:
        return tuple(without.values()) or ("there is no measured real tag to fit",)
    measured = [c.name for c in ground.recording.channels if not c.action]
    for name in measured:
        if name not in {t.fit.target for t in found}:
            without.setdefault(name, f"no dynamics were asked for `{name}`, or it is no real")
    grid, errors = ground.grid, ground.errors
    return Identified(
        recording=ground.recording,
        grid=grid,
        train=ground.train,
        held_out=ground.held_out,
        usable=ground.usable,
        moved=ground.moved,
        errors=errors,
        noise=ground.noise,
        rates={name: observed_rate(grid.at[name], grid.step_s, errors[name]) for name in measured},
        targets=tuple(found),
        without=without,
        notes=tuple(notes(ground.recording, grid, found, WORTH)),
    )


def _targets(ground: _Ground, wish: Wish) -> tuple[list[Target], dict[str, str]]:
    """The tags that get dynamics, and why others get none."""
    found: list[Target] = []
    without: dict[str, str] = {}
    for channel in _asked(ground.recording, wish):
        one = _target(ground, channel)
        if isinstance(one, str):
            without[channel.name] = one
        elif np.isnan(one.worth) and wish.targets is None:
            without[channel.name] = (
                f"nothing in the held-out part says what a model of `{channel.name}` is worth: what moves it "
                f"is never known for {_AHEAD} steps in a row there, or it stood still"
            )
        elif one.worth > WORTH and wish.targets is None:
            without[channel.name] = (
                f"the best model of `{channel.name}` misses {100 * one.worth:.0f} % of what "
                f'"it stays as it is" misses {_AHEAD} steps ahead: too little to call it dynamics'
            )
        else:
            found.append(one)
    return _driven(ground.recording, found, without, keep=wish.targets is not None)


def _asked(recording: Recording, wish: Wish) -> list[Channel]:
    real = [c for c in recording.channels if not c.action and c.sort == "real"]
    return [c for c in real if wish.targets is None or c.name in wish.targets]


def _too_little(grid: Grid, names: Sequence[str], usable: int) -> str:
    worst = min(names, key=lambda name: grid.seen[name].known)
    seen = grid.seen[worst]
    why = (
        f"; `{worst}` is known at {100 * seen.known:.1f} % of them ({seen.bad} samples not Good, "
        f"{seen.not_numbers} no numbers, {seen.gaps} gaps)"
        if seen.known < 1
        else ""
    )
    return (
        f"too little data: {usable} of {grid.steps} steps have every tag known{why}; {LEAST_STEPS} are needed"
    )


def _moved(grid: Grid, name: str, part: tuple[int, int]) -> Moved:
    values = grid.at[name][slice(*part)]
    known = values[np.isfinite(values)]
    if not len(known):
        return Moved(moves=0, least=float("nan"), most=float("nan"))
    changed = np.diff(values)
    moves = int(np.count_nonzero(np.isfinite(changed) & (changed != 0.0)))
    return Moved(moves=moves, least=float(known.min()), most=float(known.max()))


def _still(recording: Recording, moved: Mapping[str, Moved]) -> list[str]:
    """A sentence for every action that was not moved enough to see what it does."""
    said = []
    for channel in recording.channels:
        found = moved[channel.name]
        if not channel.action or found.moves >= LEAST_MOVES:
            continue
        how = f"never moved: it was {found.least:g} all the time" if not found.moves else ""
        how = how or f"moved {found.moves} time{'s' if found.moves > 1 else ''}, and {LEAST_MOVES} are needed"
        said.append(
            f"action `{channel.name}` ({channel.tag}) {how}; what it does cannot be told from this record. "
            f"Move it, or leave it out with --leave-out {channel.tag} and say in the module by hand what it "
            "does"
        )
    return said


def _errors(recording: Recording, grid: Grid) -> tuple[dict[str, float], dict[str, float]] | str:
    """The bound of each reading's error, and the standard deviation of its noise; or whose cannot be told."""
    errors: dict[str, float] = {}
    noise: dict[str, float] = {}
    for channel in recording.channels:
        if channel.action or channel.sort != "real":
            errors[channel.name] = noise[channel.name] = 0.0
            continue
        deviation, greatest = observed_noise(grid.at[channel.name])
        error = channel.error
        if error is None and not np.isfinite(greatest):
            return (
                f"`{channel.name}` ({channel.tag}) is hardly ever known for three steps: its noise cannot "
                f"be seen. Say what its transmitter may be off by: --error {channel.tag}=VALUE"
            )
        if error is None:
            error = rounded_out(Fraction(ERROR_MARGIN * greatest).limit_denominator(10**12), 2)
        bound = float(error + channel.rounding)
        errors[channel.name] = bound
        # Noise within +-bound has its greatest likely deviation when it is spread evenly.
        noise[channel.name] = min(deviation, bound / 3**0.5) if np.isfinite(deviation) else 0.0
    return errors, noise


def _target(ground: _Ground, channel: Channel) -> Target | str:
    recording, grid, moved = ground.recording, ground.grid, ground.moved
    train, held_out = ground.train, ground.held_out
    others = [c.name for c in recording.channels if c.name != channel.name and moved[c.name].moves]
    if not moved[channel.name].moves:
        return f"`{channel.name}` never moved: it was {moved[channel.name].least:g} all the time"
    actions = {c.name for c in recording.channels if c.action}
    fit = fitted(grid, channel.name, others, actions, ground.noise, train)
    if isinstance(fit, str):
        return fit
    fit = rounded_fit(fit)
    model = fit.model()
    known = grid.known([channel.name, *model.effects])
    band = banded(grid, model, known, ground.errors, train, held_out)
    ends = Fraction(band.low), Fraction(band.high)
    band = replace(band, low=float(-rounded_out(-ends[0], 3)), high=float(rounded_out(ends[1], 3)))
    return Target(fit=fit, model=model, band=band, worth=_worth(grid, model, held_out))


def _worth(grid: Grid, model: Model, part: tuple[int, int]) -> float:
    """Mean square missed of what "it stays as it is" misses; nan where nothing says."""
    columns = table(grid, model.target, list(model.effects))
    here = starts(columns, _AHEAD, *part)
    if not len(here):
        return float("nan")
    still = Model(target=model.target, keep=1.0, effects={}, constant=0.0)
    size = float(np.mean(misses(grid, still, here, _AHEAD) ** 2))
    return float(np.mean(misses(grid, model, here, _AHEAD) ** 2)) / size if size else float("nan")


def _driven(
    recording: Recording, found: list[Target], without: dict[str, str], *, keep: bool
) -> tuple[list[Target], dict[str, str]]:
    """Only what an action moves, at once or through others, has dynamics; the rest is the plant's weather."""
    if keep:
        return found, without
    moved = {c.name for c in recording.channels if c.action}
    kept: list[Target] = []
    while True:
        more = [t for t in found if t not in kept and moved & set(t.model.effects)]
        if not more:
            break
        kept += more
        moved |= {t.fit.target for t in more}
    for one in found:
        if one not in kept:
            without[one.fit.target] = f"no action moves `{one.fit.target}`: it is left to `max_rate`"
    return [t for t in found if t in kept], without
