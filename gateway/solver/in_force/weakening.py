"""Whether a change of the modules in force could permit something new (S24).

A change counts as a tightening when nothing that was demanded is gone and no assumption became narrower.
That is judged by structure; whether a rule that was reworded still demands all that it did, a solver may
show. What is not shown counts as a weakening, and a person decides.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction

from gateway.solver.errors import ModuleRefusedError
from gateway.solver.in_force.changes import Reworded
from gateway.solver.language.affine import Atom, Every, Form, Formula, Quadratic, Some
from gateway.solver.modules.module import Interval, Module, Variable
from gateway.solver.rules.around import Around
from gateway.solver.rules.ruleset import BackupStep, Rule, RuleSet

_OF_VARIABLES = (".range", ".min_on", ".min_off")
_RANK = {"informational": 0, "standard": 1, "critical": 2}


Unkept = Callable[[Module, Module, Around], str]  # old, new: why not all is demanded that was; empty: it is


def weakens(
    in_force: RuleSet | None, old: Module | None, new: Module | None, unkept: Unkept | None = None
) -> str:
    """Why replacing `old` by `new` may weaken the rules; empty when it only tightens them.

    `old` None: nothing of that id is in force; `new` None: it is taken out. `in_force`: all, before it.
    `unkept` is asked where rules were reworded and nothing else may weaken; without it that is what is told,
    as `Reworded`.
    """
    if old is None and new is None:
        return ""
    if new is None:
        return "it would be taken out"
    if old is None:
        return next(_premises_added(in_force, new), "") if in_force is not None else ""
    before, after = RuleSet.of([old], 0), RuleSet.of([new], 0)
    why = next(_lost(before, after), "") or next(_premises_added(in_force or before, new, old), "")
    why = why or next(_roams_less(in_force or before, old, new), "")
    if why or not (reworded := next(_reworded(before, after), "")):
        return why
    return Reworded(reworded) if unkept is None else unkept(old, new, Around.of(in_force or before, old, new))


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
    """Everything in which the new revision of one module may be weaker."""
    return itertools.chain(_lost(old, new), _reworded(old, new))


def _reworded(old: RuleSet, new: RuleSet) -> Iterator[str]:
    """Rules that are still there and do not demand by their shape alone what they did."""
    for rule, named in _paired(old, new):
        if rule.binding and named is not None and not implies(named.formula, rule.formula):
            yield f"constraint `{rule.constraint.id}` changed or is gone"
    if any(not any(implies(r.formula, s.formula) for r in new.safe_set) for s in old.safe_set):
        yield "its safe set changed"


def _paired(old: RuleSet, new: RuleSet) -> Iterator[tuple[Rule, Rule | None]]:
    """Rules with the new ones of their names, but those of variables, which are compared themselves."""
    for rule in old.rules:
        if not rule.constraint.id.endswith(_OF_VARIABLES):
            yield rule, next((r for r in new.rules if r.constraint.id == rule.constraint.id), None)


def _lost(old: RuleSet, new: RuleSet) -> Iterator[str]:
    """What the new revision of one module demands no more, or assumes more."""
    if old.modules[0].step != new.modules[0].step:
        yield "its step changed"
    for rule, named in _paired(old, new):
        yield from _demanded_less(rule, named)
    for tag, variable in old.variables.items():
        later = new.variables.get(tag)
        if later is None:
            yield f"it no longer looks at `{tag}`"
        else:
            yield from _assumed_more(variable, later)
    yield from _moves_otherwise(old, new)
    yield from _shown_less(old, new)
    if old.backup and [_policy(s) for s in old.backup] != [_policy(s) for s in new.backup]:
        yield "its backup changed"
    if new.repairable - old.repairable:
        yield f"a repair may now change `{min(new.repairable - old.repairable)}`"


def _shown_less(old: RuleSet, new: RuleSet) -> Iterator[str]:
    """Over how long, with which inputs, and on what past."""
    if new.horizon < old.horizon:
        yield "its horizon became shorter"
    if old.terminal and new.horizon > old.horizon:
        yield "its horizon became longer, so the backup has more time to reach the terminal set"
    if sorted(str(r.formula) for r in old.terminal) != sorted(str(r.formula) for r in new.terminal):
        yield "its terminal set changed"
    for tag in sorted(new.tolerated - old.tolerated):
        yield f"it would tolerate that `{tag}` is bad, missing or old"
    for name in sorted(old.remembered - new.remembered):
        yield f"it no longer needs to know what `{name}` was one step ago"
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
    if old.max_rate is not None and new.max_rate is None:
        yield f"it no longer says how fast `{name}` may move: an old reading would count as a new one"
    if new.physical is not None and not _inside(old.physical, new.physical):
        yield f"the physical limits of `{name}` became narrower"
    if new.min_on < old.min_on or new.min_off < old.min_off:
        yield f"a minimum time of `{name}` became shorter"
    if new.accept_quality - old.accept_quality:
        yield f"`{name}` accepts another quality"


def _roams_less(in_force: RuleSet, old: Module, new: Module) -> Iterator[str]:
    """Where nothing else says how far a variable may move its range does, and a narrower one assumes more."""
    narrower = [n for n, v in new.variables.items() if n in old.variables and _narrower(old.variables[n], v)]
    if not narrower:
        return
    others = [module for module in in_force.modules if module.id != old.id]
    try:
        before, after = RuleSet.of([*others, old], 0), RuleSet.of([*others, new], 0)
    except ModuleRefusedError:  # it will be refused: what the others say of it does not matter any more
        before, after = RuleSet.of([old], 0), RuleSet.of([new], 0)
    for name in narrower:
        tag = new.variables[name].tag
        later = after.variables[tag]
        if not _narrower(before.variables[tag], later):
            continue
        if str(tag) not in after.forms and later.max_rate is None:
            yield f"the range of `{name}` became narrower: without `max_rate` it is how far that may move"
        elif tag in after.tolerated or later.hidden:
            yield f"the range of `{name}` became narrower: without a reading it is where that may be"


def _narrower(old: Variable, new: Variable) -> bool:
    """Whether a measured variable may now be in fewer places while nobody knows."""
    return not new.action and not _inside(_within(old.roams, old.physical), new.roams)


def _within(one: Interval, other: Interval | None) -> Interval:
    """What both hold; `one` where they have nothing in common."""
    if other is None:
        return one
    low, high = max(one[0], other[0]), min(one[1], other[1])
    return (low, high) if low <= high else one


def _declared(variable: Variable) -> tuple[object, ...]:
    labels = sorted(variable.labels.items()) if variable.labels is not None else None
    return variable.sort, variable.action, variable.unit, labels, variable.definition


def _premises_added(in_force: RuleSet, new: Module, old: Module | None = None) -> Iterator[str]:
    """Assumptions a module brings for tags that others judge without them (S3).

    Those it knew in its `old` revision are compared with that one.
    """
    told = frozenset(old.tags.values()) if old is not None else frozenset()
    if new.terminal and not in_force.terminal:
        yield "it has a terminal set, which no module in force has"
    if in_force.terminal and new.horizon > in_force.horizon:
        yield "its horizon is longer, so the backup has more time to reach the terminal set in force"
    for variable in new.variables.values():
        known = in_force.variables.get(variable.tag)
        if known is None or known.action or variable.tag in told:
            continue
        if variable.max_rate is not None and known.max_rate is None:
            yield f"it says how fast `{variable.name}` may move, which no module in force does"
        if variable.max_rate is None and known.max_rate is not None:
            yield (
                f"it does not say how fast `{variable.name}` may move, which those in force do: "
                "an old reading would count as a new one"
            )
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
