"""Every symbol of a plan as an interval in whole numbers, for one proposal: how each is found, told once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction

from gateway.core.tag import TagId
from gateway.solver.checking.condense import Plan
from gateway.solver.checking.course import Course
from gateway.solver.checking.motion import grown
from gateway.solver.checking.predict import Facts
from gateway.solver.checking.way import Ends
from gateway.solver.modules.module import Variable
from gateway.solver.rules.interval import SCALE, outward
from gateway.solver.rules.ruleset import RuleSet

_MOST_VALUES = 128  # of a whole number that are told apart

New = Mapping[TagId, Fraction]
_Finds = Callable[[Facts, New], Ends]


class Boxes:
    """The boxes of one plan."""

    def __init__(self, rules: RuleSet, plan: Plan) -> None:
        self._rules, self._plan = rules, plan
        self._course = Course(rules, plan)
        self._finds = {name: self._found(name) for name in plan.symbols if name[0] not in "bcu"}

    def box(self, facts: Facts, new: New, names: Iterable[str] | None = None) -> dict[str, Ends]:
        """All symbols, or those named, each as an interval that holds all its values."""
        wanted = self._plan.symbols if names is None else tuple(names)
        found = {name: find(facts, new) for name in wanted if (find := self._finds.get(name)) is not None}
        if len(found) < len(wanted):
            course = self._course.ends(facts.whole, facts.old, new)
            found.update((name, course[name]) for name in wanted if name not in found)
        return found

    def fixed(self) -> dict[str, Ends]:
        """Those that are the same in every box: what may always act."""
        named = ((name, name.partition(":")[2]) for name in self._finds if name[0] == "d")
        return {name: outward(*self._rules.disturbances[rest]) for name, rest in named}

    def _found(self, name: str) -> _Finds:  # noqa: C901, PLR0911, PLR0912  one return for each kind of symbol
        kind, _, rest = name.partition(":")
        tag = TagId(rest)
        match kind:
            case "x":
                return lambda facts, _: facts.whole[tag]
            case "new":
                return lambda _, new: outward(new[tag], new[tag])
            case "old":
                return lambda facts, _: _span(facts.old[tag])
            case "rate":
                return lambda facts, new: self._rates(facts, tag, new[tag])
            case "was":
                return lambda facts, _: outward(*facts.past.was[tag])
            case "for":
                return lambda facts, _: _truths(facts.past.holds[f"for({rest})"])
            case "good" | "age":
                return lambda facts, _: outward(*facts.quality[name.replace(":", "(", 1) + ")"])
            case "held":
                return lambda facts, _: outward(facts.held[tag], facts.held[tag])
            case "kept_on" | "may_rise":
                return lambda facts, _: _kept(self._rules.variables[tag], facts, kind)
        index = int(kind[1:])
        match kind[0]:
            case "e":
                return lambda facts, new: _span((*facts.old[tag], new[tag]))
            case "d":
                ends = outward(*self._rules.disturbances[rest])
                return lambda _facts, _new: ends
            case "m":
                # its mean over the segment: a value at the rate's limit is halfway at half time
                segment = self._plan.segments[index]
                counts = self._rules.variables[tag].sort != "real"  # it may count up at once, and stay there
                return self._grown(tag, segment.end if counts else (segment.start + segment.end) / 2)
            case _:
                return self._grown(tag, self._plan.instant(index))

    def _grown(self, tag: TagId, seconds: Fraction) -> _Finds:
        """`motion.grown`; a real one with a rate in whole numbers, whose start is one already."""
        variable = self._rules.variables[tag]
        if variable.max_rate is None or variable.sort != "real":
            return lambda facts, _: outward(*grown(variable, facts.now[tag], seconds))
        reach = outward(Fraction(0), variable.max_rate * seconds)[1]
        least, most = (None, None) if variable.physical is None else outward(*variable.physical)

        def find(facts: Facts, _: New) -> Ends:
            low, high = facts.whole[tag]
            low, high = low - reach, high + reach
            return low if least is None else max(low, least), high if most is None else min(high, most)

        return find

    def _rates(self, facts: Facts, tag: str, value: Fraction) -> Ends:
        """Slowest and fastest change per second against everything that was in force (S6).

        A value that ceased `ago` seconds ago may have been left at the limit since, plus one step's move.
        """
        step = self._rules.modules[0].step
        found: list[Ends] = []
        for old, ago in facts.history[tag]:
            within = max(step, ago + step) if ago else step
            change = (value.numerator * old.denominator - old.numerator * value.denominator) * SCALE
            change *= within.denominator
            divisor = value.denominator * old.denominator * within.numerator
            found.append((change // divisor, -(-change // divisor)))
        return min(low for low, _ in found), max(high for _, high in found)


def choices(
    rules: RuleSet, plan: Plan, facts: Facts, within: Mapping[str, Ends]
) -> dict[str, tuple[Fraction, ...]]:
    """Symbols that have one of a few exact values: values in force, and what counts in whole numbers."""
    found = {f"old:{tag}": values for tag, values in facts.old.items()}
    for name in plan.whole:
        low, high = within[name]
        if low == high:
            continue
        variable = rules.variables.get(TagId(name.partition(":")[2]))
        if variable is None or variable.sort == "int":  # not only of its range, which a prediction may leave
            values: Sequence[int] = range(-(-low // SCALE), high // SCALE + 1)
        else:
            values = [n for n in variable.whole or () if low <= n * SCALE <= high]
        if len(values) <= _MOST_VALUES:
            found[name] = tuple(map(Fraction, values))
    return found


def _span(values: tuple[Fraction, ...]) -> Ends:
    if len(values) == 1:
        return outward(values[0], values[0])
    ends = [outward(value, value) for value in values]  # whole numbers compare faster
    return min(low for low, _ in ends), max(high for _, high in ends)


def _truths(truths: tuple[bool, bool]) -> Ends:
    return truths[0] * SCALE, truths[1] * SCALE


def _kept(variable: Variable, facts: Facts, kind: str) -> Ends:
    held = facts.held[variable.tag]
    on = [value >= 1 for value in facts.old[variable.tag]]
    found = (any(on) and held < variable.min_on, all(on) or held >= variable.min_off)[kind == "may_rise"]
    return _truths((found, found))
