"""Who may weaken the rules, what must be proved first, and how to go back (S1, S24, S27)."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.core.errors import GatewayError, StorageError
from gateway.solver.in_force.activation import Activation
from gateway.solver.in_force.acts import ActRefusedError, Acts
from gateway.solver.in_force.changes import Approved, FirstOfTwo, SamePerson, judge_approval
from gateway.solver.in_force.watcher import FileGone
from tests.unit.registry_bench import Bench, Rules, at_work, states, text_of

ANN, BOB = "ann", "bob"
ROOT = pwd.getpwuid(0).pw_name


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (tmp_path / "constraints.d").mkdir()
    return Bench(tmp_path)


def test_s24_who_may_approve() -> None:
    assert isinstance(judge_approval({ANN}, ANN, "confirm", armed=True), SamePerson)
    assert judge_approval({ANN}, BOB, "confirm", armed=True) == Approved()
    assert judge_approval(set(), ANN, "confirm", armed=True) == FirstOfTwo()
    assert judge_approval({ANN}, ANN, "confirm", armed=False) == Approved()
    assert judge_approval({ANN}, ANN, "allow", armed=True) == Approved()


async def test_s24_the_owner_of_a_dropped_weakening_does_not_approve_it_on_an_armed_point(
    bench: Bench,
) -> None:
    async with at_work(bench) as (registry, acts):
        await registry.apply([bench.module("a.json", "tank", 1)])
        bench.armed = True
        await registry.apply([bench.module("a.json", "tank", 2, owner=0)])
        [status] = registry.statuses()
        assert (status.state, status.changed_by) == ("pending", (ROOT,))

        with pytest.raises(ActRefusedError, match="another account with the role engineer"):
            await acts.approve("tank", ROOT)
        assert registry.rule_set == Rules(2, ("tank@1",))
        await acts.approve("tank", BOB)
        assert registry.rule_set == Rules(3, ("tank@2",))
    approvals = [(kind, who) for kind, who, _ in bench.recorded if kind.startswith("module_")]
    assert approvals == [("module_approved", BOB)]


async def test_s24_the_one_who_loaded_a_weakening_does_not_approve_it_though_we_wrote_the_file(
    bench: Bench,
) -> None:
    async with at_work(bench) as (registry, acts):
        await acts.load("a.json", text_of("tank", 1).encode(), ANN)
        bench.armed = True
        await acts.load("a.json", text_of("tank", 2).encode(), ANN)
        # The watcher then tells of the file, which is owned by the daemon's user.
        await registry.apply([bench.module("a.json", "tank", 2, owner=os.getuid())])
        with pytest.raises(ActRefusedError, match=f"`{ANN}` made this change"):
            await acts.approve("tank", ANN)

    again = bench.registry()  # a restart forgets what waits, not whose file it is
    await again.start([bench.module("a.json", "tank", 2, owner=os.getuid())])
    with pytest.raises(ActRefusedError, match=f"`{ANN}` made this change"):
        await Acts(again).approve("tank", ANN)
    await Acts(again).approve("tank", BOB)
    assert again.rule_set is not None
    assert again.rule_set.ids == ("tank@2",)


# The watcher reads a file, and tells of it a little later: in between a person may have loaded another.
async def test_s24_what_a_person_loaded_waits_on_though_the_file_is_told_of_as_it_was_before(
    bench: Bench,
) -> None:
    async with at_work(bench) as (registry, acts):
        before = bench.module("a.json", "tank", 1)
        await registry.apply([before])
        bench.armed = True
        await acts.load("a.json", text_of("tank", 2).encode(), ANN)
        await registry.apply([before])

        with pytest.raises(ActRefusedError, match=f"`{ANN}` made this change"):
            await acts.approve("tank", ANN)
        await acts.approve("tank", BOB)
        assert registry.rule_set == Rules(3, ("tank@2",))


# The system does not tell who removed a file: then no single account can be the second person.
async def test_s24_a_removal_by_nobody_knows_whom_needs_two_accounts(bench: Bench) -> None:
    async with at_work(bench) as (registry, acts):
        await registry.apply([bench.module("a.json", "tank", 1)])
        bench.armed = True
        await registry.apply([bench.take_out("a.json")])

        await acts.approve("tank", ANN)
        [status] = registry.statuses()
        assert status.state == "pending"
        assert "`ann` approved it first" in status.refused_because[0]
        with pytest.raises(ActRefusedError, match="another account"):
            await acts.approve("tank", ANN)
        await acts.approve("tank", BOB)
        assert states(registry) == {"tank": "unloaded"}


async def test_s24_an_unload_is_known_by_who_asked_even_when_the_folder_tells_of_it_again(
    bench: Bench,
) -> None:
    async with at_work(bench) as (registry, acts):
        await registry.apply([bench.module("a.json", "tank", 1)])
        bench.armed = True
        await acts.unload("tank", ANN)
        await registry.apply([FileGone("a.json")])
        with pytest.raises(ActRefusedError, match=f"`{ANN}` made this change"):
            await acts.approve("tank", ANN)
        await acts.approve("tank", BOB)
        assert states(registry) == {"tank": "unloaded"}


async def test_s24_one_person_may_do_both_where_weakening_is_allowed_or_nothing_is_armed(
    bench: Bench,
) -> None:
    async with at_work(bench) as (registry, acts):
        await acts.load("a.json", text_of("tank", 1).encode(), ANN)
        await acts.load("a.json", text_of("tank", 2).encode(), ANN)
        await acts.approve("tank", ANN)
        assert registry.rule_set == Rules(3, ("tank@2",))
        bench.armed, registry.weakening = True, "allow"
        await acts.load("a.json", text_of("tank", 3).encode(), ANN)
        assert states(registry) == {"tank": "pending"}  # a decision all the same
        await acts.approve("tank", ANN)
        assert registry.rule_set == Rules(4, ("tank@3",))


async def test_s24_a_tightening_is_instant_on_an_armed_point_also_where_nothing_is_proved(
    bench: Bench,
) -> None:
    bench.armed, bench.known = True, False
    async with at_work(bench) as (registry, _):
        await registry.apply([bench.module("a.json", "tank", 1), bench.module("b.json", "limit", 1)])
        await registry.apply([bench.module("b.json", "limit", 2, more="tighter")])
        assert registry.rule_set == Rules(3, ("limit@2", "tank@1"))
        assert bench.proofs == []


async def test_s1_an_approved_change_is_in_force_on_an_armed_point_only_when_its_safe_set_is_proved(
    bench: Bench,
) -> None:
    async with at_work(bench) as (registry, acts):
        await registry.apply([bench.module("a.json", "tank", 1)])
        bench.armed, bench.known = True, False
        await registry.apply([bench.module("a.json", "tank", 2)])
        await acts.approve("tank", BOB)
        [status] = registry.statuses()
        assert status.state == "pending"
        assert "once its safe set is proved invariant" in status.refused_because[0]
        assert registry.rule_set == Rules(2, ("tank@1",))
        with pytest.raises(ActRefusedError, match="is being proved"):
            await acts.approve("tank", BOB)

        bench.may_end.set()
        await until(lambda: registry.rule_set == Rules(3, ("tank@2",)))
        assert states(registry) == {"tank": "active"}
        assert [rules.ids for rules in bench.proofs] == [("tank@2",)]


async def test_s1_an_approved_change_whose_safe_set_escapes_is_refused_and_the_last_good_stays(
    bench: Bench,
) -> None:
    bench.escape = "level 3.59 m, pump 0 %"
    async with at_work(bench) as (registry, acts):
        await registry.apply([bench.module("a.json", "tank", 1)])
        bench.armed, bench.known = True, False
        await registry.apply([bench.module("a.json", "tank", 2)])
        await acts.approve("tank", BOB)
        bench.may_end.set()
        await until((bench.folder / "a.refused.txt").exists)  # a thread writes it, last
        [status] = registry.statuses()
        assert status.state == "active"
        assert status.refused_because == ("level 3.59 m, pump 0 %",)
        assert registry.rule_set == Rules(2, ("tank@1",))
        assert "level 3.59 m" in (bench.folder / "a.refused.txt").read_text()


async def test_a_file_changed_while_its_predecessor_is_proved_waits_anew(bench: Bench) -> None:
    async with at_work(bench) as (registry, acts):
        await registry.apply([bench.module("a.json", "tank", 1)])
        bench.armed, bench.known = True, False
        await registry.apply([bench.module("a.json", "tank", 2)])
        await acts.approve("tank", BOB)
        await until(lambda: bool(bench.proofs))
        await registry.apply([bench.module("a.json", "tank", 3)])
        bench.may_end.set()
        with pytest.raises(ActRefusedError, match="another account"):
            await acts.approve("tank", ROOT)
        assert registry.rule_set == Rules(2, ("tank@1",))


async def test_rollback_goes_back_one_accepted_revision_and_the_file_is_not_taken_again(
    bench: Bench,
) -> None:
    async with at_work(bench) as (registry, acts):
        for revision in (1, 2, 3):
            more = "tighter" if revision > 1 else ""
            await registry.apply([bench.module("a.json", "tank", revision, more=more)])
        assert await acts.roll_back("", ANN) == "tank"
        assert registry.rule_set is not None
        assert registry.rule_set.ids == ("tank@2",)  # it says that it tightens
        await registry.apply([bench.module("a.json", "tank", 3, more="tighter")])
        assert registry.rule_set.ids == ("tank@2",)
        [status] = registry.statuses()
        assert f"revision 3 of module `tank` was rolled back by {ANN}" in status.refused_because[0]

        with pytest.raises(ActRefusedError, match="another account"):
            bench.armed = True
            await acts.roll_back("tank", ANN)  # to revision 1: wider
            await acts.approve("tank", ANN)
        await acts.approve("tank", BOB)
        assert registry.rule_set.ids == ("tank@1",)
        with pytest.raises(ActRefusedError, match="no revision of module `tank` was accepted before"):
            await acts.roll_back("tank", ANN)
        with pytest.raises(ActRefusedError, match="no module `valve` is in force"):
            await acts.roll_back("valve", ANN)
    assert ("module_rollback", ANN, {"module": "tank", "from": "3", "to": "2"}) in bench.recorded

    again = bench.registry()  # recorded: a restart does not undo it
    await again.start([bench.module("a.json", "tank", 3, more="tighter")])
    assert again.rule_set is not None
    assert again.rule_set.ids == ("tank@1",)
    await again.apply([bench.module("a.json", "tank", 4, more="tighter")])
    assert again.rule_set.ids == ("tank@4",)


async def test_a_priority_is_kept_beside_the_bytes_over_repeats_and_restarts_but_not_a_new_revision(
    bench: Bench,
) -> None:
    data = text_of("tank", 1).encode()
    async with at_work(bench) as (registry, acts):
        await acts.load("a.json", data, ANN)
        await acts.load("a.json", data, BOB, priority=3)
        await registry.apply([bench.module("a.json", "tank", 1)])
        [status] = registry.statuses()
        assert (status.priority, status.priority_by) == (3, BOB)
        assert (bench.folder / "a.json").read_bytes() == data
        assert len(bench.active) == 3

    again = bench.registry()
    await again.start([bench.module("a.json", "tank", 1)])
    assert [(s.priority, s.priority_by) for s in again.statuses()] == [(3, BOB)]
    await again.apply([bench.module("a.json", "tank", 2, more="tighter")])
    assert [(s.priority, s.priority_by) for s in again.statuses()] == [(8, "")]


async def test_s27_a_shadow_module_is_beside_the_rules_until_a_person_promotes_it(bench: Bench) -> None:
    bench.trial = frozenset({"limit"})
    async with at_work(bench) as (registry, acts):
        await registry.apply([bench.module("a.json", "tank", 1), bench.module("b.json", "limit", 1)])
        assert registry.rule_set == Rules(2, ("tank@1",))
        assert bench.beside[-1] == Rules(2, ("limit@1", "tank@1"))
        assert states(registry) == {"tank": "active", "limit": "shadow"}
        await acts.load("t.json", text_of("tank", 2).encode(), ANN, shadow=True)
        assert bench.beside[-1] == Rules(3, ("limit@1", "tank@2"))
        assert states(registry)["tank (shadow)"] == "shadow"
        assert registry.rule_set is not None
        assert registry.rule_set.ids == ("tank@1",)

        await acts.promote("limit", ANN)
        promoted = registry.rule_set
        assert promoted.ids == ("limit@1", "tank@1")
        with pytest.raises(ActRefusedError, match="in shadow: tank"):
            await acts.promote("limit", ANN)

    again = bench.registry()
    await again.start([bench.module("b.json", "limit", 1)])
    assert states(again)["limit"] == "active"


async def test_a_shadow_module_that_fits_not_with_the_others_stops_nothing(bench: Bench) -> None:
    bench.trial = frozenset({"clash"})
    async with at_work(bench) as (registry, _):
        await registry.apply([bench.module("a.json", "tank", 1), bench.module("c.json", "clash", 1)])
        assert registry.rule_set == Rules(2, ("tank@1",))
        assert bench.beside[-1] is None


# Recorded before it counts: where the audit log cannot be written, nothing is weakened.
async def test_an_approval_that_cannot_be_recorded_does_not_count(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_work(bench) as (registry, acts):
        await registry.apply([bench.module("a.json", "tank", 1)])
        await registry.apply([bench.module("a.json", "tank", 2)])

        async def full(*_: object) -> None:
            raise StorageError("audit log cannot be appended to: disk is full")

        monkeypatch.setattr(registry, "record", full)
        with pytest.raises(GatewayError, match="disk is full"):
            await acts.approve("tank", BOB)
        assert registry.rule_set == Rules(2, ("tank@1",))
        assert states(registry) == {"tank": "pending"}


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  # a registry gives no event
            await asyncio.sleep(0.001)


def test_state_of_the_version_before_is_still_read(tmp_path: Path) -> None:
    kept = {"file": "a.json", "content": "c", "revision": 1, "digest": "d", "last_success_ns": 1}
    state = {"version": 1, "reserved": 4, "generation": 4, "modules": {"tank": kept}, "highest": {}}
    (tmp_path / "state.json").write_text(json.dumps(state))
    activation = Activation(tmp_path)
    activation.load()
    assert activation.generation == 4
    assert activation.modules["tank"].priority is None


def test_damaged_state_is_refused_with_what_to_do_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{{{")
    with pytest.raises(StorageError) as refused:
        Activation(tmp_path).load()
    assert "is damaged: put back a copy of its folder; without one, move" in str(refused.value)
    assert "pydantic" not in str(refused.value)
    assert (tmp_path / "state.json").read_text() == "{{{"
