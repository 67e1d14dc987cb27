"""The analysis of modules in a process of its own, which takes only the processor time nobody else wants.

Z3 may take too long, too much memory or its process along; whoever asks loses nothing but the answer.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from gateway.core.errors import WorkerLostError
from gateway.core.tag import TagDefinition
from gateway.solver.analysis.effective import Times
from gateway.solver.analysis.findings import Report, from_plain
from gateway.solver.modules.module import Module
from gateway.solver.wire import decoder, encoder
from gateway.supervision.frames import receive, send
from gateway.supervision.worker import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.core.tag import TagId

_MEMORY_BYTES = 512 << 20  # an analysis that needs more is told as none
_START_S = 30.0  # for a busy machine to start a process and read the modules
_EACH_S = 0.1  # more for each module
_NICE = 19


class Source(msgspec.Struct, frozen=True):
    """A module as it is compiled again."""

    file: str
    text: str
    priority: int

    @staticmethod
    def of(module: Module) -> Source:
        """The source of a module."""
        return Source(module.source, module.text, module.priority)


class Question(msgspec.Struct, frozen=True):
    """What to analyse, against what, and for how long."""

    module: Source
    active: tuple[Source, ...]
    tags: tuple[TagDefinition, ...]
    until_effect: tuple[tuple[str, float], ...]
    max_skew: float
    silence_s: float
    proved: tuple[str, ...]
    budget_s: float


class Examiner:
    """Asks one question after the other; a lost process is replaced with the next one."""

    def __init__(self, budget_s: float) -> None:
        self.budget_s = budget_s
        self._process: WorkerProcess | None = None

    async def report(
        self,
        module: Module,
        active: Iterable[Module],
        times: Times,
        silence_s: float,
        proved: Iterable[str] = (),
    ) -> Report:
        """The report; raises `WorkerLostError`, and then there is none."""
        others = tuple(active)
        tags = {v.tag: v.definition for m in (*others, module) for v in m.variables.values() if not v.hidden}
        question = Question(
            Source.of(module),
            tuple(map(Source.of, others)),
            tuple(tags.values()),
            times.until_effect,
            times.max_skew,
            silence_s,
            tuple(proved),
            self.budget_s,
        )
        if self._process is None or not self._process.alive:
            await self.rest()
            self._process = WorkerProcess(__name__, name="module-examiner")
            await self._process.start()
        timeout_s = self.budget_s + _START_S + _EACH_S * len(others)
        answer = json.loads(await self._process.ask(encoder.encode(question), timeout_s))
        if "failed" in answer:
            raise WorkerLostError(str(answer["failed"]))
        return from_plain(answer)

    async def rest(self) -> None:
        """End the process until something is asked again."""
        process, self._process = self._process, None
        if process is not None:
            await process.aclose()


class _Desk:
    """Modules of the questions before are not compiled again."""

    def __init__(self) -> None:
        self._compiled: dict[Source, Module] = {}

    def answer(self, question: Question) -> Report:
        """The report on one module."""
        from gateway.solver.analysis.analyze import Wanted, analyze  # noqa: PLC0415  z3, after the bound
        from gateway.solver.analysis.asking import Allowance  # noqa: PLC0415

        tags = {d.id: d for d in question.tags}
        wanted = Wanted(
            module=self._module(question.module, tags),
            active=[self._module(source, tags) for source in question.active],
            times=Times(question.until_effect, question.max_skew),
            silence_s=question.silence_s,
            proved=question.proved,
        )
        self._compiled = {s: self._compiled[s] for s in (question.module, *question.active)}
        return analyze(wanted, Allowance(seconds=question.budget_s))

    def _module(self, source: Source, tags: Mapping[TagId, TagDefinition]) -> Module:
        from gateway.solver.modules.compile import compile_module  # noqa: PLC0415

        module = self._compiled.get(source)
        if module is None or any(tags.get(v.tag) != v.definition for v in module.variables.values()):
            module = compile_module(source.text.encode(), source.file, tags)
            module = self._compiled[source] = replace(module, priority=source.priority)
        return module


def serve(sock: socket.socket) -> None:
    """Answer questions until end of stream."""
    desk, questions = _Desk(), decoder(Question)
    while (body := receive(sock)) is not None:
        try:
            answer = desk.answer(questions.decode(body)).plain()
        except Exception as exc:  # noqa: BLE001  whoever asked is told, and asks the next
            answer = {"failed": f"{type(exc).__name__}: {exc}"}
        send(sock, json.dumps(answer).encode())


def main() -> None:
    """Serve on the inherited descriptor."""
    parser = argparse.ArgumentParser(prog=__spec__.name)
    parser.add_argument("--socket-fd", type=int, required=True)
    given = parser.parse_args()
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    with socket.socket(fileno=given.socket_fd) as sock:
        serve(sock)


if __name__ == "__main__":
    main()
