"""What a cache keeps for others, for later and outside the pool."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.core.errors import InferenceError
from gateway.inference.bundle.manifest import REFERENCE_FILE, load_bundle
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.kv.backend import CacheId, PoolExhaustedError
from gateway.inference.kv.paged_graph import PagedGraph
from gateway.inference.kv.prefix import Identity, page_names
from gateway.inference.kv.recency import Recency
from gateway.inference.messages import Answer, Propose
from gateway.inference.serving.engine import Engine
from tests.unit.inference_demo import BUFFER_TANK
from tests.unit.test_inference_engine import OUTPUTS, _cycles

BUNDLE = load_bundle(BUFFER_TANK)
BLOCK = BUNDLE.manifest.block
DICE = random.Random(7)  # noqa: S311 - test data
TOKENS = [Token(DICE.randrange(1, 140), DICE.random()) for _ in range(200)]


def graph(*, pages: int = 64, cold_pages: int = 0, bundle: str = "one", uses: int = 2) -> PagedGraph:
    return PagedGraph(
        BUFFER_TANK / REFERENCE_FILE,
        BUNDLE.manifest.architecture,
        pages=pages,
        block=BLOCK,
        provider="cpu",
        bundle=bundle,
        cold_pages=cold_pages,
        uses=uses,
    )


def written(backend: PagedGraph, tokens: list[Token], chunk: int = 16) -> CacheId:
    """A settled cache of `tokens`."""
    cache = backend.open()
    for start in range(backend.adopt(cache, tokens), len(tokens), chunk):
        backend.forward([(cache, tokens[start : start + chunk])])
    backend.settle(cache, len(tokens))
    return cache


def after(backend: PagedGraph, cache: CacheId, token: Token) -> NDArray[np.float32]:
    row: NDArray[np.float32] = backend.forward([(cache, [token])])[0]
    return row


# --- pages that are found again


def test_a_row_of_tokens_that_begins_alike_reads_the_same_pages_and_answers_alike() -> None:
    backend = graph()
    written(backend, TOKENS[:100])
    other = backend.open()

    adopted = backend.adopt(other, TOKENS[:100])
    backend.forward([(other, TOKENS[adopted:100])])
    again = after(backend, other, TOKENS[100])

    alone = graph()
    expected = after(alone, written(alone, TOKENS[:100]), TOKENS[100])
    assert adopted == 100 // BLOCK * BLOCK
    assert np.linalg.norm(again - expected) <= 1e-5 * np.linalg.norm(expected)
    assert backend.statistics().shared >= 100 // BLOCK


@pytest.mark.parametrize("at", [0, 5, BLOCK - 1, BLOCK, 3 * BLOCK + 2])
def test_one_other_token_ends_what_is_shared(at: int) -> None:
    backend = graph()
    written(backend, TOKENS[:100])
    changed = [*TOKENS[:at], Token(TOKENS[at].id, 0.9), *TOKENS[at + 1 : 100]]

    assert backend.adopt(backend.open(), changed) == at // BLOCK * BLOCK


def test_what_is_not_settled_is_not_shared() -> None:
    backend = graph()
    cache = backend.open()
    backend.forward([(cache, TOKENS[:64])])
    assert backend.adopt(backend.open(), TOKENS[:64]) == 0

    backend.settle(cache, 40)
    assert backend.adopt(backend.open(), TOKENS[:64]) == 40 // BLOCK * BLOCK


def test_cutting_back_over_what_was_not_settled_never_changes_what_others_read() -> None:
    backend = graph()
    cache = backend.open()
    backend.forward([(cache, TOKENS[:64])])
    backend.truncate(cache, 33)
    backend.forward([(cache, TOKENS[100:131])])
    backend.settle(cache, 64)
    other = backend.open()
    assert backend.adopt(other, [*TOKENS[:33], *TOKENS[100:131]]) == 64

    alone = graph()
    expected = after(alone, written(alone, [*TOKENS[:33], *TOKENS[100:131]], chunk=64), TOKENS[9])
    answer = after(backend, other, TOKENS[9])
    assert np.linalg.norm(answer - expected) <= 1e-5 * np.linalg.norm(expected)


def test_a_page_after_settled_ones_is_named_by_what_stands_in_it_and_not_by_what_was_cut() -> None:
    backend, guessed, acted = graph(), TOKENS[100:110], TOKENS[120:160]
    cache = written(backend, TOKENS[:64])
    backend.forward([(cache, guessed)])  # as outputs are, which are then not what was in force
    backend.truncate(cache, 64)
    backend.forward([(cache, acted[:1])])
    backend.truncate(cache, 65)
    backend.forward([(cache, acted[1:])])
    backend.settle(cache, 64 + len(acted))
    other, true = backend.open(), [*TOKENS[:64], *acted]

    assert backend.adopt(backend.open(), [*TOKENS[:64], *guessed, *acted]) == 64
    assert backend.adopt(other, true) == len(true) // BLOCK * BLOCK
    alone, held = graph(), len(true) // BLOCK * BLOCK
    expected = after(alone, written(alone, true[:held], chunk=held), TOKENS[9])
    assert np.linalg.norm(after(backend, other, TOKENS[9]) - expected) <= 1e-5 * np.linalg.norm(expected)


def test_pages_never_cross_versions() -> None:
    one = Identity(model="m", bundle="b", block=BLOCK, provider="p", runtime="r")
    others = [
        one,
        replace(one, model="n"),
        replace(one, bundle="c"),
        replace(one, provider="q"),
        replace(one, runtime="s"),
    ]
    names = {tuple(page_names(each.seed(), TOKENS[:32], BLOCK)) for each in others}

    assert len(names) == 5
    assert len({name for run in names for name in run}) == 5 * (32 // BLOCK)


# --- who makes room


def test_the_least_recently_used_goes_first_and_with_k_the_kth_newest_use_counts() -> None:
    lru: Recency[str] = Recency(1)
    lru2: Recency[str] = Recency(2)
    for name in ("often", "once", "often", "scan-1", "scan-2"):
        lru.touch(name)
        lru2.touch(name)

    names = ["often", "once", "scan-1", "scan-2"]
    assert lru.oldest_first(names) == ["once", "often", "scan-1", "scan-2"]
    assert lru2.oldest_first(names) == ["once", "scan-1", "scan-2", "often"]


def test_with_lru_k_a_scan_leaves_what_is_used_again_and_again() -> None:
    found = {}
    for uses in (1, 2):
        backend = graph(pages=24, uses=uses)
        standing = TOKENS[:48]
        for _ in range(3):
            backend.close(written(backend, standing))
        for start in range(60, 190, 5):  # each is used once
            backend.close(written(backend, TOKENS[start : start + 5] + TOKENS[:27]))
        found[uses] = backend.adopt(backend.open(), standing)

    assert found == {1: 0, 2: 48}


def test_a_row_makes_room_from_its_end_so_that_what_is_left_of_it_is_found() -> None:
    backend = graph(pages=17)  # one of them is the probe's
    backend.close(written(backend, TOKENS[:128]))
    growing = backend.open()
    for at in range(9):  # eight pages are free: the ninth makes room
        backend.forward([(growing, TOKENS[130 + at : 130 + at + BLOCK])])
    left = 8 - backend.statistics().made_room

    assert 4 <= left < 8
    assert backend.adopt(backend.open(), TOKENS[:128]) == left * BLOCK


def test_a_row_that_was_continued_later_is_as_young_as_its_end() -> None:
    backend = graph(pages=33)
    row, other = TOKENS[:128], TOKENS[130:194]
    grown = written(backend, row[:64])
    backend.close(written(backend, other))
    for start in range(64, 128, BLOCK):
        backend.forward([(grown, row[start : start + BLOCK])])
    backend.settle(grown, len(row))
    backend.close(grown)
    growing = backend.open()
    while not backend.statistics().made_room:
        backend.forward([(growing, TOKENS[20 : 20 + BLOCK])])

    assert backend.adopt(backend.open(), row) == 128
    assert backend.adopt(backend.open(), other) < 64


def test_what_a_row_in_use_has_forgotten_makes_room_by_its_own_age() -> None:
    backend = graph(pages=33)
    live = written(backend, TOKENS[:128])
    backend.forget_before(live, 64)
    other = TOKENS[130:194]
    backend.close(written(backend, other))
    growing = backend.open()
    while not backend.statistics().made_room:
        backend.forward([(growing, TOKENS[20 : 20 + BLOCK])])

    assert backend.adopt(backend.open(), other) == 64
    assert backend.adopt(backend.open(), TOKENS[:64]) < 64


def test_what_somebody_holds_stays_and_everything_else_makes_room() -> None:
    backend = graph(pages=24, uses=1)
    written(backend, TOKENS[:48])  # held open, as a standing prefix is
    for start in range(50, 190, 3):
        backend.close(written(backend, TOKENS[start : start + 3] + TOKENS[:40]))

    assert backend.adopt(backend.open(), TOKENS[:48]) == 48
    assert backend.statistics().made_room > 0


def test_a_pool_full_of_what_is_read_refuses_and_says_how_much_is_missing() -> None:
    backend = graph(pages=9)
    written(backend, TOKENS[:128])

    with pytest.raises(PoolExhaustedError, match="has 0 free pages, 1 are needed"):
        written(backend, TOKENS[130:140])


# --- outside the pool


def test_a_cache_returns_from_outside_bit_for_bit() -> None:
    backend, twin = graph(cold_pages=32), graph()
    caches = [written(each, TOKENS[:130]) for each in (backend, twin)]
    free = backend.statistics().free

    assert backend.offload(caches[0])
    assert not backend.resident(caches[0])
    backend.close(written(backend, TOKENS[20:180]))  # other numbers stand there now

    backend.restore(caches[0])
    assert np.array_equal(after(backend, caches[0], TOKENS[7]), after(twin, caches[1], TOKENS[7]))
    assert backend.statistics().returned == backend.statistics().offloaded == 1
    assert backend.statistics().cold == 0
    assert free <= backend.statistics().free + backend.statistics().found_again


def test_outside_there_is_only_so_much_room() -> None:
    backend = graph(cold_pages=4)
    small, large = written(backend, TOKENS[:60]), written(backend, TOKENS[:130])

    assert not backend.offload(large)
    assert backend.resident(large)
    assert backend.offload(small)
    assert not backend.offload(small)
    backend.close(small)
    assert backend.statistics().cold == 0


def test_sessions_that_find_no_room_come_back_without_their_history() -> None:
    cycles, names = _cycles(140), ("first", "second", "third", "fourth")
    small, large = Engine(BUNDLE, OUTPUTS, pages=64, cold_pages=128), Engine(BUNDLE, OUTPUTS)
    for at in range(130, 136):
        for name in names:
            request = Propose(
                session=name,
                cycle=at,
                inputs=cycles[at].inputs,
                in_force=cycles[at - 1].in_force,
                history=tuple(cycles[:at]) if at == 130 else None,
            )
            answers = [engine.propose(request) for engine in (small, large)]
            assert all(isinstance(answer, Answer) for answer in answers)
            assert np.array_equal(small.first_logits(name), large.first_logits(name))

    assert small.evicted == 0
    assert small.pool_statistics().returned > 0


def test_numbers_that_are_none_never_reach_a_cache() -> None:
    engine = Engine(BUNDLE, OUTPUTS)
    with pytest.raises(InferenceError, match="not a number"):
        engine.propose(
            Propose(session="a", cycle=1, inputs=("nan", "1", "2"), in_force=("0", "0", "0"), history=())
        )
    assert engine.sessions == 0
