"""What people do with overrides: ask, confirm, release. Put in force, and ended, by one task (S25)."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import Generic, Literal, NoReturn, TypeVar

import structlog

from gateway.core.errors import GatewayError
from gateway.core.override import Override, utc_text
from gateway.solver.in_force.acts import ActRefusedError
from gateway.solver.in_force.override_book import LEAD_S, Asked, OverrideBook, facts_of, refused_request
from gateway.solver.in_force.registry import Registry

log = structlog.get_logger().bind(component="overrides")

R = TypeVar("R")  # a rule set
_AGAIN_S = 1.0  # before another try where the rules could not be put in force
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideStatus:
    """One override for people: asked for, or in force."""

    id: str  # MODULE/CONSTRAINT
    state: Literal["requested", "active"]
    reason: str
    requested_by: str
    confirmed_by: str
    since_ns: int
    until_ns: int


@dataclass(slots=True)
class Overriding(Generic[R]):
    """People's verbs over the overrides of one registry. Each raises `GatewayError` with a sentence."""

    registry: Registry[R]
    longest_s: float
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _settled: list[asyncio.Future[None]] = field(default_factory=list)  # who waits for the next settling

    @property
    def book(self) -> OverrideBook:
        """The owner of what is overridden."""
        return self.registry.overrides

    def statuses(self) -> tuple[OverrideStatus, ...]:
        """What is asked for and what is in force, by name."""
        found = [_asked(asked) for asked in self.book.asked.values()]
        found += [_active(override) for override in self.registry.sets.overrides.values()]
        return tuple(sorted(found, key=lambda status: (status.id, status.state)))

    async def request(self, name: str, reason: str, for_s: float, who: str) -> None:
        """Ask that a constraint be overridden for so long from now; another account must confirm it."""
        book, clock = self.book, self.registry.clock
        if why := refused_request(self.registry.sets, name, reason, for_s, self.longest_s):
            raise ActRefusedError(why)
        if (asked := book.asked.get(name)) is not None:
            raise ActRefusedError(
                f"`{asked.requested_by}` asked for `{name}` already; confirm it, or release it first"
            )
        if name in book.wanted or name in self.registry.sets.overrides:
            raise ActRefusedError(f"`{name}` is overridden already; release it first to ask for another time")
        module, _, constraint = name.partition("/")
        fresh = Asked(
            module=module,
            constraint=constraint,
            reason=reason,
            requested_by=who,
            asked_ns=clock.utc_ns(),
            until_ns=clock.utc_ns() + int(for_s * _NS_PER_S),
            ends_at=clock.monotonic() + for_s,
            digest=self.registry.sets.active[module].module.digest,
        )
        book.asked[name] = fresh  # before the log is waited for, so that nobody asks twice meanwhile
        try:
            await book.record("override_requested", who, facts_of(fresh))
        except GatewayError:
            book.asked.pop(name, None)
            raise
        self._tell()

    async def confirm(self, name: str, who: str) -> Override:
        """Put a request in force; never by the account that made it. Comes back when it is in force."""
        book, clock = self.book, self.registry.clock
        asked = book.asked.get(name)
        if asked is None:
            waiting = ", ".join(f"`{n}`" for n in sorted(book.asked)) or "none"
            raise ActRefusedError(f"no override of `{name}` waits to be confirmed; waiting: {waiting}")
        if who == asked.requested_by:
            raise ActRefusedError(
                f"`{who}` asked for this override: another account with the role engineer confirms it"
            )
        if clock.monotonic() >= asked.ends_at - LEAD_S:
            raise ActRefusedError(f"the override of `{name}` was asked for until {utc_text(asked.until_ns)}")
        override = asked.confirmed(who, clock.utc_ns())
        await book.record("override_confirmed", who, facts_of(override))
        if book.asked.get(name) is not asked:  # withdrawn, or its module changed, while the log was written
            await book.tell(
                "override_ended", "gateway", facts_of(override) | {"because": "its request was withdrawn"}
            )
            raise ActRefusedError(f"the request to override `{name}` was withdrawn meanwhile")
        del book.asked[name]
        book.want(override, asked.ends_at)
        await self._settling()
        if self.registry.sets.overrides.get(name) != override:
            raise ActRefusedError(
                f"the override of `{name}` could not be put in force or ended at once; the audit log says why"
            )
        return override

    async def release(self, name: str, who: str, *, engineer: bool) -> None:
        """End an override, or take a request back: for either of its two persons and any engineer."""
        book = self.book
        asked, override = book.asked.get(name), book.wanted.get(name)
        if asked is None and override is None:
            known = ", ".join(f"`{n}`" for n in sorted({*book.asked, *book.wanted})) or "none"
            raise ActRefusedError(f"`{name}` is not overridden; overridden or asked for: {known}")
        persons = {of.requested_by for of in (asked, override) if of is not None}
        persons |= {override.confirmed_by} if override is not None else set()
        if who not in persons and not engineer:
            whose = ", ".join(f"`{person}`" for person in sorted(persons))
            raise ActRefusedError(f"`{name}` is released by {whose} or an account with the role engineer")
        if asked is not None:
            await book.withdraw(name, who, f"taken back by {who}")
            self._tell()
        if override is None:
            return
        book.release(override, who)
        await self._settling()
        if override in self.registry.sets.overrides.values():
            raise ActRefusedError(
                f"`{name}` is released and nothing is let out under it any more, but the rules without it "
                "could not be put in force yet: the gateway goes on trying"
            )

    async def run(self) -> NoReturn:
        """Puts in force what was confirmed and ends what is over; never ends by itself."""
        while True:
            settled = await self.settle()
            left_s = self.book.next_due() - self.registry.clock.monotonic()
            if not settled or self.book.owes:
                left_s = min(max(left_s, 0.0), _AGAIN_S) if left_s > 0 else _AGAIN_S
            await self._woken(left_s)

    async def settle(self) -> bool:
        """Bring what is in force to what the book says; False where that could not be done yet."""
        waiting, self._settled = self._settled, []
        async with self.registry.lock:
            done = await self._brought()
        for future in waiting:
            if not future.done():  # its waiter may have left
                future.set_result(None)
        return done

    async def _brought(self) -> bool:
        book, registry = self.book, self.registry
        asked = len(book.asked)
        await book.lapse()
        lasting, before = book.lasting(), registry.sets.overrides
        for name in book.wanted.keys() - lasting.keys() - before.keys():
            await book.failed(name, "it ended before it was in force")
        if lasting == dict(before):
            if len(book.asked) != asked:
                registry.on_change()
            return True
        try:
            await registry.override(lasting)
        except GatewayError as exc:
            log.error(  # noqa: TRY400  handled
                "overrides_not_brought", wanted=sorted(lasting), in_force=sorted(before), reason=str(exc)
            )
            for name in lasting.keys() - before.keys():
                await book.failed(name, f"it could not be put in force: {exc}")
            return False
        registry.changed()
        return True

    async def _settling(self) -> None:
        """Have the task look at once, and wait until it has."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settled.append(future)
        self._wake.set()
        await future

    async def _woken(self, left_s: float) -> None:
        try:
            async with asyncio.timeout(None if math.isinf(left_s) else max(left_s, 0.0)):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    def _tell(self) -> None:
        """A request came or went: people see it, and its time is watched."""
        self._wake.set()
        self.registry.on_change()


def _asked(asked: Asked) -> OverrideStatus:
    return OverrideStatus(
        id=asked.name,
        state="requested",
        reason=asked.reason,
        requested_by=asked.requested_by,
        confirmed_by="",
        since_ns=asked.asked_ns,
        until_ns=asked.until_ns,
    )


def _active(override: Override) -> OverrideStatus:
    return OverrideStatus(
        id=override.name,
        state="active",
        reason=override.reason,
        requested_by=override.requested_by,
        confirmed_by=override.confirmed_by,
        since_ns=override.since_ns,
        until_ns=override.until_ns,
    )
