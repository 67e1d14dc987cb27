"""The solver worker: one process, one Z3 context, one frame in, one frame out."""

from __future__ import annotations

import argparse
import gc
import importlib
import resource
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

import structlog

from gateway.core.decision import CheckResult, Permitted, Repaired
from gateway.core.guidance import Refusal
from gateway.core.override import Override
from gateway.core.ports import CheckRequest
from gateway.core.tag import TagDefinition, TagId
from gateway.solver.analysis.asking import Allowance
from gateway.solver.analysis.conflicts import Met, together
from gateway.solver.checking.shadow import Trial
from gateway.solver.checking.shelf import Shelf
from gateway.solver.checking.terms import Budget, solver
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.modules.compile import compile_module
from gateway.solver.modules.module import Module
from gateway.solver.proofs.safeset import prove
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.wire import (
    Answer,
    Ask,
    Check,
    CheckAnother,
    Done,
    Drop,
    Failed,
    Guide,
    GuideAnother,
    Guiding,
    Load,
    Next,
    NextAnother,
    Prepare,
    Prove,
    Proved,
    asks,
    checked,
    encoder,
    guiding,
    narrowed,
)
from gateway.solver.workers.check import Checks, millis_up
from gateway.supervision.child_log import log_as_parent
from gateway.supervision.frames import receive, send

log = structlog.get_logger().bind(component="solver_worker")

CONFLICT_S = 1.0  # for the search for a contradiction between modules, at load
_UNTOLD = "no premises were told"
_LOADS_BETWEEN_SWEEPS = 16  # of everything that was ever loaded: some 20 ms
_CHECKS_BETWEEN_COLLECTIONS = 64  # of what is young: 30 us
_COLLECTIONS_BETWEEN_FULL = 16  # a full pass takes one to three milliseconds


class Desk:
    """Loaded rule sets by generation."""

    def __init__(self) -> None:
        self._loaded: dict[int, Checks] = {}
        self._trials: dict[int, Trial] = {}  # with modules in shadow
        self._told: CheckRequest | None = None  # the premises told last
        self._shelf = Shelf()
        self._met = Met()
        # Z3 makes its timer now, while this process has its share of the processor: the timer keeps that one.
        solver(self._shelf.context, Budget()).check()

    def prepare(self, ask: Prepare) -> None:
        """Get ready for checks on what `ask` says; a set that is not loaded is told when one is asked for."""
        self._told = ask.request
        if (checks := self._loaded.get(ask.request.generation)) is not None:
            checks.prepare(ask.request, ask.order)

    def told(self) -> None:
        """Guidance has been sent: while it is decoded along, get ready for the check."""
        try:
            if self._told is not None:
                self.prepare(Prepare(self._told))
        except Exception:  # the check meets it again, and is undetermined
            log.exception("not_ready_after_guidance")

    def answer(self, ask: Ask) -> Answer | None:  # noqa: C901, PLR0911  one for each kind of request
        """The answer to one request, None to what has none."""
        match ask:
            case Prepare():
                self.prepare(ask)
                return None
            case Load():
                return self._load(ask)
            case Drop(generation):
                return self._drop(generation)
            case Check(request, deadline_at):
                return self._check(request, deadline_at)
            case CheckAnother(proposal, may_repair, deadline_at):
                if self._told is None:
                    return Failed(_UNTOLD)
                request = replace(self._told, proposal=proposal, may_repair=may_repair)
                return self._check(request, deadline_at)
            case Next(request, order, fixed):
                return self._next(request, order, fixed)
            case NextAnother(order, fixed):
                return Failed(_UNTOLD) if self._told is None else self._next(self._told, order, fixed)
            case Guide(request, order, refusals):
                return self._guide(request, order, refusals)
            case GuideAnother(order, refusals):
                return Failed(_UNTOLD) if self._told is None else self._guide(self._told, order, refusals)
            case Prove(generation, budget_s):
                checks = self._loaded.get(generation)
                if checks is None:
                    return Failed(f"rule set {generation} is not loaded in this worker")
                proof = prove(checks.rules, budget_s=budget_s)
                return Proved(proof.digest, proof.escape)

    def _check(self, request: CheckRequest, deadline_at: float) -> Answer:
        self._told = request
        checks = self._loaded.get(request.generation)
        if checks is None:
            return Failed(f"rule set {request.generation} is not loaded in this worker")
        result, state = checks.check(request, late=lambda: time.monotonic() >= deadline_at)
        return checked(self._beside(request, result), state)

    def _next(self, request: CheckRequest, order: tuple[TagId, ...], fixed: tuple[int, ...]) -> Answer:
        self._told = request
        checks = self._loaded.get(request.generation)
        if checks is None:
            return Failed(f"rule set {request.generation} is not loaded in this worker")
        return narrowed(checks.permitted_next(request, order, fixed))

    def _guide(
        self, request: CheckRequest, order: tuple[TagId, ...], refusals: tuple[Refusal, ...]
    ) -> Answer:
        self._told = request
        checks = self._loaded.get(request.generation)
        if checks is None:
            return Failed(f"rule set {request.generation} is not loaded in this worker")
        return guiding(checks.guidance(request, order, refusals))

    def _load(self, ask: Load) -> Answer:
        tags = {d.id: d for d in ask.tags}
        try:
            rules = self._rules(ask.modules, tags, ask.generation, ask.overrides)
        except ModuleRefusedError as exc:
            return Failed(str(exc))
        if not ask.examined and (conflict := _conflict(rules, self._met)) is not None:
            return Failed(conflict)
        self._shelf.kept = ask.outlines
        checks = Checks(rules, shelf=self._shelf)
        for hold_s, effect_delay_s in ask.warm:
            checks.warm(hold_s, effect_delay_s)
        self._rehearse(checks)
        self._loaded[ask.generation] = checks
        if ask.trial:
            self._load_trial(ask, tags, rules)
        return Done(rules.digest, checks.outlines)

    def _drop(self, generation: int) -> Answer:
        """A set is dropped once another is in force; that one is rehearsed again, for it has become cold."""
        self._trials.pop(generation, None)
        if self._loaded.pop(generation, None) is not None and self._loaded:
            self._rehearse(self._loaded[max(self._loaded)])
        return Done()

    def _rehearse(self, checks: Checks) -> None:
        """One check on the premises told last: what Z3 puts off until its first one no decision has to pay.

        Nothing is decided, and what it says is not kept.
        """
        if self._told is None:
            return
        try:
            checks.check(replace(self._told, generation=checks.rules.generation, may_repair=False))
        except Exception:  # the first decision on such premises finds that again, and is undetermined
            log.exception("rehearsal_failed", generation=checks.rules.generation)

    def _rules(
        self,
        modules: Iterable[tuple[str, str, int]],
        tags: Mapping[TagId, TagDefinition],
        generation: int,
        overrides: Iterable[Override] = (),
    ) -> RuleSet:
        """The rule set of module texts, each with the priority it has here; raises `ModuleRefusedError`.

        What a loaded set has of the same text and tags is not compiled again.
        """
        loaded = {(m.source, m.text): m for checks in self._loaded.values() for m in checks.rules.modules}
        found: list[Module] = []
        for source, text, priority in modules:
            module = loaded.get((source, text))
            if module is None or not _over(module, tags):
                module = compile_module(text.encode(), source, tags)
            found.append(replace(module, priority=priority))
        return RuleSet.of(found, generation, overrides)

    def _load_trial(self, ask: Load, tags: Mapping[TagId, TagDefinition], rules: RuleSet) -> None:
        try:
            trial = Trial(self._rules(ask.trial, tags, ask.generation), rules)
            for hold_s, effect_delay_s in ask.warm:
                trial.warm(millis_up(effect_delay_s), millis_up(hold_s))
        except Exception:  # a module in shadow stops nothing, whatever is wrong with it
            log.exception("shadow_modules_not_loaded", generation=ask.generation)
        else:
            self._trials[ask.generation] = trial

    def _beside(self, request: CheckRequest, result: CheckResult) -> CheckResult:
        """The same result, with what modules in shadow say of what it lets out, or of what was proposed."""
        trial = self._trials.get(request.generation)
        proposed = request.may_repair or (request.proposal is not None and request.proposal.model_digest)
        if trial is None or not proposed:  # an answer for what was proposed, and not one for each fallback
            return result
        match result.verdict:
            case Permitted(setpoints) | Repaired(setpoints, _):
                values = {v.tag: v.value for v in setpoints}
            case _:
                values = request.proposal.engineering() if request.proposal is not None else {}
        times = millis_up(request.effect_delay_s), millis_up(request.hold_s)
        try:
            return replace(result, shadow=trial.findings(request, values, *times))
        except Exception:  # a module in shadow changes no verdict, not even by a fault of ours
            log.exception("shadow_not_judged", decision=request.decision)
            return result


def _conflict(rules: RuleSet, met: Met) -> str | None:
    """What can never hold together; None where nothing is known to contradict (then every check shows it)."""
    found = together(rules, Allowance(seconds=CONFLICT_S), met=met) if rules.modules else ()
    return next((finding.said for finding in found if finding.level == "refused"), None)


def _over(module: Module, tags: Mapping[TagId, TagDefinition]) -> bool:
    """Whether a module was compiled over these definitions."""
    return all(v.hidden or tags.get(v.tag) == v.definition for v in module.variables.values())


def serve(sock: socket.socket) -> None:
    """Answer frames until end of stream. Garbage is collected between them, never within a check."""
    desk = Desk()
    since = collections = loads = 0
    gc.disable()
    while (body := receive(sock)) is not None:
        ask = asks.decode(body)  # what cannot be decoded ends the worker: nobody would know what was answered
        try:
            answer = _said(desk, ask)
        except MemoryError:  # at its bound it would fail again and again; another has room
            log.error("out_of_memory", then="this worker ends")  # noqa: TRY400  where it ran out says nothing
            if isinstance(ask, Load):
                _answer(sock, Failed("it takes more memory than a solver worker may have"))
            return
        if answer is None:
            continue
        if isinstance(ask, Load):  # before it is told: nobody waits for this worker yet
            if loads % _LOADS_BETWEEN_SWEEPS == 0:  # a dropped set leaves little that only this finds
                gc.unfreeze()
                gc.collect()
            gc.freeze()
            loads += 1
        if not _answer(sock, answer):
            return
        if isinstance(answer, Guiding):
            desk.told()
        since += 1
        if since >= _CHECKS_BETWEEN_COLLECTIONS:
            since, collections = 0, collections + 1
            gc.collect(1 if collections % _COLLECTIONS_BETWEEN_FULL else 2)


def _said(desk: Desk, ask: Ask) -> Answer | None:
    """The answer, also where something went wrong; raises `MemoryError`: then nothing is sure any more."""
    try:
        return desk.answer(ask)
    except MemoryError:
        raise
    except Exception as exc:
        if "out of memory" in str(exc):  # as Z3 says it
            raise MemoryError from exc
        log.exception("request_failed")
        return None if isinstance(ask, Prepare) else Failed(f"{type(exc).__name__}: {exc}")


def _answer(sock: socket.socket, answer: Answer) -> bool:
    """Send it; False where nobody is there any more to hear it."""
    try:
        body = encoder.encode(answer)
    except (OverflowError, ValueError) as exc:  # a number of thousands of digits has no text
        log.exception("answer_cannot_be_told")
        body = encoder.encode(Failed(f"the answer cannot be told: {exc}"))
    try:
        send(sock, body)
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


def main() -> None:
    """Serve on the inherited descriptor."""
    parser = argparse.ArgumentParser(prog="gateway.solver.workers.worker")
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--memory-bytes", type=int, default=0, help="bound of private memory; 0: none")
    parser.add_argument("--guided", action="store_true", help="get ready for questions what may come next")
    parser.add_argument("--nearest", action="store_true", help="get ready for repairs wherever is nearest")
    given = parser.parse_args()
    log_as_parent()
    if given.guided:
        importlib.import_module("gateway.solver.workers.outlook")  # else the first who asks waits for it
    if given.nearest:
        importlib.import_module("gateway.solver.repairing.nearest")
    if given.memory_bytes:  # Z3's own bound does not count everything; the kernel's does
        resource.setrlimit(resource.RLIMIT_DATA, (given.memory_bytes, given.memory_bytes))
    with socket.socket(fileno=given.socket_fd) as sock:
        serve(sock)


if __name__ == "__main__":
    main()
