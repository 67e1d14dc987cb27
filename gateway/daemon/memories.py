"""What each model's worker counts of its memory, asked for seldom and never in the way of a decision."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from gateway.core.clock import Clock
from gateway.inference.client.served import ServedModel

_EVERY_S = 5.0
_LOOK_S = 0.25  # for a moment in which nobody waits for an answer of it
_LOOKS = 20  # then it is asked all the same: it answers between two forwards


class Memories:
    """The newest counts of each model, and when they were taken."""

    def __init__(self, served: Mapping[str, ServedModel], clock: Clock) -> None:
        self._served, self._clock = served, clock
        self._at_ns: dict[str, int] = {}

    def of(self, model: str) -> tuple[dict[str, float], int]:
        """Figures by name and UTC ns; nothing before a worker was asked, and of one that is no more."""
        figures = self._served[model].engine.memory()
        return figures, self._at_ns.get(model, 0) if figures else 0

    async def run(self) -> None:
        """Asks each worker every few seconds; never ends by itself."""
        while True:
            await asyncio.sleep(_EVERY_S)
            for name, model in self._served.items():
                for _ in range(_LOOKS):
                    if model.engine.idle:
                        break
                    await asyncio.sleep(_LOOK_S)
                await self.ask(name)

    async def ask(self, name: str) -> None:
        """Count once, now; a worker that does not answer in a second keeps its counts of before."""
        if (await self._served[name].engine.refresh()).worker is not None:
            self._at_ns[name] = self._clock.utc_ns()
