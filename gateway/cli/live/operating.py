"""The verbs that need a running gateway: ask, then show for people or print JSON for programs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gateway.cli.live import explaining, following
from gateway.cli.live.asking import CommandError, ask, connected, newest, run, typed
from gateway.cli.told import show, words
from gateway.link.messages import (
    Alarm,
    DecisionView,
    GatewayState,
    ModelState,
    ModuleState,
    OverrideState,
    PointState,
    TagInfo,
    TagState,
)

_T = TypeVar("_T")
_INTERRUPTED = 130  # as a shell reports a command ended by Ctrl-C


class Status(msgspec.Struct, frozen=True):
    """Answer to `status`."""

    gateway: GatewayState
    points: list[PointState]
    modules: list[ModuleState]
    alarms: list[Alarm]
    overrides: list[OverrideState] = []
    models: list[ModelState] = []


class Tag(msgspec.Struct, frozen=True):
    """One element of the answer to `tags`."""

    info: TagInfo
    state: TagState


class Draft(msgspec.Struct, frozen=True):
    """Answer to `binding.print`: the sheet, and the tags whose value is not Good by their quality."""

    sheet: str
    not_good: dict[str, str]


class Standing(msgspec.Struct, frozen=True):
    """Answer to `binding.show`: what is signed for a point, and what voids it."""

    point: str
    digest: str
    signed_by: str
    user: str
    at_ns: int
    void: str


@dataclass(frozen=True, slots=True)
class Operator:
    """A person or a program at one gateway. Every method returns the exit status."""

    socket: Path
    as_json: bool

    def status(self) -> int:
        """Health, decision points, modules, alarms."""

        def shown(s: Status) -> None:
            out = show.console()
            show.show_status(out, s.gateway, s.points, s.modules, s.alarms, s.overrides, s.models)

        return self.answer("status", {}, Status, shown)

    def tags(self) -> int:
        """Every tag."""

        def shown(tags: list[Tag]) -> None:
            show.console().print(show.tag_table([(t.info, t.state) for t in tags]))

        return self.answer("tags", {}, list[Tag], shown)

    def decisions(self, limit: int, point: str | None) -> int:
        """The newest decisions."""

        def shown(views: list[DecisionView]) -> None:
            show.console().print(show.decision_table(views))

        async def pages() -> Any:  # noqa: ANN401  # plain data
            async with connected(self.socket) as client:
                return await newest(client, limit, point)

        return self._told(lambda: run(self.socket, pages()), list[DecisionView], shown)

    def follow(self, limit: int, point: str | None) -> int:
        """Decisions without end."""
        out = show.console()

        def shown(view: DecisionView) -> None:
            if self.as_json:
                print(json.dumps(msgspec.to_builtins(view), ensure_ascii=False), flush=True)
            else:
                out.print(show.decision_line(view), soft_wrap=True)

        try:
            run(self.socket, following.follow(self.socket, limit, point, shown))
        except CommandError as exc:
            return failed(exc)
        except KeyboardInterrupt:
            return _INTERRUPTED
        return 0

    def explain(self, decision: str) -> int:
        """One decision in full."""

        def shown(view: DecisionView) -> None:
            explaining.explain(show.console(), view)

        return self.answer("explain", {"id": decision}, DecisionView, shown)

    def modules(self, verb: str, args: dict[str, Any], *, deadline_ms: float = 5000.0) -> int:
        """`runtime.list`, and the `runtime` verbs that answer with the new list."""

        def shown(modules: list[ModuleState]) -> None:
            show.console().print(show.module_table(modules, time.time_ns()))

        return self.answer(verb, args, list[ModuleState], shown, deadline_ms=deadline_ms)

    def models(self, verb: str, args: dict[str, Any], *, deadline_ms: float = 5000.0) -> int:
        """`model.list`, and the `model` verbs that answer with the new list."""

        def shown(models: list[ModelState]) -> None:
            out = show.console()
            out.print(show.model_table(models, time.time_ns()))
            for model in models:
                if told := words.memory_sentence(model, time.time_ns()):
                    out.print(told, soft_wrap=True)
                if model.last_refusal:
                    out.print(f"{model.id} refused {model.last_refusal}", soft_wrap=True, markup=False)

        return self.answer(verb, args, list[ModelState], shown, deadline_ms=deadline_ms)

    def in_shadow(self) -> int:
        """Say which points write nothing after an act that may have taken them out of armed."""

        def shown(status: Status) -> None:
            for point in status.points:
                if point.mode == "shadow":
                    print(f"{point.id} is in shadow: `o3ctl mode {point.id} armed` lets it write")

        return self.answer("status", {}, Status, shown)

    def act(self, verb: str, args: dict[str, Any], sentence: str) -> int:
        """A verb whose answer people need not see; `sentence` says that it was done."""
        return self.answer(verb, args, dict[str, Any], lambda _: print(sentence))

    def answer(
        self,
        verb: str,
        args: dict[str, Any],
        kind: type[_T],
        shown: Callable[[_T], None],
        *,
        deadline_ms: float = 5000.0,
    ) -> int:
        """Ask, then show the answer to people or print it for programs."""
        return self._told(lambda: ask(self.socket, verb, args, deadline_ms=deadline_ms), kind, shown)

    def _told(self, asks: Callable[[], Any], kind: type[_T], shown: Callable[[_T], None]) -> int:
        try:
            result = asks()
            if self.as_json:
                print(json.dumps(result, indent=2, ensure_ascii=False))
            else:
                shown(typed(result, kind))
        except CommandError as exc:
            return failed(exc)
        return 0


def failed(exc: CommandError) -> int:
    """Say the sentence where errors go; the exit status."""
    print(f"o3ctl: {exc.sentence}", file=sys.stderr)
    return exc.exit_status
