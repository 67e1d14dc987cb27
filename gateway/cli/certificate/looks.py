"""What was looked at in a certificate file, and what each look showed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_SOLVER = "solver "


@dataclass(frozen=True, slots=True)
class Look:
    """One thing looked at. `good` None: it was not asked for or could not be."""

    name: str
    good: bool | None
    said: str
    needs_solver: bool = False  # it leaves something open that only a solver can answer


@dataclass(slots=True)
class Verification:
    """All looks at one file, in order."""

    decision: str = ""
    words: str = ""
    looks: list[Look] = field(default_factory=list)

    @property
    def wrong(self) -> bool:
        """Whether a look found anything wrong, or there was none."""
        return not self.looks or any(look.good is False for look in self.looks)

    @property
    def open(self) -> bool:
        """Whether something was left to a solver and none answered."""
        solved = any(look.good and look.name.startswith(_SOLVER) for look in self.looks)
        return not solved and any(look.needs_solver for look in self.looks)

    @property
    def good(self) -> bool:
        """Nothing is wrong, and where another judge leaves something open, a solver answered."""
        return not self.wrong and not self.open

    def add(self, name: str, problem: str, said: str, *, needs_solver: bool = False) -> None:
        """Note a look: `problem` where there is one, else what it showed."""
        self.looks.append(Look(name, not problem, problem or said, needs_solver))

    def solver(self, name: str, problem: str, said: str) -> None:
        """Note what a solver said."""
        self.add(f"{_SOLVER}{name}", problem, said)

    def pass_over(self, name: str, said: str, *, needs_solver: bool = False) -> None:
        """Note what was not looked at, and why."""
        self.looks.append(Look(name, None, said, needs_solver))

    def plain(self) -> dict[str, Any]:
        """For programs."""
        return {
            "decision": self.decision,
            "good": self.good,
            "words": self.words,
            "looks": [{"name": look.name, "good": look.good, "said": look.said} for look in self.looks],
        }

    def sentences(self) -> list[str]:
        """The report for people."""
        marks = {True: "ok     ", False: "WRONG  ", None: "-      "}
        lines = [f"{marks[look.good]}{look.name}: {look.said}" for look in self.looks]
        if self.wrong:
            name = self.decision or "DECISION"
            lines.append("this certificate does NOT hold; believe nothing it says")
            advice = (
                f"`o3ctl certificate export {name}` makes it anew from the gateway's audit log and evidence: "
            )
            return [*lines, advice + "if that one holds, this file was changed"]
        if self.open:
            lines.append("nothing is wrong with this certificate, but not everything in it is shown")
            return [*lines, "a solver must answer: install one, or give it more time with `--within`"]
        return [*lines, f"decision {self.decision}: {self.words}"]
