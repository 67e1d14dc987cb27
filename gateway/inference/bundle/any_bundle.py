"""Bundles of either kind: decoders, whose history is tokens in a cache, and stateless models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

import msgspec

from gateway.core.tag import TagDefinition, TagId
from gateway.inference.bundle.files import BUNDLE_FILE, BundleError, read_description
from gateway.inference.bundle.manifest import BackendName, Bundle, check_tags, load_bundle
from gateway.inference.bundle.stateless import StatelessBundle, check_stateless_tags, load_stateless

AnyBundle = Bundle | StatelessBundle

STATELESS = "stateless"


class _Kind(msgspec.Struct, frozen=True):
    backend: str = "paged_graph"


def load_any(directory: Path) -> AnyBundle:
    """The bundle in `directory`; raises `BundleError` with what is wrong and what to do."""
    try:
        kind = msgspec.json.decode(read_description(directory), type=_Kind).backend
    except (msgspec.DecodeError, msgspec.ValidationError) as exc:
        raise BundleError(directory, f"{BUNDLE_FILE} is no bundle description ({exc}): correct it") from exc
    known = (*get_args(BackendName), STATELESS)
    if kind not in known:
        problem = f"backend `{kind}` is not known here: use one of {', '.join(f'`{name}`' for name in known)}"
        raise BundleError(directory, problem)
    return load_stateless(directory) if kind == STATELESS else load_bundle(directory)


def check_any_tags(bundle: AnyBundle, definitions: Mapping[TagId, TagDefinition]) -> None:
    """Raise `BundleError` unless every tag exists and fits; see the two kinds."""
    if isinstance(bundle, StatelessBundle):
        check_stateless_tags(bundle, definitions)
    else:
        check_tags(bundle, definitions)


def check_point(bundle: AnyBundle, point: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Raise `BundleError` unless the model reads what a decision point is given, and sets what it writes.

    What a model reads beyond the point's inputs would have no quality and no age in its check; an output that
    it leaves out would be written by nobody.
    """
    manifest = bundle.manifest
    for spec in manifest.inputs:
        if spec.tag not in inputs:
            problem = f"it reads `{spec.tag}`, which is no input of decision point `{point}`: add it there"
            raise BundleError(bundle.directory, problem)
    proposed = [spec.tag for spec in manifest.outputs]
    if proposed != list(outputs):
        problem = (
            f"it proposes {', '.join(proposed)}, but decision point `{point}` writes {', '.join(outputs)}: "
            "give both the same outputs in the same order"
        )
        raise BundleError(bundle.directory, problem)
