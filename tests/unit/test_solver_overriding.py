"""The life of an override over the true registry: asked, confirmed, ended (S25). Time is a fake clock's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.core.clock import FakeClock
from gateway.solver.in_force.acts import Acts
from gateway.solver.in_force.override_book import OverrideBook
from tests.unit.overriding_bench import RAMP, SOURCE, Bench, refused, revised


async def test_s25_one_asks_another_confirms_and_the_rule_set_has_a_new_identity(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    async with bench.at_work() as (registry, overriding):
        before = bench.active[-1]
        await overriding.request(RAMP, "valve test", 600.0, "anna")
        assert bench.active[-1] is before  # a request alone sets nothing aside
        assert [s.state for s in overriding.statuses()] == ["requested"]

        override = await overriding.confirm(RAMP, "bert")

        now = bench.active[-1]
        assert now.overrides == (override,)
        assert now.generation > before.generation
        assert now.digest != before.digest
        assert (override.requested_by, override.confirmed_by) == ("anna", "bert")
        assert override.until_ns - override.since_ns == 600_000_000_000
        assert bench.kinds() == ["override_requested", "override_confirmed"]
        assert bench.recorded[-1][0] == "activation"
        assert bench.recorded[-1][2]["overrides"] == RAMP
        assert [(s.id, s.state) for s in overriding.statuses()] == [(RAMP, "active")]
        assert registry.overrides.overdue(now.overrides) == ""


async def test_s25_the_account_that_asked_never_confirms(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    async with bench.at_work() as (_, overriding):
        await overriding.request(RAMP, "valve test", 600.0, "anna")
        assert "another account with the role engineer" in await refused(overriding.confirm(RAMP, "anna"))
        assert bench.active[-1].overrides == ()
        assert "no override of" in await refused(overriding.confirm("buffer-tank/other", "bert"))


@pytest.mark.parametrize(
    ("name", "reason", "for_s", "said"),
    [
        ("buffer-tank/no-overflow", "test", 60.0, "is critical"),
        ("buffer-tank/heater.min_on", "test", 60.0, "is a minimum time"),
        ("buffer-tank/pump.range", "test", 60.0, "is a declared range"),
        ("buffer-tank/safe_set[1]", "test", 60.0, "a part of the safe set"),
        ("pump-ramp", "test", 60.0, "write MODULE/CONSTRAINT"),
        ("boiler/pump-ramp", "test", 60.0, "no module `boiler` is in force"),
        (RAMP, "", 60.0, "needs a reason"),
        (RAMP, "two\nlines", 60.0, "needs a reason"),
        (RAMP, "test", 3601.0, "lasts from 10 s to 3600 s"),
        (RAMP, "test", 5.0, "lasts from 10 s to 3600 s"),
        (RAMP, "test", float("nan"), "lasts from 10 s to 3600 s"),
        (RAMP, "test", float("inf"), "lasts from 10 s to 3600 s"),
    ],
)
async def test_s25_what_nobody_may_ask_for_is_refused_with_a_sentence(
    tmp_path: Path, name: str, reason: str, for_s: float, said: str
) -> None:
    bench = Bench(tmp_path)
    async with bench.at_work() as (_, overriding):
        assert said in await refused(overriding.request(name, reason, for_s, "anna"))
        assert overriding.statuses() == ()
        assert bench.kinds() == []


async def test_a_gateway_may_allow_none_at_all(tmp_path: Path) -> None:
    async with Bench(tmp_path).at_work() as (_, overriding):
        overriding.longest_s = 0.0
        assert "allows no overrides" in await refused(overriding.request(RAMP, "test", 60.0, "anna"))


async def test_s25_the_shortest_and_the_longest_time_may_be_asked_for(tmp_path: Path) -> None:
    async with Bench(tmp_path).at_work() as (_, overriding):
        overriding.longest_s = 10.0
        assert "lasts from 10 s to 10 s" in await refused(overriding.request(RAMP, "test", 10.5, "anna"))
        await overriding.request(RAMP, "test", 10.0, "anna")
        assert [s.id for s in overriding.statuses()] == [RAMP]


async def test_s25_it_ends_by_itself_before_its_time_is_over(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    async with bench.overridden(60.0) as (registry, overriding):
        under = bench.active[-1]
        bench.clock.advance(57.9)
        await overriding.settle()
        assert bench.active[-1] is under

        bench.clock.advance(0.2)  # the rules without it are made ready two seconds before
        await overriding.settle()

        assert bench.active[-1].overrides == ()
        assert bench.active[-1].generation > under.generation
        assert registry.overrides.overdue(under.overrides) != ""
        assert bench.recorded[-1][:2] == ("override_ended", "gateway")
        assert "its time was over" in bench.because()
        assert overriding.statuses() == ()


async def test_s17_where_the_rules_without_it_cannot_be_put_in_force_nothing_passes_under_it(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    async with bench.overridden(60.0) as (registry, overriding):
        under = bench.active[-1]
        bench.lost = True
        bench.clock.advance(59.0)
        assert not await overriding.settle()
        assert registry.overrides.overdue(under.overrides) == ""
        bench.clock.advance(1.0)
        assert f"the override of `{RAMP}` ended" in registry.overrides.overdue(under.overrides)
        bench.lost = False
        assert await overriding.settle()
        assert bench.active[-1].overrides == ()
        assert registry.overrides.overdue(bench.active[-1].overrides) == ""


async def test_s25_a_wall_clock_ends_it_early_and_never_late(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    async with bench.overridden(600.0) as (registry, overriding):
        bench.clock.utc_now_ns -= 3_600_000_000_000
        bench.clock.advance(597.0)
        await overriding.settle()
        assert bench.active[-1].overrides != ()
        bench.clock.advance(1.0)
        await overriding.settle()
        assert bench.active[-1].overrides == ()
        await overriding.request(RAMP, "again", 600.0, "anna")
        await overriding.confirm(RAMP, "bert")
        under = bench.active[-1].overrides
        assert registry.overrides.overdue(under) == ""
        bench.clock.utc_now_ns += 601_000_000_000  # the machine slept, and its monotonic clock with it
        assert "ended" in registry.overrides.overdue(under), "S17: nothing passes before the task has looked"
        await overriding.settle()
        assert bench.active[-1].overrides == ()


@pytest.mark.parametrize(("who", "engineer"), [("anna", False), ("bert", False), ("carl", True)])
async def test_s25_either_person_and_any_engineer_release_it_at_once(
    tmp_path: Path, who: str, *, engineer: bool
) -> None:
    bench = Bench(tmp_path)
    async with bench.overridden() as (_, overriding):
        await overriding.release(RAMP, who, engineer=engineer)
        assert bench.active[-1].overrides == ()
        assert bench.recorded[-1][:2] == ("override_ended", who)
        assert bench.because() == f"released by {who}"


async def test_others_release_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    async with bench.overridden() as (_, overriding):
        assert "`anna`, `bert`" in await refused(overriding.release(RAMP, "dora", engineer=False))
        assert bench.active[-1].overrides != ()
        assert "is not overridden" in await refused(overriding.release("a/b", "anna", engineer=True))


async def test_s25_a_release_counts_within_a_second_even_where_the_rules_cannot_be_changed(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    async with bench.overridden() as (registry, overriding):
        under, bench.lost = bench.active[-1], True
        assert "goes on trying" in await refused(overriding.release(RAMP, "anna", engineer=False))
        bench.clock.advance(0.75)
        assert registry.overrides.overdue(under.overrides) == ""
        bench.clock.advance(0.25)
        assert registry.overrides.overdue(under.overrides) != ""


async def test_s25_it_ends_when_its_module_changes_and_a_request_lapses_with_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    async with bench.overridden() as (registry, overriding):
        await Acts(registry).load("tank.json", revised(2), "anna")
        assert bench.active[-1].overrides == ()
        assert bench.recorded[-1][0] == "override_ended"
        assert "its module changed" in bench.because()

        await overriding.request(RAMP, "again", 60.0, "anna")
        await Acts(registry).load("tank.json", revised(3), "anna")
        assert bench.recorded[-1][0] == "override_request_ended"
        assert overriding.statuses() == ()


async def test_s25_it_ends_when_its_module_leaves(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    async with bench.overridden() as (registry, _):
        acts = Acts(registry)
        await acts.unload("buffer-tank", "anna")
        assert bench.active[-1].overrides != ()  # a weakening waits, and the override with it
        await acts.approve("buffer-tank", "bert")
        assert bench.active[-1].modules == ()
        assert bench.recorded[-1][0] == "override_ended"


async def test_s25_a_restart_ends_it_and_the_rule_set_gets_another_generation(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    async with first.overridden():
        under = first.active[-1]

    second = Bench(tmp_path)
    async with second.at_work() as (_, overriding):
        assert second.active[0].overrides == ()
        assert second.active[0].generation > under.generation
        assert second.active[0].digest == first.active[-2].digest
        assert second.recorded[0][:2] == ("override_ended", "gateway")
        assert "started again" in second.recorded[0][2]["because"]
        assert overriding.statuses() == ()

    third = Bench(tmp_path)
    async with third.at_work():
        assert third.kinds() == []  # told once


async def test_a_request_that_nobody_confirms_lapses(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    async with bench.at_work() as (_, overriding):
        await overriding.request(RAMP, "valve test", 60.0, "anna")
        bench.clock.advance(58.0)  # the rules without it would have to be made ready at once
        assert "was asked for until" in await refused(overriding.confirm(RAMP, "bert"))
        bench.clock.advance(2.0)
        await overriding.settle()
        assert overriding.statuses() == ()
        assert bench.because() == "nobody confirmed it in its time"


async def test_only_one_override_of_a_rule_is_asked_for_or_in_force(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    async with bench.at_work() as (_, overriding):
        await overriding.request(RAMP, "valve test", 60.0, "anna")
        assert "`anna` asked for" in await refused(overriding.request(RAMP, "mine", 60.0, "bert"))
        await overriding.confirm(RAMP, "bert")
        assert "is overridden already" in await refused(overriding.request(RAMP, "mine", 60.0, "carl"))


async def test_what_cannot_be_put_in_force_is_told_and_set_aside_nowhere(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    async with bench.at_work() as (_, overriding):
        await overriding.request(RAMP, "valve test", 60.0, "anna")
        bench.lost = True
        assert "could not be put in force" in await refused(overriding.confirm(RAMP, "bert"))
        assert bench.kinds()[-1] == "override_ended"
        assert "no worker takes it" in bench.because()
        bench.lost = False
        await overriding.settle()
        assert bench.active[-1].overrides == ()
        assert overriding.statuses() == ()


async def test_s25_nothing_begins_that_the_log_cannot_keep_and_an_end_waits_for_no_log(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    async with bench.at_work() as (_, overriding):
        bench.full = True
        assert "disk full" in await refused(overriding.request(RAMP, "valve test", 60.0, "anna"))
        assert overriding.statuses() == ()
        bench.full = False
        await overriding.request(RAMP, "valve test", 60.0, "anna")
        bench.full = True
        assert "disk full" in await refused(overriding.confirm(RAMP, "bert"))
        assert bench.active[-1].overrides == ()
        bench.full = False
        await overriding.confirm(RAMP, "bert")
        bench.full = True
        await overriding.release(RAMP, "anna", engineer=False)
        assert bench.active[-1].overrides == ()
        assert "override_ended" not in bench.kinds()
        bench.full = False
        await overriding.settle()
        assert bench.recorded[-1][:2] == ("override_ended", "anna")


async def test_a_module_beside_it_comes_and_goes_without_ending_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    other = json.loads(SOURCE)
    other |= {"id": "second", "backup": [], "safe_set": [], "cases": []}
    other["constraints"] = [c for c in other["constraints"] if c["kind"] != "critical"]
    async with bench.overridden() as (registry, _):
        await Acts(registry).load("second.json", json.dumps(other).encode(), "anna")
        assert [o.name for o in bench.active[-1].overrides] == [RAMP]
        assert {m.id for m in bench.active[-1].modules} == {"buffer-tank", "second"}


async def test_ends_told_at_the_same_time_are_each_on_record_once() -> None:
    recorded: list[str] = []

    async def record(_kind: str, _who: str, facts: Mapping[str, str]) -> None:
        await asyncio.sleep(0)
        recorded.append(facts["constraint"])

    book = OverrideBook(record, FakeClock())
    names = [f"tank/rule-{number}" for number in range(20)]
    await asyncio.gather(*(book.tell("override_ended", "gateway", {"constraint": name}) for name in names))
    assert sorted(recorded) == sorted(names)
    assert not book.owes


async def test_s25_nothing_more_is_asked_for_while_an_override_comes_into_force(tmp_path: Path) -> None:
    """Between its confirmation and the exchange it is wanted and not yet in force."""
    bench = Bench(tmp_path)
    async with bench.at_work() as (registry, overriding):
        await overriding.request(RAMP, "valve test", 60.0, "anna")
        async with registry.lock:  # nothing is exchanged meanwhile
            confirming = asyncio.create_task(overriding.confirm(RAMP, "bert"))
            for _ in range(20):
                await asyncio.sleep(0)
            assert RAMP in overriding.book.wanted
            assert RAMP not in registry.sets.overrides
            assert "is overridden already" in await refused(overriding.request(RAMP, "mine", 60.0, "carl"))
            assert overriding.book.asked == {}
        await confirming
        assert RAMP in registry.sets.overrides
