"""The disturbance band of a fitted model: what the model and the sensors' errors leave unexplained.

One step's residual is mostly sensor noise. What the noise cannot be is seen over windows: over N steps the
same noise is spread over N disturbances.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gateway.solver.identify.series import Floats, Grid, Truths
from gateway.solver.identify.windows import Indices, Model, misses

AHEAD = (1, 10, 60)  # steps over which coverage is told
MARGIN = 0.25  # of the band's width, added at either end
_WINDOWS = (1, 2, 5, 10, 20, 30, 60)
_SURE = 3.0  # standard errors
_BLOCKS = 20
_LEAST = 20  # windows without overlap for a window length to be asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Held-out steps whose reading lay where band and sensor errors allow it, so many steps ahead."""

    steps: int
    starts: int
    inside: int
    half_width: float  # of the prediction, sensor errors left out
    rms: float  # of what was missed by the band's middle

    @property
    def share(self) -> float:
        """Of 1; nan without a start."""
        return self.inside / self.starts if self.starts else float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Where the disturbance lies in each step, and how that was found."""

    low: float
    high: float
    trained: tuple[float, float]  # from the fitting part alone, margin included: what `coverage` judges
    window: int  # steps over which the residual range was least
    mean_range: tuple[float, float]  # of the mean residual over such windows
    certain: tuple[float, float] | None  # what no sensor error explains, of any window
    spread: float | None  # standard deviation in one step, where it is told from sensor noise
    hidden_below: float  # a disturbance of one step smaller than this is lost in sensor noise
    alike_next: float  # correlation of mean residuals of neighbouring windows
    coverage: tuple[Coverage, ...]


def banded(
    grid: Grid,
    model: Model,
    known: Truths,
    errors: Mapping[str, float],
    train: tuple[int, int],
    held_out: tuple[int, int],
) -> Band:
    """The band from the fitting part, judged on the held-out part, then widened by what that showed.

    `errors` bound each reading, in its own unit; `known` are steps at which every tag is.
    """
    here = _Residuals(grid, model, known, errors)
    trained, window, mean_range, certain, spread, hidden = _band(here, train)
    coverage = tuple(_coverage(here, trained, held_out, steps) for steps in AHEAD)
    later = [found for steps in _WINDOWS if (found := here.certain(steps, held_out)) is not None]
    low = min([trained[0], *(c[0] for c in later)])
    high = max([trained[1], *(c[1] for c in later)])
    return Band(
        low=low,
        high=high,
        trained=trained,
        window=window,
        mean_range=mean_range,
        certain=certain,
        spread=spread,
        hidden_below=hidden,
        alike_next=here.alike_next(window, train),
        coverage=coverage,
    )


class _Residuals:
    """What the model misses over windows, and what of it sensor errors may be."""

    def __init__(self, grid: Grid, model: Model, known: Truths, errors: Mapping[str, float]) -> None:
        self._grid, self._model = grid, model
        self._unknown = np.concatenate(([0], np.cumsum(~known)))
        self._own = errors.get(model.target, 0.0)
        self._others = sum(abs(effect) * errors.get(name, 0.0) for name, effect in model.effects.items())
        self._kept: dict[tuple[int, tuple[int, int]], tuple[Indices, Floats]] = {}

    def of(self, steps: int, part: tuple[int, int]) -> tuple[Indices, Floats]:
        """Starts of whole windows within the part, and what was missed at their ends."""
        if (steps, part) not in self._kept:
            first, end = part
            here = np.arange(first, max(first, end - steps))
            here = here[self._unknown[here + steps + 1] == self._unknown[here]]
            self._kept[steps, part] = here, misses(self._grid, self._model, here, steps)
        return self._kept[steps, part]

    def slack(self, steps: int) -> float:
        """The most that errors of the readings make of a window's residual."""
        return self._own * (1 + abs(self._model.keep) ** steps) + self._others * self._model.reach(steps)

    def means(self, steps: int, part: tuple[int, int]) -> Floats | None:
        """The residual as a disturbance that was the same in every step; None where that says nothing."""
        here, missed = self.of(steps, part)
        if (
            len(here) < _LEAST
            or (steps > 1 and len(here) < _LEAST * steps)
            or self._model.keep < 0 < steps - 1
        ):
            return None
        found: Floats = missed / self._model.gain(steps)
        return found

    def certain(self, steps: int, part: tuple[int, int]) -> tuple[float, float] | None:
        """The range of means that no sensor error explains; None where all may be sensor error."""
        means = self.means(steps, part)
        if means is None:
            return None
        slack = self.slack(steps) / self._model.gain(steps)
        low, high = float(means.min()) + slack, float(means.max()) - slack
        return None if low >= high else (low, high)

    def alike_next(self, steps: int, part: tuple[int, int]) -> float:
        """Correlation of neighbouring windows' residuals, nan with too few of them."""
        here, missed = self.of(steps, part)
        place = np.searchsorted(here, here + steps)
        paired = (place < len(here)) & (here[np.minimum(place, len(here) - 1)] == here + steps)
        if np.count_nonzero(paired) < _LEAST:
            return float("nan")
        one, other = missed[paired], missed[place[paired]]
        if one.std() == 0.0 or other.std() == 0.0:
            return float("nan")
        return float(np.corrcoef(one, other)[0, 1])

    def spread(self, part: tuple[int, int]) -> tuple[float, float]:
        """Standard deviation of one step's disturbance, and the least one that would have been told.

        The first with noise taken off, and 0 where none is told from it.

        Noise of the readings stands in the residuals of neighbouring steps with opposite signs, also of
        the step after where readings were drawn from two samples; a disturbance that is new in every step
        does not.
        """
        here, missed = self.of(1, part)
        in_row = np.flatnonzero((np.diff(here)[:-1] == 1) & (np.diff(here)[1:] == 1))
        if len(in_row) < _BLOCKS * _LEAST:
            return 0.0, float("nan")
        centred = missed - missed.mean()
        square = centred[in_row] ** 2
        opposite = centred[in_row] * (centred[in_row + 1] + centred[in_row + 2])
        keep = max(abs(self._model.keep), 1e-3)
        noise_share = (1 + keep**2) / keep
        blocks = np.array_split(np.arange(len(in_row)), _BLOCKS)
        parts = [float((square[b] + noise_share * opposite[b]).mean()) for b in blocks]
        found = float(square.mean()) + noise_share * min(float(opposite.mean()), 0.0)
        error = float(np.std(parts) / np.sqrt(_BLOCKS - 1))
        told = found > _SURE * error
        return (float(np.sqrt(found)) if told else 0.0), float(np.sqrt(_SURE * error))


_Found = tuple[tuple[float, float], int, tuple[float, float], tuple[float, float] | None, float | None, float]


def _band(here: _Residuals, train: tuple[int, int]) -> _Found:
    ranges = {
        steps: (float(means.min()), float(means.max()))
        for steps in _WINDOWS
        if (means := here.means(steps, train)) is not None
    }
    window = min(ranges, key=lambda steps: ranges[steps][1] - ranges[steps][0])
    low, high = ranges[window]
    missed = here.of(1, train)[1]
    middle = float(missed.mean())
    sure = [found for steps in ranges if (found := here.certain(steps, train)) is not None]
    certain = (min(c[0] for c in sure), max(c[1] for c in sure)) if sure else None
    spread, hidden = here.spread(train)
    parts: list[tuple[float, ...]] = [(low, high)]
    if certain is not None:
        parts.append(certain)
    if spread:
        share = min(1.0, spread / float(missed.std()))  # of a residual that is no noise
        parts.append(tuple(middle + share * (float(end) - middle) for end in (missed.min(), missed.max())))
    hull = min(p[0] for p in parts), max(p[1] for p in parts)
    margin = MARGIN * (hull[1] - hull[0])
    return (hull[0] - margin, hull[1] + margin), window, (low, high), certain, spread or None, hidden


def _coverage(here: _Residuals, band: tuple[float, float], part: tuple[int, int], steps: int) -> Coverage:
    """How many held-out readings lay inside, errors of the readings allowed for."""
    found, missed = here.of(steps, part)
    middle, half = (band[0] + band[1]) / 2, (band[1] - band[0]) / 2
    model = here._model  # noqa: SLF001  # one file's own
    off = missed - middle * model.gain(steps)
    width = half * model.reach(steps)
    inside = np.abs(off) <= width + here.slack(steps)
    return Coverage(
        steps=steps,
        starts=len(found),
        inside=int(np.count_nonzero(inside)),
        half_width=width,
        rms=float(np.sqrt(np.mean(off**2))) if len(found) else float("nan"),
    )


def observed_noise(values: Floats) -> tuple[float, float]:
    """Standard deviation, and the greatest distance from the line through both neighbours halved.

    Both count the plant's own bends as noise, so they are not too small. nan with too few values.
    """
    if len(values) < _LEAST:
        return float("nan"), float("nan")
    bends = values[1:-1] - (values[:-2] + values[2:]) / 2
    bends = bends[np.isfinite(bends)]
    if len(bends) < _LEAST:
        return float("nan"), float("nan")
    return float(np.sqrt(np.mean(bends**2) / 1.5)), float(np.abs(bends).max() / 2)


def observed_rate(values: Floats, step_s: float, error: float) -> float:
    """The fastest change per second that errors of the readings do not explain, over 1 to 60 steps."""
    fastest = 0.0
    for steps in _WINDOWS:
        change = np.abs(values[steps:] - values[:-steps])
        change = change[np.isfinite(change)]
        if len(change):
            fastest = max(fastest, (float(change.max()) - 2 * error) / (steps * step_s))
    return fastest
