from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Iterator

import pytest

from gateway.supervision.loop import HELD_S, before_traffic

TURNS = 20


@pytest.fixture
def restored() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)
    gc.unfreeze()
    gc.enable()


async def turns() -> float:
    """Seconds that some turns of the loop take, each of which lets go of the interpreter once."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    for _ in range(TURNS):
        turned = loop.create_future()
        loop.call_later(0.0001, turned.set_result, None)
        await turned
    return loop.time() - started


# While a thread compiles a module, decisions go on; each takes many turns of the loop.
@pytest.mark.usefixtures("restored")
async def test_a_thread_that_computes_holds_the_loop_for_a_fraction_of_a_millisecond_a_turn() -> None:
    done = threading.Event()

    def compute() -> None:
        while not done.is_set():
            sum(range(1_000))

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        before = min([await turns() for _ in range(3)])
        before_traffic()
        after = min([await turns() for _ in range(3)])
    finally:
        done.set()
        thread.join()

    assert sys.getswitchinterval() == pytest.approx(HELD_S)
    assert not gc.isenabled()
    assert gc.get_freeze_count() > 0
    assert after < before / 2
