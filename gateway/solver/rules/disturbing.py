"""Disturbances of several modules by their names: one name must stand for one thing (S3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.core.errors import ConstraintError
from gateway.core.tag import TagId
from gateway.solver.modules.module import Module


def mistaken(modules: Sequence[Module]) -> Iterator[ConstraintError]:
    """Where a name stands for a tag too, or for what moves other variables in another module.

    Taken for one, two disturbances would only ever act the same way, and a rule about both variables would
    be shown against less than may happen.
    """
    tags = {str(tag) for module in modules for tag in module.tags.values()}
    before: dict[str, tuple[Module, frozenset[TagId]]] = {}
    for module in modules:
        for name in module.disturbances:
            if name in tags:
                yield _at(module, f"the disturbance `{name}` has the name of a tag; give it another")
            moved = _moved(module, name)
            other, known = before.setdefault(name, (module, moved))
            if moved and known and not moved & known:
                yield _at(
                    module,
                    f"the disturbance `{name}` moves {_listed(moved)} here and {_listed(known)} in "
                    f"`{other.id}`; give it another name, or both modules the same dynamics",
                )
            before[name] = (other if known else module, known | moved)


def _moved(module: Module, name: str) -> frozenset[TagId]:
    return frozenset(module.tags[of] for of, form in module.forms.items() if name in form.symbols)


def _listed(tags: frozenset[TagId]) -> str:
    return ", ".join(f"`{tag}`" for tag in sorted(tags))


def _at(module: Module, problem: str) -> ConstraintError:
    return ConstraintError(module.source, 1, 1, problem)
