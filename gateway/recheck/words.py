"""What a rule of a certificate demands, in the words of the module that has it.

A certificate gives the answer of each row of checks as a symbol of its own, so here it is read as it is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from gateway.recheck.declared import allowed, out_of_order
from gateway.recheck.language import Evaluate
from gateway.recheck.numbers import function_of
from gateway.recheck.source import Order, Source
from gateway.recheck.tree import Kind, Node

Point = Mapping[str, Fraction]


def words(source: Source, rule: str) -> Evaluate | None:
    """The demand of `MODULE/RULE`; None where the module knows no such rule."""
    module, _, own = rule.partition("/")
    if module != source.id:
        return None
    trees = {r.id: r.tree for r in (*source.requirements, *source.safe_set, *source.terminal)}
    return function_of(_as_told(trees[own])) if own in trees else _declared(source, own)


def _as_told(node: Node) -> Node:
    """A demand in which the answer of each row of checks (`for`) is read as `lasted MODULE/words SECONDS`."""
    if node.row is not None:
        return Node("lasted", Kind.CONDITION, name=node.row.name)
    return replace(node, parts=tuple(map(_as_told, node.parts)))


def order_rules(source: Source, order: Order) -> Iterator[str]:
    """`MODULE/RULE` of what a sequence demands: its order, and the times that it states."""
    yield f"{source.id}/{order.id}.order"
    if any(state.least > 0 for state in order.states.values()):
        yield f"{source.id}/{order.id}.min"
    if any(state.most is not None for state in order.states.values()):
        yield f"{source.id}/{order.id}.max"


def _declared(source: Source, own: str) -> Evaluate | None:
    """What a declaration demands: `NAME.range`, `NAME.min_on`, `SEQUENCE.order` and the like."""
    name, _, kind = own.rpartition(".")
    order = next((o for o in source.orders if o.id == name), None)
    if order is not None:
        return _of_order(order, kind)
    tag = source.names.get(name, "")
    if kind == "range" and tag:
        return lambda env: allowed(source.quantities[tag], env[tag])
    if kind == "min_on" and tag:
        return lambda env: not env[f"kept_on {tag}"] or env[tag] >= 1
    if kind == "min_off" and tag:
        return lambda env: env[tag] < 1 or env[f"may_rise {tag}"] >= 1
    return None


def _of_order(order: Order, kind: str) -> Evaluate | None:
    if kind not in {"order", "min", "max"}:
        return None
    tag = order.tag

    def holds(env: Point) -> bool:
        held = {} if kind == "order" else {tag: env[f"held {tag}"]}
        return kind not in out_of_order(order, env[f"prev {tag}"], env[tag], held)

    return holds
