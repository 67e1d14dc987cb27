"""The background judge: one process of low priority, one recorded decision in, one judgement out (S7)."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import msgspec
import structlog

from gateway.recheck.check import recheck
from gateway.recheck.language import LanguageError
from gateway.recheck.recorded import Recorded, premises, question
from gateway.supervision.child_log import log_as_parent
from gateway.supervision.frames import receive, send

log = structlog.get_logger().bind(component="recheck_worker")

_LOWEST_PRIORITY = 19
_GENERATIONS_KEPT = 2


class Judge(msgspec.Struct, frozen=True):
    """One decision to judge. `texts` comes with the first of a generation; numbers are exact texts."""

    generation: int
    recorded: dict[str, Any]
    texts: list[str] | None = None
    overridden: list[str] = []  # constraints that are only reported (S25)


class Judgement(msgspec.Struct, frozen=True):
    """What was found. `unread`: the decision could not be judged, and why; then nothing else is said."""

    violated: list[str] = []
    left_out: list[str] = []
    unusable: list[str] = []  # why nothing may be permitted on these facts, whatever the rules say
    runs: int = 0
    unread: str = ""


def plain(recorded: Recorded) -> dict[str, Any]:
    """`recorded` for the wire."""
    return {
        "readings": _texts(recorded.readings),
        "quality": dict(recorded.quality),
        "age_s": _texts(recorded.age_s),
        "history": {tag: [[str(v), str(s)] for v, s in entries] for tag, entries in recorded.history.items()},
        "held_s": _texts(recorded.held_s),
        "written": _texts(recorded.written),
        "hold_s": str(recorded.hold_s),
        "effect_delay_s": str(recorded.effect_delay_s),
        "carried": _ranges(recorded.carried),
        "gap_s": str(recorded.gap_s),
        "rows": {row: [None if s is None else str(s) for s in ends] for row, ends in recorded.rows.items()},
        "earlier": [[str(ago), _ranges(box)] for ago, box in recorded.earlier],
        "kept": _ranges(recorded.kept),
    }


def recorded_of(raw: Mapping[str, Any]) -> Recorded:
    """The record of what `plain` made."""
    return Recorded(
        readings=_numbers(raw["readings"]),
        quality=raw["quality"],
        age_s=_numbers(raw["age_s"]),
        history={
            tag: [(Fraction(v), Fraction(s)) for v, s in entries] for tag, entries in raw["history"].items()
        },
        held_s=_numbers(raw["held_s"]),
        written=_numbers(raw["written"]),
        hold_s=Fraction(raw["hold_s"]),
        effect_delay_s=Fraction(raw["effect_delay_s"]),
        carried=_intervals(raw["carried"]),
        gap_s=Fraction(raw["gap_s"]),
        rows={row: (_since(surely), _since(possibly)) for row, (surely, possibly) in raw["rows"].items()},
        earlier=[(Fraction(ago), _intervals(box) or {}) for ago, box in raw["earlier"]],
        kept=_intervals(raw["kept"]),
    )


class Desk:
    """Sources of the rule sets it was told of, the newest few."""

    def __init__(self) -> None:
        self._texts: dict[int, list[str]] = {}

    def answer(self, ask: Judge) -> Judgement:
        """The judgement of one decision."""
        if ask.texts is not None:
            self._texts[ask.generation] = ask.texts
            while len(self._texts) > _GENERATIONS_KEPT:
                self._texts.pop(min(self._texts))
        texts = self._texts.get(ask.generation)
        if texts is None:
            return Judgement(unread=f"rule set {ask.generation} was never told")
        recorded = recorded_of(ask.recorded)
        try:
            found = premises(texts, recorded)
            if found.unusable:
                return Judgement(unusable=list(found.unusable))
            if found.contradict:
                return Judgement(unread=f"reading and prediction of `{found.contradict}` do not meet")
            report = recheck(texts, question(recorded, found), overridden=ask.overridden)
        except LanguageError as exc:
            return Judgement(unread=str(exc))
        if report.undetermined:  # it was told all there is, so nobody could know more
            return Judgement(unusable=list(report.undetermined))
        return Judgement(violated=sorted(report.violated), left_out=list(found.left_out), runs=report.runs)


def serve(sock: socket.socket) -> None:
    """Answer frames until end of stream."""
    desk, decoder = Desk(), msgspec.msgpack.Decoder(Judge)
    while (body := receive(sock)) is not None:
        try:
            answer = desk.answer(decoder.decode(body))
        except Exception as exc:
            log.exception("judging_failed")
            answer = Judgement(unread=f"{type(exc).__name__}: {exc}")
        send(sock, msgspec.msgpack.encode(answer))


def main() -> None:
    """Serve on the inherited descriptor."""
    parser = argparse.ArgumentParser(prog="gateway.recheck.worker")
    parser.add_argument("--socket-fd", type=int, required=True)
    fd: int = parser.parse_args().socket_fd
    log_as_parent()
    os.nice(_LOWEST_PRIORITY)
    with socket.socket(fileno=fd) as sock:
        serve(sock)


def _texts(values: Mapping[str, Fraction]) -> dict[str, str]:
    return {tag: str(value) for tag, value in values.items()}


def _numbers(raw: Mapping[str, str]) -> dict[str, Fraction]:
    return {tag: Fraction(text) for tag, text in raw.items()}


def _since(text: str | None) -> Fraction | None:
    return None if text is None else Fraction(text)


def _ranges(values: Mapping[str, tuple[Fraction, Fraction]] | None) -> dict[str, list[str]] | None:
    return None if values is None else {tag: [str(low), str(high)] for tag, (low, high) in values.items()}


def _intervals(raw: Mapping[str, list[str]] | None) -> dict[str, tuple[Fraction, Fraction]] | None:
    return None if raw is None else {tag: (Fraction(low), Fraction(high)) for tag, (low, high) in raw.items()}


if __name__ == "__main__":
    main()
