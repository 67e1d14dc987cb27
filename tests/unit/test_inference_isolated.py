"""A session whose numbers are none reaches no other: not by the pages it leaves, nor in a common forward.

What a query may not see is multiplied by 0, and 0 times what is no number is none.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gateway.inference.bundle.manifest import Window, load_bundle
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.kv.block_pool import BlockPool, Sequence
from gateway.inference.kv.ort_session import PagedSession
from gateway.inference.kv.paged_graph import PagedGraph
from gateway.inference.kv.rows import Row
from gateway.inference.serving.engine import Engine
from tests.unit.inference_demo import BUFFER_TANK
from tests.unit.random_decoder import BLOCK, MINUTE, write_decoder
from tests.unit.test_inference_engine import OUTPUTS, _ask, _cycles

PAGES = 64


def tokens(count: int, first: int = 1) -> list[Token]:
    return [Token(first + at % 50, 0.25) for at in range(count)]


def made_no_number(session: PagedSession, pages: list[int]) -> None:
    for pool in session._pools.values():
        pool.numpy().reshape(-1, BLOCK * pool.shape()[1])[pages] = np.nan


def test_what_a_session_left_in_its_pages_reaches_nobody_who_gets_them() -> None:
    bundle, cycles = load_bundle(BUFFER_TANK), _cycles(60)
    engine, twin = Engine(bundle, OUTPUTS), Engine(bundle, OUTPUTS)
    assert isinstance(engine.backend, PagedGraph)
    session = engine.backend._session
    assert isinstance(session, PagedSession)
    made_no_number(session, list(range(255)))  # all that are free

    for at in range(30, 45):  # over the ends of pages
        for name in ("a", "b"):
            ours = _ask(engine, cycles, at, name=name, rebuild=at == 30)
            assert ours.raws == _ask(twin, cycles, at, name=name, rebuild=at == 30).raws
            assert np.array_equal(engine.first_logits(name), twin.first_logits(name))


@pytest.mark.parametrize("count", [1, 70], ids=["prepared inputs", "inputs of their own"])
@pytest.mark.parametrize("aliased", [True, False])
def test_rows_of_a_forward_read_nothing_of_other_sessions(
    tmp_path: Path, count: int, *, aliased: bool
) -> None:
    bundle = write_decoder(tmp_path, MINUTE, inputs=1, outputs=1, window=Window("swa", 200), quantized=None)
    found = []
    for poisoned in (False, True):
        session = PagedSession(
            bundle.model_path, MINUTE.architecture, pages=PAGES, block=BLOCK, provider="cpu"
        )
        if not aliased:
            session.aliased, session._prepared = False, None
            session._bind_separate_outputs()
        pool = BlockPool(PAGES - 1, BLOCK)
        other, long, short = Sequence(), Sequence(), Sequence()
        session.run(other, tokens(5), pool.append(other, 5))
        if poisoned:
            made_no_number(session, other.pages)
            made_no_number(session, pool._free)
        for sequence, held in ((long, 60), (short, 3)):
            session.run(sequence, tokens(held), pool.append(sequence, held))
        rows = [Row(sequence, tokens(count, 7), pool.append(sequence, count)) for sequence in (long, short)]
        found.append(session.run_rows(rows))

    assert other.pages == [0]
    clean, beside = found
    assert np.array_equal(clean, beside)
