"""What a change of a module file means for the modules in force, and who may approve one. Pure."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal


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
    """In force as soon as it is loaded: a tightening."""


@dataclass(frozen=True, slots=True)
class Same:
    """Nothing changes but, at most, the name of the file."""


@dataclass(frozen=True, slots=True)
class Waits:
    """A weakening that a person must approve (S24)."""

    because: str


@dataclass(frozen=True, slots=True)
class Compares:
    """Reworded: whether it still demands all that it did, a solver may show. A weakening until then (S24)."""

    because: str


class Reworded(str):
    """Why a change may weaken the rules by its words alone: nothing that was demanded is plainly gone."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Refuse:
    """Not taken; `todo` tells its author what to do."""

    because: str
    todo: str


Judgement = AtOnce | Same | Waits | Compares | Refuse
Weakening = Literal["confirm", "allow"]  # whether an armed point asks for a second person


def judge_offer(  # noqa: PLR0911  # one return for each thing that can be said of an offer
    offer: Offer,
    standing: Standing | None,
    highest: tuple[int, str] | None,
    weakens: Callable[[], str],
    *,
    other_file_there: bool,
    taken_back: str = "",
) -> Judgement:
    """What to do with a module file. `highest`: the highest revision that ever was in force, and its digest.

    `weakens` says why it may permit something new, or ""; `Reworded` where a solver may know better.
    `other_file_there`: the file the module in force came from is another one and still in the folder.
    `taken_back`: who rolled this very revision back.
    """
    if standing is not None and standing.file != offer.file and other_file_there:
        return Refuse(
            f"module `{offer.id}` is in force from file `{standing.file}` already",
            f"take `{standing.file}` out first, or give this module another id",
        )
    if standing is not None and standing.digest == offer.digest:
        return Same()
    if taken_back:
        return Refuse(
            f"revision {offer.revision} of module `{offer.id}` was rolled back by {taken_back}",
            f"raise `revision` above {max(offer.revision, highest[0] if highest else 0)} to offer it again",
        )
    if highest is not None:
        revision, digest = highest
        if offer.revision < revision or (offer.revision == revision and offer.digest != digest):
            return Refuse(
                f"revision {offer.revision} of module `{offer.id}` is not above revision {revision}, "
                "which was in force; revisions only rise",
                f"raise `revision` to {revision + 1} or more, or go back with: "
                f"o3ctl runtime rollback {offer.id}",
            )
    why = weakens()
    if not why:
        return AtOnce()
    if standing is None:
        return Waits(f"revision {offer.revision} would be added: {why}")
    because = f"revision {standing.revision} would be replaced by revision {offer.revision}: {why}"
    return Compares(because) if isinstance(why, Reworded) else Waits(because)


def judge_removal(module: str, *, required: bool) -> Judgement:
    """What to do when the file of a module in force is gone."""
    if required:
        return Refuse(
            f"its file is gone, but a decision point requires module `{module}`: it stays in force",
            "put the file back, or take the module out of `required_modules` first",
        )
    return Waits("its file was taken out")


@dataclass(frozen=True, slots=True)
class Approved:
    """The change may be put in force."""


@dataclass(frozen=True, slots=True)
class FirstOfTwo:
    """Nobody knows who made the change: this approval stands for its author, another must follow."""


@dataclass(frozen=True, slots=True)
class SamePerson:
    """The one who made a change does not approve it; `because` says so, and what to do."""

    because: str


Approval = Approved | FirstOfTwo | SamePerson


def judge_approval(by: AbstractSet[str], who: str, weakening: Weakening, *, armed: bool) -> Approval:
    """Whether `who`, an engineer, may approve what the accounts `by` did; empty `by`: nobody knows (S24)."""
    if weakening == "allow" or not armed:
        return Approved()
    if not by:
        return FirstOfTwo()
    if who in by:
        return SamePerson(
            f"`{who}` made this change, and a decision point is armed: another account with the role "
            'engineer approves it (a gateway with `weakening = "allow"` lets one person do both)'
        )
    return Approved()
