import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256
from pathlib import Path

import pytest

from gateway.core.clock import FakeClock
from gateway.core.errors import ConstraintError, WorkerLostError
from gateway.solver.activation import Activation
from gateway.solver.changes import Weakening
from gateway.solver.errors import ModuleRefusedError, NothingToApproveError
from gateway.solver.module import Module
from gateway.solver.module_reports import ReportWriter
from gateway.solver.registry import Registry
from gateway.solver.watcher import Content, FileGone, FileSettled


@dataclass(frozen=True)
class Rules:
    generation: int
    ids: tuple[str, ...]


def compiled(data: bytes, source: str) -> Module:
    try:
        read = json.loads(data)
    except ValueError as exc:
        raise ModuleRefusedError((ConstraintError(source, 3, 7, "expected `:`"),)) from exc
    return Module(
        id=read["id"], revision=read["revision"], digest=sha256(data).hexdigest(), priority=8,
        source=source, text=data.decode(), tags={}, actions=(), constraints=("c",),
        critical=frozenset(), step=Fraction(1), variables={}, dynamics={}, forms={},
        disturbances={}, rules=(), backup=(), safe_set=(), repair=frozenset(), cases=(),
    )  # fmt: skip


def assembled(modules: Sequence[Module], generation: int) -> Rules:
    ids = tuple(f"{m.id}@{m.revision}" for m in modules)
    if "clash@1" in ids and len(ids) > 1:
        raise ModuleRefusedError((ConstraintError("clash.json", 1, 1, "another backup for `pump`"),))
    return Rules(generation, ids)


@dataclass
class Bench:
    root: Path
    weakening: Weakening = "confirm"
    required: frozenset[str] = frozenset()
    active: list[Rules] = field(default_factory=list)
    lost: bool = False

    @property
    def folder(self) -> Path:
        return self.root / "constraints.d"

    async def activate(self, rules: Rules) -> None:
        if self.lost:
            raise WorkerLostError("no solver worker is left")
        self.active.append(rules)

    def registry(self) -> Registry[Rules]:
        return Registry(
            folder=self.folder,
            activation=Activation(self.root / "state" / "modules"),
            reports=ReportWriter(self.folder, self.root / "state" / "refusals"),
            compile=compiled,
            assemble=assembled,
            activate=self.activate,
            clock=FakeClock(),
            weakening=self.weakening,
            required=self.required,
        )

    def drop(self, name: str, text: str) -> FileSettled:
        (self.folder / name).write_text(text)
        return FileSettled(name, Content(text.encode(), sha256(text.encode()).hexdigest()))

    def module(self, name: str, module: str, revision: int) -> FileSettled:
        return self.drop(name, json.dumps({"id": module, "revision": revision}))

    def take_out(self, name: str) -> FileGone:
        (self.folder / name).unlink()
        return FileGone(name)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (tmp_path / "constraints.d").mkdir()
    return Bench(tmp_path)


def states(registry: Registry[Rules]) -> dict[str, str]:
    return {s.id: s.state for s in registry.statuses()}


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
    await registry.approve("limit", "ann")
    assert registry.rule_set == Rules(2, ("tank@1",))
    assert states(registry)["limit"] == "unloaded"
    assert not (bench.folder / "b.pending.txt").exists()
    with pytest.raises(NothingToApproveError):
        await registry.approve("limit", "ann")


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
    await registry.approve("limit", "ann")
    assert registry.rule_set == Rules(2, ("limit@2",))


async def test_broken_file_after_a_waiting_change_leaves_nothing_to_approve(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("b.json", "limit", 1)])
    await registry.apply([bench.module("b.json", "limit", 2)])
    await registry.apply([bench.drop("b.json", "{")])
    with pytest.raises(NothingToApproveError):
        await registry.approve("limit", "ann")
    assert registry.rule_set == Rules(1, ("limit@1",))


async def test_weakening_allow_needs_no_approval(bench: Bench) -> None:
    bench.weakening = "allow"
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 1), bench.module("b.json", "limit", 1)])
    await registry.apply([bench.module("a.json", "tank", 2), bench.take_out("b.json")])
    assert registry.rule_set == Rules(2, ("tank@2",))


async def test_many_files_at_once_are_one_activation(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 1)])
    await registry.apply([bench.module(f"m{n}.json", f"module-{n}", 1) for n in range(40)])
    assert registry.rule_set is not None
    assert registry.rule_set.generation == 2
    assert len(registry.rule_set.ids) == 41
    assert {status.state for status in registry.statuses()} == {"active"}


async def test_required_module_never_leaves_by_its_file(bench: Bench) -> None:
    bench.weakening = "allow"
    bench.required = frozenset({"tank"})
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 1)])

    await registry.apply([bench.take_out("a.json")])

    assert registry.rule_set == Rules(1, ("tank@1",))
    [status] = registry.statuses()
    assert status.state == "active"
    assert "stays in force" in status.refused_because[0]
    assert "requires" in await registry.unload("tank", "ann")


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
    bench.weakening = "allow"
    registry = bench.registry()
    await registry.start([bench.module("a.json", "tank", 5)])
    await registry.apply([bench.module("a.json", "tank", 4)])
    assert "revisions only rise" in registry.statuses()[0].refused_because[0]
    await registry.apply([bench.take_out("a.json")])
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


# An unmounted folder is not a person taking files out, not even where weakening needs no approval.
async def test_a_folder_that_is_away_at_the_start_takes_nothing_out(bench: Bench) -> None:
    bench.weakening = "allow"
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
    assert await registry.load("x.json", b'{"id": "x", "revision": 1}', "ann") == ""
    assert (bench.folder / "x.json").exists()
    assert "y.json:3:7" in await registry.load("y.json", b"{", "ann")
    assert not (bench.folder / "y.json").exists()
    assert "is not a name" in await registry.load("../x.json", b'{"id": "x", "revision": 2}', "ann")
    assert await registry.unload("x", "ann") == ""
    assert states(registry) == {"x": "pending"}
    assert "no module `z`" in await registry.unload("z", "ann")
