"""What every request of a bundle begins with: computed once, held, copied, and never another bundle's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from gateway.core.errors import InferenceError
from gateway.inference.bundle.files import BundleError
from gateway.inference.bundle.manifest import Bundle, load_bundle
from gateway.inference.kv.backend import PoolExhaustedError
from gateway.inference.messages import Answer, Propose
from gateway.inference.serving.engine import Engine
from gateway.inference.serving.selftest import self_test
from gateway.inference.serving.serving import Size, make_engine, start_engine
from tests.unit.inference_demo import BUFFER_TANK, BUNDLES
from tests.unit.inference_exports import GENAI_LLAMA, OPTIMUM_LLAMA
from tests.unit.test_inference_engine import OUTPUTS, _cycles

HOP = BUNDLES / "buffer-tank-hop"
HEADER = tuple(3 + 5 * at % 60 for at in range(37))
CYCLES = _cycles(80)
each_backend = pytest.mark.parametrize(
    "source", [HOP, OPTIMUM_LLAMA, GENAI_LLAMA], ids=lambda source: source.name
)


def with_header(source: Path, folder: Path, header: tuple[int, ...] = HEADER, **window: object) -> Bundle:
    """A bundle that declares a header; its window is as much longer."""
    shutil.copytree(source, folder)
    text = json.loads((folder / "bundle.json").read_text())
    text["header"] = list(header)
    text["window"]["length"] += len(header)
    text["window"].update(window)
    (folder / "bundle.json").write_text(json.dumps(text))
    return load_bundle(folder)


def request(bundle: Bundle, at: int, name: str, *, rebuild: bool) -> Propose:
    outputs = len(bundle.manifest.outputs)
    history = tuple(type(c)(c.inputs, c.in_force[:outputs]) for c in CYCLES[:at])
    return Propose(
        session=name,
        cycle=at,
        inputs=CYCLES[at].inputs,
        in_force=CYCLES[at - 1].in_force[:outputs],
        history=history if rebuild else None,
    )


def engine_of(bundle: Bundle, *, stand: bool = True, pages: int = 256) -> Engine:
    engine = Engine(bundle, OUTPUTS[: len(bundle.manifest.outputs)], pages=pages)
    if stand:
        engine.stand()
    return engine


def answered(engine: Engine, asked: Propose) -> Answer:
    answer = engine.propose(asked)
    assert isinstance(answer, Answer)
    return answer


@each_backend
def test_answers_are_those_of_an_engine_that_computes_the_header_each_time(
    source: Path, tmp_path: Path
) -> None:
    bundle = with_header(source, tmp_path / "own")
    standing, plain = engine_of(bundle), engine_of(bundle, stand=False)
    assert standing.pool_statistics().standing == 1 + len(HEADER)
    assert plain.pool_statistics().standing == 0
    for at in range(3, 60):  # over several hops
        rebuild = at in {3, 20, 41}
        ours, theirs = (
            answered(engine, request(bundle, at, "a", rebuild=rebuild)) for engine in (standing, plain)
        )
        assert ours.raws == theirs.raws
        difference = standing.first_logits("a") - plain.first_logits("a")
        assert np.abs(difference).max() <= 1e-4


@each_backend
def test_a_header_changes_what_a_model_answers(source: Path, tmp_path: Path) -> None:
    """Else the tests here would show nothing."""
    bundle, bare = with_header(source, tmp_path / "own"), load_bundle(source)
    ours, theirs = engine_of(bundle), engine_of(bare)
    answered(ours, request(bundle, 12, "a", rebuild=True))
    answered(theirs, request(bare, 12, "a", rebuild=True))
    assert np.abs(ours.first_logits("a") - theirs.first_logits("a")).max() > 1e-3


@each_backend
def test_a_new_session_computes_its_own_cycles_only(source: Path, tmp_path: Path) -> None:
    bundle = with_header(source, tmp_path / "own")
    engine = engine_of(bundle)
    before = engine.rows
    first = answered(engine, request(bundle, 3, "a", rebuild=True))
    cycles = 3 * bundle.tokens_per_cycle
    assert first.reused_tokens == 1 + len(HEADER) + cycles  # held before the measurements
    assert engine.rows - before == 1 + len(bundle.manifest.outputs)  # one chunk, not two, and the decoding


def test_sessions_come_and_go_and_the_prefix_stays_whatever_room_they_need(tmp_path: Path) -> None:
    bundle = with_header(HOP, tmp_path / "own")
    engine, roomy = engine_of(bundle, pages=28), engine_of(bundle)
    for number in range(12):
        asked = request(bundle, 30 + number, f"s{number}", rebuild=True)
        assert answered(engine, asked).raws == answered(roomy, asked).raws
    statistics = engine.pool_statistics()
    assert engine.evicted + statistics.offloaded > 0
    assert statistics.standing == 1 + len(HEADER)
    for number in range(12):
        engine.release(f"s{number}")
    assert engine.pool_statistics().in_tables == -(-(1 + len(HEADER)) // bundle.manifest.block)


def test_a_pool_too_small_for_it_is_refused_at_the_start_and_holds_nothing(tmp_path: Path) -> None:
    bundle = with_header(HOP, tmp_path / "own")
    engine = engine_of(bundle, stand=False, pages=3)
    with pytest.raises(PoolExhaustedError):
        engine.stand()
    assert engine.pool_statistics().in_tables == 0
    with pytest.raises(InferenceError, match="free pages"):
        make_engine(bundle, OUTPUTS, Size(pages=3))


def test_where_a_copy_finds_no_room_the_header_is_computed_again(tmp_path: Path) -> None:
    bundle = with_header(OPTIMUM_LLAMA, tmp_path / "own")
    alone = answered(engine_of(bundle), request(bundle, 10, "a", rebuild=True)).raws
    engine = Engine(bundle, OUTPUTS, pages=26)
    engine.stand()
    for number in range(6):
        assert answered(engine, request(bundle, 10, f"s{number}", rebuild=True)).raws == alone
    assert engine.evicted > 0


def test_a_bundle_without_a_header_holds_nothing_ahead() -> None:
    engine, _ = start_engine(load_bundle(BUFFER_TANK), OUTPUTS, Size())
    assert engine.pool_statistics().standing == 0


def test_a_start_with_a_header_is_ready_with_it(tmp_path: Path) -> None:
    bundle = with_header(HOP, tmp_path / "own")
    engine, shown = start_engine(bundle, OUTPUTS, Size())
    assert engine.pool_statistics().standing == 1 + len(HEADER)
    assert shown.incremental_error <= 1e-4
    assert bundle.facts["header"] == "37 tokens"
    assert self_test(engine_of(bundle), bundle).incremental_error <= 1e-4


@pytest.mark.parametrize(
    ("source", "header", "window", "why"),
    [
        (BUFFER_TANK, HEADER, {}, "a band forgets a header"),
        (HOP, (0, 100_000), {}, "`header` holds tokens outside 0 to"),
        (HOP, HEADER, {"length": 49}, "does not hold two cycles behind a header of 37"),
    ],
)
def test_a_header_that_cannot_be_kept_is_refused(
    source: Path, header: tuple[int, ...], window: dict[str, object], why: str, tmp_path: Path
) -> None:
    with pytest.raises(BundleError, match=why):
        with_header(source, tmp_path / "own", header, **window)


def test_pages_of_one_header_are_not_found_behind_another(tmp_path: Path) -> None:
    """A page's name says everything before it: what was computed behind one header serves no other."""
    one = with_header(HOP, tmp_path / "one")
    engine = engine_of(one)
    tokens = [*engine.tokenizer.opening, *engine.tokenizer.opening]
    answered(engine, request(one, 30, "a", rebuild=True))
    cache = engine.backend.open()
    assert engine.backend.adopt(cache, tokens[:32]) == 32
    other = engine.backend.open()
    assert engine.backend.adopt(other, tokens[1:33]) == 0
