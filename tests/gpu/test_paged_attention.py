"""PagedAttention on a device: the tests of the CPU's pool, and what only a device has. See `make gpu`."""

from __future__ import annotations

import random
import statistics
import time
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from gateway.inference.bundle.manifest import Bundle, Window
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.decision_model import ranges_of
from gateway.inference.kv.backend import CacheId
from gateway.inference.kv.cuda_plan import BUCKETS
from gateway.inference.kv.paged_cuda import PagedAttentionCuda
from gateway.inference.serving.beside_others import beside_others
from gateway.inference.serving.job import PREFILL_CHUNK
from gateway.inference.serving.serving import Size as Room
from gateway.inference.serving.serving import make_engine
from tests.unit.random_decoder import SMALL, TINY, Size, for_cuda, random_weights, recomputed, write_decoder

WINDOW, PAGES, SEED = 128, 256, 1
GATE = 5e-3  # L2, relative: of float16


@pytest.fixture(scope="module", params=["swa", "hop"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp(request.param)
    plain = write_decoder(
        folder / "cpu", TINY, inputs=6, outputs=3, window=Window(request.param, WINDOW), quantized=None
    )
    return for_cuda(plain, folder / "cuda", TINY)


def opened(bundle: Bundle, *, capture: bool = True, cold_pages: int = 0) -> PagedAttentionCuda:
    return PagedAttentionCuda(
        bundle.model_path,
        bundle.manifest.architecture,
        pages=PAGES,
        block=bundle.manifest.block,
        provider="cuda",
        longest=2 * WINDOW + PREFILL_CHUNK,
        cold_pages=cold_pages,
        capture=capture,
    )


def drawn(dice: random.Random, count: int, size: Size = TINY) -> list[Token]:
    return [Token(dice.randrange(1, size.vocabulary - 1), dice.random()) for _ in range(count)]


def filled(backend: PagedAttentionCuda, tokens: list[Token]) -> CacheId:
    cache = backend.open()
    for start in range(0, len(tokens), PREFILL_CHUNK):
        backend.forward([(cache, tokens[start : start + PREFILL_CHUNK])])
    return cache


def apart(ours: NDArray[np.float32], exact: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(ours - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("seed", range(6))
def test_paged_is_one_banded_pass_within_the_gate_for_any_cuts_and_page_orders(
    bundle: Bundle, seed: int
) -> None:
    dice, backend = random.Random(seed), opened(bundle)  # noqa: S311 - test data
    window = WINDOW if bundle.manifest.window.mode == "swa" else 10_000
    tokens = drawn(dice, 200)
    exact = recomputed(TINY, random_weights(TINY, SEED), tokens, window)
    cache, at = backend.open(), 0
    while at < len(tokens):
        dice.shuffle(backend._pool._free)
        chunk = tokens[at : at + dice.choice((1, 1, 1, 5, PREFILL_CHUNK))]
        logits = backend.forward([(cache, chunk)])[0]
        at += len(chunk)
        assert apart(logits, exact[at - 1]) <= GATE
        backend.forget_before(cache, at - window + 1)


@pytest.mark.parametrize("rows", range(1, 9))
def test_captured_graphs_answer_as_eager_runs_do_bit_by_bit(bundle: Bundle, rows: int) -> None:
    answers = []
    for capture in (True, False):
        dice, backend = random.Random(rows), opened(bundle, capture=capture)  # noqa: S311 - test data
        caches = [filled(backend, drawn(dice, 20 + 9 * at)) for at in range(rows)]
        answers.append([backend.forward([(cache, drawn(dice, 1)) for cache in caches]) for _ in range(8)])
    assert all(np.array_equal(captured, eager) for captured, eager in zip(*answers, strict=True))


def test_no_copy_between_devices_stands_in_the_graph(bundle: Bundle, tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    onnxruntime.InferenceSession(
        str(bundle.model_path), options, providers=["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    text = (tmp_path / "optimized.onnx").read_bytes()

    assert b"MemcpyToHost" not in text
    assert b"MemcpyFromHost" not in text


def test_rows_are_bit_by_bit_what_each_is_alone_or_nobody_shares_a_forward(bundle: Bundle) -> None:
    engine, test = make_engine(bundle, tuple(ranges_of(bundle).values()), Room("cuda", PAGES))
    shown = test()

    assert shown.incremental_error <= GATE
    assert engine.widest == (8 if shown.batch_independent else 1)
    assert [rows for rows, _ in shown.steps_ms] == list(BUCKETS)


def test_what_was_moved_out_comes_back_bit_for_bit(bundle: Bundle) -> None:
    dice, backend = random.Random(3), opened(bundle, cold_pages=64)  # noqa: S311 - test data
    tokens = drawn(dice, 70)
    moved, stayed = filled(backend, tokens), filled(backend, tokens)
    assert backend.offload(moved)
    backend.close(filled(backend, drawn(dice, 100)))
    backend.restore(moved)
    token = drawn(dice, 1)

    assert np.array_equal(backend.forward([(moved, token)]), backend.forward([(stayed, token)]))


def test_a_fork_reads_what_it_shares_and_writes_apart(bundle: Bundle) -> None:
    dice, backend = random.Random(4), opened(bundle)  # noqa: S311 - test data
    tokens, token = drawn(dice, 40), drawn(dice, 1)
    cache = filled(backend, tokens)
    fork = backend.fork(cache)
    backend.forward([(fork, drawn(dice, 5))])

    assert np.array_equal(
        backend.forward([(cache, token)]), backend.forward([(filled(backend, tokens), token)])
    )


@pytest.mark.parametrize("capture", [True, False], ids=["captured", "eager"])
def test_a_prefix_that_stands_is_adopted_and_answers_as_if_it_were_computed(
    bundle: Bundle, *, capture: bool
) -> None:
    dice, backend = random.Random(6), opened(bundle, capture=capture)  # noqa: S311 - test data
    block = bundle.manifest.block
    tokens, token = drawn(dice, 4 * block), drawn(dice, 1)
    stands = filled(backend, tokens)
    backend.settle(stands, len(tokens))
    adopting = backend.open()
    free = backend.statistics().free
    found = backend.adopt(adopting, [*tokens, *token])

    assert found == len(tokens)
    assert backend.statistics().free == free  # shared, not copied
    answer = backend.forward([(adopting, token)])[0]
    assert np.array_equal(answer, backend.forward([(stands, token)])[0])
    computed = filled(backend, drawn(dice, 3) + tokens)  # the same words elsewhere are another prefix
    assert not np.array_equal(backend.forward([(computed, token)])[0], answer)


@pytest.mark.parametrize("size", [TINY, SMALL], ids=["tiny", "small"])
@pytest.mark.parametrize("capture", [True, False], ids=["captured", "eager"])
def test_speed_and_memory_are_put_on_record(
    tmp_path: Path, figures: dict[str, float], size: Size, *, capture: bool
) -> None:
    plain = write_decoder(
        tmp_path / "cpu", size, inputs=6, outputs=3, window=Window("hop", WINDOW), quantized=None
    )
    backend = opened(for_cuda(plain, tmp_path / "cuda", size), capture=capture)
    dice, kind = random.Random(5), f"{size.name} float16 {'captured' if capture else 'eager'}"  # noqa: S311 - test data
    for rows in BUCKETS:
        caches = [filled(backend, drawn(dice, 100, size)) for _ in range(rows)]
        took = []
        for token in drawn(dice, 60, size):
            step = partial(backend.forward, [(cache, [token]) for cache in caches])
            began = time.perf_counter()
            step()
            took.append(time.perf_counter() - began)
            for cache in caches:
                backend.truncate(cache, 100)
        figures[f"{kind}, {rows} rows: step ms"] = statistics.median(took) * 1e3
        figures[f"{kind}, {rows} rows: tokens/s"] = rows / statistics.median(took)
        for cache in caches:
            backend.close(cache)
    figures[f"{kind}: bytes a page"] = float(backend._session.page_bytes)

    assert beside_others(backend, plain, 8)[1]
    assert all(value > 0 for value in figures.values())
