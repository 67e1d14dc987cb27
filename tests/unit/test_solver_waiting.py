"""What waits for a person while its file is renamed, replaced or gone, or the gateway starts again (S24)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from gateway.solver.errors import NothingToApproveError
from gateway.solver.in_force.acts import ActRefusedError, Acts
from gateway.solver.in_force.registry import Registry
from gateway.solver.in_force.watcher import Content, FileGone, FileSettled
from gateway.solver.modules.module import Module
from tests.unit.registry_bench import Bench, Rules, at_work, states, text_of
from tests.unit.solver_demo import LOWER_LEVEL
from tests.unit.true_registry import TrueBench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (tmp_path / "constraints.d").mkdir()
    return Bench(tmp_path)


def strict(bench: Bench) -> Registry[Rules]:
    """A registry in which an added module may weaken, too."""

    def weaker(_in_force: Rules | None, _old: Module | None, new: Module | None) -> str:
        return "it brings an assumption" if new is not None and '"weaker"' in new.text else ""

    registry = bench.registry()
    registry.weaker = weaker
    return registry


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  # a registry gives no event
            await asyncio.sleep(0.005)


# What a person looked at is not what the file holds any more.
@pytest.mark.parametrize("later", ["{", text_of("other", 1)])
async def test_s24_an_added_module_that_waits_is_forgotten_when_its_file_says_something_else(
    bench: Bench, later: str
) -> None:
    registry = strict(bench)
    await registry.start([])
    await registry.apply([bench.module("m.json", "new", 1, more="weaker")])
    assert states(registry) == {"new": "pending"}
    await registry.apply([bench.drop("m.json", later)])
    assert "new" not in states(registry)
    with pytest.raises(NothingToApproveError):
        await Acts(registry).approve("new", "ann")


# Who approves it must not take the module out: the file under the new name would be left aside.
@pytest.mark.parametrize("required", [frozenset[str](), frozenset({"tank"})])
async def test_s24_a_file_renamed_and_changed_waits_as_a_change_and_not_as_a_removal(
    bench: Bench, required: frozenset[str]
) -> None:
    bench.required = required
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 1)])
    (bench.folder / "a.json").unlink()
    await registry.apply([bench.module("b.json", "tank", 2)])
    await registry.apply([FileGone("a.json")])  # a file is gone later than another one is there
    assert "revision 2" in registry.statuses()[0].refused_because[0]
    await Acts(registry).approve("tank", "ann")
    assert registry.rule_set == Rules(2, ("tank@2",))
    assert registry.statuses()[0].file == "b.json"


async def test_s24_a_waiting_revision_waits_on_when_its_file_is_renamed(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 1)])
    await registry.apply([bench.module("a.json", "tank", 2)])
    (bench.folder / "a.json").rename(bench.folder / "b.json")
    await registry.apply([bench.module("b.json", "tank", 2)])
    await registry.apply([FileGone("a.json")])
    await Acts(registry).approve("tank", "ann")
    assert registry.rule_set == Rules(2, ("tank@2",))


async def test_s24_an_added_module_waits_on_when_its_file_is_renamed(bench: Bench) -> None:
    registry = strict(bench)
    await registry.start([])
    await registry.apply([bench.module("a.json", "new", 1, more="weaker")])
    (bench.folder / "a.json").rename(bench.folder / "b.json")
    await registry.apply([bench.module("b.json", "new", 1, more="weaker")])
    await registry.apply([FileGone("a.json")])
    assert [(s.id, s.file, s.state) for s in registry.statuses()] == [("new", "b.json", "pending")]


async def test_s24_when_the_renamed_file_goes_too_its_module_waits_to_be_taken_out(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 1)])
    (bench.folder / "a.json").unlink()
    await registry.apply([bench.module("b.json", "tank", 2)])
    await registry.apply([FileGone("a.json")])
    await registry.apply([bench.take_out("b.json")])
    assert "its file was taken out" in registry.statuses()[0].refused_because[0]
    await Acts(registry).approve("tank", "ann")
    assert registry.rule_set == Rules(2, ())


# Told again by a third account while it is proved, it would wait for a proof that nobody hears of.
async def test_s24_an_approved_change_that_somebody_offers_again_is_still_put_in_force(bench: Bench) -> None:
    async with at_work(bench) as (registry, acts):
        await registry.apply([bench.module("a.json", "tank", 1)])
        bench.armed, bench.known = True, False
        for who in ("ann", "carol"):
            await acts.load("a.json", text_of("tank", 2).encode(), who)
            if who == "ann":
                await acts.approve("tank", "bob")
        bench.may_end.set()
        await until(lambda: registry.rule_set == Rules(3, ("tank@2",)))
        assert states(registry) == {"tank": "active"}


async def test_s24_a_start_is_no_approval_of_an_added_module_that_waits(tmp_path: Path) -> None:
    bench = TrueBench(tmp_path)
    bench.folder.mkdir()

    def drop(name: str, words: str, others: str) -> FileSettled:
        data = LOWER_LEVEL.read_text().replace(words, others).encode()
        (bench.folder / name).write_bytes(data)
        return FileSettled(name, Content(data, sha256(data).hexdigest()))

    bare = drop("bare.json", ', "max_rate": "2 m3/h/s", "physical": ["0", "36"]', "")
    registry = bench.registry()
    await registry.start([bare])
    other = drop("other.json", '"id": "lower-level-limit"', '"id": "other"')
    await registry.apply([other])
    for again in (registry, bench.registry()):
        if again is not registry:
            await again.start([bare, other])
        found = {s.id: s.state for s in again.statuses()}
        assert found == {"lower-level-limit": "active", "other": "pending"}


# A copy beside the file is refused; it is what the folder holds of the module once the file is gone.
async def test_a_copy_takes_over_when_the_file_in_force_goes(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 1)])
    await registry.apply([bench.module("copy.json", "tank", 1)])
    assert states(registry) == {"tank": "active", "copy": "refused"}
    await registry.apply([bench.take_out("a.json")])
    assert [(s.id, s.file, s.state) for s in registry.statuses()] == [("tank", "copy.json", "active")]


async def test_s24_a_wider_copy_waits_when_the_file_in_force_goes(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 1)])
    await registry.apply([bench.module("copy.json", "tank", 2)])
    await registry.apply([bench.take_out("a.json")])
    assert "would be replaced by revision 2" in registry.statuses()[0].refused_because[0]
    await Acts(registry).approve("tank", "ann")
    assert registry.rule_set == Rules(2, ("tank@2",))


async def test_a_copy_does_not_undo_what_a_person_asked_for(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 1)])
    await registry.apply([bench.module("copy.json", "tank", 1)])
    await Acts(registry).unload("tank", "ann")
    await registry.apply([FileGone("a.json")])
    assert "its file was taken out" in registry.statuses()[-1].refused_because[0]


async def test_a_required_module_put_back_under_another_name_leaves_no_refusal_behind(bench: Bench) -> None:
    bench.required = frozenset({"tank"})
    for revision, name in ((1, "b.json"), (2, "c.json")):
        registry = bench.registry()
        await registry.start([bench.module("a.json", "tank", 1)])
        await registry.apply([bench.take_out("a.json")])
        assert (bench.folder / "a.refused.txt").exists()
        await registry.apply([bench.module(name, "tank", revision, more="tighter" if revision > 1 else "")])
        assert [(s.id, s.file, s.state) for s in registry.statuses()] == [("tank", name, "active")]
        assert not (bench.folder / "a.refused.txt").exists()
        bench.root = bench.root / "again"
        bench.folder.mkdir(parents=True)


# Who changes the file between the look and the word must not have the other approved.
async def test_s24_an_approval_of_what_was_looked_at_takes_nothing_else(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 1)])
    await registry.apply([bench.module("a.json", "tank", 2)])
    looked_at = registry.statuses()[0].change
    await registry.apply([bench.module("a.json", "tank", 2, more="worse")])
    with pytest.raises(ActRefusedError, match="look at it again"):
        await Acts(registry).approve("tank", "ann", looked_at)
    assert registry.rule_set == Rules(1, ("tank@1",))
    seen = registry.statuses()[0].change
    await Acts(registry).approve("tank", "ann", seen)
    assert registry.rule_set == Rules(2, ("tank@2",))
    assert registry.statuses()[0].change == ""
    (facts,) = [facts for kind, _, facts in bench.recorded if kind == "module_approved"]
    assert facts["sha256"].startswith(seen)
    await registry.apply([bench.take_out("a.json")])
    assert registry.statuses()[0].change == "removal"


async def test_what_fails_by_no_fault_of_its_own_is_tried_again(bench: Bench) -> None:
    async with at_work(bench) as (registry, _):
        registry.put_off.pause_s = 0.01
        bench.lost = True
        await registry.apply([bench.module("b.json", "limit", 1)])
        assert "tried again" in (bench.folder / "b.refused.txt").read_text()
        bench.lost = False
        await until((bench.folder / "b.accepted.txt").exists)
        assert states(registry) == {"limit": "active"}
        assert not (bench.folder / "b.refused.txt").exists()


async def test_a_change_that_was_put_off_is_not_tried_once_its_file_says_something_else(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([])
    bench.lost = True
    await registry.apply([bench.module("b.json", "limit", 1)])
    await registry.apply([bench.drop("b.json", "{")])
    assert registry.put_off.taken() == ([], {})


async def test_a_trial_ends_when_its_file_holds_another_module(bench: Bench) -> None:
    bench.trial = frozenset({"tried"})
    registry = bench.registry()
    await registry.start([bench.module("t.json", "tried", 1)])
    await registry.apply([bench.module("t.json", "other", 1)])
    assert states(registry) == {"other": "active"}
