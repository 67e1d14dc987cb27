"""`bundle.json` of a model without a cache: which tags its tensors hold, and what its answers mean.

At each cycle the graph reads the newest `steps` rows of its tags and answers at once. An output's tag in an
input tensor is the value in force when that row was measured. A value outside `trained` is taken as the end
nearest to it, counted, and makes the confidence 0: nothing is extrapolated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

import msgspec

from gateway.core.tag import TagDefinition, TagId
from gateway.inference.bundle.described import (
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
from gateway.inference.bundle.files import (
    BundleError,
    Strict,
    check_files,
)

Layout = Literal["flat", "steps_tags", "tags_steps"]


_MOST_STEPS = 1024  # as many as are kept of a point's past


class Scaling(Strict, frozen=True):
    """What the graph holds is (value - mean) / deviation; without it, the value itself."""

    mean: str
    deviation: str


class StatelessTag(DescribedTag, frozen=True, kw_only=True):
    """One tag of a tensor, and how the tensor holds it."""

    scaling: Scaling | None = None


class StatelessOutput(StatelessTag, frozen=True, kw_only=True):
    """An output: where the answer stands in the graph's `tensor`, and what it means.

    `index` leads to it in one row of the batch. Alone it is a number; with `values` it is a row of
    probabilities (or logits), one for each; with `labels` it is a name of one.
    """

    tensor: str
    index: tuple[int, ...] = ()
    values: tuple[str, ...] = ()
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    logits: bool = False
    decoding: Decoding = "most_probable"
    max_change: str | None = None  # in the tag's unit: no answer is further from the value in force


class Tensor(Strict, frozen=True):
    """An input of the graph: the newest `steps` rows of `tags`, the oldest row first.

    `flat` is `[batch, steps * tags]`, the others are `[batch, steps, tags]` and `[batch, tags, steps]`.
    """

    name: str
    tags: tuple[str, ...]
    steps: int = 1
    layout: Layout = "flat"


class StatelessManifest(Described, frozen=True, kw_only=True):
    """`bundle.json` with `"backend": "stateless"`; its confidence is of the probability of a class."""

    backend: Literal["stateless"]
    inputs: tuple[StatelessTag, ...]
    outputs: tuple[StatelessOutput, ...]
    tensors: tuple[Tensor, ...]

    @property
    def tags(self) -> tuple[str, ...]:
        """Columns of a row: what is measured, then what is in force."""
        return tuple(spec.tag for spec in (*self.inputs, *self.outputs))


@dataclass(frozen=True, slots=True)
class StatelessBundle(OnDisk[StatelessManifest]):
    """A stateless model's bundle."""

    @property
    def steps(self) -> int:
        """Rows that an answer is made of, this cycle's included."""
        return max(tensor.steps for tensor in self.manifest.tensors)

    @property
    def history_cycles(self) -> int:
        """Finished cycles an answer needs: the rows before, and what was in force before the first."""
        return self.steps

    @property
    def max_changes(self) -> tuple[str | None, ...]:
        """What each output states as the most change from the value in force."""
        return tuple(output.max_change for output in self.manifest.outputs)

    @property
    def facts(self) -> dict[str, str]:
        """How the model keeps its weights and what it remembers, for status."""
        window = "the newest row" if self.steps == 1 else f"the {self.steps} newest rows"
        return {"backend": "stateless", "quantization": "as exported", "window": window}


def load_stateless(directory: Path) -> StatelessBundle:
    """The bundle in `directory`; raises `BundleError` with what is wrong and what to do."""
    manifest, digest = read_manifest(directory, StatelessManifest, "not the description of a stateless model")
    for problem in _problems(manifest):
        raise BundleError(directory, problem)
    check_files(directory, manifest.files)
    return StatelessBundle(directory, manifest, digest)


def check_stateless_tags(bundle: StatelessBundle, definitions: Mapping[TagId, TagDefinition]) -> None:
    """Raise `BundleError` unless every tag exists in its unit and may take every value of a class."""
    definitions_of(bundle.directory, (*bundle.manifest.inputs, *bundle.manifest.outputs), definitions)
    for output in bundle.manifest.outputs:
        wanted = definitions[TagId(output.tag)].eu_range
        for value in class_values(output):
            if wanted is not None and not wanted[0] <= Fraction(value) <= wanted[1]:
                problem = (
                    f"tag `{output.tag}` ranges from {float(wanted[0]):g} to {float(wanted[1]):g} but "
                    f"a class of the model stands for {value}: correct the value or the range"
                )
                raise BundleError(bundle.directory, problem)


def class_values(output: StatelessOutput) -> tuple[str, ...]:
    """What the classes of an output stand for; none of a number."""
    return output.values or tuple(output.labels.values())


def _problems(manifest: StatelessManifest) -> Iterator[str]:
    yield from head_problems(manifest)
    if not (manifest.inputs and manifest.outputs and manifest.tensors):
        yield "there is no input, no output or no tensor: name at least one of each"
    if twice := _twice(manifest.tags):
        yield f"tag `{twice}` is named twice: name each tag once"
    yield from _tensor_problems(manifest)
    for spec in (*manifest.inputs, *manifest.outputs):
        yield from _tag_problems(spec)
    for output in manifest.outputs:
        yield from _output_problems(output)
    if manifest.confidence is not None and not any(output.values for output in manifest.outputs):
        yield "there is a confidence table but no output with probabilities: take it out"


def _tensor_problems(manifest: StatelessManifest) -> Iterator[str]:
    if twice := _twice([tensor.name for tensor in manifest.tensors]):
        yield f"tensor `{twice}` is named twice: name each input of the graph once"
    known = set(manifest.tags)
    for tensor in manifest.tensors:
        if not tensor.tags or tensor.steps < 1:
            yield f"tensor `{tensor.name}` holds nothing: name its tags, and 1 step or more"
        if tensor.steps > _MOST_STEPS:
            yield f"tensor `{tensor.name}` holds {tensor.steps} steps, at most {_MOST_STEPS}: read fewer"
        for tag in tensor.tags:
            if tag not in known:
                yield f"tensor `{tensor.name}` holds `{tag}`, which is no input and no output: add it to one"
    held = {tag for tensor in manifest.tensors for tag in tensor.tags}
    for spec in manifest.inputs:
        if spec.tag not in held:
            yield f"no tensor holds the input `{spec.tag}`: put it into one, or take it out"


def _tag_problems(spec: StatelessTag) -> Iterator[str]:
    yield from trained_problems(spec)
    scaling = spec.scaling
    if scaling is not None and not (
        is_decimal(scaling.mean) and is_decimal(scaling.deviation) and Fraction(scaling.deviation) != 0
    ):
        yield f"tag `{spec.tag}`: a scaling is a mean and a deviation other than 0, as decimals: correct it"


def _output_problems(output: StatelessOutput) -> Iterator[str]:
    yield from change_problems(output.tag, output.max_change)
    if output.values and output.labels:
        yield f"output `{output.tag}` has `values` and `labels`: name one of them"
    if not all(map(is_decimal, class_values(output))):
        yield f"output `{output.tag}`: the value of a class is no decimal: correct it"
    if output.decoding == "expectation" and not output.values:
        yield f"output `{output.tag}`: an expectation needs probabilities: name the `values` of their classes"


def _twice(names: tuple[str, ...] | list[str]) -> str:
    """The first name that is there again; empty where there is none."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""
