"""Golden answers show whether this machine answers as the one that wrote them.

`python -m gateway.inference.golden BUNDLE`. A bundle's `golden.json` holds runs of cycles as a gateway would
ask them, with the register counts that were answered and the actions behind them, to a millionth of their
span. Counts must be the same, actions within 1.2e-3 of the span. `o3ctl model golden` compares the checker's
verdicts as well.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import msgspec

from gateway.core.errors import cause
from gateway.inference.bundle.files import BundleError
from gateway.inference.bundle.manifest import GOLDEN_FILE, Bundle, load_bundle
from gateway.inference.decoding.decode import OutputRange
from gateway.inference.kv.ort_session import Provider
from gateway.inference.messages import Answer, Cycle, OutputLimits, Propose
from gateway.inference.serving.engine import Engine

ACTION_TOLERANCE = 1.2e-3  # of the output's span
_FINE = 1_000_000  # steps of a span
_ROUNDING_ROOM = 0.05  # of a count: nearer to a half than this, a count may fall either way


class GoldenCycle(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question; without `counts` it is only history. `verdict` is the checker's, of these counts."""

    inputs: tuple[str, ...]
    in_force: tuple[str, ...]
    counts: tuple[int, ...] = ()
    actions: tuple[float, ...] = ()
    verdict: str = ""
    repaired: tuple[int, ...] = ()  # the counts that would be written instead


class GoldenRules(msgspec.Struct, frozen=True):
    """Under which modules verdicts were given, each answer by itself as after a gap; times in seconds."""

    modules: dict[str, str]  # SHA-256 of the file, by id
    hold_s: float
    effect_delay_s: float


class Golden(msgspec.Struct, frozen=True, omit_defaults=True):
    """`golden.json`."""

    outputs: tuple[OutputLimits, ...]
    runs: tuple[tuple[GoldenCycle, ...], ...]
    rules: GoldenRules | None = None  # None: nobody wrote verdicts


@dataclass(frozen=True, slots=True)
class Replay:
    """One golden question, and what this machine answered: run and cycle by number, from 0."""

    run: int
    at: int
    asked: GoldenCycle
    counts: tuple[int, ...]
    actions: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of a replay."""

    answers: int
    wrong_counts: int
    worst_action_error_of_span: float

    @property
    def same(self) -> bool:
        """Whether this machine answers as the other did."""
        return (
            self.answers > 0 and not self.wrong_counts and self.worst_action_error_of_span <= ACTION_TOLERANCE
        )


def read_golden(bundle: Bundle) -> Golden:
    """Raises `BundleError` where the bundle has no golden answers, or none that can be read."""
    if GOLDEN_FILE not in bundle.manifest.files:
        raise BundleError(bundle.directory, f"no {GOLDEN_FILE}: nobody wrote golden answers for it")
    try:
        return msgspec.json.decode((bundle.directory / GOLDEN_FILE).read_bytes(), type=Golden)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as exc:
        problem = f"{GOLDEN_FILE} holds no golden answers ({cause(exc)}): copy the whole bundle folder"
        raise BundleError(bundle.directory, problem) from exc


def replays(bundle: Bundle, golden: Golden, provider: Provider = "cpu") -> Iterator[Replay]:
    """Ask everything again; what is only history is asked and not told."""
    ranges = [ranged(limits) for limits in golden.outputs]
    for number, run in enumerate(golden.runs):
        asked = [(cycle.inputs, cycle.in_force) for cycle in run]
        answers = answered(bundle, ranges, asked, provider)
        for at, (cycle, (counts, actions)) in enumerate(zip(run, answers, strict=True)):
            if cycle.counts:
                yield Replay(number, at, cycle, counts, actions)


def replay(bundle: Bundle, provider: Provider = "cpu") -> Replayed:
    """Counts and actions against the golden ones. Raises `BundleError`, see `read_golden`."""
    golden = read_golden(bundle)
    return compared(golden, replays(bundle, golden, provider))


def compared(golden: Golden, found: Iterable[Replay]) -> Replayed:
    """What a replay comes to."""
    ranges = [ranged(limits) for limits in golden.outputs]
    total, wrong, worst = 0, 0, 0.0
    for one in found:
        total += 1
        wrong += one.counts != one.asked.counts
        for ours, theirs, limits in zip(one.actions, one.asked.actions, ranges, strict=True):
            worst = max(worst, abs(ours - theirs) / _span(limits))
    return Replayed(total, wrong, worst)


def written(
    bundle: Bundle,
    ranges: Sequence[OutputRange],
    runs: Sequence[Sequence[tuple[tuple[str, ...], tuple[str, ...]]]],
) -> Golden:
    """Golden answers for runs of `(inputs, in force before)`, but for what stands near a half of a count."""
    found = []
    for run in runs:
        cycles = []
        for (inputs, in_force), (counts, actions) in zip(run, answered(bundle, ranges, run), strict=True):
            clear = all(_clear(action, limits) for action, limits in zip(actions, ranges, strict=True))
            cycles.append(
                GoldenCycle(inputs, in_force, counts, actions) if clear else GoldenCycle(inputs, in_force)
            )
        found.append(tuple(cycles))
    outputs = tuple(
        OutputLimits(str(limits.scale), str(limits.offset), limits.low, limits.high) for limits in ranges
    )
    return Golden(outputs, tuple(found))


def answered(
    bundle: Bundle,
    ranges: Sequence[OutputRange],
    run: Sequence[tuple[tuple[str, ...], tuple[str, ...]]],
    provider: Provider = "cpu",
) -> Iterator[tuple[tuple[int, ...], tuple[float, ...]]]:
    """Counts and actions for one run, cycle after cycle, as an engine answers that keeps its cache."""
    fine = [_refined(limits) for limits in ranges]
    coarse_engine = Engine(bundle, tuple(ranges), provider=provider)
    fine_engine = Engine(bundle, tuple(fine), provider=provider)
    for at, (inputs, in_force) in enumerate(run):
        history = (Cycle((), in_force),) if at == 0 else None
        request = Propose(session="golden", cycle=at, inputs=inputs, in_force=in_force, history=history)
        counts, steps = coarse_engine.propose(request), fine_engine.propose(request)
        assert isinstance(counts, Answer), "one session is never evicted"  # noqa: S101 - an invariant
        assert isinstance(steps, Answer), "one session is never evicted"  # noqa: S101 - an invariant
        yield (
            counts.raws,
            tuple(float(limits.value(raw)) for limits, raw in zip(fine, steps.raws, strict=True)),
        )


def ranged(limits: OutputLimits) -> OutputRange:
    """As the engine takes it."""
    return OutputRange(Fraction(limits.scale), Fraction(limits.offset), limits.low, limits.high)


def _refined(limits: OutputRange) -> OutputRange:
    """The same range in a million steps."""
    scale = limits.scale * (limits.high - limits.low) / _FINE
    return replace(limits, scale=scale, offset=limits.value(limits.low), low=0, high=_FINE)


def _span(limits: OutputRange) -> float:
    return abs(float(limits.value(limits.high) - limits.value(limits.low)))


def _clear(action: float, limits: OutputRange) -> bool:
    counts = (action - float(limits.offset)) / float(limits.scale)
    return abs(counts % 1.0 - 0.5) > _ROUNDING_ROOM


def main(arguments: list[str] | None = None) -> int:
    """Print what came of it; 1 when an answer differs, 2 when there is nothing to compare."""
    parser = argparse.ArgumentParser(prog="gateway.inference.golden")
    parser.add_argument("bundle", type=Path)
    options = parser.parse_args(arguments)
    try:
        found = replay(load_bundle(options.bundle))
    except BundleError as exc:
        sys.stderr.write(f"{exc}\n")
        return 2
    sys.stdout.write(
        f"{found.answers} answers, {found.wrong_counts} with other counts, "
        f"actions off by {found.worst_action_error_of_span:.2g} of their span at most: "
        f"{'the same' if found.same else 'not the same machine for this model'}\n"
    )
    return 0 if found.same else 1


if __name__ == "__main__":
    sys.exit(main())
