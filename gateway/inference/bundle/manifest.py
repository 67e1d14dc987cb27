"""A model bundle on disk: `bundle.json` says everything about `model.onnx` that may not be guessed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

import msgspec

from gateway.core.tag import TagDefinition, TagId
from gateway.inference.bundle.described import (
    FORMAT,
    Decoding,
    Described,
    DescribedTag,
    OnDisk,
    change_problems,
    definitions_of,
    head_problems,
    is_decimal,
    read_manifest,
    trained_problems,
)
from gateway.inference.bundle.familiar import Familiarity
from gateway.inference.bundle.files import (
    BundleError,
    Strict,
    check_files,
)
from gateway.inference.bundle.made import STORED, KvType, Made

REFERENCE_FILE = "reference.onnx"
GATE_FILE = "gate.json"
GOLDEN_FILE = "golden.json"

BackendName = Literal["paged_graph", "paged_attention", "dense_gqa", "concat_past"]
PAGED = frozenset({"paged_graph", "paged_attention"})  # of ours: with fractions, with a band


class TagSpec(DescribedTag, frozen=True):
    """One tag of the vocabulary: `knots` are exact decimals in ascending order, one token each."""

    knots: tuple[str, ...]
    first_token: int


class OutputSpec(TagSpec, frozen=True):
    """An output: how a distribution over its knots becomes one value.

    `max_change`, in the tag's unit: no answer is further from the value in force.
    """

    decoding: Decoding
    max_change: str | None = None


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


class Manifest(Described, frozen=True, kw_only=True):
    """`bundle.json` of a decoder."""

    inputs: tuple[TagSpec, ...]
    outputs: tuple[OutputSpec, ...]
    window: Window
    block: int
    architecture: Architecture
    quantization: Quantization
    training: Training | None = None  # None: nobody says
    gates: dict[str, float] = msgspec.field(default_factory=dict)
    closed_loop: dict[str, float] = msgspec.field(default_factory=dict)
    familiarity: Familiarity | None = None  # None: only the trained ranges are looked at
    backend: BackendName = "paged_graph"
    nearest: bool = False  # a value is the token of its nearest knot: for models that read whole tokens only
    header: tuple[int, ...] = ()  # tokens that every request has behind its begin token, before any cycle
    made: Made | None = None  # of another bundle


@dataclass(frozen=True, slots=True)
class Bundle(OnDisk[Manifest]):
    """A decoder's bundle."""

    @property
    def facts(self) -> dict[str, str]:
        """How the model keeps its weights and what it remembers, for status."""
        quantization, window = self.manifest.quantization, self.manifest.window
        return {
            "backend": self.manifest.backend,
            "quantization": f"{quantization.kind} {quantization.bits} bit",
            "window": f"{window.mode} {window.length} tokens",
            **({"header": f"{len(self.manifest.header)} tokens"} if self.manifest.header else {}),
        }

    @property
    def max_changes(self) -> tuple[str | None, ...]:
        """What each output states as the most change from the value in force."""
        return tuple(output.max_change for output in self.manifest.outputs)

    @property
    def tokens_per_cycle(self) -> int:
        """Inputs and outputs of one cycle."""
        return len(self.manifest.inputs) + len(self.manifest.outputs)

    @property
    def hop_cycles(self) -> int:
        """Half of the cycles a `hop` window holds behind what stands first: after so many it goes on."""
        return (self.manifest.window.length - 1 - len(self.manifest.header)) // (2 * self.tokens_per_cycle)

    @property
    def history_cycles(self) -> int:
        """Cycles that can still influence the next answer: those held, or those in reach of the bands."""
        if self.manifest.window.mode == "hop":
            return 2 * self.hop_cycles
        reach = self.manifest.window.length * self.manifest.architecture.layers
        return -(-reach // self.tokens_per_cycle)


def load_bundle(directory: Path) -> Bundle:
    """The bundle in `directory`; raises `BundleError` with what is wrong and what to do."""
    manifest, digest = read_manifest(directory, Manifest, f"not a bundle description of format {FORMAT}")
    bundle = Bundle(directory, manifest, digest)
    for problem in _problems(bundle):
        raise BundleError(directory, problem)
    check_files(directory, manifest.files)
    _check_vocabulary(bundle)
    return bundle


def check_tags(bundle: Bundle, definitions: Mapping[TagId, TagDefinition]) -> None:
    """Raise `BundleError` unless every tag exists, fits in unit and is covered over its whole range."""
    specs = (*bundle.manifest.inputs, *bundle.manifest.outputs)
    for spec, definition in zip(specs, definitions_of(bundle.directory, specs, definitions), strict=True):
        low, high = Fraction(spec.knots[0]), Fraction(spec.knots[-1])
        wanted = definition.eu_range
        if wanted is not None and not (low <= wanted[0] and wanted[1] <= high):
            problem = (
                f"tag `{spec.tag}` ranges from {float(wanted[0]):g} to {float(wanted[1]):g} but the model's "
                f"bins cover {float(low):g} to {float(high):g}: narrow the range or train with wider bins"
            )
            raise BundleError(bundle.directory, problem)


def _problems(bundle: Bundle) -> Iterator[str]:
    manifest = bundle.manifest
    window, quantization = manifest.window, manifest.quantization
    yield from head_problems(manifest)
    yield from _size_problems(manifest)
    if not (manifest.inputs and manifest.outputs):
        yield "there is no input or no output tag: export it again"
    for spec in (*manifest.inputs, *manifest.outputs):
        yield from trained_problems(spec)
    for output in manifest.outputs:
        yield from change_problems(output.tag, output.max_change)
    if window.mode not in {"swa", "hop"}:
        yield f"window mode `{window.mode}` is not supported: export it with mode `swa` or `hop`"
    if manifest.backend not in PAGED and not manifest.nearest:
        yield f"backend `{manifest.backend}` reads whole tokens: set `nearest` to true, as in training"
    if manifest.backend not in PAGED and window.mode == "swa":
        yield f"backend `{manifest.backend}` knows no band: declare window mode `hop`"
    if bundle.history_cycles < 2:  # noqa: PLR2004 - the last one, and this one
        behind = f" behind a header of {len(manifest.header)}" if manifest.header else ""
        yield f"a window of {window.length} tokens does not hold two cycles{behind}: train with a longer one"
    yield from _header_problems(manifest)
    if (quantization.kind, quantization.bits) not in STORED:
        known = ", ".join(f"`{kind}` of {bits} bits" for kind, bits in STORED)
        yield (
            f"quantization `{quantization.kind}` of {quantization.bits} bits is not supported: "
            f"export it as one of {known}"
        )
    familiarity = manifest.familiarity
    if familiarity is not None and not familiarity.fits(len(manifest.inputs), len(manifest.outputs)):
        yield "the rows of `familiarity` do not fit the tags: export it again"


def _header_problems(manifest: Manifest) -> Iterator[str]:
    if manifest.header and manifest.window.mode != "hop":
        yield "a band forgets a header, and then answers change: declare window mode `hop`, or leave it out"
    if any(not 0 <= token < manifest.architecture.vocabulary for token in manifest.header):
        yield f"`header` holds tokens outside 0 to {manifest.architecture.vocabulary - 1}: export it again"


def _size_problems(manifest: Manifest) -> Iterator[str]:
    """Before anything is computed from them: a few digits more would ask for all memory there is."""
    architecture = manifest.architecture
    sizes = {
        "layers": (architecture.layers, 1, 512),
        "heads": (architecture.heads, 1, 512),
        "head_dim": (architecture.head_dim, 2, 1024),
        "rotary_base": (architecture.rotary_base, 1, 1_000_000_000),
        "vocabulary": (architecture.vocabulary, 2, 1 << 20),
        "begin_token": (architecture.begin_token, 0, architecture.vocabulary - 1),
        "block": (manifest.block, 1, 1024),
        "length": (manifest.window.length, 1, 1 << 17),
    }
    for name, (size, least, most) in sizes.items():
        if not least <= size <= most:
            yield f"`{name}` is {size}, of a model it is {least} to {most}: export it again"


def _check_vocabulary(bundle: Bundle) -> None:
    taken = {bundle.manifest.architecture.begin_token}
    for spec in (*bundle.manifest.inputs, *bundle.manifest.outputs):
        if not all(map(is_decimal, spec.knots)):
            raise BundleError(bundle.directory, f"tag `{spec.tag}`: a bin is no decimal: export it again")
        knots = [Fraction(knot) for knot in spec.knots]
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
