"""A model bundle on disk: `bundle.json` says everything about `model.onnx` that may not be guessed."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

import msgspec

from gateway.core.tag import TagDefinition, TagId
from gateway.inference.bundle.familiar import Familiarity
from gateway.inference.bundle.files import (
    BUNDLE_FILE,
    MODEL_FILE,
    BundleError,
    FileSpec,
    Strict,
    check_files,
    read_description,
)
from gateway.inference.bundle.made import STORED, KvType, Made

FORMAT = 1
REFERENCE_FILE = "reference.onnx"
GATE_FILE = "gate.json"
GOLDEN_FILE = "golden.json"

Decoding = Literal["expectation", "most_probable"]
BackendName = Literal["paged_graph", "paged_attention", "dense_gqa", "concat_past"]
PAGED = frozenset({"paged_graph", "paged_attention"})  # of ours: with fractions, with a band


class TagSpec(Strict, frozen=True):
    """One tag of the vocabulary: `knots` are exact decimals in ascending order, one token each."""

    tag: str
    unit: str
    knots: tuple[str, ...]
    first_token: int
    trained: tuple[str, str]  # least and greatest value training saw


class OutputSpec(TagSpec, frozen=True):
    """An output: how a distribution over its knots becomes one value."""

    decoding: Decoding


class Window(Strict, frozen=True):
    """How the model forgets; both modes are exact.

    `swa` was trained with a banded mask: a token sees the `length` newest tokens. `hop` serves any model: it
    reads `length` tokens at the most, and when they are full goes on from the newest half of them.
    """

    mode: str
    length: int


class Architecture(Strict, frozen=True):
    """Sizes the engine needs to address the pool."""

    layers: int
    heads: int
    head_dim: int
    rotary_base: float
    vocabulary: int
    begin_token: int


class Quantization(Strict, frozen=True):
    """How matrices are stored in `model.onnx`."""

    kind: str
    bits: int
    block: int
    kv: KvType = "float32"  # how keys and values are kept; `int8` with a scale for each head of each token


class Training(Strict, frozen=True):
    """Where the weights came from."""

    recipe: str
    recipe_digest: str
    expert: str
    seeds: str
    seconds: float


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


class Manifest(Strict, frozen=True):
    """`bundle.json`."""

    format: int
    id: str
    revision: int
    description: str
    cycle_s: str
    inputs: tuple[TagSpec, ...]
    outputs: tuple[OutputSpec, ...]
    window: Window
    block: int
    architecture: Architecture
    quantization: Quantization
    files: dict[str, FileSpec]
    training: Training | None = None  # None: nobody says
    gates: dict[str, float] = msgspec.field(default_factory=dict)
    accuracy: dict[str, float] = msgspec.field(default_factory=dict)
    closed_loop: dict[str, float] = msgspec.field(default_factory=dict)
    confidence: Confidence | None = None  # None: no answer has one
    familiarity: Familiarity | None = None  # None: only the trained ranges are looked at
    backend: BackendName = "paged_graph"
    nearest: bool = False  # a value is the token of its nearest knot: for models that read whole tokens only
    made: Made | None = None  # of another bundle


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle whose files are whole and whose parts fit each other."""

    directory: Path
    manifest: Manifest
    digest: str  # SHA-256 of bundle.json, which names the digest of every other file

    @property
    def model_path(self) -> Path:
        """The quantized graph."""
        return self.directory / MODEL_FILE

    @property
    def cycle_s(self) -> float:
        """Seconds between two cycles of history."""
        return float(self.manifest.cycle_s)

    @property
    def facts(self) -> dict[str, str]:
        """How the model keeps its weights and what it remembers, for status."""
        quantization, window = self.manifest.quantization, self.manifest.window
        return {
            "backend": self.manifest.backend,
            "quantization": f"{quantization.kind} {quantization.bits} bit",
            "window": f"{window.mode} {window.length} tokens",
        }

    @property
    def tokens_per_cycle(self) -> int:
        """Inputs and outputs of one cycle."""
        return len(self.manifest.inputs) + len(self.manifest.outputs)

    @property
    def hop_cycles(self) -> int:
        """Half of the cycles a `hop` window holds with its begin token: after so many it goes on."""
        return (self.manifest.window.length - 1) // (2 * self.tokens_per_cycle)

    @property
    def history_cycles(self) -> int:
        """Cycles that can still influence the next answer: those held, or those in reach of the bands."""
        if self.manifest.window.mode == "hop":
            return 2 * self.hop_cycles
        reach = self.manifest.window.length * self.manifest.architecture.layers
        return -(-reach // self.tokens_per_cycle)


def load_bundle(directory: Path) -> Bundle:
    """The bundle in `directory`; raises `BundleError` with what is wrong and what to do."""
    text = read_description(directory)
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except (msgspec.DecodeError, msgspec.ValidationError) as exc:
        problem = f"{BUNDLE_FILE} is not a bundle description of format {FORMAT} ({exc}): export it again"
        raise BundleError(directory, problem) from exc
    bundle = Bundle(directory, manifest, hashlib.sha256(text).hexdigest())
    _check_supported(bundle)
    check_files(directory, manifest.files)
    _check_vocabulary(bundle)
    return bundle


def check_tags(bundle: Bundle, definitions: Mapping[TagId, TagDefinition]) -> None:
    """Raise `BundleError` unless every tag exists, fits in unit and is covered over its whole range."""
    for spec in (*bundle.manifest.inputs, *bundle.manifest.outputs):
        definition = definitions.get(TagId(spec.tag))
        if definition is None:
            problem = f"tag `{spec.tag}` is not configured: add it, or use a bundle made for these tags"
            raise BundleError(bundle.directory, problem)
        if definition.unit != spec.unit:
            problem = (
                f"tag `{spec.tag}` is configured in `{definition.unit}` but the model was trained in "
                f"`{spec.unit}`: correct the unit or train again"
            )
            raise BundleError(bundle.directory, problem)
        low, high = Fraction(spec.knots[0]), Fraction(spec.knots[-1])
        wanted = definition.eu_range
        if wanted is not None and not (low <= wanted[0] and wanted[1] <= high):
            problem = (
                f"tag `{spec.tag}` ranges from {float(wanted[0]):g} to {float(wanted[1]):g} but the model's "
                f"bins cover {float(low):g} to {float(high):g}: narrow the range or train with wider bins"
            )
            raise BundleError(bundle.directory, problem)


def _check_supported(bundle: Bundle) -> None:
    manifest = bundle.manifest
    quantization = manifest.quantization
    problems = {
        f"format {manifest.format} is not known here (this gateway reads {FORMAT}): "
        "export it again or update the gateway": manifest.format != FORMAT,
        f"window mode `{manifest.window.mode}` is not supported: export it with mode `swa` or `hop`": (
            manifest.window.mode not in {"swa", "hop"}
        ),
        f"backend `{manifest.backend}` reads whole tokens: set `nearest` to true, as in training": (
            manifest.backend not in PAGED and not manifest.nearest
        ),
        f"backend `{manifest.backend}` knows no band: declare window mode `hop`": (
            manifest.backend not in PAGED and manifest.window.mode == "swa"
        ),
        f"a window of {manifest.window.length} tokens does not hold two cycles: train with a longer one": (
            bundle.history_cycles < 2  # noqa: PLR2004 - the last one, and this one
        ),
        f"quantization `{quantization.kind}` of {quantization.bits} bits is not supported: "
        f"export it as one of {', '.join(f'`{kind}` of {bits} bits' for kind, bits in STORED)}": (
            (quantization.kind, quantization.bits) not in STORED
        ),
        "the confidence table needs one rate more than edges: export it again": (
            manifest.confidence is not None
            and len(manifest.confidence.hit_rate) != len(manifest.confidence.edges) + 1
        ),
        "the confidence's temperature must be above 0: export it again": (
            manifest.confidence is not None
            and manifest.confidence.calibration is not None
            and not manifest.confidence.calibration.temperature > 0
        ),
        "there is no input or no output tag: export it again": not (manifest.inputs and manifest.outputs),
        "the rows of `familiarity` do not fit the tags: export it again": (
            manifest.familiarity is not None
            and not manifest.familiarity.fits(len(manifest.inputs), len(manifest.outputs))
        ),
    }
    for problem, wrong in problems.items():
        if wrong:
            raise BundleError(bundle.directory, problem)


def _check_vocabulary(bundle: Bundle) -> None:
    taken = {bundle.manifest.architecture.begin_token}
    for spec in (*bundle.manifest.inputs, *bundle.manifest.outputs):
        try:
            knots = [Fraction(knot) for knot in spec.knots]
        except (ValueError, ZeroDivisionError) as exc:
            raise BundleError(
                bundle.directory, f"tag `{spec.tag}`: a bin is no decimal: export it again"
            ) from exc
        if len(knots) < 2 or any(a >= b for a, b in itertools.pairwise(knots)):  # noqa: PLR2004 - two ends
            problem = f"tag `{spec.tag}`: bins must be at least two ascending decimals: export it again"
            raise BundleError(bundle.directory, problem)
        tokens = set(range(spec.first_token, spec.first_token + len(knots)))
        if tokens & taken or max(tokens) >= bundle.manifest.architecture.vocabulary or min(tokens) < 0:
            problem = (
                f"tag `{spec.tag}`: its tokens overlap another's or leave the vocabulary: export it again"
            )
            raise BundleError(bundle.directory, problem)
        taken |= tokens
