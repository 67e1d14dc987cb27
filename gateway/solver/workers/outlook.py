"""What may be decoded next, worked out for one state and one order of outputs (see `permitted_next`).

What this rests on takes a worker some twenty megabytes, which one that guides nobody never needs: only who is
asked imports it.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.guidance import Guidance, GuidanceCase, GuidanceLevel, Refusal
from gateway.core.tag import TagId
from gateway.solver.checking.judge import Prepared
from gateway.solver.checking.predict import Facts
from gateway.solver.decoding.folding import Folding
from gateway.solver.decoding.permitted_next import AtMost, Exactly, NotKnown, PermittedNext
from gateway.solver.decoding.projection import Projection, projected
from gateway.solver.decoding.settled import registers
from gateway.solver.decoding.states import few_values, pinned
from gateway.solver.language.affine import symbols
from gateway.solver.rules.ruleset import RuleSet

_MOST_LINES = 2_000  # of guidance: some 2 ms of an engine's time


class Outlook:
    """All answers for one state and one order of outputs."""

    def __init__(self, order: tuple[TagId, ...], projection: Projection, why: str) -> None:
        """`why` the projection's conditions say less than the rules; empty where they say the same."""
        self.order = order
        self._projection, self._why = projection, why

    def guidance(self, refused: tuple[tuple[int | None, ...], ...] = ()) -> Guidance:
        """All answers as plain data, for whoever decodes elsewhere."""
        levels = tuple(
            GuidanceLevel(
                level.allowed,
                tuple(
                    GuidanceCase(tuple(case.box), tuple((each.terms, each.limit) for each in case.lines))
                    for case in level.cases
                ),
                self._why or level.why,
            )
            for level in self._projection.levels
        )
        return Guidance(order=self.order, levels=levels, refused=refused)

    def after(self, fixed: Sequence[int]) -> PermittedNext:
        """The counts of the output after those that are fixed, in order; some output must be left."""
        if len(fixed) >= len(self.order):
            msg = f"{len(fixed)} of {len(self.order)} outputs are fixed, and none is left to ask about"
            raise ValueError(msg)
        counts = self._projection.values(fixed)
        if not counts:
            return Exactly(())
        because = self._why or self._projection.levels[len(fixed)].why
        return AtMost(counts, because) if because else Exactly(counts)


class Outlooks:
    """Outlooks over one plan."""

    def __init__(self, rules: RuleSet, prepared: Prepared) -> None:
        self._rules, self._prepared = rules, prepared
        self._foldings: dict[tuple[TagId, ...], Folding] = {}

    def of(
        self, facts: Facts, order: Sequence[TagId], refusals: Sequence[Refusal] = ()
    ) -> Outlook | NotKnown:
        """The outlook on one state. `ValueError` where `order` is not every output of the rule set once.

        What a counterexample assigns is one of the states there may be: what the rules demand in it is
        demanded, also of rules that are asked at some states only.
        """
        key = tuple(order)
        if sorted(key) != sorted(v.tag for v in self._rules.actions):
            msg = f"the order {list(key)} does not name every output of the rule set once"
            raise ValueError(msg)
        if facts.past.missing:
            return NotKnown(facts.past.missing)
        if key not in self._foldings:
            self._foldings[key] = Folding(self._rules, self._prepared.plan, key)
        folding = self._foldings[key]
        common = self._prepared.known(facts)
        several = few_values(self._rules, self._prepared.plan, facts, common)
        if not all(several.values()) or any(low > high for low, high in common.values()):
            return NotKnown("broken assumption: the premises cannot be met")
        conditions, why = folding.conditions(folding.state(facts, common, several))
        for refusal in refusals:
            there, few = pinned(refusal.witness, common, several)
            conditions += folding.conditions(folding.state(facts, there, few))[0]
        domains = [registers(self._rules.variables[tag]) for tag in key]
        return Outlook(key, projected(conditions, domains), why)


class Guide:
    """Outlooks of one rule set; that of the state asked about last is kept."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules
        self._outlooks: tuple[Prepared, Outlooks] | None = None
        self._last: tuple[Facts, tuple[TagId, ...], Outlook | NotKnown] | None = None

    def outlook(self, prepared: Prepared, facts: Facts, order: Sequence[TagId]) -> Outlook | NotKnown:
        """The outlook on one state; `ValueError` where `order` is not every output of the rule set once."""
        key = tuple(order)
        if self._last is None or self._last[0] is not facts or self._last[1] != key:
            self._last = facts, key, self._over(prepared).of(facts, key)
        return self._last[2]

    def guidance(
        self, prepared: Prepared, facts: Facts, order: Sequence[TagId], refusals: Sequence[Refusal]
    ) -> Guidance | NotKnown:
        """All answers for one state as plain data, without what earlier checks have refused.

        `ValueError` as for `outlook`.
        """
        if refusals:
            found = self._over(prepared).of(facts, order, refusals)
        else:
            found = self.outlook(prepared, facts, order)
        if isinstance(found, NotKnown):
            return found
        made = found.guidance(tuple(_alike(refusal, prepared, tuple(order)) for refusal in refusals))
        if (lines := sum(len(case.lines) for level in made.levels for case in level.cases)) > _MOST_LINES:
            return NotKnown(f"{lines} conditions are too many to decode along")
        return made

    def _over(self, prepared: Prepared) -> Outlooks:
        if self._outlooks is None or self._outlooks[0] is not prepared:
            self._outlooks = prepared, Outlooks(self._rules, prepared)
        return self._outlooks[1]


def _alike(refusal: Refusal, prepared: Prepared, order: tuple[TagId, ...]) -> tuple[int | None, ...]:
    """The refused counts of the outputs that the violated constraint is about; of all, where nobody knows."""
    about: set[str] = set()
    for duty in prepared.plan.duties:
        rule = prepared.plan.rules[duty.rule]
        if (rule.module, rule.constraint.id) == (refusal.module, refusal.constraint):
            about |= symbols(duty.formula) & prepared.changing
    tags = {name.partition(":")[2] for name in about}
    if not tags or not tags <= set(order):
        return refusal.block
    return tuple(count if tag in tags else None for tag, count in zip(order, refusal.block, strict=True))
