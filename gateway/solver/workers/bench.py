"""The idle seats of a pool, and whoever waits for one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from gateway.core.errors import WorkerLostError
from gateway.core.ports import CheckRequest
from gateway.solver.checking.predict import same_premises
from gateway.solver.workers.seat import Seat


class Bench:
    """Seats nobody uses now. On one loop; once it is closed nobody gets a seat any more."""

    # INVARIANT: a seat is on the bench, or one task has it.

    def __init__(self) -> None:
        self._idle: list[Seat] = []
        self._watching: list[asyncio.Future[None]] = []
        self._closed = False

    def __contains__(self, seat: Seat) -> bool:
        return seat in self._idle

    def __len__(self) -> int:
        return len(self._idle)

    def put(self, seat: Seat) -> None:
        """A seat that anybody may have now."""
        if not self._closed:
            self._idle.append(seat)
            self._wake()

    def dead(self) -> list[Seat]:
        """Seats whose worker died while nobody used it; they are off the bench."""
        found = [seat for seat in self._idle if not seat.worker.alive]
        self._idle = [seat for seat in self._idle if seat not in found]
        return found

    def take(self, request: CheckRequest) -> Seat | None:
        """An idle seat whose worker has the generation; None where there is none.

        The one that was told the premises, else one that nobody had prepared; the one that worked last first,
        because its caches are warm.
        """
        able = [s for s in reversed(self._idle) if request.generation in s.loaded and not s.wanted]
        if not able:
            return None
        told = (s for s in able if s.told is not None and same_premises(s.told, request))
        seat = next(told, None) or next((s for s in able if not s.kept), able[0])
        self._idle.remove(seat)
        return seat

    def to_prepare(self, generation: int) -> Seat | None:
        """The seat whose worker may get ready for a check: it stays on the bench."""
        able = [s for s in self._idle if s.worker.alive and generation in s.loaded]
        return next((s for s in reversed(able) if not s.kept), able[-1] if able else None)

    async def until(self, found: Callable[[], Seat | None]) -> Seat:
        """What `found` finds once the idle seats have changed enough; `WorkerLostError` once it is closed."""
        while (seat := found()) is None:
            if self._closed:
                msg = "the solver workers are being ended"
                raise WorkerLostError(msg)
            change = asyncio.get_running_loop().create_future()
            self._watching.append(change)
            await change
        return seat

    async def certain(self, seat: Seat) -> None:
        """Take one certain seat; meanwhile checks leave it to whoever waits here."""
        with _wanted(seat):
            await self.until(lambda: seat if seat in self._idle else None)
            self._idle.remove(seat)
        seat.told, seat.kept = None, False

    def close(self) -> None:
        """Nobody gets a seat any more, and whoever waits for one is told so."""
        self._closed = True
        self._idle.clear()
        self._wake()

    def _wake(self) -> None:
        watching, self._watching = self._watching, []
        for change in watching:
            if not change.done():  # its waiter may have left
                change.set_result(None)


@contextlib.contextmanager
def _wanted(seat: Seat) -> Iterator[None]:
    seat.wanted += 1
    try:
        yield
    finally:
        seat.wanted -= 1
