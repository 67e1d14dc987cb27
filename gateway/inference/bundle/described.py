"""What `bundle.json` says of every model, whatever it remembers: names, tags, files, figures."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Generic, Literal, TypeVar

import msgspec

from gateway.core.tag import TagDefinition, TagId
from gateway.inference.bundle.files import (
    BUNDLE_FILE,
    MODEL_FILE,
    BundleError,
    FileSpec,
    Strict,
    read_description,
)

FORMAT = 1

Decoding = Literal["expectation", "most_probable"]

_DECIMAL = re.compile(r"[+-]?(\d{1,40}\.?\d{0,40}|\.\d{1,40})([eE][+-]?\d{1,2})?", re.ASCII)
_LEAST_FITTED, _MOST_FITTED = 1e-3, 1e3


class DescribedTag(Strict, frozen=True):
    """One tag: `trained` are the least and the greatest value training saw, as decimals."""

    tag: str
    unit: str
    trained: tuple[str, str]


class Calibration(Strict, frozen=True):
    """Concentration to confidence: log odds divided by `temperature`, and `offset` added.

    `reliability` are groups of held-out answers: mean confidence, the share that agreed, how many. The errors
    are the mean difference of these two, weighted, of the bare concentration and of the confidence.
    """

    temperature: float
    offset: float
    error_before: float
    error_after: float
    reliability: tuple[tuple[float, float, int], ...]


class Confidence(Strict, frozen=True):
    """Concentration of an answer to how often answers like it agreed with the expert on held-out runs.

    `hit_rate[i]` holds between `edges[i - 1]` and `edges[i]`; it has one entry more than `edges`.
    """

    edges: tuple[float, ...]
    hit_rate: tuple[float, ...]
    calibration: Calibration | None = None  # takes the place of the table


class Described(Strict, frozen=True, kw_only=True):
    """The head of `bundle.json`."""

    format: int
    id: str
    revision: int
    description: str
    cycle_s: str
    files: dict[str, FileSpec]
    accuracy: dict[str, float] = msgspec.field(default_factory=dict)
    confidence: Confidence | None = None  # None: no answer has one


D = TypeVar("D", bound=Described)


@dataclass(frozen=True, slots=True)
class OnDisk(Generic[D]):
    """A bundle whose files are whole and whose parts fit each other."""

    directory: Path
    manifest: D
    digest: str  # SHA-256 of bundle.json, which names the digest of every other file

    @property
    def model_path(self) -> Path:
        """The graph that decides."""
        return self.directory / MODEL_FILE

    @property
    def cycle_s(self) -> float:
        """Seconds between two cycles of history."""
        return float(Fraction(self.manifest.cycle_s))


def read_manifest(directory: Path, kind: type[D], problem: str) -> tuple[D, str]:
    """`bundle.json` as `kind` and its digest; raises `BundleError` where it is none: `problem`, and why."""
    text = read_description(directory)
    try:
        manifest = msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError) as exc:
        raise BundleError(
            directory, f"{BUNDLE_FILE} is {problem} ({exc}): correct it or export it again"
        ) from exc
    return manifest, hashlib.sha256(text).hexdigest()


def head_problems(manifest: Described) -> Iterator[str]:
    """What is wrong with what every description says, a sentence each."""
    if manifest.format != FORMAT:
        yield (
            f"format {manifest.format} is not known here (this gateway reads {FORMAT}): "
            "export it again or update the gateway"
        )
    if not is_decimal(manifest.cycle_s) or Fraction(manifest.cycle_s) <= 0:
        yield f"`cycle_s` is `{manifest.cycle_s}`: write the seconds of a cycle as a decimal above 0"
    if manifest.confidence is not None:
        yield from _confidence_problems(manifest.confidence)


def _confidence_problems(confidence: Confidence) -> Iterator[str]:
    if len(confidence.hit_rate) != len(confidence.edges) + 1:
        yield "the confidence table needs one rate more than edges: correct it, or export it again"
    if any(before > after for before, after in itertools.pairwise(confidence.edges)):
        yield "the edges of the confidence table must ascend: correct them, or export it again"
    if not all(0 <= rate <= 1 for rate in confidence.hit_rate):
        yield "the rates of the confidence table lie between 0 and 1: correct them, or export it again"
    fitted = confidence.calibration
    if fitted is not None and not fitted.temperature > 0:
        yield "the confidence's temperature must be above 0: correct it, or export it again"
    elif fitted is not None and not (_LEAST_FITTED <= fitted.temperature <= _MOST_FITTED):
        yield (
            f"the confidence's temperature is {fitted.temperature:g}, a fitted one lies between "
            f"{_LEAST_FITTED:g} and {_MOST_FITTED:g}: correct it, or export it again"
        )
    if fitted is not None and not abs(fitted.offset) <= _MOST_FITTED:
        yield f"the confidence's offset is {fitted.offset:g}: correct it, or export it again"


def trained_problems(spec: DescribedTag) -> Iterator[str]:
    """What is wrong with a tag's trained range."""
    if not all(map(is_decimal, spec.trained)) or Fraction(spec.trained[0]) >= Fraction(spec.trained[1]):
        yield (
            f"tag `{spec.tag}`: `trained` is {list(spec.trained)}: write least and greatest value as decimals"
        )


def change_problems(tag: str, max_change: str | None) -> Iterator[str]:
    """What is wrong with the most change that an output states."""
    if max_change is not None and not (is_decimal(max_change) and Fraction(max_change) > 0):
        yield f"output `{tag}`: `max_change` is `{max_change}`: write a decimal above 0, or leave it out"


def is_decimal(text: str) -> bool:
    """Whether a text is a decimal of a size that things have: no short text is worth a million digits."""
    return _DECIMAL.fullmatch(text) is not None


def definitions_of(
    directory: Path, tags: Sequence[DescribedTag], definitions: Mapping[TagId, TagDefinition]
) -> list[TagDefinition]:
    """The configured tags of a model, in its order; raises `BundleError` unless each is there in its unit."""
    found = []
    for spec in tags:
        definition = definitions.get(TagId(spec.tag))
        if definition is None:
            problem = f"tag `{spec.tag}` is not configured: add it, or use a bundle made for these tags"
            raise BundleError(directory, problem)
        if definition.unit != spec.unit:
            problem = (
                f"tag `{spec.tag}` is configured in `{definition.unit}` but the model was trained in "
                f"`{spec.unit}`: correct the unit or train again"
            )
            raise BundleError(directory, problem)
        found.append(definition)
    return found
