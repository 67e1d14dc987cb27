"""What keeping keys and values is worth, in one process, by CPU time of its thread."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from fractions import Fraction
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import onnxruntime
from rich.console import Console
from rich.table import Table

from gateway.inference.bundle.manifest import Bundle, Window
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.decoding.decode import OutputRange
from gateway.inference.kv.backend import CacheId
from gateway.inference.kv.ort_session import PagedSession
from gateway.inference.kv.paged_graph import PagedGraph
from gateway.inference.messages import Answer, Cycle, Propose
from gateway.inference.serving.engine import Engine
from gateway.inference.serving.job import PREFILL_CHUNK
from tests.bench.report import Figure, percentile
from tests.unit.random_decoder import BLOCK, SMALL, TINY, Size, write_decoder

WINDOW = 512
APPENDED, DECODED = 16, 8
_ROUNDS = 15
_LONG_ROUNDS = 3
_STEPS = 600
_UNDISTURBED = 0.2
_POINTS = 8
_DECISIONS = 240
_LOST_EVERY = 8  # decisions: then a session is gone, as after an eviction or a swap


def reuse(console: Console, folder: Path) -> list[Figure]:
    """A decision on a full window, its history kept or computed again.

    `hop` computes the window again; `swa` all that its bands reach, layers times the window: both are what
    gives the same numbers.
    """
    table = Table(
        "decoder", "kept ms", "window again", "reach again", title="CPU of a decision at window 512"
    )
    found = []
    for size, quantized in ((SMALL, None), (SMALL, 32), (TINY, None)):
        backend, tokens = _graph(folder / f"{size.name}-{quantized}", size, quantized)
        cache = _filled(backend, tokens[: WINDOW - DECODED - APPENDED])
        kept, again, reach = list[float](), list[float](), list[float]()
        for _ in range(_ROUNDS):
            kept.append(_cpu(partial(_decide, backend, cache, tokens)))
            backend.truncate(cache, WINDOW - DECODED - APPENDED)
            again.append(_cpu(partial(_afresh, backend, tokens, 1)))
            if len(reach) < _LONG_ROUNDS:
                reach.append(_cpu(partial(_afresh, backend, tokens, size.layers)))
        base = statistics.median(kept)
        ratios = statistics.median(again) / base, statistics.median(reach) / base
        name = f"{size.name} {'float32' if quantized is None else '8 bit'}"
        table.add_row(name, f"{base * 1e3:.2f}", *(f"{ratio:.1f} times" for ratio in ratios))
        if size is SMALL and quantized is None:
            found = [
                Figure("inference", "reuse_over_window_prefill", ratios[0]),
                Figure("inference", "reuse_over_reach_prefill", ratios[1]),
            ]
    console.print(table)
    return found


def step(console: Console, folder: Path) -> list[Figure]:
    """One decode step of ours over a raw loop that runs prepared bindings on the same pools, in turns.

    Of each the time below which a fifth of the runs stay: what it takes while nobody pushes its memory out.
    """
    table = Table("decoder", "rows", "ours ms", "raw ms", "over", title="CPU of a decode step at window 512")
    found = []
    for size in (SMALL, TINY):
        backend, tokens = _graph(folder / size.name, size, None)
        for rows in (1, 8):
            caches = [_filled(backend, tokens[: WINDOW - 1 - 7 * at]) for at in range(rows)]
            raw = _raw_loop(backend, size, caches)
            ours, theirs = [], []
            for at in range(_STEPS // rows):
                ours.append(_cpu(partial(backend.forward, [(cache, [tokens[at]]) for cache in caches])))
                theirs.append(_cpu(raw))
                for cache in caches:
                    backend.truncate(cache, backend.span(cache).end - 1)
            for cache in caches:
                backend.close(cache)
            pair = percentile(ours, _UNDISTURBED), percentile(theirs, _UNDISTURBED)
            over = pair[0] / pair[1]
            table.add_row(size.name, str(rows), *(f"{ms * 1e3:.3f}" for ms in pair), f"{over:.2f}")
            found.append(Figure("inference", f"step_over_raw_{size.name}_{rows}", over))
    console.print(table)
    return found


def fragmentation(console: Console, folder: Path) -> list[Figure]:
    """Slots without a token over slots of the pages that growing sessions hold, mean over decisions."""
    bundle = decisions_bundle(folder, TINY)
    shares = {1: list[float](), _POINTS: list[float]()}
    for sessions, seen in shares.items():
        engine, dice = engine_of(bundle), random.Random(4)  # noqa: S311 - test data
        histories = [history(bundle, 80, seed=at) for at in range(sessions)]
        starts = [dice.randrange(2, 16) for _ in histories]
        for at in range(48):
            for name, cycles in enumerate(histories):
                _ask(engine, cycles, starts[name] + at, str(name), rebuild=at == 0)
                seen.append(engine.pool_statistics().internal_fragmentation)
    means = {sessions: 100 * statistics.fmean(seen) for sessions, seen in shares.items()}
    console.print(
        f"pages of {BLOCK} slots; external fragmentation is none: any free page serves any sequence"
    )
    return [
        Figure("inference", f"fragmentation_{sessions}_percent", share) for sessions, share in means.items()
    ]


def caches(console: Console, folder: Path) -> list[Figure]:
    """Decisions a second of CPU with session KV and shared prefixes, each off and both off.

    Eight points in turn; every eighth decision finds its session lost.
    """
    bundle = decisions_bundle(folder, SMALL)
    kinds = {
        "all": (True, True),
        "no prefixes": (True, False),
        "no sessions": (False, True),
        "none": (False, False),
    }
    rates = {name: _rate(bundle, sessions=kept, prefixes=found) for name, (kept, found) in kinds.items()}
    table = Table("kept", "decisions/s of CPU", "over none", title="`small` float32, `hop` window 512")
    for name, rate in rates.items():
        table.add_row(name, f"{rate:.0f}", f"{rate / rates['none']:.1f}")
    console.print(table)
    return [
        Figure("inference", "all_over_no_caches", rates["all"] / rates["none"]),
        Figure("inference", "all_over_sessions_alone", rates["all"] / rates["no prefixes"]),
        Figure("inference", "prefixes_alone_over_no_caches", rates["no sessions"] / rates["none"]),
    ]


def _rate(bundle: Bundle, *, sessions: bool, prefixes: bool) -> float:
    engine = engine_of(bundle)
    histories = [history(bundle, 30 + _DECISIONS // _POINTS + 1, seed=at) for at in range(_POINTS)]
    with ExitStack() as off:
        if not prefixes:
            off.enter_context(mock.patch.object(engine.backend, "adopt", return_value=0))
            off.enter_context(mock.patch.object(engine.backend, "settle"))
        for name, cycles in enumerate(histories):
            _ask(engine, cycles, 30, str(name), rebuild=True)
        began = time.thread_time()
        for number in range(_DECISIONS):
            point, at = number % _POINTS, 31 + number // _POINTS
            lost = not sessions or (number + point) % _LOST_EVERY == 0
            if lost:
                engine.release(str(point))
            _ask(engine, histories[point], at, str(point), rebuild=lost)
        return _DECISIONS / (time.thread_time() - began)


# --- shared with the other parts


def _graph(folder: Path, size: Size, quantized: int | None) -> tuple[PagedGraph, list[Token]]:
    bundle = write_decoder(
        folder, size, inputs=16, outputs=8, window=Window("swa", WINDOW), quantized=quantized
    )
    backend = PagedGraph(
        bundle.model_path, bundle.manifest.architecture, pages=512, block=BLOCK, provider="cpu"
    )
    dice = random.Random(2)  # noqa: S311 - test data
    count = size.layers * WINDOW
    return backend, [Token(dice.randrange(1, size.vocabulary - 1), dice.random()) for _ in range(count)]


def _filled(backend: PagedGraph, tokens: list[Token]) -> CacheId:
    cache = backend.open()
    for start in range(0, len(tokens), PREFILL_CHUNK):
        end = backend.span(cache).end
        backend.forget_before(cache, end - WINDOW + 1)
        backend.forward([(cache, tokens[start : start + PREFILL_CHUNK])])
    return cache


def _decide(backend: PagedGraph, cache: CacheId, tokens: list[Token]) -> None:
    """Append and decode."""
    backend.forward([(cache, tokens[-APPENDED - DECODED : -DECODED])])
    for at in range(DECODED):
        backend.forward([(cache, [tokens[at - DECODED]])])


def _afresh(backend: PagedGraph, tokens: list[Token], windows: int) -> None:
    """The same with `windows` windows of tokens computed before."""
    cache = _filled(backend, tokens[-windows * WINDOW : -APPENDED - DECODED])
    _decide(backend, cache, tokens)
    backend.close(cache)


def _raw_loop(backend: PagedGraph, size: Size, caches: list[CacheId]) -> Callable[[], object]:
    """The same graph reading the same pages, every tensor bound beforehand, nothing read or decided."""
    session = backend._session
    assert isinstance(session, PagedSession)
    binding, half = session._session.io_binding(), size.head_dim // 2
    tables, rows = [backend._caches[cache].sequence.pages for cache in caches], len(caches)
    table = np.array([pages + [0] * (WINDOW // BLOCK - len(pages)) for pages in tables])
    feeds = {
        "tokens": np.full((rows, 1), 3),
        "fractions": np.full((rows, 1), 0.5, dtype=np.float32),
        "cos": np.ones((rows, 1, half), dtype=np.float32),
        "sin": np.zeros((rows, 1, half), dtype=np.float32),
        "query_positions": np.full((rows, 1), WINDOW - 1),
        "first_positions": np.zeros(rows, dtype=np.int64),
        "write_slots": np.arange(rows)[:, None] + 511 * BLOCK,  # the page nobody reads
        "block_table": table,
    }
    held = {name: onnxruntime.OrtValue.ortvalue_from_numpy(value) for name, value in feeds.items()}
    for name, value in held.items():
        binding.bind_ortvalue_input(name, value)
    for name, pool in session._pools.items():
        binding.bind_ortvalue_input(name, pool)
        binding.bind_ortvalue_output(f"{name}_out", pool)
    logits = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((rows, 1, size.vocabulary), dtype=np.float32))
    binding.bind_ortvalue_output("logits", logits)
    return lambda: session._session.run_with_iobinding(binding) or held


def _cpu(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def decisions_bundle(folder: Path, size: Size) -> Bundle:
    """Six inputs and three outputs, 56 cycles in a window that fits any model."""
    return write_decoder(folder, size, inputs=6, outputs=3, window=Window("hop", WINDOW), quantized=None)


def engine_of(bundle: Bundle, pages: int = 1024) -> Engine:
    ranges = tuple(OutputRange(Fraction(1, 10), Fraction(0), 0, 1000) for _ in bundle.manifest.outputs)
    return Engine(bundle, ranges, pages=pages)


def history(bundle: Bundle, count: int, seed: int) -> list[Cycle]:
    dice = random.Random(seed)  # noqa: S311 - test data

    def values(tags: int) -> Iterator[str]:
        return (f"{dice.uniform(0, 100):.1f}" for _ in range(tags))

    manifest = bundle.manifest
    return [
        Cycle(tuple(values(len(manifest.inputs))), tuple(values(len(manifest.outputs)))) for _ in range(count)
    ]


def request(cycles: list[Cycle], at: int, name: str, *, rebuild: bool, due: float | None = None) -> Propose:
    """Cycle `at` of a session, with all that was before it where it has to be rebuilt."""
    return Propose(
        session=name,
        cycle=at,
        inputs=cycles[at].inputs,
        in_force=cycles[at - 1].in_force,
        history=tuple(cycles[:at]) if rebuild else None,
        due=due,
    )


def _ask(engine: Engine, cycles: list[Cycle], at: int, name: str, *, rebuild: bool) -> None:
    answer = engine.propose(request(cycles, at, name, rebuild=rebuild))
    assert isinstance(answer, Answer), answer
