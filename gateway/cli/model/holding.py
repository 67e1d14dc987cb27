"""`o3ctl model hold-out`: cycles a model never learned from, for `quantize` and `gate` to measure it on."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.audit.place import log_file
from gateway.cli.options import AsJson, Config, StateDir, seconds_of

if TYPE_CHECKING:
    from gateway.inference.bundle.gate_record import Run
    from gateway.inference.bundle.manifest import Bundle
    from gateway.solver.identify.series import Channel, Grid, Recording


def model_hold_out(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A decoder's folder; it is changed.")],
    table: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="A table with a time column and a column for each tag."),
    ] = None,
    time_column: Annotated[
        str | None,
        typer.Option("--time", metavar="COLUMN", help="The table's time column (default: the first)."),
    ] = None,
    point: Annotated[
        str | None, typer.Option("--point", metavar="POINT", help="Instead of a table: its decisions.")
    ] = None,
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="How far back decisions count, such as 30d or 12h.")
    ] = "30d",
    state_dir: StateDir = None,
    config: Config = None,
    most: Annotated[
        int, typer.Option("--most", min=2, max=100_000, help="Cycles that are kept, the newest.")
    ] = 500,
    as_json: AsJson = False,
) -> None:
    """Write a bundle's held-out cycles (`gate.json`) from records, and seal it: its digest changes."""
    from gateway.cli.offline import fail  # noqa: PLC0415
    from gateway.core.errors import InferenceError  # noqa: PLC0415
    from gateway.inference.bundle.gate_record import written_gate_record  # noqa: PLC0415
    from gateway.inference.bundle.manifest import GATE_FILE  # noqa: PLC0415
    from gateway.inference.bundle.twin import load_decoder  # noqa: PLC0415
    from gateway.inference.seal import seal  # noqa: PLC0415

    if (table is None) == (point is None):
        raise typer.BadParameter("name one source: a table with --csv, or a decision point with --point")
    try:
        loaded = load_decoder(bundle)
        runs = newest(
            runs_of(loaded, _recorded(loaded, table, time_column, point, since, state_dir, config)), most
        )
        if not runs:
            fail(
                f"o3ctl: no two cycles of {loaded.manifest.cycle_s} s follow each other in which every tag "
                "of the bundle is known: record all of them, at least once a cycle"
            )
        (bundle / GATE_FILE).write_bytes(written_gate_record(runs))
        sealed = seal(bundle)
    except InferenceError as exc:
        fail(f"o3ctl: {exc}")
    except OSError as exc:
        fail(f"o3ctl: `{bundle / GATE_FILE}` cannot be written: {exc.strerror or exc}")
    cycles = sum(map(len, runs))
    if as_json:
        print(
            json.dumps({"bundle": str(bundle), "runs": len(runs), "cycles": cycles, "digest": sealed.digest})
        )
    else:
        stretches = f"{len(runs)} run{'s' * (len(runs) != 1)}"
        print(f"{cycles} cycles in {stretches} held out; sealed as {sealed.digest[:12]}…")


def runs_of(bundle: Bundle, recording: Recording) -> list[Run]:
    """Stretches in which every tag is known, in cycles of the bundle's; ends the verb without a common time.

    What was in force when a cycle ended is what is in force as the next one begins.
    """
    from gateway.cli.offline import fail  # noqa: PLC0415
    from gateway.inference.bundle.gate_record import LEAST_CYCLES  # noqa: PLC0415
    from gateway.solver.identify.series import resampled  # noqa: PLC0415

    grid = resampled(recording, bundle.cycle_s)
    if isinstance(grid, str):
        fail(f"o3ctl: {grid}")
    inputs = [spec.tag for spec in bundle.manifest.inputs]
    outputs = [spec.tag for spec in bundle.manifest.outputs]
    runs: list[Run] = [[]]
    for at in range(grid.steps - 1):
        measured, in_force = _row(grid, inputs, at), _row(grid, outputs, at + 1)
        if measured is not None and in_force is not None:
            runs[-1].append((measured, in_force))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if len(run) >= LEAST_CYCLES]


def newest(runs: list[Run], most: int) -> list[Run]:
    """The newest runs that have `most` cycles together; the oldest of them loses its beginning."""
    kept: list[Run] = []
    for run in reversed(runs):
        room = most - sum(map(len, kept))
        if room < 2:  # noqa: PLR2004  # the second cycle is the first that has a past
            break
        kept.append(run[-room:])
    return kept[::-1]


def _row(grid: Grid, tags: list[str], at: int) -> tuple[str, ...] | None:
    values = [float(grid.at[tag][at]) for tag in tags]
    if any(value != value for value in values):  # noqa: PLR0124  # only NaN differs from itself
        return None
    return tuple(f"{value:.9g}" for value in values)


def _recorded(
    bundle: Bundle,
    table: Path | None,
    time_column: str | None,
    point: str | None,
    since: str,
    state_dir: Path | None,
    config: Path | None,
) -> Recording:
    from gateway.cli.identify import recorded  # noqa: PLC0415  # numpy

    channels = _channels(bundle)
    if table is not None:
        return recorded.of_table(table, time_column, channels)
    oldest = time.time_ns() - seconds_of(since) * 1_000_000_000
    return recorded.of_decisions(log_file(state_dir, config), point or "", oldest, channels)


def _channels(bundle: Bundle) -> list[Channel]:
    """The bundle's tags; what it sets is held between samples."""
    from gateway.core.tag import TagId  # noqa: PLC0415
    from gateway.solver.identify.series import Channel  # noqa: PLC0415

    manifest = bundle.manifest
    return [
        Channel(name=spec.tag, tag=TagId(spec.tag), sort="real", unit=spec.unit, action=action)
        for action, specs in ((False, manifest.inputs), (True, manifest.outputs))
        for spec in specs
    ]


def register(app: typer.Typer) -> None:
    """Put this verb into the group `model`."""
    app.command("hold-out")(model_hold_out)
