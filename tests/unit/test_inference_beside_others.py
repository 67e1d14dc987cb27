"""Answers do not depend on who shares a forward; where they would, nobody shares one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.inference.bundle.manifest import Bundle, Window, load_bundle
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.kv.backend import CacheId
from gateway.inference.kv.paged_graph import PagedGraph
from gateway.inference.serving.beside_others import beside_others
from gateway.inference.serving.costs import Costs
from gateway.inference.serving.engine import Engine
from gateway.inference.serving.selftest import self_test
from tests.unit.inference_demo import BUFFER_TANK
from tests.unit.random_decoder import MINUTE, write_decoder
from tests.unit.test_inference_engine import OUTPUTS

WIDEST = 8


def random_bundle(folder: Path, quantized: int | None) -> Bundle:
    return write_decoder(
        folder, MINUTE, inputs=3, outputs=3, window=Window("swa", 96), quantized=quantized, seed=5
    )


def graph(bundle: Bundle, pages: int = 256) -> PagedGraph:
    manifest = bundle.manifest
    return PagedGraph(
        bundle.model_path, manifest.architecture, pages=pages, block=manifest.block, provider="cpu"
    )


@pytest.mark.parametrize("quantized", [None, 32], ids=["fp32", "MatMulNBits"])
@pytest.mark.parametrize("count", [1, 2, 6], ids=["a step", "two tokens", "a cycle"])
def test_rows_of_different_lengths_are_bit_by_bit_what_each_is_alone(
    tmp_path: Path, quantized: int | None, count: int
) -> None:
    bundle = random_bundle(tmp_path, quantized)
    backend, rng = graph(bundle), np.random.default_rng(3)
    assert beside_others(backend, bundle, WIDEST)[0]

    def drawn(size: int) -> list[Token]:
        return [Token(int(token), float(rng.random())) for token in rng.integers(1, 60, size)]

    caches = []
    for length in (1, 15, 16, 17, 40, 63, 80, 95):
        caches.append(backend.open())
        backend.forward([(caches[-1], drawn(length))])
    for _ in range(6):  # what they read of each other's last forward counts too
        rows = [(cache, drawn(count)) for cache in caches]
        alone = []
        for cache, tokens in rows:
            twin = backend.fork(cache)
            alone.append(backend.forward([(twin, tokens)])[0])
            backend.close(twin)
        together = backend.forward(rows)
        assert np.array_equal(together, np.stack(alone))


class Neighbourly(PagedGraph):
    """Rows that hear each other, as those of one scale over a whole batch do."""

    def forward(self, rows: Sequence[tuple[CacheId, Sequence[Token]]]) -> NDArray[np.float32]:
        logits = super().forward(rows)
        return logits + np.float32(1e-6) * len(rows)


def test_where_answers_depend_on_company_every_request_goes_alone() -> None:
    bundle = load_bundle(BUFFER_TANK)
    engine = Engine(bundle, OUTPUTS)
    manifest = bundle.manifest
    engine.backend = Neighbourly(
        bundle.model_path, manifest.architecture, pages=256, block=manifest.block, provider="cpu"
    )
    engine._writer._backend = engine._sessions._backend = engine.backend

    shown = self_test(engine, bundle)

    assert not shown.batch_independent
    assert engine.widest == 1
    engine.merges(8)  # it stays so
    assert engine.widest == 1


def test_the_demo_shows_itself_independent_and_what_each_number_of_rows_costs() -> None:
    bundle = load_bundle(BUFFER_TANK)
    engine = Engine(bundle, OUTPUTS)

    shown = self_test(engine, bundle)

    assert shown.batch_independent
    assert engine.widest == WIDEST
    assert [rows for rows, _ in shown.steps_ms] == [1, 2, 4, 8]
    assert all(ms > 0 for _, ms in shown.steps_ms)
    assert engine.pool_statistics().in_tables == 0


def test_a_pool_too_small_for_company_serves_one_after_another() -> None:
    bundle = load_bundle(BUFFER_TANK)
    assert beside_others(graph(bundle, pages=12), bundle, WIDEST) == (False, ())


def test_what_waits_ahead_is_decoded_together_and_prefill_is_not() -> None:
    costs = Costs(decision_ms=10.0, chunk_ms=5.0, steps_ms=((1, 1.0), (2, 1.2), (4, 1.6), (8, 2.4)))
    decision, rebuilt = costs.seconds(0), costs.seconds(4)

    assert costs.ahead([]) == 0.0
    assert costs.ahead([decision]) == pytest.approx(0.010)
    assert costs.ahead([decision] * 4) == pytest.approx(4 * 0.010 * 0.4)
    assert costs.ahead([decision] * 30) == pytest.approx(30 * 0.010 * 0.3)
    assert costs.ahead([rebuilt] * 4) == pytest.approx(4 * (0.010 * 0.4 + 0.020))
    assert Costs(10.0, 5.0).ahead([decision] * 4) == pytest.approx(0.040)
    assert Costs(10.0, 5.0, ((1, 1.0), (2, 3.0))).ahead([decision] * 2) == pytest.approx(0.020)
