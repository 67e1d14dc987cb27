"""Whoever decides goes before whoever builds, where both want the processor."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.supervision import share
from gateway.supervision.worker import ChildProcess

LINGER_S = 0.02  # after the last decision: the next one may be near
PATIENCE_S = 0.1  # for one build, twice what it takes: on a full machine it would hardly go on


class Precedence:
    """Children that build have only the time that nobody else wants while decisions are made.

    Where none is made they have their share as ever, and always once they have been patient. On one loop.
    """

    def __init__(self, linger_s: float = LINGER_S, patience_s: float = PATIENCE_S) -> None:
        self.linger_s, self.patience_s = linger_s, patience_s
        self._building: list[ChildProcess] = []
        self._until = 0.0  # on the loop's clock
        self._look: asyncio.TimerHandle | None = None  # while they are lowered
        self.possible = False

    def begin(self) -> None:
        """Find out whether a child that is lowered may be raised again; else none is lowered."""
        self.possible = share.comes_back()

    def decides(self) -> None:
        """A decision is being made, now."""
        if not self.possible:
            return
        self._until = asyncio.get_running_loop().time() + self.linger_s
        if self._building and self._look is None:
            self._lower()

    @contextmanager
    def builds(self, child: ChildProcess, patience_s: float | None = None) -> Iterator[None]:
        """Meanwhile a child works on what no decision waits for yet; for so long at most it gives way."""
        if not self.possible:
            yield
            return
        loop = asyncio.get_running_loop()
        self._building.append(child)
        patience = loop.call_later(
            self.patience_s if patience_s is None else patience_s, self._no_more, child
        )
        if self._look is not None:
            child.lower()
        elif self._until > loop.time():
            self._lower()
        try:
            yield
        finally:
            patience.cancel()
            self._no_more(child)

    def _lower(self) -> None:
        for child in self._building:
            child.lower()
        self._look = asyncio.get_running_loop().call_at(self._until, self._looked)

    def _looked(self) -> None:
        loop = asyncio.get_running_loop()
        if self._building and self._until > loop.time():
            self._look = loop.call_at(self._until, self._looked)
            return
        self._look = None
        for child in self._building:
            child.raise_again()

    def _no_more(self, child: ChildProcess) -> None:
        if child in self._building:
            self._building.remove(child)
            child.raise_again()
