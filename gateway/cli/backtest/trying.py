"""`o3ctl try M.json --live`: a module beside live decisions, loaded nowhere. It follows the audit log.

Every decision is durable there before anything is written, with all that a judge needs; so the running
gateway is asked nothing and cannot be disturbed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.audit.place import log_file
from gateway.cli.options import AsJson, Config, StateDir, TagsCsv, seconds_of

if TYPE_CHECKING:
    from gateway.cli.backtest.part import Stretcher
    from gateway.cli.backtest.report import Told
    from gateway.solver.backtest.compare import Comparison

POLL_S = 0.2
_NONE_MADE = (
    "no decision was made meanwhile, so nothing is known of the module: is the gateway running on this state "
    "folder, and does a point decide that often? `o3ctl status` tells"
)
_NS = 1_000_000_000


def try_file(
    file: Annotated[Path, typer.Argument(metavar="M.json", help="A module, .json or .o3c.")],
    live: Annotated[
        bool, typer.Option("--live", help="Judge the decisions that are made from now on.")
    ] = False,
    lasting: Annotated[
        str, typer.Option("--for", metavar="5m", help="How long: s, min, h, d or w; or Ctrl-C.")
    ] = "5min",
    point: Annotated[str | None, typer.Option("--point", help="Only this decision point.")] = None,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="RULES", help="Judge it with these modules, not those in force."),
    ] = None,
    state_dir: StateDir = None,
    tags: TagsCsv = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Say of each live decision what a module would have said otherwise; the gateway is not changed.

    Status 1 where no decision was made meanwhile.
    """
    if not live:
        raise typer.BadParameter("say --live; for decisions on record there is o3ctl backtest")
    from gateway.cli.backtest import backtesting  # noqa: PLC0415  # z3, numpy, pydantic
    from gateway.cli.offline import fail  # noqa: PLC0415
    from gateway.core.errors import StorageError  # noqa: PLC0415

    ends = time.monotonic() + seconds_of(lasting)
    try:
        stretcher = backtesting.stretcher_of(
            file, against, log_file(state_dir, config), point, (tags, config)
        )
        try:
            follow = Following(stretcher, _json_line if as_json else _line)
            if not as_json:
                print(follow.begins(), flush=True)
            follow.run(_until(ends))
            follow.ends(as_json=as_json, assumed=tags is None and config is None)
            if not follow.found.decisions:
                fail(f"o3ctl: {_NONE_MADE}")
        finally:
            stretcher.close()
    except StorageError as exc:
        fail(f"o3ctl: {exc}")


class Following:
    """Judges what is appended from now on. `told` hears each difference; raises `StorageError`."""

    def __init__(self, stretcher: Stretcher, told: Callable[[str, Told], None]) -> None:
        from gateway.solver.backtest.compare import Comparison  # noqa: PLC0415

        self._stretcher, self._told = stretcher, told
        self._seen = stretcher.newest()
        self._began_ns, self._began = time.time_ns(), time.monotonic()
        self.found: Comparison = Comparison()

    def begins(self) -> str:
        """What is about to be done, for people."""
        rules = self._stretcher.rules
        beside = ", ".join(m.id for m in rules.modules if m.id != self._stretcher.module.id) or "nothing else"
        return (
            f"trying `{self._stretcher.module.id}` revision {self._stretcher.module.revision} with {beside}; "
            "nothing is loaded, nothing is changed"
        )

    def run(self, ticks: Iterator[None]) -> None:
        """Look whenever `ticks` yields, and once more at the end; ends early on Ctrl-C."""
        try:
            for _ in ticks:
                self.look()
        except KeyboardInterrupt:
            print(file=sys.stderr)
        self.look()

    def look(self) -> None:
        """Judge what was appended since the last look."""
        newest = self._stretcher.newest()
        for row in range(self._seen + 1, newest + 1):
            one = self._stretcher.stretch(row, row, _NS)
            self._tell(one)
            self.found.add(one)
        self._seen = newest

    def ends(self, *, as_json: bool, assumed: bool) -> None:
        """The summary."""
        from gateway.cli.backtest import words as backtest_words  # noqa: PLC0415  # rich
        from gateway.cli.backtest.report import Ran, report_of  # noqa: PLC0415

        ran = Ran(self._began_ns, _NS, time.monotonic() - self._began, assumed)
        report = report_of(self._stretcher.job, self._stretcher, self.found, ran)
        if as_json:
            print(json.dumps({"summary": report.plain()}, ensure_ascii=False))
        else:
            print()
            backtest_words.show(report)

    def _tell(self, one: Comparison) -> None:
        from gateway.cli.backtest.report import told_of  # noqa: PLC0415

        for name, tally in one.constraints.items():
            for example in tally.examples:
                self._told("newly refused", told_of(self._stretcher, example, name))
        for example, name in one.not_shown:
            self._told("not shown", told_of(self._stretcher, example, name))
        for example in one.permitted:
            self._told("newly permitted", told_of(self._stretcher, example, ""))


def _until(ends: float) -> Iterator[None]:
    """Yields now and then until that monotonic time."""
    while (left := ends - time.monotonic()) > 0:
        time.sleep(min(POLL_S, left))
        yield


def _line(what: str, told: Told) -> None:
    from gateway.cli.backtest.words import sentence  # noqa: PLC0415

    print(f"{what}: {sentence(told)}", flush=True)


def _json_line(what: str, told: Told) -> None:
    print(json.dumps({"difference": what, **asdict(told)}, ensure_ascii=False), flush=True)
