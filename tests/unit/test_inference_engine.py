import importlib.metadata
import random
from collections.abc import Callable
from collections.abc import Sequence as Values
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from gateway.core.errors import InferenceError
from gateway.inference.bundle.manifest import REFERENCE_FILE, Bundle, load_bundle
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.decoding.decode import OutputRange
from gateway.inference.kv.block_pool import BlockPool, Sequence
from gateway.inference.kv.ort_session import PagedSession, open_session
from gateway.inference.kv.rows import Row
from gateway.inference.messages import Answer, Cycle, NeedHistory, Propose
from gateway.inference.serving.engine import Engine
from gateway.inference.serving.selftest import self_test
from tests.unit.inference_demo import BUFFER_TANK

OUTPUTS = (
    OutputRange(Fraction(1, 10), Fraction(0), 0, 1000),
    OutputRange(Fraction(1), Fraction(0), 0, 1),
    OutputRange(Fraction(1), Fraction(0), 0, 3),
)
BUNDLE = load_bundle(BUFFER_TANK)


def _cycles(count: int, seed: int = 1) -> list[Cycle]:
    dice = random.Random(seed)  # noqa: S311 - test data
    return [
        Cycle(
            (
                f"{dice.uniform(1.5, 2.5):.3f}",
                f"{dice.uniform(5, 20):.2f}",
                f"{dice.uniform(43, 47):.2f}",
            ),
            (f"{dice.uniform(0, 100):.1f}", str(dice.randrange(2)), str(dice.randrange(4))),
        )
        for _ in range(count)
    ]


def _ask(engine: Engine, cycles: list[Cycle], at: int, *, name: str = "a", rebuild: bool = False) -> Answer:
    answer = engine.propose(
        Propose(
            session=name,
            cycle=at,
            inputs=cycles[at].inputs,
            in_force=cycles[at - 1].in_force,
            history=tuple(cycles[:at]) if rebuild else None,
        )
    )
    assert isinstance(answer, Answer)
    return answer


@pytest.mark.parametrize("graph", [REFERENCE_FILE, "model.onnx"])
def test_chunks_through_the_paged_pool_equal_one_banded_pass(graph: str) -> None:
    architecture, dice = BUNDLE.manifest.architecture, random.Random(3)  # noqa: S311 - test data
    tokens = [Token(dice.randrange(1, architecture.vocabulary), dice.random()) for _ in range(900)]
    session = PagedSession(BUFFER_TANK / graph, architecture, pages=96, block=16, provider="cpu")
    pool, whole, parts = BlockPool(95, 16), Sequence(), Sequence()
    at_once = session.run(whole, tokens, pool.append(whole, len(tokens)))
    pool.close(whole)

    rows, at = [], 0
    while at < len(tokens):
        chunk = tokens[at : at + dice.randint(1, 9)]
        pool.drop_before(parts, parts.end - BUNDLE.manifest.window.length + 1)
        rows.append(session.run(parts, chunk, pool.append(parts, len(chunk))))
        at += len(chunk)

    assert session.aliased
    difference = np.linalg.norm(np.concatenate(rows) - at_once) / np.linalg.norm(at_once)
    assert difference <= 1e-5
    assert pool.statistics().pages - pool.statistics().free <= BUNDLE.manifest.window.length // 16 + 2


def test_the_band_is_real_and_tokens_beyond_it_change_nothing() -> None:
    architecture, length = BUNDLE.manifest.architecture, BUNDLE.manifest.window.length
    session = PagedSession(BUFFER_TANK / REFERENCE_FILE, architecture, pages=96, block=16, provider="cpu")
    reach = architecture.layers * (length - 1)
    tokens = [Token(1 + at % 40, 0.0) for at in range(reach + 2)]

    def last(first_tokens: list[Token]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        pool, sequence = BlockPool(95, 16), Sequence()
        every = first_tokens + tokens[len(first_tokens) :]
        row: np.ndarray[tuple[int], np.dtype[np.float32]] = session.run(
            sequence, every, pool.append(sequence, len(every))
        )[-1]
        return row

    assert np.array_equal(last([]), last([Token(90, 0.0)]))
    assert not np.array_equal(last([]), last([tokens[0], Token(90, 0.0)]))


def test_reused_history_answers_like_recomputed_history() -> None:
    engine, cycles = Engine(BUNDLE, OUTPUTS), _cycles(160)
    _ask(engine, cycles, 125, rebuild=True)
    reused = [_ask(engine, cycles, at) for at in range(126, 160)]

    whole = _ask(engine, cycles, 159, name="b", rebuild=True)

    exact = engine.first_logits("b")
    assert np.linalg.norm(engine.first_logits("a") - exact) <= 1e-5 * np.linalg.norm(exact)
    assert reused[-1].raws == whole.raws
    assert reused[-1].computed_tokens <= 8 < whole.reused_tokens


def test_requests_within_a_cycle_leave_no_trace() -> None:
    engine, cycles, others = Engine(BUNDLE, OUTPUTS), _cycles(40), _cycles(40, seed=2)
    _ask(engine, cycles, 30, rebuild=True, name="busy")
    _ask(engine, cycles, 30, rebuild=True, name="calm")
    for at in range(31, 40):
        for _ in range(5):
            mixed = list(cycles)
            mixed[at] = others[at]
            _ask(engine, mixed, at, name="busy")
        busy, calm = _ask(engine, cycles, at, name="busy"), _ask(engine, cycles, at, name="calm")
        assert busy.raws == calm.raws
        assert np.allclose(engine.first_logits("busy"), engine.first_logits("calm"), rtol=1e-5, atol=1e-5)


def test_a_request_out_of_order_needs_its_history() -> None:
    engine, cycles = Engine(BUNDLE, OUTPUTS), _cycles(9)
    unknown = Propose(session="x", cycle=3, inputs=cycles[3].inputs, in_force=cycles[2].in_force)

    assert isinstance(engine.propose(unknown), NeedHistory)
    _ask(engine, cycles, 3, rebuild=True, name="x")
    ahead = Propose(session="x", cycle=7, inputs=cycles[7].inputs, in_force=cycles[6].in_force)
    assert isinstance(engine.propose(ahead), NeedHistory)


def test_a_full_pool_takes_the_pages_of_the_session_longest_unused() -> None:
    engine, cycles = Engine(BUNDLE, OUTPUTS, pages=64), _cycles(130)
    for name in ("first", "second", "third"):
        _ask(engine, cycles, 129, rebuild=True, name=name)

    assert engine.evicted >= 1
    gone = Propose(session="first", cycle=130, inputs=cycles[0].inputs, in_force=cycles[129].in_force)
    assert isinstance(engine.propose(gone), NeedHistory)
    assert engine.sessions + engine.evicted == 3


def test_an_engine_shows_itself_exact_before_it_serves() -> None:
    shown = self_test(Engine(BUNDLE, OUTPUTS), BUNDLE)

    assert shown.incremental_error <= 1e-5
    assert 0.0 < shown.decision_ms < 1000.0


def test_an_engine_whose_kept_keys_and_values_are_not_those_of_its_history_does_not_serve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(BUNDLE, OUTPUTS)
    monkeypatch.setattr(engine.backend, "truncate", lambda _cache, _end: None)  # what was guessed stays

    with pytest.raises(InferenceError, match=r"reused KV differs from recomputed by .*: change the runtime"):
        self_test(engine, BUNDLE)


class _NothingWritten(PagedSession):
    """Its first run, the test of the start, leaves the bound memory as it was: new keys went elsewhere."""

    def run_rows(self, rows: Values[Row]) -> NDArray[np.float32]:
        before = self.read_pages(range(16)) if self.aliased else None
        logits: NDArray[np.float32] = super().run_rows(rows)
        if before is not None:
            self.write_pages(range(16), before)
        return logits


class _MoreWritten(PagedSession):
    """Its first run writes to a page that nobody asked for, too."""

    def run_rows(self, rows: Values[Row]) -> NDArray[np.float32]:
        logits: NDArray[np.float32] = super().run_rows(rows)
        if self.aliased:
            self.write_pages((3,), self.read_pages((15,)))
        return logits


def test_where_memory_is_not_written_in_place_the_start_finds_it_and_the_answer_is_the_same() -> None:
    architecture = BUNDLE.manifest.architecture
    last = []
    for kind in (PagedSession, _NothingWritten, _MoreWritten):
        session = kind(BUNDLE.model_path, architecture, pages=16, block=16, provider="cpu")
        assert session.aliased == (kind is PagedSession)
        pool, sequence = BlockPool(15, 16), Sequence()
        for at in range(12):
            chunk = [Token(1 + (5 * at + n) % 60, 0.25) for n in range(7)]
            row = session.run(sequence, chunk, pool.append(sequence, len(chunk)))
        last.append(row)

    assert np.array_equal(last[0], last[1])
    assert np.array_equal(last[0], last[2])


def test_a_forked_sequence_reads_the_copied_page_and_leaves_its_parent_alone() -> None:
    architecture = BUNDLE.manifest.architecture
    session = PagedSession(BUNDLE.model_path, architecture, pages=16, block=16, provider="cpu")
    pool, parent = BlockPool(15, 16), Sequence()
    start = [Token(1 + at, 0.0) for at in range(10)]
    session.run(parent, start, pool.append(parent, 10))
    child = pool.fork(parent)
    session.run(child, [Token(50, 0.0)], pool.append(child, 1))
    forked = session.run(child, [Token(51, 0.0)], pool.append(child, 1))
    session.run(parent, [Token(60, 0.0)], pool.append(parent, 1))
    straight, alone = Sequence(), BlockPool(15, 16)
    fresh = PagedSession(BUNDLE.model_path, architecture, pages=16, block=16, provider="cpu")
    whole = fresh.run(straight, [*start, Token(50, 0.0), Token(51, 0.0)], alone.append(straight, 12))

    assert pool.statistics().copies == 1
    assert np.allclose(forked[-1], whole[-1], rtol=1e-5, atol=1e-5)


def test_an_unusable_graph_is_an_inference_error(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no graph")

    with pytest.raises(InferenceError, match="cannot be loaded"):
        PagedSession(tmp_path / "model.onnx", BUNDLE.manifest.architecture, pages=8, block=16, provider="cpu")


def test_where_a_device_is_there_and_cannot_be_used_the_truth_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The device without its libraries: the runtime goes to the processor without a word."""
    monkeypatch.setattr(
        onnxruntime, "get_ep_devices", lambda: [SimpleNamespace(ep_name="CUDAExecutionProvider")]
    )
    monkeypatch.setattr(
        onnxruntime,
        "InferenceSession",
        partial(_on_the_processor, onnxruntime.InferenceSession),
    )

    _, truth = open_session(BUNDLE.model_path, "cuda")

    assert truth.requested == "cuda"
    assert truth.actual == "CPUExecutionProvider"


def _on_the_processor(
    made: Callable[..., onnxruntime.InferenceSession],
    model: str,
    options: onnxruntime.SessionOptions,
    providers: list[tuple[str, dict[str, str]]],
) -> onnxruntime.InferenceSession:
    assert [name for name, _ in providers] == ["CUDAExecutionProvider", "CPUExecutionProvider"]
    return made(model, options, providers=["CPUExecutionProvider"])


def test_two_runtimes_in_one_environment_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: onnxruntime.__version__)

    with pytest.raises(InferenceError, match="overwrite each other: uninstall both, then install the one"):
        open_session(BUNDLE.model_path, "cpu")


def test_a_value_that_is_no_number_is_refused() -> None:
    bundle: Bundle = BUNDLE
    with pytest.raises(InferenceError, match="not a number"):
        Engine(bundle, OUTPUTS).tokenizer.observe((float("nan"), 1.0, 2.0))


def test_a_request_aside_leaves_the_session_as_it_was() -> None:
    engine, cycles = Engine(BUNDLE, OUTPUTS), _cycles(40)
    for name in ("asked", "twin"):
        _ask(engine, cycles, 38, name=name, rebuild=True)
    strange = Propose(
        session="asked", cycle=39, inputs=("4", "39", "99"), in_force=("0", "0", "0"), aside=True
    )
    free = engine.pool_statistics().free

    assert isinstance(engine.propose(strange), Answer)

    assert engine.pool_statistics().free == free
    assert _ask(engine, cycles, 39, name="asked").raws == _ask(engine, cycles, 39, name="twin").raws
    assert np.array_equal(engine.first_logits("asked"), engine.first_logits("twin"))
