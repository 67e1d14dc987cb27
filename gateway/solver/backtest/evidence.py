"""Recorded decisions as columns: what a back-test reads of each, one row a decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Listed:
    """What an action had: for each decision its values with the seconds since each ceased (0: in force).

    The lists of all decisions lie behind each other; `row` says whose each entry is, in rising order.
    """

    values: Floats
    ago: Floats
    row: Ints
    count: int  # decisions

    def least(self, entries: Floats, empty: float = np.inf) -> Floats:
        """The least entry of each decision."""
        found = np.full(self.count, empty)
        starts = np.flatnonzero(np.diff(self.row, prepend=-1))
        if len(starts):
            found[self.row[starts]] = np.minimum.reduceat(entries, starts)
        return found

    def greatest(self, entries: Floats) -> Floats:
        """The greatest entry of each decision."""
        return -self.least(-entries)

    def ends(self, rows: Bools) -> tuple[Floats, Floats]:
        """Least and greatest value among some of the entries; infinite where there are none."""
        return (
            self.least(np.where(rows, self.values, np.inf)),
            self.greatest(np.where(rows, self.values, -np.inf)),
        )

    def part(self, rows: Ints) -> Listed:
        """The lists of some decisions, in rising order."""
        number = np.full(self.count, -1)
        number[rows] = np.arange(len(rows))
        low, high = np.searchsorted(self.row, [rows[0], rows[-1] + 1]) if len(rows) else (0, 0)
        renumbered = number[self.row[low:high]]
        kept = renumbered >= 0
        return Listed(self.values[low:high][kept], self.ago[low:high][kept], renumbered[kept], len(rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """`n` decisions; NaN stands for what a record does not hold. Mappings are by tag id.

    `carried`: least and greatest value of the state set carried into the check, taken at `carried_at`.
    `proposed`: the register values to be judged, in engineering units.
    """

    taken_at: Floats  # monotonic s
    hold_s: Floats
    effect_delay_s: Floats
    value: Mapping[str, Floats]
    status: Mapping[str, Ints]
    confirmed_at: Mapping[str, Floats]  # -inf where the source never confirmed it
    in_force: Mapping[str, Listed]
    held_s: Mapping[str, Floats]
    carried_at: Floats
    carried: Mapping[str, tuple[Floats, Floats]]
    proposed: Mapping[str, Floats]

    def __len__(self) -> int:
        """How many decisions."""
        return len(self.taken_at)

    def part(self, rows: Ints) -> Evidence:
        """Some of the decisions, in rising order."""
        return Evidence(
            taken_at=self.taken_at[rows],
            hold_s=self.hold_s[rows],
            effect_delay_s=self.effect_delay_s[rows],
            value={tag: column[rows] for tag, column in self.value.items()},
            status={tag: column[rows] for tag, column in self.status.items()},
            confirmed_at={tag: column[rows] for tag, column in self.confirmed_at.items()},
            in_force={tag: listed.part(rows) for tag, listed in self.in_force.items()},
            held_s={tag: column[rows] for tag, column in self.held_s.items()},
            carried_at=self.carried_at[rows],
            carried={tag: (low[rows], high[rows]) for tag, (low, high) in self.carried.items()},
            proposed={tag: column[rows] for tag, column in self.proposed.items()},
        )
