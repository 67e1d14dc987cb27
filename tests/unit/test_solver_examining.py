"""What is known of modules is asked in the background, kept, signed and told; it decides nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

import pytest

from gateway.core.errors import WorkerLostError
from gateway.solver.analysis import examining
from gateway.solver.analysis.effective import Times
from gateway.solver.analysis.examiner import Examiner
from gateway.solver.analysis.examining import Examine, Examining
from gateway.solver.analysis.findings import Finding, Report
from gateway.solver.analysis.sidecar import Key, Sidecar, key
from gateway.solver.bytecode.signing import KeyRefusedError, Seal, generate
from gateway.solver.in_force.module_status import ModuleStatus
from gateway.solver.in_force.registry import Registry
from gateway.solver.in_force.watcher import Content, FileSettled
from gateway.solver.modules.module import Module
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.solver_demo import BUFFER_TANK, LOWER_LEVEL, module
from tests.unit.true_registry import TrueBench

TEXT = LOWER_LEVEL.read_text()


def settled(name: str, text: str) -> FileSettled:
    return FileSettled(name, Content(text.encode(), sha256(text.encode()).hexdigest()))


def other(number: int) -> str:
    return TEXT.replace('"id": "lower-level-limit"', f'"id": "limit-{number}"')


def report_of(of: Module, *findings: Finding, against: Sequence[Module] = ()) -> Report:
    return Report(
        file=of.source,
        module=of.id,
        revision=of.revision,
        digest=of.digest,
        findings=findings or (Finding(question="influence", level="warning", said="it comes too late"),),
        against=tuple(f"{m.id} {m.revision}" for m in against),
    )


@dataclass
class Asked:
    """Answers as it is told, and remembers what was asked."""

    asked: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    rests: int = 0
    lost: bool = False
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def report(self, of: Module, active: Sequence[Module]) -> Report:
        self.asked.append((f"{of.id} {of.revision}", tuple(f"{m.id} {m.revision}" for m in active)))
        await self.go.wait()
        if self.lost:
            raise WorkerLostError("it was killed")
        return report_of(of, against=active)

    async def rest(self) -> None:
        self.rests += 1


@dataclass
class House:
    bench: TrueBench
    registry: Registry[RuleSet]
    asked: Asked
    examining: Examining[RuleSet]
    changed: asyncio.Event

    def status(self, name: str = "lower-level-limit") -> ModuleStatus:
        return next(s for s in self.registry.statuses() if s.id == name)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(180):
            while not holds():
                self.changed.clear()
                await self.changed.wait()


async def _at_once() -> None:
    return None


@asynccontextmanager
async def house(
    root: Path,
    *found: FileSettled,
    settled: Callable[[], Awaitable[None]] = _at_once,
    asked: Asked | None = None,
) -> AsyncIterator[House]:
    bench, asked, changed = TrueBench(root), asked or Asked(), asyncio.Event()
    asked.go.set()
    registry = bench.registry()
    examine = Examine(asked.report, key, asked.rest, 1.0)
    looks = Examining(registry, examine, Sidecar(root / "state" / "analysis"), settled)

    def on_change() -> None:
        looks.look()
        changed.set()

    registry.on_change = on_change
    for one in found:
        (bench.folder / one.name).write_bytes(one.content.data)
    await registry.start(found)
    running = asyncio.create_task(looks.run())
    try:
        yield House(bench, registry, asked, looks, changed)
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_a_module_in_force_is_analysed_after_it_and_the_report_beside_its_file_says_so(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, settled("limit.json", TEXT)) as h:
        await h.until(lambda: bool(h.status().analysis))
        assert h.status().state == "active"
        assert "1 warning" in h.status().analysis[0]
        assert h.status().analysis[1] == "warning: influence: it comes too late"
        text = (h.bench.folder / "limit.accepted.txt").read_text()
        assert "Analysis:\n  1 warning" in text
        await h.registry.apply([settled("tighter.json", other(1))])
        await h.until(lambda: bool(h.status("limit-1").analysis))
        assert h.asked.asked[-1] == ("limit-1 1", ("lower-level-limit 1",))
        assert "among lower-level-limit 1" in h.status("limit-1").analysis[0]
    assert h.asked.rests


# A person who approves looks at it; what is in force by itself can only forbid.
async def test_s24_what_waits_is_analysed_against_what_it_replaces_and_goes_on_waiting(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, settled("limit.json", TEXT)) as h:
        await h.until(lambda: bool(h.status().analysis))
        wider = TEXT.replace('"revision": 1', '"revision": 2').replace('"error": "0.01"', '"error": "0.005"')
        await h.registry.apply([settled("limit.json", wider)])
        await h.until(lambda: len(h.asked.asked) == 2)
        await h.until(lambda: "lower-level-limit 1" in "".join(h.status().analysis))
        assert h.asked.asked[-1] == ("lower-level-limit 2", ("lower-level-limit 1",))
        assert (h.status().state, h.status().revision) == ("pending", 1)
        text = (h.bench.folder / "limit.pending.txt").read_text()
        assert "an engineer approves it" in text
        assert "warning: influence: it comes too late" in text


async def test_a_revision_that_tightens_is_analysed_against_the_one_before(tmp_path: Path) -> None:
    async with house(tmp_path, settled("limit.json", TEXT)) as h:
        await h.until(lambda: bool(h.status().analysis))
        tighter = TEXT.replace('"revision": 1', '"revision": 2').replace('"error": "0.01"', '"error": "0.02"')
        await h.registry.apply([settled("limit.json", tighter)])
        await h.until(lambda: len(h.asked.asked) == 2 and bool(h.status().analysis))
        assert h.status().revision == 2
        assert h.asked.asked[-1] == ("lower-level-limit 2", ("lower-level-limit 1",))


async def test_after_a_restart_kept_answers_count_also_where_others_came(tmp_path: Path) -> None:
    async with house(tmp_path, settled("limit.json", TEXT)) as h:
        await h.until(lambda: bool(h.status().analysis))
    found = [settled("limit.json", TEXT), settled("more.json", other(1))]
    async with house(tmp_path, *found) as h:
        await h.until(lambda: bool(h.status().analysis) and bool(h.status("limit-1").analysis))
        assert [name for name, _ in h.asked.asked] == ["limit-1 1"]


async def test_of_very_many_modules_at_a_start_only_some_are_asked_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examining, "MOST_ASKED", 2)
    async with house(tmp_path, *(settled(f"m{n}.json", other(n)) for n in range(4))) as h:
        await h.until(lambda: all(s.analysis for s in h.registry.statuses()))
        assert len(h.asked.asked) == 2
        unasked = [s for s in h.registry.statuses() if "not asked at the start" in s.analysis[0]]
        assert len(unasked) == 2
        await h.registry.apply([settled("later.json", other(9))])
        await h.until(lambda: bool(h.status("limit-9").analysis))
        assert len(h.asked.asked) == 3


async def test_an_analysis_that_ends_without_an_answer_is_told_and_stops_nothing(tmp_path: Path) -> None:
    async with house(tmp_path, settled("limit.json", TEXT), asked=Asked(lost=True)) as h:
        await h.until(lambda: bool(h.status().analysis))
        assert h.status().analysis == ("not analysed: it was killed",)
        assert h.status().state == "active"
        assert not list((tmp_path / "state" / "analysis").glob("*"))


async def test_an_analysis_waits_for_the_proof_of_the_safe_set(tmp_path: Path) -> None:
    proved = asyncio.Event()

    async def until_proved() -> None:
        await proved.wait()

    async with house(tmp_path, settled("limit.json", TEXT), settled=until_proved) as h:
        await h.registry.apply([settled("more.json", other(1))])
        assert not h.asked.asked
        proved.set()
        await h.until(lambda: len(h.asked.asked) == 2)


LOWER, TANK = module(LOWER_LEVEL), module(BUFFER_TANK)
OPEN = Finding(question="safe set", level="unknown", said="not known in the budget")


def test_a_kept_answer_is_that_of_the_same_question_or_none(tmp_path: Path) -> None:
    kept = Sidecar(tmp_path)
    mine, report = key(LOWER, [TANK]), report_of(LOWER)
    kept.keep(mine, report)
    assert kept.read(mine) == report
    for another in (
        key(LOWER, []),
        key(TANK, [LOWER]),
        key(LOWER, [TANK], Times(max_skew=1.0)),
        key(replace(LOWER, priority=3), [TANK]),
    ):
        assert kept.read(another) is None
    assert kept.latest(key(LOWER, [])) == report
    assert kept.latest(key(LOWER, [], "more")) is None


def test_what_was_left_open_counts_only_for_no_more_time(tmp_path: Path) -> None:
    kept, mine, report = Sidecar(tmp_path), key(LOWER, []), report_of(LOWER, OPEN)
    kept.keep(mine, report, budget_s=20.0)
    assert kept.read(mine) is None
    assert kept.read(mine, budget_s=30.0) is None
    assert kept.read(mine, budget_s=20.0) == report


def forged(path: Path, what: Callable[[dict[str, object]], None]) -> None:
    content = json.loads(path.read_text())
    what(content)
    path.write_text(json.dumps(content))


def test_where_a_key_is_given_only_what_it_signed_is_used(tmp_path: Path) -> None:
    for name in ("mine", "theirs"):
        generate(tmp_path / name)
    seal = Seal.of(tmp_path / "mine")
    kept, report = Sidecar(tmp_path / "kept", seal), report_of(LOWER)
    mine, another = key(LOWER, []), key(TANK, [])
    kept.keep(mine, report)
    path = tmp_path / "kept" / f"{mine.name}.json"
    whole = path.read_bytes()
    assert kept.read(mine) == report
    assert Sidecar(tmp_path / "kept", Seal.of(tmp_path / "theirs")).read(mine) is None
    (tmp_path / "kept" / f"{another.name}.json").write_bytes(whole)
    assert kept.read(another) is None

    def changed(content: dict[str, object]) -> None:
        content["budget_s"] = 1e9

    def unsigned(content: dict[str, object]) -> None:
        content["signature"] = ""

    for what in (changed, unsigned):
        path.write_bytes(whole)
        forged(path, what)
        assert kept.read(mine) is None
    path.write_bytes(b"\xff{")
    assert kept.read(mine) is None
    with pytest.raises(KeyRefusedError):
        Seal.of(tmp_path / "mine.pub")


def test_a_kept_answer_of_another_version_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key(LOWER, [])
    monkeypatch.setattr("gateway.solver.analysis.sidecar._versions", lambda: ["0.2.0", "4.14"])
    assert key(LOWER, []) != before
    assert isinstance(before, Key)


# The true process: every question of the design page is in its report.
@pytest.mark.integration
async def test_the_examiner_answers_every_question_and_ends() -> None:
    examiner = Examiner(20.0)
    try:
        tank = module(BUFFER_TANK)
        old = module(LOWER_LEVEL)
        new = module(LOWER_LEVEL, ('"revision": 1', '"revision": 2'), ('"error": "0.01"', '"error": "0.02"'))
        report = await examiner.report(new, [tank, old], Times((("deadline", 0.1),), 0.5), 5.0)
        every = {"cases", "satisfiable", "conflicts", "safe set", "influence", "dead ends", "difference"}
        assert {f.question for f in report.findings} >= every
        assert report.errors
        assert report.against == ("buffer-tank 7", "lower-level-limit 1")
    finally:
        await examiner.rest()
