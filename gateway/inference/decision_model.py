"""A bundle in a program of one's own: notebooks, tests, studies. The gateway itself runs it in a worker.

model = DecisionModel.from_bundle(Path("bundles/buffer-tank"), device="cpu")
wanted = model.propose({"TK1.LT101": 2.1, ...}, in_force={"TK1.P101.SP": 27.0, ...})
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd, isfinite, nan
from operator import index
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from gateway.core.errors import InferenceError
from gateway.core.tag import number_text
from gateway.inference.bundle.any_bundle import AnyBundle, load_any
from gateway.inference.bundle.manifest import Bundle, OutputSpec
from gateway.inference.bundle.stateless import StatelessOutput, class_values
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.decoding.decode import OutputRange
from gateway.inference.decoding.nbest import MOST_PROPOSALS
from gateway.inference.kv.backend import ProviderTruth
from gateway.inference.kv.ort_session import Provider, device_of
from gateway.inference.messages import Answer, Cycle, Propose
from gateway.inference.serving.engine import Engine
from gateway.inference.serving.job import PREFILL_CHUNK
from gateway.inference.serving.serving import Size, make_engine

Device = str  # auto, cpu or cuda:N


@dataclass(frozen=True, slots=True)
class Another:
    """Something else that the model would do, and how much of its probability is near all of it."""

    values: Mapping[str, Fraction]
    confidence: float | None
    masked_out: Mapping[str, float]
    share: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the model wants: values by tag, and how sure it is of them."""

    values: Mapping[str, Fraction]
    confidence: float | None  # calibrated; 0 for inputs unlike those of training, None where unknown
    masked_out: Mapping[str, float]  # probability on values outside an output's range
    reused_tokens: int
    computed_tokens: int
    engine_ms: float
    others: tuple[Another, ...] = ()  # where more than one was asked for; the likeliest first


class DecisionModel:
    """One model, one history; used from one thread."""

    def __init__(
        self, bundle: AnyBundle, provider: Provider, outputs: Mapping[str, OutputRange] | None = None
    ) -> None:
        """`outputs` by tag; without it an output may take what its bins span, in steps that meet each bin.

        The number of a stateless model may then take what it was trained for, in a thousand steps or more.
        """
        self.bundle = bundle
        self._ranges = {**ranges_of(bundle), **(outputs or {})}
        for spec, change in zip(bundle.manifest.outputs, bundle.max_changes, strict=True):
            if change is not None and self._ranges[spec.tag].most is None:
                found = self._ranges[spec.tag]
                self._ranges[spec.tag] = replace(found, most=int(Fraction(change) / abs(found.scale)))
        self._engine, test = make_engine(bundle, tuple(self._ranges.values()), Size(provider))
        if not isinstance(self._engine, Engine):
            test()
        self._history: deque[Cycle] = deque(maxlen=bundle.history_cycles)
        self._cycle = 0
        self._measured: tuple[str, ...] = ()

    @classmethod
    def from_bundle(
        cls, path: Path | str, device: Device = "auto", outputs: Mapping[str, OutputRange] | None = None
    ) -> DecisionModel:
        """The model of a bundle folder; raises `InferenceError` with what is wrong and what to do.

        `cuda:N` is that device or nothing: where the session runs on the processor after all, it is refused.
        """
        number = device.removeprefix("cuda:")
        on_cuda = number != device and number.isascii() and number.isdigit()
        if not on_cuda and device not in {"auto", "cpu"}:
            message = f"device `{device}` is not known: use `auto`, `cpu`, or `cuda:0` for the first GPU"
            raise InferenceError(message)
        made = cls(load_any(Path(path)), device, outputs)
        if on_cuda and device_of(made.truth) != "cuda":
            message = (
                f"device `{device}` was asked for and the model runs on {made.truth.actual}: "
                "look at its driver and cuDNN, or use `auto` or `cpu`"
            )
            raise InferenceError(message)
        return made

    @property
    def truth(self) -> ProviderTruth:
        """Where it really runs."""
        return self._engine.truth

    def propose(self, inputs: Mapping[str, float], in_force: Mapping[str, float], *, n: int = 1) -> Wanted:
        """Setpoints for the next cycle, from what is measured and what has been in force until now.

        With `n` the n best, or as many as the model has: the first is what it is without. Each call is one
        cycle of `bundle.cycle_s` seconds after the one before. Raises `InferenceError` for a tag that has no
        number, and for an `n` out of range.
        """
        if not 1 <= n <= MOST_PROPOSALS:
            message = f"from 1 to {MOST_PROPOSALS} proposals can be asked for, not {n}"
            raise InferenceError(message)
        manifest = self.bundle.manifest
        measured = tuple(_number(inputs, spec.tag) for spec in manifest.inputs)
        acting = tuple(_number(in_force, spec.tag) for spec in manifest.outputs)
        self._history.append(Cycle(self._measured, acting))
        request = Propose(
            session="",
            cycle=self._cycle,
            inputs=measured,
            in_force=acting,
            history=None if self._cycle else tuple(self._history),
            most=n,
        )
        self._cycle += 1
        self._measured = measured
        answer = self._engine.propose(request)
        if not isinstance(answer, Answer):  # it was forgotten: an answer had failed half-way
            answer = self._engine.propose(msgspec.structs.replace(request, history=tuple(self._history)))
        assert isinstance(answer, Answer), "the history was sent"  # noqa: S101 - an invariant
        return Wanted(
            values=self._values(answer.raws),
            confidence=answer.confidence,
            masked_out=dict(zip(self._ranges, answer.masked_out, strict=True)),
            reused_tokens=answer.reused_tokens,
            computed_tokens=answer.computed_tokens,
            engine_ms=answer.engine_ms,
            others=tuple(
                Another(
                    values=self._values(other.raws),
                    confidence=other.confidence,
                    masked_out=dict(zip(self._ranges, other.masked_out, strict=True)),
                    share=other.share,
                )
                for other in answer.others
            ),
        )

    def _values(self, raws: tuple[int, ...]) -> dict[str, Fraction]:
        return {tag: self._ranges[tag].value(raw) for tag, raw in zip(self._ranges, raws, strict=True)}

    def generate(
        self, tokens: Sequence[int], max_new_tokens: int, temperature: float = 0.0, seed: int = 0
    ) -> list[int]:
        """The tokens a decoder goes on with: the likeliest at temperature 0, else drawn, the same for a seed.

        Apart from any history, for as long as is asked where the window slides. Raises `InferenceError` for a
        token outside the vocabulary, for no token at all, or where a window that hops would be left.
        """
        if not isinstance(self.bundle, Bundle) or not isinstance(self._engine, Engine):
            message = (
                f"bundle `{self.bundle.manifest.id}` is a stateless model and has no tokens: use propose"
            )
            raise InferenceError(message)
        window, vocabulary = self.bundle.manifest.window, self.bundle.manifest.architecture.vocabulary
        new = _tokens(tokens, vocabulary)
        if temperature < 0 or not isfinite(temperature):
            message = f"a temperature is 0 or above, not {temperature}"
            raise InferenceError(message)
        if max_new_tokens < 0:
            message = f"as many new tokens can be asked for as are wanted, or none, not {max_new_tokens}"
            raise InferenceError(message)
        if window.mode == "hop" and len(tokens) + max_new_tokens > window.length:
            message = f"the model reads {window.length} tokens, {len(tokens) + max_new_tokens} are asked for"
            raise InferenceError(message)
        backend, rng = self._engine.backend, np.random.default_rng(seed)
        cache, found = backend.open(), list[int]()
        try:
            while len(found) < max_new_tokens:
                if window.mode == "swa":
                    backend.forget_before(cache, backend.span(cache).end - window.length + 1)
                logits = backend.forward([(cache, new[:PREFILL_CHUNK])])[0].astype(np.float64)
                new = new[PREFILL_CHUNK:]
                if not new:
                    found.append(_drawn(logits, temperature, rng))
                    new = [Token(found[-1], 0.0)]
        finally:
            backend.close(cache)
        return found


def _tokens(tokens: Sequence[int], vocabulary: int) -> list[Token]:
    """Whole numbers of the vocabulary, of whatever kind; raises `InferenceError`."""
    try:
        numbers = [index(token) for token in tokens]
    except TypeError:
        numbers = []
    if not numbers or not all(0 <= token < vocabulary for token in numbers):
        message = f"tokens must be one or more whole numbers from 0 to {vocabulary - 1}"
        raise InferenceError(message)
    return [Token(token, 0.0) for token in numbers]


def _drawn(logits: NDArray[np.float64], temperature: float, rng: np.random.Generator) -> int:
    """The likeliest token at temperature 0, else one by its probability; raises `InferenceError`."""
    if not isfinite(float(logits.max())):
        message = "the model answered with no usable probabilities: use another bundle"
        raise InferenceError(message)
    if temperature == 0:
        return int(logits.argmax())
    with np.errstate(over="ignore"):  # next to 0 all others have none
        weights = np.exp((logits - logits.max()) / temperature)
    return int(rng.choice(len(weights), p=weights / weights.sum()))


def _number(values: Mapping[str, float], tag: str) -> str:
    """A value as it travels; numbers of numpy and pandas are numbers, too."""
    value = values.get(tag)
    try:
        number = nan if value is None or isinstance(value, str) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = nan
    if not isfinite(number):
        message = f"tag `{tag}` has no number: give every tag of the bundle one"
        raise InferenceError(message)
    return number_text(number)


def ranges_of(bundle: AnyBundle) -> dict[str, OutputRange]:
    """What each output may take where no register says so, in the bundle's order."""
    return {spec.tag: _range_of(spec) for spec in bundle.manifest.outputs}


def _range_of(spec: OutputSpec | StatelessOutput) -> OutputRange:
    """What an output's bins or classes span; one count is the greatest step that meets each of them."""
    if isinstance(spec, OutputSpec):
        return _span(spec.knots, 25 if spec.decoding == "expectation" else 1)
    if classes := class_values(spec):
        return _span(classes, 25 if spec.decoding == "expectation" else 1)
    return _thousandths(*map(Fraction, spec.trained))


def _thousandths(low: Fraction, high: Fraction) -> OutputRange:
    """From `low` to `high`, in steps of a power of ten, between 1000 and 10000 of them."""
    step = Fraction(1)
    while (high - low) / step >= 10_000:  # noqa: PLR2004 - see above
        step *= 10
    while (high - low) / step < 1_000:  # noqa: PLR2004 - see above
        step /= 10
    return OutputRange(step, low, 0, int((high - low) / step))


def _span(values: Sequence[str], parts: int) -> OutputRange:
    """From the least of them to the greatest; `parts` counts lie in each step, values between are meant."""
    exact = sorted(map(Fraction, values))
    unit = 1
    for value in exact:
        unit = unit * value.denominator // gcd(unit, value.denominator)
    steps = [later - earlier for earlier, later in itertools.pairwise(exact)]
    count = gcd(*(int(step * unit) for step in steps)) if steps else 1
    scale = Fraction(count or 1, unit) / parts
    return OutputRange(scale, exact[0], 0, int((exact[-1] - exact[0]) / scale))
