"""How much memory for keys and values an engine is started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.inference.bundle.kv_bytes import predicted, room_for
from gateway.inference.bundle.manifest import Bundle, Window
from gateway.inference.messages import Answer
from tests.bench.inference_kv import engine_of, history, request
from tests.unit.random_decoder import TINY, write_decoder

CYCLES = 60


def bundle_of(folder: Path, mode: str) -> Bundle:
    return write_decoder(folder, TINY, inputs=6, outputs=3, window=Window(mode, 512), quantized=None)


@pytest.mark.parametrize("mode", ["swa", "hop"])
def test_so_many_points_keep_their_pages_over_whole_windows(tmp_path: Path, mode: str) -> None:
    bundle, points = bundle_of(tmp_path, mode), 8
    room = room_for(bundle, points)
    engine, cycles = engine_of(bundle, pages=room.pages), history(bundle, CYCLES, seed=1)

    for at in range(1, CYCLES):
        for name in range(points):
            answer = engine.propose(request(cycles, at, str(name), rebuild=at == 1))
            assert isinstance(answer, Answer)

    pool = engine.pool_statistics()
    assert (pool.refused, engine.evicted, engine.rebuilt) == (0, 0, points)


def test_a_pool_too_small_for_its_points_would_lose_sessions(tmp_path: Path) -> None:
    bundle, points = bundle_of(tmp_path, "swa"), 8
    engine = engine_of(bundle, pages=room_for(bundle, points).pages // 3)
    cycles = history(bundle, CYCLES, seed=1)

    for at in range(1, CYCLES):
        for name in range(points):
            answer = engine.propose(request(cycles, at, str(name), rebuild=False))
            if not isinstance(answer, Answer):
                engine.propose(request(cycles, at, str(name), rebuild=True))

    assert engine.evicted > 0


def test_room_has_a_limit_beyond_which_the_cold_tier_holds_every_session(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, "hop")
    few, many = room_for(bundle, 1), room_for(bundle, 10_000)
    held = predicted(bundle, many.pages)

    assert few.pages == 256
    assert (few.sessions, many.sessions) == (5, held.sessions)
    assert held.pool <= 256 * 2**20
    assert held.sessions < 10_000
    assert many.cold_pages >= 10_000 * held.session_pages
