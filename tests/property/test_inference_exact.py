"""However a sequence is cut up, laid out, moved out and back: the numbers are those of one banded pass."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.inference.bundle.manifest import Bundle, Window
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.kv.backend import CacheId
from gateway.inference.kv.paged_graph import PagedGraph
from gateway.inference.serving.beside_others import beside_others
from tests.unit.random_decoder import MINUTE, random_weights, recomputed, write_decoder

WINDOWS = (20, 48, 97, 10_000)  # the last one: no band at all
SEED = 5
_FOLDER = tempfile.TemporaryDirectory()


@pytest.fixture(scope="module", autouse=True)
def folder() -> Iterator[None]:
    """The models are written once."""
    yield
    backend_of.cache_clear()
    _FOLDER.cleanup()


@cache
def backend_of(window: int, quantized: int | None) -> tuple[PagedGraph, Bundle]:
    bundle = write_decoder(
        Path(_FOLDER.name) / f"{window}-{quantized}",
        MINUTE,
        inputs=3,
        outputs=3,
        window=Window("swa", window),
        quantized=quantized,
        seed=SEED,
    )
    architecture = bundle.manifest.architecture
    return (
        PagedGraph(bundle.model_path, architecture, pages=96, block=16, provider="cpu", cold_pages=32),
        bundle,
    )


def shuffled(backend: PagedGraph, dice: random.Random) -> None:
    """Pages come in any order, full of other numbers."""
    other = backend.open()
    backend.forward([(other, [drawn(dice) for _ in range(48)])])
    backend.close(other)
    dice.shuffle(backend._pool._free)


def drawn(dice: random.Random) -> Token:
    return Token(dice.randrange(1, MINUTE.vocabulary - 1), dice.random())


def moved_out_and_back(backend: PagedGraph, held: CacheId, dice: random.Random) -> None:
    """Others take and leave the pages meanwhile."""
    assert backend.offload(held)
    shuffled(backend, dice)
    backend.restore(held)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(WINDOWS), st.integers(2, 150), st.integers(0, 2**32), st.sampled_from((1, 7, 40)))
def test_paged_is_one_banded_pass_for_any_cuts_page_orders_and_evictions(
    window: int, count: int, seed: int, longest: int
) -> None:
    dice = random.Random(seed)  # noqa: S311 - test data
    backend, _ = backend_of(window, None)
    tokens = [drawn(dice) for _ in range(count)]
    exact = recomputed(MINUTE, random_weights(MINUTE, SEED), tokens, window)
    held, at = backend.open(), 0
    while at < count:
        shuffled(backend, dice)
        chunk = tokens[at : at + dice.randint(1, longest)]
        logits = backend.forward([(held, chunk)])[0]
        at += len(chunk)
        assert np.linalg.norm(logits - exact[at - 1]) <= 1e-5 * np.linalg.norm(exact[at - 1])
        what = dice.randrange(4)
        if what == 0:
            moved_out_and_back(backend, held, dice)
        elif what == 1:
            backend.forget_before(held, at - window + 1)
        elif what == 2:  # something else was tried, and taken back
            backend.forward([(held, [drawn(dice) for _ in range(dice.randint(1, 20))])])
            backend.truncate(held, at)
    backend.close(held)
    assert backend.statistics().in_tables == 0
    assert backend.statistics().free == backend.statistics().pages


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from((None, 32)),
    st.lists(st.integers(1, 110), min_size=2, max_size=8),
    st.integers(1, 6),
    st.integers(0, 2**32),
)
def test_no_row_of_any_length_hears_its_companions(
    quantized: int | None, lengths: list[int], count: int, seed: int
) -> None:
    dice = random.Random(seed)  # noqa: S311 - test data
    backend, bundle = backend_of(97, quantized)
    assert beside_others(backend, bundle, 8)[0]  # evens out what needs it
    rows = []
    for length in lengths:
        shuffled(backend, dice)
        held = backend.open()
        backend.forward([(held, [drawn(dice) for _ in range(length)])])
        rows.append((held, [drawn(dice) for _ in range(count)]))
    alone = []
    for held, tokens in rows:
        twin = backend.fork(held)
        alone.append(backend.forward([(twin, tokens)])[0])
        backend.close(twin)
    together = backend.forward(rows)
    for held, _ in rows:
        backend.close(held)

    assert np.array_equal(together, np.stack(alone))


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 100), st.integers(1, 30), st.integers(0, 2**32))
def test_what_was_moved_out_comes_back_bit_for_bit(length: int, more: int, seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - test data
    backend, _ = backend_of(97, None)
    shuffled(backend, dice)
    tokens = [drawn(dice) for _ in range(length + more)]
    held, stayed = backend.open(), backend.open()
    for each in (held, stayed):
        backend.forward([(each, tokens[:length])])
    moved_out_and_back(backend, held, dice)
    logits = [backend.forward([(each, tokens[length:])]) for each in (held, stayed)]
    for each in (held, stayed):
        backend.close(each)

    assert np.array_equal(logits[0], logits[1])
