"""Decoders by Hugging Face Optimum and onnxruntime-genai keep the contract of `KvBackend`, and decide."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.core.errors import InferenceError
from gateway.inference.bundle.kv_bytes import predicted
from gateway.inference.bundle.manifest import load_bundle
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.decision_model import DecisionModel
from gateway.inference.kv.backend import KvBackend, PoolExhaustedError
from gateway.inference.kv.dense_gqa import DenseGqa
from gateway.inference.messages import Answer, Failed
from gateway.inference.serving.backends import make_backend
from gateway.inference.serving.engine import CANCELLED, Engine
from gateway.inference.serving.selftest import self_test
from tests.unit.inference_exports import DECODERS, GENAI_LLAMA, OPTIMUM_GPT2, OPTIMUM_LLAMA
from tests.unit.test_inference_engine import OUTPUTS, _cycles
from tests.unit.test_inference_hop import ask
from tests.unit.test_inference_together import asked, raws, run

each_export = pytest.mark.parametrize("directory", DECODERS, ids=lambda directory: directory.name)


def backend_of(directory: Path, pages: int = 64) -> KvBackend:
    return make_backend(load_bundle(directory), provider="cpu", pages=pages)


def some_tokens(count: int, seed: int = 1) -> list[Token]:
    dice = random.Random(seed)  # noqa: S311 - test data
    return [Token(dice.randrange(256), 0.0) for _ in range(count)]


def distance(ours: NDArray[np.float32], exact: NDArray[np.float32]) -> float:
    return float(np.linalg.norm(ours - exact) / np.linalg.norm(exact))


def in_chunks(backend: KvBackend, tokens: list[Token], dice: random.Random) -> NDArray[np.float32]:
    cache, at = backend.open(), 0
    while at < len(tokens):
        count = dice.randint(1, 17)
        logits: NDArray[np.float32] = backend.forward([(cache, tokens[at : at + count])])[0]
        at += count
    backend.close(cache)
    return logits


@each_export
@pytest.mark.parametrize("seed", range(5))
def test_any_split_into_chunks_answers_as_one_shot(directory: Path, seed: int) -> None:
    backend, tokens = backend_of(directory), some_tokens(100, seed)
    dice = random.Random(seed)  # noqa: S311 - test data
    whole = backend.open()
    exact = backend.forward([(whole, tokens)])[0]

    assert distance(in_chunks(backend, tokens, dice), exact) <= 1e-5


@each_export
def test_what_is_cut_off_and_written_anew_leaves_no_trace(directory: Path) -> None:
    backend, tokens, others = backend_of(directory), some_tokens(60), some_tokens(60, 2)
    plain, cut = backend.open(), backend.open()
    exact = backend.forward([(plain, tokens)])[0]
    backend.forward([(cut, tokens[:30] + others[30:])])
    backend.truncate(cut, 30)

    assert backend.span(cut) == (0, 30)
    assert distance(backend.forward([(cut, tokens[30:])])[0], exact) <= 1e-5
    with pytest.raises(InferenceError, match="cannot cut to position 61"):
        backend.truncate(cut, 61)


@each_export
def test_a_fork_and_its_origin_never_read_each_other(directory: Path) -> None:
    backend, tokens, others = backend_of(directory), some_tokens(60), some_tokens(60, 2)
    plain, origin = backend.open(), backend.open()
    exact = backend.forward([(plain, tokens)])[0]
    backend.forward([(origin, tokens[:30])])
    fork = backend.fork(origin)
    backend.forward([(fork, others)])
    ours = backend.forward([(origin, tokens[30:])])[0]
    backend.close(fork)

    assert distance(ours, exact) <= 1e-5


@each_export
def test_rows_of_one_forward_are_bit_for_bit_what_each_is_alone(directory: Path) -> None:
    backend = backend_of(directory, pages=128)
    rows = [some_tokens(20, seed) for seed in range(4)]
    alone = [backend.forward([(backend.open(), row)])[0] for row in rows]

    together = backend.forward([(backend.open(), row) for row in rows])

    assert np.array_equal(together, np.stack(alone))


@pytest.mark.parametrize("directory", [OPTIMUM_LLAMA, OPTIMUM_GPT2], ids=lambda directory: directory.name)
def test_a_full_pool_refuses_and_keeps_what_it_holds(directory: Path) -> None:
    backend, tokens = backend_of(directory, pages=4), some_tokens(80)
    first, second = backend.open(), backend.open()
    backend.forward([(first, tokens[:33])])
    with pytest.raises(PoolExhaustedError, match="has 1 free pages, 2 are needed"):
        backend.forward([(second, tokens[:17])])
    assert backend.span(second) == (0, 0)
    assert backend.statistics().refused == 1
    backend.close(first)

    backend.forward([(second, tokens[:64])])
    held = backend.statistics()
    assert (held.free, held.peak_used, held.unfilled_slots) == (0, 4, 0)


def test_a_cache_with_a_buffer_is_counted_by_what_it_takes_and_as_many_are_let_in_as_fit() -> None:
    bundle = load_bundle(GENAI_LLAMA)
    backend, tokens = backend_of(GENAI_LLAMA, pages=64), some_tokens(17)
    assert isinstance(backend, DenseGqa)
    page_bytes, each = predicted(bundle, 1).page, -(-backend.longest // bundle.manifest.block)
    fit = 64 // each
    caches = [backend.open() for _ in range(60)]
    empty = backend.statistics()
    assert (empty.free, empty.stranded, backend.held_bytes) == (64, 64 - fit * each, 0)

    for cache in caches[:fit]:
        backend.forward([(cache, tokens[:1])])
    with pytest.raises(PoolExhaustedError, match=f"has {64 - fit * each} free pages, {each} are needed"):
        backend.forward([(caches[fit], tokens[:1])])
    with pytest.raises(PoolExhaustedError):
        backend.fork(caches[0])

    held = backend.statistics()
    assert held.pages - held.free == fit * each
    assert backend.held_bytes == pytest.approx(fit * each * page_bytes, rel=0.06)
    assert backend.held_bytes <= 64 * page_bytes
    assert held.external_fragmentation == 1.0  # what is left is too little for any
    assert held.unfilled_slots == fit * (each * bundle.manifest.block - 1)
    backend.forward([(caches[0], tokens[1:])])  # its buffer is there already
    assert backend.statistics().free == held.free

    backend.truncate(caches[0], 0)
    backend.close(caches[1])
    assert backend.statistics().free == held.free + 2 * each
    backend.forward([(caches[fit], tokens[:1])])


def test_a_what_if_without_room_for_its_copy_is_refused_and_the_engine_goes_on() -> None:
    bundle, cycles = load_bundle(GENAI_LLAMA), _cycles(40)
    each = predicted(bundle, 1).session_pages // 2
    engine = Engine(bundle, OUTPUTS, pages=each)  # one buffer, and no half ahead of need
    engine.propose(asked(cycles, 30, "a", rebuild=True))
    engine.propose(asked(cycles, 31, "a"))
    held = engine.pool_statistics()

    engine.submit(1, asked(cycles, 32, "a"))
    engine.submit(2, asked(cycles, 32, "a", aside=True))  # begins in the step that ends the first
    replies = run(engine)

    refused = replies[2]
    assert isinstance(refused, Failed)
    assert "free pages" in refused.problem
    assert isinstance(replies[1], Answer)
    assert engine.pool_statistics().free == held.free
    assert isinstance(engine.propose(asked(cycles, 33, "a")), Answer)


def test_both_exports_of_one_llama_agree() -> None:
    """Two exporters, two kinds of cache, two versions of transformers: the same numbers."""
    tokens = some_tokens(100)
    optimum, genai = backend_of(OPTIMUM_LLAMA), backend_of(GENAI_LLAMA)
    exact = optimum.forward([(optimum.open(), tokens)])[0]

    assert distance(genai.forward([(genai.open(), tokens)])[0], exact) <= 1e-5
    assert float(np.ptp(exact)) > 1.0  # no flat answer, which would agree with anything


@each_export
def test_the_self_test_passes_and_tells_what_work_costs(directory: Path) -> None:
    bundle = load_bundle(directory)
    shown = self_test(Engine(bundle, OUTPUTS), bundle)

    assert shown.incremental_error <= 1e-5
    assert 0 < shown.decision_ms <= shown.slow_ms


@each_export
def test_a_history_that_hops_answers_like_plain_recomputation(directory: Path) -> None:
    bundle, cycles = load_bundle(directory), _cycles(80)
    kept, plain = Engine(bundle, OUTPUTS), Engine(bundle, OUTPUTS)
    ask(kept, cycles, 1, "a", history=True)
    for at in range(2, 80):
        ours = ask(kept, cycles, at, "a")
        kept.step()  # some of what is computed ahead, not all
        plain.release("a")
        exact = ask(plain, cycles, at, "a", history=True)
        assert distance(kept.first_logits("a"), plain.first_logits("a")) <= 1e-5, at
        assert ours.raws == exact.raws, at


@each_export
def test_cancelled_requests_leave_the_memory_accounted_for(directory: Path) -> None:
    dice = random.Random(7)  # noqa: S311 - test data
    engine, cycles, at = Engine(load_bundle(directory), OUTPUTS, pages=96), _cycles(40), 20
    cancelled = set()
    for number in range(60):
        engine.submit(
            number, asked(cycles, at, "abc"[number % 3], rebuild=dice.random() < 0.3, aside=number % 4 == 0)
        )
        at = min(39, at + (number % 3 == 2))
        if dice.random() < 0.3:
            engine.cancel(number)
            cancelled.add(number)
        for _ in range(dice.randrange(4)):
            engine.step()
    replies = run(engine)

    assert len(replies) == 60
    assert {n for n, reply in replies.items() if isinstance(reply, Failed)} <= cancelled
    assert {reply.problem for reply in replies.values() if isinstance(reply, Failed)} <= {CANCELLED}
    for name in ("a", "b", "c"):
        engine.release(name)
    pool = engine.pool_statistics()
    assert (pool.free, pool.in_tables) == (pool.pages, 0)


@each_export
def test_sessions_that_do_not_fit_together_are_still_answered_as_in_a_large_pool(directory: Path) -> None:
    bundle, cycles = load_bundle(directory), _cycles(40)
    small, large = Engine(bundle, OUTPUTS, pages=24), Engine(bundle, OUTPUTS)
    for at in range(20, 32):
        for name in ("a", "b", "c", "d"):
            ours = small.propose(asked(cycles, at, name))
            if not isinstance(ours, Answer):
                ours = small.propose(asked(cycles, at, name, rebuild=True))
            exact = large.propose(asked(cycles, at, name, rebuild=at == 20))
            assert raws(ours) == raws(exact)

    assert small.evicted > 0


@each_export
def test_an_engineer_has_proposals_and_tokens_of_it(directory: Path) -> None:
    model = DecisionModel.from_bundle(directory, "cpu")
    measured = {"TK1.LT101": 2.0, "TK1.FT101": 12.0, "TK1.TT101": 45.0}
    acting = {"TK1.P101.SP": 27.0, "TK1.H101.CMD": 0.0, "TK1.M101.STAGE": 1.0}

    wanted = model.propose(measured, acting)

    assert 0 <= wanted.values["TK1.P101.SP"] <= 100
    assert wanted.confidence is None  # nobody has measured how often such an answer is right
    assert len(model.generate([0, 1, 2], 5)) == 5
