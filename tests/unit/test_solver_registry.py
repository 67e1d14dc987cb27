import json
from pathlib import Path

import pytest

from gateway.solver.errors import NothingToApproveError
from gateway.solver.in_force.acts import ActRefusedError, Acts
from gateway.solver.in_force.watcher import FileGone
from tests.unit.registry_bench import Bench, Rules, states


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (tmp_path / "constraints.d").mkdir()
    return Bench(tmp_path)


# S24: an empty rule set permits nothing; the checker must still be told of it.
async def test_empty_folder_activates_an_empty_set(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([])
    assert registry.rule_set == Rules(1, ())


async def test_added_module_is_in_force_at_once_and_the_same_file_again_is_nothing(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 1)])
    assert bench.active == [Rules(1, ("tank@1",))]

    await registry.apply([bench.module("b.json", "limit", 1)])
    await registry.apply([bench.module("b.json", "limit", 1)])

    assert bench.active[1:] == [Rules(2, ("limit@1", "tank@1"))]
    assert states(registry) == {"tank": "active", "limit": "active"}
    assert (bench.folder / "b.accepted.txt").exists()


# S24
async def test_removed_module_stays_until_a_person_approves(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 1), bench.module("b.json", "limit", 1)])

    await registry.apply([bench.take_out("b.json")])

    assert states(registry)["limit"] == "pending"
    assert registry.rule_set == Rules(1, ("limit@1", "tank@1"))
    assert "o3ctl runtime approve limit" in (bench.folder / "b.pending.txt").read_text()
    await Acts(registry).approve("limit", "ann")
    assert registry.rule_set == Rules(2, ("tank@1",))
    assert states(registry)["limit"] == "unloaded"
    assert not (bench.folder / "b.pending.txt").exists()
    with pytest.raises(NothingToApproveError, match=r"^module `limit`: no change waits for approval$"):
        await Acts(registry).approve("limit", "ann")


async def test_file_put_back_unchanged_ends_the_waiting(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("b.json", "limit", 1)])
    await registry.apply([bench.take_out("b.json")])
    await registry.apply([bench.module("b.json", "limit", 1)])
    assert states(registry) == {"limit": "active"}
    assert len(bench.active) == 1


async def test_changed_module_waits_and_comes_into_force_on_approval(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("b.json", "limit", 1)])
    await registry.apply([bench.module("b.json", "limit", 2)])
    assert registry.rule_set == Rules(1, ("limit@1",))
    await Acts(registry).approve("limit", "ann")
    assert registry.rule_set == Rules(2, ("limit@2",))


async def test_broken_file_after_a_waiting_change_leaves_nothing_to_approve(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("b.json", "limit", 1)])
    await registry.apply([bench.module("b.json", "limit", 2)])
    await registry.apply([bench.drop("b.json", "{")])
    with pytest.raises(NothingToApproveError):
        await Acts(registry).approve("limit", "ann")
    assert registry.rule_set == Rules(1, ("limit@1",))


async def test_many_files_at_once_are_one_activation(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 1)])
    await registry.apply([bench.module(f"m{n}.json", f"module-{n}", 1) for n in range(40)])
    assert registry.rule_set is not None
    assert registry.rule_set.generation == 2
    assert len(registry.rule_set.ids) == 41
    assert {status.state for status in registry.statuses()} == {"active"}


async def test_required_module_never_leaves_by_its_file(bench: Bench) -> None:
    bench.required = frozenset({"tank"})
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 1)])

    await registry.apply([bench.take_out("a.json")])

    assert registry.rule_set == Rules(1, ("tank@1",))
    [status] = registry.statuses()
    assert status.state == "active"
    assert "stays in force" in status.refused_because[0]
    with pytest.raises(ActRefusedError, match="requires"):
        await Acts(registry).unload("tank", "ann")


async def test_broken_file_is_reported_with_its_place_and_the_last_good_stays(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 1)])
    await registry.apply([bench.drop("a.json", "{"), bench.drop("c.json", "{")])

    assert len(bench.active) == 1
    by_id = {s.id: s for s in registry.statuses()}
    assert by_id["c"].state == "refused"
    assert by_id["tank"].refused_because == ("a.json:3:7: expected `:`",)
    assert "a.json:3:7: expected `:`" in (bench.folder / "a.refused.txt").read_text()
    told = json.loads((bench.root / "state" / "refusals" / "c.json").read_text())
    assert told["problems"] == ["c.json:3:7: expected `:`"]

    await registry.apply([bench.module("a.json", "tank", 1), bench.take_out("c.json")])
    assert states(registry) == {"tank": "active"}
    assert not list(bench.folder.glob("*.refused.txt"))
    assert not list((bench.root / "state" / "refusals").iterdir())


async def test_revisions_only_rise_even_after_a_removal(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 5)])
    await registry.apply([bench.module("a.json", "tank", 4)])
    assert "revisions only rise" in registry.statuses()[0].refused_because[0]
    await registry.apply([bench.take_out("a.json")])
    await Acts(registry).approve("tank", "ann")
    await registry.apply([bench.module("a.json", "tank", 4)])
    assert registry.rule_set == Rules(2, ())
    await registry.apply([bench.module("a.json", "tank", 5)])
    assert registry.rule_set == Rules(3, ("tank@5",))


async def test_renamed_file_is_the_same_module_and_a_copy_is_refused(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 1)])
    await registry.apply([bench.module("copy.json", "tank", 1)])
    assert states(registry) == {"tank": "active", "copy": "refused"}
    (bench.folder / "copy.json").unlink()
    (bench.folder / "a.json").rename(bench.folder / "b.json")
    await registry.apply([bench.module("b.json", "tank", 1), FileGone("a.json"), FileGone("copy.json")])
    assert [(s.file, s.state) for s in registry.statuses()] == [("b.json", "active")]
    assert len(bench.active) == 1


async def test_state_survives_a_restart_with_its_generation(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 1)])
    await registry.apply([bench.module("b.json", "limit", 1)])

    again = bench.registry()
    await again.start([bench.module("a.json", "tank", 1), bench.module("b.json", "limit", 1)])
    assert again.rule_set == Rules(2, ("limit@1", "tank@1"))

    # While stopped one file vanished and the other broke: the last good of both stays.
    (bench.folder / "b.json").unlink()
    third = bench.registry()
    await third.start([bench.drop("a.json", "{")])
    assert third.rule_set == Rules(2, ("limit@1", "tank@1"))
    assert states(third) == {"tank": "active", "limit": "pending"}
    assert (bench.folder / "a.refused.txt").exists()


# An unmounted folder is not a person taking files out.
async def test_a_folder_that_is_away_at_the_start_takes_nothing_out(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 1)])
    bench.folder.rename(bench.root / "elsewhere")
    again = bench.registry()
    await again.start([])
    assert again.rule_set == Rules(1, ("tank@1",))
    assert states(again) == {"tank": "active"}


# A stop between activation and commit may have let decisions run under the reserved number.
async def test_a_reserved_generation_is_never_given_out_again(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 1)])
    registry.activation.reserve()
    again = bench.registry()
    await again.start([bench.module("a.json", "tank", 1)])
    assert again.rule_set == Rules(3, ("tank@1",))


async def test_set_that_cannot_be_loaded_leaves_the_last_good_in_force(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 1)])
    bench.lost = True
    await registry.apply([bench.module("b.json", "limit", 1)])
    assert registry.rule_set == Rules(1, ("tank@1",))
    assert states(registry) == {"tank": "active", "b": "refused"}


async def test_module_that_clashes_at_the_start_is_refused_alone(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 1), bench.module("clash.json", "clash", 1)])
    assert registry.rule_set is not None
    assert registry.rule_set.ids == ("tank@1",)
    assert states(registry) == {"tank": "active", "clash": "refused"}


async def test_load_and_unload_go_through_the_folder(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([])
    acts = Acts(registry)
    await acts.load("x.json", b'{"id": "x", "revision": 1}', "ann")
    assert (bench.folder / "x.json").exists()
    with pytest.raises(ActRefusedError, match=r"y\.json:3:7"):
        await acts.load("y.json", b"{", "ann")
    assert not (bench.folder / "y.json").exists()
    with pytest.raises(ActRefusedError, match="is not a name"):
        await acts.load("../x.json", b'{"id": "x", "revision": 2}', "ann")
    await acts.unload("x", "ann")
    assert states(registry) == {"x": "pending"}
    with pytest.raises(ActRefusedError, match="no module `z`"):
        await acts.unload("z", "ann")


# A load that is refused must not take the place of the good file: the folder would say what is not in force.
async def test_a_refused_load_leaves_the_good_file_alone(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("x.json", "x", 5)])
    before = (bench.folder / "x.json").read_bytes()
    with pytest.raises(ActRefusedError, match="revisions only rise"):
        await Acts(registry).load("x.json", b'{"id": "x", "revision": 4}', "ann")
    with pytest.raises(ActRefusedError, match="holds module `x`"):
        await Acts(registry).load("x.json", b'{"id": "y", "revision": 1}', "ann")
    assert (bench.folder / "x.json").read_bytes() == before


async def test_a_clash_among_many_files_refuses_that_one_alone(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 1)])
    files = [bench.module(f"m{n}.json", f"module-{n}", 1) for n in range(20)]
    await registry.apply([*files[:7], bench.module("clash.json", "clash", 1), *files[7:]])
    assert {s.id for s in registry.statuses() if s.state == "active"} == {
        "tank",
        *(f"module-{n}" for n in range(20)),
    }
    assert states(registry)["clash"] == "refused"
    assert len(bench.active) < 12  # halves, not one activation a file
