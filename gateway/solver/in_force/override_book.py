"""The one owner of overrides: who asked, what was confirmed, when each is over, and what its end is told as.

What is in force is `Sets.overrides`; this book says what should be, and `overriding` brings
the one to the other.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from gateway.core.clock import Clock
from gateway.core.errors import StorageError
from gateway.core.override import Override, utc_text
from gateway.solver.in_force.module_status import Sets
from gateway.solver.rules.setting_aside import why_not

log = structlog.get_logger().bind(component="overrides")

SHORTEST_S = 10.0
LEAD_S = 2.0  # so long before its end the rules without it are made ready, so that none is left over at it
RELEASED_S = 1.0  # after which nothing is let out under what was released, come what may
_LOOK_S = 1.0  # between two looks at the wall clock while there is anything
_REASON_CHARACTERS = 200
_GONE = "its module changed or is no longer in force"
Record = Callable[[str, str, Mapping[str, str]], Awaitable[None]]  # kind, account, facts; StorageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that another account must confirm; it lapses at `ends_at`, monotonic seconds."""

    module: str
    constraint: str
    reason: str
    requested_by: str
    asked_ns: int
    until_ns: int
    ends_at: float
    digest: str  # of the module it was asked of

    @property
    def name(self) -> str:
        """`MODULE/CONSTRAINT`."""
        return f"{self.module}/{self.constraint}"

    def confirmed(self, by: str, now_ns: int) -> Override:
        """The override it becomes."""
        return Override(
            module=self.module,
            constraint=self.constraint,
            reason=self.reason,
            requested_by=self.requested_by,
            confirmed_by=by,
            since_ns=now_ns,
            until_ns=self.until_ns,
        )


@dataclass(slots=True)
class OverrideBook:
    """Kept in memory alone: a restart ends everything in it (S25)."""

    record: Record
    clock: Clock
    asked: dict[str, Asked] = field(default_factory=dict)  # by name
    wanted: dict[str, Override] = field(default_factory=dict)  # by name: confirmed and not over
    ends: dict[Override, float] = field(default_factory=dict)  # monotonic seconds
    _endings: dict[str, tuple[str, str]] = field(default_factory=dict)  # by name: whose, and why it ends
    _owed: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)  # ends not yet on record

    def overdue(self, overrides: Iterable[Override]) -> str:
        """Which of a rule set's overrides is over by either clock, in words; empty while all last (S17)."""
        now, utc_ns = self.clock.monotonic(), self.clock.utc_ns()
        for override in overrides:
            if now >= self.ends.get(override, -math.inf) or utc_ns >= override.until_ns:
                return (
                    f"the override of `{override.name}` ended, and the rules without it are not in force yet"
                )
        return ""

    def lasting(self) -> dict[str, Override]:
        """What should be in force now; over is what either clock says is over: a machine may have slept."""
        now, utc_ns = self.clock.monotonic(), self.clock.utc_ns()
        for name, override in list(self.wanted.items()):
            if now >= self.ends[override] - LEAD_S or utc_ns >= override.until_ns:
                self._endings.setdefault(name, ("gateway", "its time was over"))
        return {name: o for name, o in self.wanted.items() if name not in self._endings}

    def want(self, override: Override, ends_at: float) -> None:
        """It should be in force, until `ends_at` monotonic at the latest."""
        self.ends[override] = ends_at
        self.wanted[override.name] = override

    def release(self, override: Override, who: str) -> None:
        """It should be in force no more; at once for everything that is decided after a second."""
        self._endings[override.name] = (who, f"released by {who}")
        self.ends[override] = min(self.ends[override], self.clock.monotonic() + RELEASED_S)

    def next_due(self) -> float:
        """Monotonic seconds at which to look at this book again; infinity: nothing in it can be over."""
        times = [self.ends[o] - LEAD_S for o in self.wanted.values()]
        times += [asked.ends_at for asked in self.asked.values()]
        return min([*times, self.clock.monotonic() + _LOOK_S]) if times else math.inf

    async def lapse(self) -> None:
        """Forget requests that nobody confirmed in their time, and tell the log what it is owed."""
        now = self.clock.monotonic()
        for name in [n for n, asked in self.asked.items() if now >= asked.ends_at]:
            await self.withdraw(name, "gateway", "nobody confirmed it in its time")
        await self.pay()

    async def withdraw(self, name: str, who: str, because: str) -> None:
        """A request is none any more."""
        asked = self.asked.pop(name)
        await self.tell("override_request_ended", who, facts_of(asked) | {"because": because})

    async def failed(self, name: str, because: str) -> None:
        """What was confirmed could not be put in force."""
        override = self.wanted.pop(name)
        self.ends.pop(override, None)
        self._endings.pop(name, None)
        await self.tell("override_ended", "gateway", facts_of(override) | {"because": because})

    async def switched(self, before: Sets, now: Sets) -> None:
        """Other modules or overrides are in force: what ended with that is told, and is wanted no more."""
        for name, override in before.overrides.items():
            if now.overrides.get(name) != override:
                who, because = self._endings.pop(name, ("gateway", _GONE))
                self.wanted.pop(name, None)
                self.ends.pop(override, None)
                await self.tell("override_ended", who, facts_of(override) | {"because": because})
        for asked in list(self.asked.values()):
            held = now.active.get(asked.module)
            if held is None or held.module.digest != asked.digest:
                await self.withdraw(asked.name, "gateway", _GONE)

    async def restarted(self, overrides: Iterable[Override]) -> None:
        """What was in force before a stop is over; raises `StorageError`, and then nothing may start."""
        for override in overrides:
            facts = facts_of(override) | {"because": "the gateway was started again"}
            await self.record("override_ended", "gateway", facts)
            log.warning("override_ended", **facts)

    async def tell(self, kind: str, who: str, facts: dict[str, str]) -> None:
        """An end, on record as soon as the log takes it: what ends does not wait for that."""
        log.warning(kind, by=who, **facts)
        self._owed.append((kind, who, facts))
        await self.pay()

    async def pay(self) -> None:
        """Ends that the log could not take yet."""
        while self._owed:
            entry, kept = self._owed.pop(0), False  # out of reach of whoever pays meanwhile
            try:
                await self.record(*entry)
                kept = True
            except StorageError as exc:
                log.error("override_end_not_on_record_yet", reason=str(exc))  # noqa: TRY400  handled
                return
            finally:
                if not kept:
                    self._owed.insert(0, entry)

    @property
    def owes(self) -> bool:
        """Whether an end waits for the log."""
        return bool(self._owed)


def facts_of(of: Asked | Override) -> dict[str, str]:
    """What the audit log is told of a request or an override."""
    facts = {"constraint": of.name, "reason": of.reason, "requested_by": of.requested_by}
    if isinstance(of, Override):
        facts["confirmed_by"] = of.confirmed_by
    return facts | {"until": utc_text(of.until_ns)}


def refused_request(  # noqa: PLR0911  one return for each thing that is wrong with one
    sets: Sets, name: str, reason: str, for_s: float, longest_s: float
) -> str:
    """Why nobody may ask for this override, in a sentence; empty when one may."""
    if longest_s < SHORTEST_S:
        return "this gateway allows no overrides: `[modules] override_longest` is shorter than 10 s"
    module, slash, constraint = name.partition("/")
    if not slash:
        return f"`{name}` is not a constraint's name; write MODULE/CONSTRAINT, as verdicts do"
    held = sets.active.get(module)
    if held is None:
        known = ", ".join(f"`{known}`" for known in sorted(sets.active)) or "none"
        return f"no module `{module}` is in force; in force: {known}"
    if why := why_not(held.module, constraint):
        return why
    if not reason or len(reason) > _REASON_CHARACTERS or not reason.isprintable():
        return f"an override needs a reason on one line, of at most {_REASON_CHARACTERS} characters"
    if not SHORTEST_S <= for_s <= longest_s:
        return (
            f"an override lasts from {SHORTEST_S:g} s to {longest_s:g} s here, not {for_s:g} s "
            "(`[modules] override_longest`)"
        )
    return ""
