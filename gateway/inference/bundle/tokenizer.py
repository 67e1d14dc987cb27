"""Values to tokens and back: a value is its lower knot's token and how far it is towards the next."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction

from gateway.core.errors import InferenceError
from gateway.inference.bundle.manifest import Manifest, OutputSpec, TagSpec


@dataclass(frozen=True, slots=True)
class Token:
    """A token and the fraction, in [0, 1), of the way to the next knot's token."""

    id: int
    fraction: float


class TagCodec:
    """Encodes one tag's values over its knots."""

    def __init__(self, spec: TagSpec, *, nearest: bool = False) -> None:
        """With `nearest` a value is its nearest knot's token; halves go up."""
        self._nearest = nearest
        self.tag = spec.tag
        self.first_token = spec.first_token
        self.knots = tuple(float(Fraction(knot)) for knot in spec.knots)

    @property
    def tokens(self) -> range:
        """This tag's part of the vocabulary."""
        return range(self.first_token, self.first_token + len(self.knots))

    def encode(self, value: float) -> Token:
        """The token of `value`; a value beyond the outer knots is taken as the outer knot."""
        if value != value:  # noqa: PLR0124 - only NaN differs from itself
            message = f"tag `{self.tag}`: not a number cannot be a model input"
            raise InferenceError(message)
        knots = self.knots
        if value <= knots[0]:
            return Token(self.first_token, 0.0)
        if value >= knots[-1]:
            return Token(self.first_token + len(knots) - 1, 0.0)
        at = bisect_right(knots, value) - 1
        fraction = (value - knots[at]) / (knots[at + 1] - knots[at])
        if self._nearest:
            return Token(self.first_token + at + (fraction >= 0.5), 0.0)  # noqa: PLR2004 - half the way
        return Token(self.first_token + at, fraction)

    def decode(self, token: Token) -> float:
        """The value a token stands for."""
        at = token.id - self.first_token
        if token.fraction == 0.0:
            return self.knots[at]
        return self.knots[at] + token.fraction * (self.knots[at + 1] - self.knots[at])


class Tokenizer:
    """A bundle's codecs, in the order of a cycle: inputs, then outputs."""

    def __init__(self, manifest: Manifest) -> None:
        self.inputs = tuple(TagCodec(spec, nearest=manifest.nearest) for spec in manifest.inputs)
        self.outputs = tuple(TagCodec(spec, nearest=manifest.nearest) for spec in manifest.outputs)
        self.output_specs: tuple[OutputSpec, ...] = manifest.outputs
        self.begin = Token(manifest.architecture.begin_token, 0.0)
        self.opening = (self.begin, *(Token(token, 0.0) for token in manifest.header))  # of every request

    def observe(self, values: tuple[float, ...]) -> list[Token]:
        """Tokens of one cycle's inputs."""
        return [codec.encode(value) for codec, value in zip(self.inputs, values, strict=True)]

    def in_force(self, values: tuple[float, ...]) -> list[Token]:
        """Tokens of one cycle's outputs as they really were in force."""
        return [codec.encode(value) for codec, value in zip(self.outputs, values, strict=True)]
