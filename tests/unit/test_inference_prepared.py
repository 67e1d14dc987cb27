"""Inputs bound once for each shape give what inputs bound for each run give."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from gateway.inference.bundle.manifest import Window
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.kv.block_pool import BlockPool, Sequence
from gateway.inference.kv.ort_session import PagedSession
from gateway.inference.kv.rows import Row
from tests.unit.random_decoder import BLOCK, MINUTE, write_decoder

PAGES = 96


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("minute")
    return write_decoder(
        folder, MINUTE, inputs=1, outputs=1, window=Window("swa", 64), quantized=None
    ).model_path


def opened(model: Path) -> PagedSession:
    return PagedSession(model, MINUTE.architecture, pages=PAGES, block=BLOCK, provider="cpu")


def test_any_order_of_shapes_is_answered_bit_by_bit_as_without(model: Path) -> None:
    dice = random.Random(9)  # noqa: S311 - test data
    prepared, plain = opened(model), opened(model)
    assert prepared._prepared is not None
    plain._prepared = None
    pool, held = BlockPool(PAGES - 1, BLOCK), [Sequence() for _ in range(8)]
    for _ in range(300):
        count = dice.choice((1, 1, 1, 2, 3, 7, 30, 70))
        rows = []
        for sequence in dice.sample(held, dice.randint(1, 8)):
            if sequence.end > 120:
                pool.close(sequence)
            tokens = [Token(dice.randrange(1, 60), dice.random()) for _ in range(count)]
            rows.append(Row(sequence, tokens, pool.append(sequence, count)))
        assert np.array_equal(prepared.run_rows(rows), plain.run_rows(rows))


def test_an_answer_is_not_overwritten_by_the_next_run(model: Path) -> None:
    session, pool, sequence = opened(model), BlockPool(PAGES - 1, BLOCK), Sequence()
    first = session.run(sequence, [Token(3, 0.0)], pool.append(sequence, 1))
    kept = first.copy()
    session.run(sequence, [Token(9, 0.5)], pool.append(sequence, 1))

    assert np.array_equal(first, kept)


def test_no_more_shapes_are_kept_than_there_is_room_for(model: Path) -> None:
    session, pool, sequence = opened(model), BlockPool(PAGES - 1, BLOCK), Sequence()
    assert session._prepared is not None
    for count in range(1, 65):
        for rows in (1, 2):
            placed = []
            for _ in range(rows):
                pool.close(sequence)
                placed.append(Row(sequence, [Token(5, 0.0)] * count, pool.append(sequence, count)))
            session.run_rows(placed)

    assert len(session._prepared._bound) == 64
