"""Recorded values as they came, and on the grid of the module's steps; what is missing stays missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gateway.core.tag import TagId

Floats = NDArray[np.float64]
Truths = NDArray[np.bool_]

GAP_STEPS = 1.5  # a value is known between two good samples no further apart than this
_TOUCH = 0.02  # of a step: a sample as near as this to the grid is the grid's own
LONGEST = 20_000_000  # steps of one grid


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A tag as a variable of the draft. `error` is what its transmitter may be off by, None where not stated.

    `rounding` is what the gateway adds by itself: half a count and the dead band.
    """

    name: str
    tag: TagId
    sort: Literal["real", "bool", "int"]
    unit: str
    action: bool
    error: Fraction | None = None
    rounding: Fraction = Fraction(0)
    range: tuple[Fraction, Fraction] | None = None
    max_age: Fraction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """One tag as recorded: `at` in s, rising; a value counts only where `good`."""

    at: Floats  # [n]
    value: Floats  # [n]
    good: Truths  # [n]

    @staticmethod
    def of(at: Floats, value: Floats, good: Truths) -> Samples:
        """From columns in any order; of several at one instant the last counts."""
        order = np.argsort(at, kind="stable")
        at, value, good = at[order], value[order], good[order]
        last = np.append(at[1:] != at[:-1], True)[: len(at)]  # the newest of all
        return Samples(at=at[last], value=value[last], good=good[last])


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What was recorded of the channels, by name."""

    channels: tuple[Channel, ...]
    samples: Mapping[str, Samples]

    def channel(self, name: str) -> Channel:
        """The channel of that name; `KeyError` when there is none."""
        return {c.name: c for c in self.channels}[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How one tag was recorded, in numbers."""

    samples: int
    bad: int  # not Good
    not_numbers: int  # Good, and no finite number
    gaps: int  # between good samples, longer than `GAP_STEPS`
    interval_s: float  # median between samples
    known: float  # share of steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """All channels at whole steps, `[n]` each, nan where nothing is known.

    `at` is a value at the step's start; `over` an action's mean over the step.
    """

    start: float  # s, of step 0
    step_s: float
    at: Mapping[str, Floats]
    over: Mapping[str, Floats]
    seen: Mapping[str, Seen]

    @property
    def steps(self) -> int:
        """How many."""
        return len(next(iter(self.at.values())))

    def known(self, names: Sequence[str]) -> Truths:
        """Steps at which all of these are known."""
        found = np.ones(self.steps, dtype=np.bool_)
        for name in names:
            found &= np.isfinite(self.at[name])
            if name in self.over:
                found &= np.isfinite(self.over[name])
        return found


def resampled(recording: Recording, step_s: float) -> Grid | str:
    """The grid of a recording, or a sentence why there is none."""
    usable = {c.name: _usable(recording.samples[c.name]) for c in recording.channels}
    for channel in recording.channels:
        if len(usable[channel.name].at) < 2:  # noqa: PLR2004  # two samples make a line
            had = recording.samples[channel.name]
            return (
                f"`{channel.tag}` has {len(usable[channel.name].at)} usable values among {len(had.at)} "
                "samples: nothing can be fitted without it"
            )
    start = max(s.at[0] for s in usable.values())
    end = min(s.at[-1] for s in usable.values())
    count = int((end - start) / step_s + _TOUCH) + 1
    if end <= start or count < 2:  # noqa: PLR2004  # one step
        return "the tags were never recorded at the same time"
    if count > LONGEST:
        return f"{count} steps are more than the {LONGEST} that are fitted at once; ask for a shorter time"
    if (said := _too_slow(recording, step_s)) is not None:
        return said
    instants = start + step_s * np.arange(count)
    at: dict[str, Floats] = {}
    over: dict[str, Floats] = {}
    for channel in recording.channels:
        samples = usable[channel.name]
        held = channel.action or channel.sort != "real"
        at[channel.name] = (_held if held else _between)(samples, instants, step_s)
        if channel.action:
            over[channel.name] = _mean_over(samples, instants, step_s)
    seen = {
        c.name: _seen(recording.samples[c.name], usable[c.name], at[c.name], step_s)
        for c in recording.channels
    }
    return Grid(start=float(start), step_s=step_s, at=at, over=over, seen=seen)


def _too_slow(recording: Recording, step_s: float) -> str | None:
    for channel in recording.channels:
        interval = _interval(recording.samples[channel.name])
        if not channel.action and interval > GAP_STEPS * step_s:
            return (
                f"`{channel.tag}` was recorded every {interval:.4g} s: a step of {step_s:.4g} s cannot be "
                f"seen in it; ask for a step of at least {interval / GAP_STEPS:.4g} s"
            )
    return None


def _usable(samples: Samples) -> Samples:
    """What is Good and a number; what is not ends what was known before it."""
    good = samples.good & np.isfinite(samples.value)
    return Samples(at=samples.at[good], value=samples.value[good], good=_unbroken(good))


def _unbroken(good: Truths) -> Truths:
    """For each usable sample: no unusable one lies between the one before and it."""
    places = np.flatnonzero(good)
    return np.concatenate(([True], np.diff(places) == 1)) if len(places) else np.zeros(0, dtype=np.bool_)


def _neighbours(samples: Samples, instants: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    after = np.clip(np.searchsorted(samples.at, instants, side="left"), 0, len(samples.at) - 1)
    return np.maximum(after - 1, 0), after


def _between(samples: Samples, instants: Floats, step_s: float) -> Floats:
    """Straight lines between good neighbours that are near enough."""
    before, after = _neighbours(samples, instants)
    left, right = samples.at[before], samples.at[after]
    width = np.where(right > left, right - left, 1.0)
    share = np.clip((instants - left) / width, 0.0, 1.0)
    value = samples.value[before] + share * (samples.value[after] - samples.value[before])
    known = (right - left <= GAP_STEPS * step_s) & samples.good[after]
    for place, near in ((after, np.abs(right - instants)), (before, np.abs(instants - left))):
        touched = near <= _TOUCH * step_s
        value, known = np.where(touched & ~known, samples.value[place], value), known | touched
    return np.where(known, value, np.nan)


def _held(samples: Samples, instants: Floats, step_s: float) -> Floats:
    """The newest value, where the samples around the instant are near enough."""
    newest = np.clip(np.searchsorted(samples.at, instants + 1e-9, side="right") - 1, 0, len(samples.at) - 1)
    later = np.minimum(newest + 1, len(samples.at) - 1)
    near = instants - samples.at[newest] <= _TOUCH * step_s
    spanned = (samples.at[later] - samples.at[newest] <= GAP_STEPS * step_s) & samples.good[later]
    return np.where(near | spanned, samples.value[newest], np.nan)


def _mean_over(samples: Samples, instants: Floats, step_s: float) -> Floats:
    """The mean over the step that begins at each instant of a value that is held between samples."""
    width = np.diff(samples.at)
    whole = (width <= GAP_STEPS * step_s) & samples.good[1:]
    area = np.concatenate(([0.0], np.cumsum(np.where(whole, width * samples.value[:-1], 0.0))))
    gap = np.concatenate(([0.0], np.cumsum(np.where(whole, 0.0, width))))
    ends = instants + step_s
    total = _at_edges(samples, area, ends) - _at_edges(samples, area, instants)
    missing = np.interp(ends, samples.at, gap) - np.interp(instants, samples.at, gap)
    return np.where((missing <= _TOUCH * step_s) & (ends <= samples.at[-1] + 1e-9), total / step_s, np.nan)


def _at_edges(samples: Samples, area: Floats, instants: Floats) -> Floats:
    found: Floats = np.interp(instants, samples.at, area)
    return found


def _interval(samples: Samples) -> float:
    return float(np.median(np.diff(samples.at))) if len(samples.at) > 1 else float("inf")


def _seen(samples: Samples, usable: Samples, at: Floats, step_s: float) -> Seen:
    number = np.isfinite(samples.value)
    return Seen(
        samples=len(samples.at),
        bad=int(np.count_nonzero(~samples.good)),
        not_numbers=int(np.count_nonzero(samples.good & ~number)),
        gaps=int(np.count_nonzero(np.diff(usable.at) > GAP_STEPS * step_s)),
        interval_s=_interval(samples),
        known=float(np.mean(np.isfinite(at))),
    )
