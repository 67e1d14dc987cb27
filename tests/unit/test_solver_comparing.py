"""Reworded modules: what is in force while a solver compares them, and what follows (S24)."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest_asyncio

from gateway.solver.in_force.acts import Acts
from gateway.solver.in_force.comparing import Comparing
from gateway.solver.in_force.module_status import Held, ModuleStatus
from gateway.solver.in_force.registry import Registry
from gateway.solver.in_force.watcher import Content, FileSettled
from gateway.solver.modules.module import Module
from gateway.solver.rules.around import Around
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.solver_demo import LOWER_LEVEL
from tests.unit.true_registry import TrueBench

TEXT = LOWER_LEVEL.read_text()
FILE = "limit.json"


def reworded(revision: int, limit: str = "2*level <= 6.4") -> str:
    """The same limit in other words; only a solver can tell."""
    text = TEXT.replace('"revision": 1', f'"revision": {revision}')
    text = text.replace('"level": "3.21"', '"level": "3.5"')
    return text.replace('"require": "level <= 3.2"', f'"require": "{limit}"')


def settled(text: str, name: str = FILE) -> FileSettled:
    return FileSettled(name, Content(text.encode(), hashlib.sha256(text.encode()).hexdigest()))


class Solver:
    """Answers a comparison when it is let; a thread waits for it, as for the true one."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.why = ""
        self.go = threading.Event()

    def __call__(self, old: Module, new: Module, _around: Around) -> str:
        self.asked.append((old.revision, new.revision))
        assert self.go.wait(120)
        return self.why


class House:
    def __init__(self, root: Path) -> None:
        self.bench = TrueBench(root)
        self.registry: Registry[RuleSet] = self.bench.registry()
        self.solver = Solver()
        self.comparing = Comparing(self.registry, self.solver, Around.of)
        self.changed = asyncio.Event()
        self.registry.on_change = self.changed.set

    def status(self, module: str = "lower-level-limit") -> ModuleStatus:
        return next(s for s in self.registry.statuses() if s.id == module)

    async def settles(self) -> None:
        """Until nothing is being compared."""
        async with asyncio.timeout(60):
            while any(w.comparing for w in self.registry.book.waiting.values()):
                self.changed.clear()
                await self.changed.wait()

    async def begun(self, count: int = 1) -> None:
        async with asyncio.timeout(60):
            while len(self.solver.asked) < count:  # noqa: ASYNC110  a thread appends
                await asyncio.sleep(0.002)


@pytest_asyncio.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path)
    await made.registry.start([settled(TEXT)])
    running = asyncio.create_task(made.comparing.run(), name="compare")
    yield made
    made.solver.go.set()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


# S24: a comparison takes seconds; the last good is in force meanwhile, and the file says what it waits for.
async def test_s24_while_a_reworded_module_is_compared_the_last_good_is_in_force_and_it_says_so(
    house: House,
) -> None:
    await house.registry.apply([settled(reworded(2))])
    await house.begun()

    status = house.status()
    assert (status.state, status.revision) == ("pending", 1)
    (because,) = status.refused_because
    assert because.startswith("revision 1 would be replaced by revision 2: constraint `lower-level` changed")
    assert because.endswith("whether it still demands all that it did is being looked into")
    report = (house.registry.folder / "limit.pending.txt").read_text()
    assert "wait for the comparison" in report

    house.solver.go.set()
    await house.settles()
    status = house.status()
    assert (status.state, status.revision, status.refused_because) == ("active", 2, ())
    assert house.solver.asked == [(1, 2)]


async def test_another_module_comes_into_force_while_one_is_compared(house: House) -> None:
    await house.registry.apply([settled(reworded(2))])
    await house.begun()

    async with asyncio.timeout(60):
        await house.registry.apply([settled(TEXT.replace("lower-level-limit", "other"), "other.json")])

    assert house.status("other").state == "active"
    assert house.status().state == "pending"
    house.solver.go.set()
    await house.settles()
    assert house.bench.active[-1].module_ids == {"other", "lower-level-limit"}
    assert house.status().revision == 2


async def test_s24_a_reworded_module_that_demands_less_waits_for_a_person(house: House) -> None:
    house.solver.why = "`lower-level` would permit level 3.3 m"
    house.solver.go.set()

    await house.registry.apply([settled(reworded(2, "2*level <= 6.6"))])
    await house.settles()

    status = house.status()
    assert (status.state, status.revision) == ("pending", 1)
    because = "revision 1 would be replaced by revision 2: `lower-level` would permit level 3.3 m"
    assert status.refused_because == (f"{because}, which may weaken the rules",)
    await house.registry.apply([settled(reworded(2, "2*level <= 6.6"))])  # the folder tells it again
    assert house.status().refused_because == status.refused_because
    assert house.solver.asked == [(1, 2)]
    await Acts(house.registry).approve("lower-level-limit", "engineer")
    assert house.status().revision == 2


async def test_the_last_of_several_rewordings_is_the_one_that_counts(house: House) -> None:
    await house.registry.apply([settled(reworded(2))])
    await house.begun()
    await house.registry.apply([settled(reworded(3, "3*level <= 9.6"))])

    house.solver.go.set()
    await house.settles()

    assert house.status().revision == 3
    assert house.solver.asked == [(1, 2), (1, 3)]
    assert [m.revision for m in house.bench.active[-1].modules] == [3]


async def test_a_person_need_not_wait_for_the_comparison(house: House) -> None:
    await house.registry.apply([settled(reworded(2))])
    await house.begun()

    await Acts(house.registry).approve("lower-level-limit", "engineer")

    assert (house.status().state, house.status().revision) == ("active", 2)
    generations = len(house.bench.active)
    house.solver.go.set()
    await house.registry.apply([settled(reworded(3, "3*level <= 9.6"))])
    await house.settles()  # what the first comparison says is nothing to anybody any more
    assert house.status().revision == 3
    assert len(house.bench.active) == generations + 1


async def test_the_file_put_back_ends_the_comparison_without_effect(house: House) -> None:
    await house.registry.apply([settled(reworded(2))])
    await house.begun()
    await house.registry.apply([settled(TEXT)])
    house.solver.go.set()
    await house.settles()

    assert (house.status().state, house.status().revision) == ("active", 1)


async def test_s24_a_tighter_revision_meanwhile_is_what_the_reworded_one_is_judged_against(
    house: House,
) -> None:
    await house.registry.apply([settled(reworded(3))])
    await house.begun()
    async with house.registry.lock:  # as a person's rollback or load would, past the folder
        held = house.registry.sets.active["lower-level-limit"]
        text = TEXT.replace('"revision": 1', '"revision": 2').replace("3.2", "3.1")
        sets = house.registry.sets.with_active(await _held(house, text, held.file))
        waiting = house.registry.book.waiting["lower-level-limit"]
        assert await house.registry.take(sets, FILE)
        house.registry.book.waiting["lower-level-limit"] = waiting
    house.solver.go.set()
    await house.settles()

    assert house.solver.asked == [(1, 3), (2, 3)]
    assert house.status().revision == 3


async def _held(house: House, text: str, file: str) -> Held:
    return await Acts(house.registry)._offer(file, text.encode(), "engineer", None)


# A premise that held for the module alone may hold no more.
async def test_s24_a_module_that_takes_a_premise_away_meanwhile_has_it_compared_again(house: House) -> None:
    await house.registry.apply([settled(reworded(2))])
    await house.begun()
    bare = TEXT.replace('"id": "lower-level-limit"', '"id": "bare"').replace(', "physical": ["0", "36"]', "")
    await house.registry.apply([settled(bare, "bare.json")])
    house.solver.go.set()
    await house.settles()
    assert house.solver.asked == [(1, 2), (1, 2)]
    assert house.status().revision == 2


async def test_without_anybody_who_compares_a_reworded_module_waits_for_a_person(tmp_path: Path) -> None:
    registry = TrueBench(tmp_path).registry()
    await registry.start([settled(TEXT)])

    await registry.apply([settled(reworded(2))])

    (status,) = registry.statuses()
    assert (status.state, status.revision) == ("pending", 1)
    assert status.refused_because[0].endswith("changed or is gone, which may weaken the rules")


def test_the_reworded_text_is_the_one_the_tests_mean() -> None:
    assert json.loads(reworded(2))["constraints"][0]["require"] == "2*level <= 6.4"


# S24: who approves does not wait for the comparison, and its end must not take the approval back.
async def test_s24_an_approval_while_it_is_compared_stands_and_is_proved(house: House) -> None:
    house.bench.armed, house.bench.proved = True, False
    house.solver.why = "it would permit level 3.205 m"
    await house.registry.apply([settled(reworded(2, limit="2*level <= 6.41"))])
    await house.begun()

    house.registry.book.waiting["lower-level-limit"] = replace(
        house.registry.book.waiting["lower-level-limit"], by=frozenset({"anna"})
    )
    await Acts(house.registry).approve("lower-level-limit", "bert")
    house.solver.go.set()
    await house.settles()

    assert "once its safe set is proved" in house.status().refused_because[0]
    house.bench.proved = True
    proving = asyncio.create_task(house.registry.run())
    try:
        async with asyncio.timeout(60):
            while house.status().revision != 2:
                house.changed.clear()
                await house.changed.wait()
    finally:
        proving.cancel()
    assert house.solver.asked == [(1, 2)]
