"""Bundles of either kind: decoders, whose history is tokens in a cache, and stateless models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import msgspec

from gateway.core.tag import TagDefinition, TagId
from gateway.inference.bundle import BackendName, Bundle, check_tags, load_bundle
from gateway.inference.bundle_files import BUNDLE_FILE, BundleError, read_description
from gateway.inference.bundle_stateless import StatelessBundle, check_stateless_tags, load_stateless

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
