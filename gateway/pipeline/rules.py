"""What the pipeline knows of the rule set in force: one reference, read once per decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gateway.core.override import Override
from gateway.core.quality import StatusCode
from gateway.core.tag import TagId


@dataclass(frozen=True, slots=True)
class RulesInForce:
    """Generation, digest and what must be known before writing. An empty set permits nothing (S24)."""

    generation: int = 0
    digest: str = ""
    modules: frozenset[str] = frozenset()
    not_armable: str = "no rule set is in force"  # why no point may be armed under it; empty when it may
    disproved: str = ""  # why none may even stay armed; empty while a proof is still under way
    tolerated: frozenset[TagId] = frozenset()  # inputs that may be bad, missing or old: the rules decide
    accepted: Mapping[TagId, frozenset[str]] = field(default_factory=dict)  # qualities usable besides Good
    overrides: tuple[Override, ...] = ()  # in force with it, each for its time only (S25)
    standing: Mapping[str, str] = field(default_factory=dict)  # what a carried state set stands on (S2)
    backup_moves_each_s: float | None = None  # so often, as is proved of it; None: it need not move again

    def carries_on(self, standing: Mapping[str, str]) -> bool:
        """Whether a state set that stands on that is a premise under this set too: nothing of it changed."""
        mine = self.standing
        return standing is mine or all(mine.get(name, said) == said for name, said in standing.items())

    def too_seldom(self, period_s: float | None) -> str:
        """Why a point that decides so often cannot do what is proved of the backup (S1); empty when it can.

        One that is only asked has no period: between requests the PLC falls back by itself.
        """
        step_s = self.backup_moves_each_s
        if step_s is None or period_s is None or period_s <= step_s:
            return ""
        return (
            f"the backup of the modules in force is proved for a move in each step of {step_s:g} s, and the "
            f"point decides every {period_s:g} s: give the modules a `step` no shorter than the `period`"
        )

    def usable(self, tag: TagId, status: StatusCode) -> bool:
        """Whether a reading of that quality may stand behind a write: plain Good, or accepted (S15)."""
        return status.is_plain_good or status.name in self.accepted.get(tag, frozenset())

    def unusable_for(self, required: tuple[str, ...]) -> str:
        """Why nothing can be decided under this set; empty when it can."""
        if not self.modules:
            return "no constraint module is in force, and an empty rule set permits nothing"
        missing = [m for m in required if m not in self.modules]
        return f"required module `{missing[0]}` is not in force" if missing else ""


Overdue = Callable[[RulesInForce], str]  # which override of a set is over by now, in words; empty: none


def nothing_overdue(_rules: RulesInForce) -> str:
    """For a gateway without overrides."""
    return ""


class RulesHolder:
    """The one place where the rule set in force is swapped."""

    def __init__(self) -> None:
        self.current = RulesInForce()

    def activate(self, rules: RulesInForce) -> None:
        """One reference assignment: no decision sees a mixture."""
        self.current = rules
