"""Modules as they stand under overrides: named standard constraints are reported and refuse nothing (S25).

Which constraints may be named is judged here once more, by this reader's own words: never a critical one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from gateway.recheck.source import Order, Requirement, Source
from gateway.recheck.tree import LanguageError

_OF_AN_ORDER = ("order", "min", "max")


def set_aside(sources: Iterable[Source], names: Collection[str]) -> list[Source]:
    """The modules without what `MODULE/CONSTRAINT` of `names` demands.

    Raises `LanguageError` for a name that is not a standard constraint of a module in force.
    """
    left = set(names)
    found = [_without(source, left) for source in sources]
    if left:
        raise LanguageError(f"`{min(left)}` is no standard constraint in force, so nothing can override it")
    return found


def _without(source: Source, left: set[str]) -> Source:
    requirements = [_requirement(source, r, left) for r in source.requirements]
    orders = [_order(source, order, left) for order in source.orders]
    if requirements == source.requirements and orders == source.orders:
        return source
    return replace(source, requirements=requirements, orders=orders)


def _requirement(source: Source, requirement: Requirement, left: set[str]) -> Requirement:
    name = f"{source.id}/{requirement.id}"
    if name not in left or requirement.kind != "standard":
        return requirement
    left.discard(name)
    return replace(requirement, kind="informational")


def _order(source: Source, order: Order, left: set[str]) -> Order:
    reported = {end for end in _OF_AN_ORDER if f"{source.id}/{order.id}.{end}" in left}
    if not reported or order.kind != "standard":
        return order
    left.difference_update(f"{source.id}/{order.id}.{end}" for end in reported)
    return replace(order, reported=frozenset(reported))
