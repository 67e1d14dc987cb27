"""Mutated module files never crash the registry nor evict the last good (the true parser)."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

from gateway.daemon.runtime import whole
from gateway.solver.in_force.watcher import Content, FileSettled
from tests.fuzz.mutator import CORPUS, COUNT, mutated
from tests.unit.solver_demo import BUFFER_TANK, LOWER_LEVEL
from tests.unit.true_registry import TrueBench


def settled(bench: TrueBench, name: str, data: bytes) -> FileSettled:
    (bench.folder / name).write_bytes(data)
    whole(data)  # as the watcher asks before it tells
    return FileSettled(name, Content(data, sha256(data).hexdigest()))


def test_the_mutator_repeats_itself_and_the_corpus_is_there() -> None:
    assert [mutated(seed) for seed in range(10)] == [mutated(seed) for seed in range(10)]
    assert len(list(CORPUS.glob("mutant-*.json"))) == COUNT


async def test_a_hundred_mutated_files_never_evict_the_last_good(tmp_path: Path) -> None:
    bench = TrueBench(tmp_path)
    registry = bench.registry()
    await registry.start([settled(bench, "tank.json", BUFFER_TANK.read_bytes())])
    await registry.apply([settled(bench, "limit.json", LOWER_LEVEL.read_bytes())])
    good = registry.rule_set
    assert good is not None
    refused = taken = 0
    for path in sorted(CORPUS.iterdir()):
        data = path.read_bytes()
        name = "limit.json" if b"lower-level-limit" in data else "tank.json"
        before = registry.rule_set
        await registry.apply([settled(bench, name, data)])
        assert registry.rule_set is not None
        assert registry.rule_set.module_ids == {"buffer-tank", "lower-level-limit"}
        if registry.rule_set is before:
            refused += 1
        else:  # only what tightens may replace the last good by itself
            taken += 1
            assert json.loads(data)["revision"] >= 1
        text = (bench.folder / f"{Path(name).stem}.refused.txt").exists()
        waits = (bench.folder / f"{Path(name).stem}.pending.txt").exists()
        accepted = (bench.folder / f"{Path(name).stem}.accepted.txt").exists()
        assert text or waits or accepted  # every file is answered
    assert refused >= 80
    assert refused + taken == len(list(CORPUS.iterdir()))

    # And as files of their own beside the good ones.
    again = TrueBench(tmp_path / "beside")
    again.root.mkdir()
    registry = again.registry()
    await registry.start([settled(again, "tank.json", BUFFER_TANK.read_bytes())])
    changes = [settled(again, path.name, path.read_bytes()) for path in sorted(CORPUS.iterdir())]
    await registry.apply(changes)
    assert registry.rule_set is not None
    assert "buffer-tank" in registry.rule_set.module_ids
    held = registry.sets.active["buffer-tank"].module
    assert held.digest == sha256(BUFFER_TANK.read_bytes()).hexdigest()
    assert len(registry.statuses()) >= len(changes)
