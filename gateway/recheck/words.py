"""What a rule of a certificate demands, in the words of the module that has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from gateway.recheck.declared import allowed, out_of_order
from gateway.recheck.language import Evaluate
from gateway.recheck.source import Order, Source

Point = Mapping[str, Fraction]


def words(source: Source, rule: str) -> Evaluate | None:
    """The demand of `MODULE/RULE`; None where the module knows no such rule."""
    module, _, own = rule.partition("/")
    if module != source.id:
        return None
    named = {r.id: r.holds for r in source.requirements}
    named |= {f"safe_set[{n}]": r.holds for n, r in enumerate(source.safe_set, start=1)}
    named |= {r.id: r.holds for r in source.terminal}
    return named.get(own) or _declared(source, own)


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
