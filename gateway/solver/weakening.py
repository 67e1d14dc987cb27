"""Whether a change of the modules in force could permit something new (S24), judged by structure.

A change counts as a tightening when nothing that was demanded is gone and no assumption became narrower; what
cannot be seen to be so counts as a weakening, and a person decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from gateway.solver.affine import Atom, Every, Form, Formula, Quadratic, Some
from gateway.solver.module import Interval, Module, Variable
from gateway.solver.ruleset import BackupStep, Rule, RuleSet

_OF_VARIABLES = (".range", ".min_on", ".min_off")
_RANK = {"informational": 0, "standard": 1, "critical": 2}


def weakens(in_force: RuleSet | None, old: Module | None, new: Module | None) -> str:
    """Why replacing `old` by `new` may weaken the rules; empty when it only tightens them.

    `old` None: nothing of that id is in force; `new` None: it is taken out. `in_force`: all, before it.
    """
    if old is None and new is None:
        return ""
    if new is None:
        return "it would be taken out"
    if old is None:
        return next(_premises_added(in_force, new), "") if in_force is not None else ""
    return next(_weaker(RuleSet.of([old], 0), RuleSet.of([new], 0)), "")


def implies(new: Formula, old: Formula) -> bool:
    """Whether `new` surely implies `old`: the same but for limits, each as tight or tighter."""
    match new, old:
        case Atom(), Atom():
            ours, (slope, constant) = _sloped(old.form), _sloped(new.form)
            if slope != ours[0] or constant < ours[1]:
                return False
            return constant > ours[1] or new.strict or not old.strict
        case (Every(parts), Every(others)) | (Some(parts), Some(others)):
            return len(parts) == len(others) and all(map(implies, parts, others))
        case _:
            return False


def _sloped(form: Form) -> tuple[tuple[object, object], Fraction]:
    """A form as what moves it, and its constant."""
    if isinstance(form, Quadratic):
        return (dict(form.linear.terms), dict(form.products)), form.linear.constant
    return (dict(form.terms), None), form.constant


def _weaker(old: RuleSet, new: RuleSet) -> Iterator[str]:
    """What the new revision of one module demands less, or assumes more."""
    if old.modules[0].step != new.modules[0].step:
        yield "its step changed"
    for rule in old.rules:
        if not rule.constraint.id.endswith(_OF_VARIABLES):  # these are compared with their variables
            named = (r for r in new.rules if r.constraint.id == rule.constraint.id)
            yield from _demanded_less(
                rule, next((r for r in named if implies(r.formula, rule.formula)), None)
            )
    for tag, variable in old.variables.items():
        later = new.variables.get(tag)
        if later is None:
            yield f"it no longer looks at `{tag}`"
        else:
            yield from _assumed_more(variable, later)
    yield from _moves_otherwise(old, new)
    if any(not any(implies(r.formula, s.formula) for r in new.safe_set) for s in old.safe_set):
        yield "its safe set changed"
    yield from _shown_less(old, new)
    if old.backup and [_policy(s) for s in old.backup] != [_policy(s) for s in new.backup]:
        yield "its backup changed"
    if new.repairable - old.repairable:
        yield f"a repair may now change `{min(new.repairable - old.repairable)}`"


def _shown_less(old: RuleSet, new: RuleSet) -> Iterator[str]:
    """Over how long, with which inputs, and on what past."""
    if new.horizon < old.horizon:
        yield "its horizon became shorter"
    if sorted(str(r.formula) for r in old.terminal) != sorted(str(r.formula) for r in new.terminal):
        yield "its terminal set changed"
    for tag in sorted(new.tolerated - old.tolerated):
        yield f"it would tolerate that `{tag}` is bad, missing or old"
    for name, row in old.rows.items():
        if new.rows.get(name) != row:
            yield f"the condition `{name.partition('/')[2]}` that `for` asks about changed or is gone"


def _moves_otherwise(old: RuleSet, new: RuleSet) -> Iterator[str]:
    """Dynamics and disturbances."""
    for name, form in old.forms.items():
        if new.forms.get(name) != form:
            yield f"the dynamics of `{name}` changed"
    for name in new.forms.keys() - old.forms.keys():
        if name in old.variables:
            yield f"it now has dynamics for `{name}`"
    for name, band in old.disturbances.items():
        later_band = new.disturbances.get(name)
        if later_band is None or not _inside(band, later_band):
            yield f"the disturbance `{name}` became smaller"


def _demanded_less(rule: Rule, later: Rule | None) -> Iterator[str]:
    wanted = rule.constraint
    if not rule.binding:
        return
    if later is None:
        yield f"constraint `{wanted.id}` changed or is gone"
        return
    if not later.binding and later.constraint.kind == wanted.kind:
        yield f"constraint `{wanted.id}` would only be reported"
    if _RANK[later.constraint.kind] < _RANK[wanted.kind]:
        yield f"constraint `{wanted.id}` would be {later.constraint.kind}, not {wanted.kind}"
    if wanted.always and not later.constraint.always:
        yield f"constraint `{wanted.id}` would no longer hold `always`"


def _assumed_more(old: Variable, new: Variable) -> Iterator[str]:
    """Premises and validity limits of one tag, compared one by one."""
    name = new.name
    if _declared(old) != _declared(new):
        yield f"`{name}` is declared otherwise"
    if not _inside(new.range, old.range):
        yield f"the range of `{name}` became wider"
    if new.error < old.error:
        yield f"the error of `{name}` became smaller"
    if old.max_age is not None and (new.max_age is None or new.max_age > old.max_age):
        yield f"`{name}` may be older"
    if new.max_rate is not None and (old.max_rate is None or new.max_rate < old.max_rate):
        yield f"`{name}` is said to move more slowly"
    if new.physical is not None and not _inside(old.physical, new.physical):
        yield f"the physical limits of `{name}` became narrower"
    if new.min_on < old.min_on or new.min_off < old.min_off:
        yield f"a minimum time of `{name}` became shorter"
    if new.accept_quality - old.accept_quality:
        yield f"`{name}` accepts another quality"


def _declared(variable: Variable) -> tuple[object, ...]:
    labels = sorted(variable.labels.items()) if variable.labels is not None else None
    return variable.sort, variable.action, variable.unit, labels, variable.definition


def _premises_added(in_force: RuleSet, new: Module) -> Iterator[str]:
    """Assumptions an added module brings for tags that others judge without them (S3)."""
    if new.terminal and not in_force.terminal:
        yield "it has a terminal set, which no module in force has"
    for variable in new.variables.values():
        known = in_force.variables.get(variable.tag)
        if known is None or known.action:
            continue
        if variable.max_rate is not None and known.max_rate is None:
            yield f"it says how fast `{variable.name}` may move, which no module in force does"
        if variable.physical is not None and known.physical is None:
            yield f"it says where `{variable.name}` can be, which no module in force does"
        if variable.name in new.forms and str(variable.tag) not in in_force.forms:
            yield f"it has dynamics for `{variable.name}`, for which no module in force has any"


def _inside(inner: Interval | None, outer: Interval | None) -> bool:
    """Whether one interval lies in another; None is unbounded."""
    if outer is None:
        return True
    if inner is None:
        return False
    low, high = inner
    return bool(outer[0] <= low and high <= outer[1])


def _policy(step: BackupStep) -> tuple[str, list[tuple[str, str]]]:
    return str(step.formula), sorted((name, str(move)) for name, move in step.entry.moves.items())
