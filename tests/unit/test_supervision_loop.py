from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from gateway.supervision.loop import HELD_S, before_traffic


@pytest.fixture
def restored() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)
    gc.unfreeze()
    gc.enable()


# While a thread compiles a module, decisions go on; each takes many turns of the loop, and a thread that
# computes may hold the interpreter for one such interval at every turn.
@pytest.mark.usefixtures("restored")
def test_a_thread_that_computes_holds_the_loop_for_a_fraction_of_a_millisecond_a_turn() -> None:
    assert sys.getswitchinterval() > 2 * HELD_S

    before_traffic()

    assert HELD_S < 0.001
    assert sys.getswitchinterval() == pytest.approx(HELD_S)
    assert not gc.isenabled()
    assert gc.get_freeze_count() > 0
