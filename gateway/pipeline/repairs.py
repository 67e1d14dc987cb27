"""What repairs did to a point's outputs lately: what they kept back, and whether they are too many (S12)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from fractions import Fraction

from gateway.core.decision import DecisionRecord, Mode, Permitted, Proposal, Refused, Repaired
from gateway.core.tag import TagId


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairLimit:
    """More repairs, or more reversals they cause, within the window: armed may not go on."""

    repairs: int
    reversals: int
    window_s: float


@dataclass(slots=True)
class _Move:
    up: bool
    corrected: bool


class Repairs:
    """Memory of one point. Only what an armed point lets out counts; a question changes nothing."""

    def __init__(self, limit: RepairLimit | None, release_after_s: float) -> None:
        self._limit, self._release_after_s = limit, release_after_s
        self._kept: dict[TagId, tuple[int, float]] = {}
        self._moves: dict[TagId, _Move] = {}
        self._repaired_at: deque[float] = deque()
        self._reversed_at: deque[float] = deque()
        self.held_back = self.reversals = 0  # since start
        self.too_many = ""  # why armed may not go on, for people; "" while it may

    def kept_back(self, now: float) -> dict[TagId, int]:
        """Outputs lately left above (1) or below (-1) what was proposed."""
        return {tag: side for tag, (side, at) in self._kept.items() if 0 <= now - at <= self._release_after_s}

    def forget(self) -> None:
        """A new beginning: a person has armed the point."""
        self._kept.clear()
        self._moves.clear()
        self._repaired_at.clear()
        self._reversed_at.clear()
        self.too_many = ""

    def took(self, record: DecisionRecord, previous: dict[TagId, Fraction] | None, now: float) -> None:
        """One decision on the plant's own inputs, with the values in force before it."""
        if record.mode is not Mode.ARMED or record.what_if or record.proposal is None:
            return
        asked = _asked(record, record.proposal)
        corrected = _corrected(record)
        self.held_back += isinstance(record.outcome, Permitted) and bool(record.outcome.kept_back)
        for value in record.written:
            difference = value.value - asked.get(value.tag, value.value)
            if corrected and difference:
                self._kept[value.tag] = (1 if difference > 0 else -1, now)
            if previous is not None and value.tag in previous:
                moved = corrected and bool(difference)
                self._moved(value.tag, value.value - previous[value.tag], now, corrected=moved)
        wish = record.proposal.by.startswith("request:")  # nobody takes the plant away by asking
        if isinstance(record.outcome, Repaired) and not wish:
            self._repaired_at.append(now)
        self._judge(now)

    def _moved(self, tag: TagId, by: Fraction, now: float, *, corrected: bool) -> None:
        if not by:
            return
        move = _Move(by > 0, corrected)
        last = self._moves.get(tag)
        self._moves[tag] = move
        if last is not None and last.up != move.up and (last.corrected or corrected):
            self.reversals += 1
            self._reversed_at.append(now)

    def _judge(self, now: float) -> None:
        if self._limit is None:
            return
        window = self._limit.window_s
        for times, most, what in (
            (self._repaired_at, self._limit.repairs, "repairs of proposals"),
            (self._reversed_at, self._limit.reversals, "reversals of outputs that repairs caused"),
        ):
            while times and now - times[0] > window:
                times.popleft()
            if len(times) > most:
                self.too_many = f"{len(times)} {what} within {window:g} s, and at most {most} are allowed"


def _asked(record: DecisionRecord, proposal: Proposal) -> dict[TagId, Fraction]:
    """What was wanted: where another of a model's list took the place of its first, that first one."""
    if record.shortlist is not None and _in_place_of_the_first(record):
        return {value.tag: value.value for value in record.shortlist.passed_over[0].values}
    return proposal.engineering()


def _in_place_of_the_first(record: DecisionRecord) -> bool:
    return record.shortlist is not None and record.shortlist.rank > 1


def _corrected(record: DecisionRecord) -> bool:
    """Whether something other than the proposal was let out because of it; unusable inputs are no reason."""
    match record.outcome:
        case Permitted(_, kept_back):
            return bool(kept_back) or _in_place_of_the_first(record)
        case Repaired() | Refused():
            return True
        case _:
            return False
