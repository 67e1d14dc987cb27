"""What a change of a module file means for the modules in force. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never


@dataclass(frozen=True, slots=True)
class Offer:
    """A module file that compiles."""

    id: str
    file: str
    revision: int
    digest: str


@dataclass(frozen=True, slots=True)
class Standing:
    """What is in force of that id: nothing (None), or this file with this revision."""

    file: str
    revision: int
    digest: str


@dataclass(frozen=True, slots=True)
class AtOnce:
    """In force as soon as it is loaded: a tightening, or a weakening that is allowed."""


@dataclass(frozen=True, slots=True)
class Same:
    """Nothing changes but, at most, the name of the file."""


@dataclass(frozen=True, slots=True)
class Waits:
    """A weakening that a person must approve (S24)."""

    because: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Not taken; `todo` tells its author what to do."""

    because: str
    todo: str


Judgement = AtOnce | Same | Waits | Refuse
Weakening = Literal["confirm", "allow"]


def judge_offer(
    offer: Offer,
    standing: Standing | None,
    highest: tuple[int, str] | None,
    weakening: Weakening,
    *,
    other_file_there: bool,
) -> Judgement:
    """What to do with a module file. `highest`: the highest revision that ever was in force, and its digest.

    `other_file_there`: the file the module in force came from is another one and still in the folder.
    """
    if standing is not None and standing.file != offer.file and other_file_there:
        return Refuse(
            f"module `{offer.id}` is in force from file `{standing.file}` already",
            f"take `{standing.file}` out first, or give this module another id",
        )
    if standing is not None and standing.digest == offer.digest:
        return Same()
    if highest is not None:
        revision, digest = highest
        if offer.revision < revision or (offer.revision == revision and offer.digest != digest):
            return Refuse(
                f"revision {offer.revision} of module `{offer.id}` is not above revision {revision}, "
                "which was in force; revisions only rise",
                f"raise `revision` to {revision + 1} or more",
            )
    if standing is None:
        return AtOnce()
    return _weakened(
        f"revision {standing.revision} would be replaced by revision {offer.revision}", weakening
    )


def judge_removal(module: str, weakening: Weakening, *, required: bool) -> Judgement:
    """What to do when the file of a module in force is gone."""
    if required:
        return Refuse(
            f"its file is gone, but a decision point requires module `{module}`: it stays in force",
            "put the file back, or take the module out of `required_modules` first",
        )
    return _weakened("its file was taken out", weakening)


def _weakened(what: str, weakening: Weakening) -> Judgement:
    match weakening:
        case "allow":
            return AtOnce()
        case "confirm":
            return Waits(what)
        case _:
            assert_never(weakening)
