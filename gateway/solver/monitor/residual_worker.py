"""The assumption monitor's process: low priority, one decision's measurements in, residuals out (S16)."""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
from collections.abc import Mapping
from dataclasses import replace

import msgspec
import structlog

from gateway.core.ports import CheckRequest, StateSet
from gateway.core.residual import Residual
from gateway.core.tag import TagDefinition, TagId
from gateway.solver.modules.compile import compile_module
from gateway.solver.monitor.residuals import Monitor
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.wire import decoder, encoder, given, written
from gateway.supervision.child_log import log_as_parent
from gateway.supervision.frames import receive, send

log = structlog.get_logger().bind(component="residual_worker")

MODULE = "gateway.solver.monitor.residual_worker"
_LOW_PRIORITY = 10
_GENERATIONS_KEPT = 2


class Watch(msgspec.Struct, frozen=True):
    """One decision's measurements, as `Monitor.take` has them; the first of a generation with its modules."""

    request: CheckRequest
    kept: StateSet | None
    unbroken_since: float
    modules: tuple[tuple[str, str, int], ...] = ()
    tags: tuple[TagDefinition, ...] = ()


class Watched(msgspec.Struct, frozen=True):
    """What they say. `begun`: the windows began anew just now. `problem`: nothing could be said, and why."""

    residuals: tuple[Residual, ...] = ()
    begun: bool = False
    problem: str = ""


_watches = decoder(Watch)
_watched = decoder(Watched)


def asked(
    request: CheckRequest, kept: StateSet | None, unbroken_since: float, rules: RuleSet | None
) -> bytes:
    """The frame that asks; `rules` where the process has not been told them yet. Raises `UntellableError`."""
    modules = given(rules) if rules is not None else ()
    tags = tuple(rules.definitions.values()) if rules is not None else ()
    return written(Watch(request, kept, unbroken_since, modules, tags))


def answered(body: bytes) -> Watched:
    """What a frame of the process says."""
    return _watched.decode(body)


class Desk:
    """Rule sets of the newest generations, and the windows of every decision point."""

    def __init__(self) -> None:
        self._rules: dict[int, RuleSet] = {}
        self._monitors: dict[str, Monitor] = {}

    def answer(self, ask: Watch) -> Watched:
        """What one decision's measurements say."""
        generation = ask.request.generation
        if ask.modules:
            self._rules[generation] = _rules(ask.modules, {d.id: d for d in ask.tags}, generation)
            while len(self._rules) > _GENERATIONS_KEPT:
                self._rules.pop(min(self._rules))
        rules = self._rules.get(generation)
        if rules is None:
            return Watched(problem=f"rule set {generation} was never told")
        monitor = self._monitors.setdefault(ask.request.point, Monitor())
        before = monitor.begun
        found = monitor.take(rules, ask.request, ask.kept, ask.unbroken_since)
        return Watched(residuals=found, begun=monitor.begun > before)


def _rules(
    modules: tuple[tuple[str, str, int], ...], tags: Mapping[TagId, TagDefinition], generation: int
) -> RuleSet:
    compiled = (
        replace(compile_module(text.encode(), source, tags), priority=priority)
        for source, text, priority in modules
    )
    return RuleSet.of(compiled, generation)


def serve(sock: socket.socket) -> None:
    """Answer frames until end of stream."""
    desk = Desk()
    while (body := receive(sock)) is not None:
        try:
            answer = desk.answer(_watches.decode(body))
        except Exception as exc:
            log.exception("measurements_not_judged")
            answer = Watched(problem=f"{type(exc).__name__}: {exc}")
        send(sock, encoder.encode(answer))


def main() -> None:
    """Serve on the inherited descriptor."""
    parser = argparse.ArgumentParser(prog=MODULE)
    parser.add_argument("--socket-fd", type=int, required=True)
    fd: int = parser.parse_args().socket_fd
    log_as_parent()
    os.nice(_LOW_PRIORITY)
    with socket.socket(fileno=fd) as sock, contextlib.suppress(BrokenPipeError):  # whoever asked is gone
        serve(sock)


if __name__ == "__main__":
    main()
