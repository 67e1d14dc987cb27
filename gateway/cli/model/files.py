"""`o3ctl model quantize|optimize|inspect|gate|bench`: bundles on disk. None of them needs a gateway.

Exit status of `gate`, `quantize` and `optimize`: 0 where every bar is met, 1 where one is missed or unknown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gateway.cli.options import AsJson

if TYPE_CHECKING:
    from gateway.inference.quantize.making import Result
    from gateway.inference.training.paired import Length

app = typer.Typer(
    name="model", help="Model bundles: make smaller, fuse, look at, measure.", no_args_is_help=True
)

_Bundle = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle's folder.")]
_Output = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="The new bundle's folder; it must not exist.")
]
_Device = Annotated[
    Literal["cpu", "cuda"], typer.Option("--device", help="What it is made for, or measured on.")
]
_Seeds = Annotated[
    int, typer.Option("--seeds", min=1, max=1000, help="Runs of the closed loop, each beside its twin's.")
]
_Cycles = Annotated[
    int, typer.Option("--cycles", min=0, help="Cycles in a run (default: as many as the plant is judged by).")
]
_Pages = Annotated[int, typer.Option("--pages", min=2, max=1_000_000, help="Pages of the KV pool.")]


@app.command("quantize")
def model_quantize(
    bundle: _Bundle,
    output: _Output,
    recipe: Annotated[
        str,
        typer.Option(
            "--recipe", "-r", metavar="NAME", help="int8w, int8, int8a8, int4, mixed, fp16, bf16 or fp32."
        ),
    ] = "int8w",
    kv: Annotated[
        str,
        typer.Option("--kv", metavar="TYPE", help="Keys and values in float32, float16 or int8."),
    ] = "",
    block: Annotated[
        int, typer.Option("--block", metavar="N", help="Numbers that share a scale: 16, 32, 64, 128 or 256.")
    ] = 32,
    device: _Device = "cpu",
    seeds: _Seeds = 4,
    cycles: _Cycles = 0,
    fitted: Annotated[
        int,
        typer.Option(
            "--fitted", min=0, max=100, help="Runs that confidence is fitted on anew; 0: it stays as it was."
        ),
    ] = 96,
    as_json: AsJson = False,
) -> None:
    """Make a bundle with smaller weights beside BUNDLE, measure it, keep it only if it passes its gates."""

    def work(progress: _Progress) -> Result:
        from gateway.inference.quantize.quantizing import Wish, quantize  # noqa: PLC0415  # onnx

        wish = Wish(
            source=bundle,
            output=output,
            recipe=recipe,
            kv=kv,
            block=block,
            device=device,
            length=_length(seeds, cycles, fitted),
        )
        return quantize(wish, progress)

    _made(work, as_json)


@app.command("optimize")
def model_optimize(
    bundle: _Bundle,
    output: _Output,
    level: Annotated[
        Literal["basic", "extended", "all"], typer.Option("--level", help="How far ONNX Runtime fuses.")
    ] = "extended",
    device: _Device = "cpu",
    seeds: _Seeds = 4,
    cycles: _Cycles = 0,
    as_json: AsJson = False,
) -> None:
    """Fuse a bundle's graph for this machine, measure it and keep it only if it passes its gates."""

    def work(progress: _Progress) -> Result:
        from gateway.inference.quantize.optimizing import optimize  # noqa: PLC0415  # onnx

        length = _length(seeds, cycles)
        return optimize(bundle, output, level, device=device, length=length, progress=progress)

    _made(work, as_json)


@app.command("inspect")
def model_inspect(
    bundle: _Bundle,
    pages: _Pages = 256,
    tensors: Annotated[bool, typer.Option("--tensors", help="List every weight with its type.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a bundle's tags, window, operators, types, and what its keys and values take.

    Of a stateless model its tags, what they mean and the graph's tensors, without the package `onnx`.
    """
    from gateway.cli.model import stateless as model_stateless  # noqa: PLC0415  # rich
    from gateway.cli.model import words as model_words  # noqa: PLC0415  # rich

    with refusals():
        from gateway.inference.bundle.any_bundle import load_any  # noqa: PLC0415
        from gateway.inference.bundle.stateless import StatelessBundle  # noqa: PLC0415

        loaded = load_any(bundle)
        if isinstance(loaded, StatelessBundle):
            model_stateless.inspect(loaded, as_json=as_json)
            return
        from gateway.inference.quantize.inspecting import inspect  # noqa: PLC0415  # onnx

        made = loaded.manifest.made
        found = inspect(loaded, pages, allocate=made is None or made.device in {"", "cpu"})
    if as_json:
        _print(found.plain())
    else:
        model_words.inspected(found, tensors=tensors)


@app.command("gate")
def model_gate(
    bundle: _Bundle, device: _Device = "cpu", seeds: _Seeds = 4, cycles: _Cycles = 0, as_json: AsJson = False
) -> None:
    """Measure a bundle against its float32 twin: every figure with its bar; status 1 where one is missed."""
    from gateway.cli.model import words as model_words  # noqa: PLC0415  # rich

    with refusals(), progress_bar() as progress:
        from gateway.inference.bundle.twin import load_decoder  # noqa: PLC0415
        from gateway.inference.quantize.figures import bars, measure  # noqa: PLC0415

        loaded = load_decoder(bundle)
        figures = measure(loaded, _length(seeds, cycles), device, progress)
        gates, needs_loop = bars(loaded)
        failures = figures.failures(gates, needs_loop=needs_loop)
    if as_json:
        _print(model_words.figures_plain(figures, gates, failures))
    else:
        model_words.figures(figures, gates, failures)
    raise typer.Exit(1 if failures else 0)


@app.command("bench")
def model_bench(
    bundle: _Bundle,
    batch: Annotated[
        list[int] | None,
        typer.Option("--batch", min=1, max=256, help="Sequences or requests at once; may be repeated."),
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Timed forwards of each shape.")] = 200,
    device: _Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Time decode steps and prefill chunks, or a stateless model's answers, and say what memory they take."""
    from gateway.cli.model import stateless as model_stateless  # noqa: PLC0415  # rich
    from gateway.cli.model import words as model_words  # noqa: PLC0415  # rich

    with refusals(), progress_bar() as progress:
        from gateway.inference.bundle.any_bundle import load_any  # noqa: PLC0415
        from gateway.inference.bundle.stateless import StatelessBundle  # noqa: PLC0415
        from gateway.inference.quantize.benching import bench  # noqa: PLC0415
        from gateway.inference.quantize.stateless import bench_stateless  # noqa: PLC0415

        loaded, batches = load_any(bundle), tuple(batch or (1, 8))
        if isinstance(loaded, StatelessBundle):
            timed = bench_stateless(loaded, device, batches, rounds, progress)
            model_stateless.bench(timed, as_json=as_json)
            return
        found = bench(loaded, device, batches, rounds, progress)
    if as_json:
        _print(found.plain())
    else:
        model_words.benched(found)


_Progress = Callable[[str, float], None]


def _length(seeds: int, cycles: int, fitted: int = 0) -> Length:
    from gateway.inference.training.paired import Length  # noqa: PLC0415

    return Length(seeds, cycles, fitted)


def _made(work: Callable[[_Progress], Result], as_json: bool) -> None:
    """Run what makes a bundle and tell of the result, or of the bars it misses."""
    from gateway.cli.model import words as model_words  # noqa: PLC0415  # rich

    with refusals(as_json=as_json), progress_bar() as progress:
        result = work(progress)
    if as_json:
        _print(model_words.result_plain(result))
    else:
        model_words.result(result)


@contextmanager
def refusals(*, as_json: bool = False) -> Iterator[None]:
    """What is wrong with a bundle, or with what was made of it, ends the verb with its sentence."""
    from gateway.core.errors import InferenceError  # noqa: PLC0415

    try:
        yield
    except InferenceError as exc:
        from gateway.cli.model import words as model_words  # noqa: PLC0415  # rich
        from gateway.inference.quantize.making import GateRefusedError  # noqa: PLC0415

        if isinstance(exc, GateRefusedError):
            if as_json:
                _print(model_words.figures_plain(exc.figures, exc.gates, exc.failures))
            else:
                model_words.figures(exc.figures, exc.gates, exc.failures)
        _fail(f"o3ctl: {exc}")
    except ImportError as exc:
        _fail(f"o3ctl: this needs the package `{exc.name}`: pip install 'o3-gateway[models]'")


def _fail(sentence: str) -> None:
    typer.echo(sentence, err=True)
    raise typer.Exit(1)


@contextmanager
def progress_bar() -> Iterator[_Progress]:
    """A progress bar on a terminal's standard error, one line a stage; nothing elsewhere."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:12}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeRemainingColumn(),
    )
    stages: dict[str, TaskID] = {}
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:

        def advance(stage: str, share: float) -> None:
            if stage not in stages:
                stages[stage] = progress.add_task(stage, total=1.0)
            progress.update(stages[stage], completed=share)

        yield advance


def _print(plain: object) -> None:
    print(json.dumps(plain, indent=2, ensure_ascii=False))
