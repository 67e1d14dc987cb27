"""Requests that an engine worker finds together, however fast it is."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine, Iterable
from typing import Any

from gateway.core.decision import Proposal
from gateway.inference.client.model_engine import ModelEngine


async def at_once(engine: ModelEngine, asking: Iterable[Coroutine[Any, Any, Proposal]]) -> list[Proposal]:
    """The answers, in the order of the questions; the worker goes on when all of them have left."""
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGSTOP)
    try:
        asked = [asyncio.create_task(one) for one in asking]
        await asyncio.sleep(0)  # a request leaves before it first waits
    finally:
        os.kill(engine.pid, signal.SIGCONT)
    return await asyncio.gather(*asked)
