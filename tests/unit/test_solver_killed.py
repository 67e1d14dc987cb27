"""The gateway killed between any two things that a change of modules writes, and started again (S24)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from pathlib import Path

import pytest

from gateway.solver.in_force import activation
from gateway.solver.in_force.acts import Acts
from gateway.solver.in_force.registry import Registry
from gateway.solver.in_force.watcher import Content, FileSettled
from tests.unit.registry_bench import Bench, Rules, states, text_of

OLD, WIDER, TIGHTER = text_of("tank", 1), text_of("tank", 2), text_of("tank", 3, "tighter")


class KilledError(BaseException):
    """No handler of the product takes it, as none runs after SIGKILL."""


class Life:
    """So many writes and records are made, then the process is dead."""

    def __init__(self) -> None:
        self.left = 1_000_000
        self.done = 0

    def step(self) -> None:
        if self.left <= 0:
            raise KilledError
        self.left -= 1
        self.done += 1


class MortalBench(Bench):
    """Records are durable steps of a life, too."""

    life = Life()

    async def record(self, kind: str, who: str, facts: Mapping[str, str]) -> None:
        self.life.step()
        await super().record(kind, who, facts)


Scenario = Callable[[Registry[Rules], Acts[Rules]], Awaitable[object]]


async def loads_wider(_: Registry[Rules], act: Acts[Rules]) -> None:
    await act.load("a.json", WIDER.encode(), "ann")


async def loads_and_approves(_: Registry[Rules], act: Acts[Rules]) -> None:
    await act.load("a.json", WIDER.encode(), "ann")
    await act.approve("tank", "bob")


async def rolls_back(registry: Registry[Rules], act: Acts[Rules]) -> None:
    await loads_and_approves(registry, act)
    await act.roll_back("tank", "ann")
    await act.approve("tank", "bob")


async def tightens(_: Registry[Rules], act: Acts[Rules]) -> None:
    await act.load("a.json", TIGHTER.encode(), "ann")


async def unloads(_: Registry[Rules], act: Acts[Rules]) -> None:
    await act.unload("tank", "ann")
    await act.approve("tank", "bob")


async def tries_and_promotes(_: Registry[Rules], act: Acts[Rules]) -> None:
    await act.load("trial.json", TIGHTER.encode(), "ann", shadow=True)
    await act.promote("tank", "ann")


def found(folder: Path) -> list[FileSettled]:
    """What the watcher would tell at a start."""
    files = [p for p in sorted(folder.glob("*.json")) if not p.name.startswith(".")]
    return [FileSettled(p.name, Content(p.read_bytes(), sha256(p.read_bytes()).hexdigest())) for p in files]


@pytest.mark.parametrize(
    ("scenario", "may_be"),
    [
        (loads_wider, {"tank@1"}),
        (loads_and_approves, {"tank@1", "tank@2"}),
        (rolls_back, {"tank@1", "tank@2"}),
        (tightens, {"tank@1", "tank@3"}),
        (unloads, {"tank@1", ""}),
        (tries_and_promotes, {"tank@1", "tank@3"}),
    ],
)
async def test_s24_killed_between_any_two_steps_the_last_good_or_what_was_approved_is_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: Scenario, may_be: set[str]
) -> None:
    life = Life()
    unlink = Path.unlink

    def mortal_write(path: Path, body: bytes) -> None:
        """Whole or not at all, as it is; without the waits for a disk."""
        life.step()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)

    def mortal_unlink(path: Path, missing_ok: bool = False) -> None:  # noqa: FBT001, FBT002  # as pathlib's
        life.step()
        unlink(path, missing_ok)

    monkeypatch.setattr(MortalBench, "life", life)
    monkeypatch.setattr(activation, "write_durably", mortal_write)
    steps, seen = 0, set[str]()
    while True:
        life.left = 1_000_000
        bench = MortalBench(tmp_path / str(steps))
        bench.folder.mkdir(parents=True)
        registry = bench.registry()
        (bench.folder / "a.json").write_text(OLD)
        await registry.start(found(bench.folder))
        bench.armed = True
        life.left = steps
        whole = True
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", mortal_unlink)
            try:
                await scenario(registry, Acts(registry))
            except KilledError:
                whole = False
        life.left = 1_000_000
        approved = [kind for kind, _, _ in bench.recorded if kind in {"module_approved", "module_promoted"}]
        last = bench.active[-1]
        bench.armed = False  # a start is never armed
        again = bench.registry()
        await again.start(found(bench.folder))
        assert again.rule_set is not None
        now = ",".join(again.rule_set.ids)
        seen.add(now)
        assert now in may_be, (steps, now)
        if scenario is not tightens and now != "tank@1":
            assert approved, (steps, now)
        same = (again.rule_set.generation, again.rule_set.ids) == (last.generation, last.ids)
        assert same or again.rule_set.generation > last.generation
        assert set(states(again)) <= {"tank", "tank (shadow)", "trial"}
        if whole:
            break
        steps += 1
    assert steps > 3  # there was something to be killed between
    assert seen == may_be
