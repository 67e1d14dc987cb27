"""What `--json` prints where a verb fails: one JSON value, as where it succeeds."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO, cast

import typer
from typer.core import TyperGroup

# What typer raises for wrong usage; it has no public name for the class itself.
_UsageError = cast(
    "type[Exception]", next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
)
_INTERRUPTED = 130  # as a shell reports a command ended by Ctrl-C


class Verbs(TyperGroup):
    """A group of verbs. With `--json` a failure that printed nothing else prints an object with `error`.

    People read the same sentence on standard error; the exit status is the same in both forms.
    """

    def main(self, args: Sequence[str] | None = None, *more: Any, **options: Any) -> Any:  # noqa: ANN401  # typer's
        """Run a command line."""
        if "--json" not in (sys.argv[1:] if args is None else args):
            return super().main(args, *more, **options)
        with _overheard() as (out, err):
            try:
                return super().main(args, *more, **options)
            except SystemExit as exc:
                if exc.code and not out.words:
                    status = exc.code if isinstance(exc.code, int) else 1
                    out.write(json.dumps(_failure(err, status), ensure_ascii=False) + "\n")
                raise

    def make_context(self, *args: Any, **more: Any) -> Any:  # noqa: ANN401  # typer's
        """Read the words before the verb."""
        with _usage_noted():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  # typer's
        """Read the words behind the verb and run it."""
        with _usage_noted():
            return super().invoke(ctx)


class _Overheard:
    """A stream that remembers what was written to it, but for a terminal's progress bars."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.words: list[str] = []
        self.usage = ""

    def write(self, text: str) -> int:
        if text and "\x1b" not in text and "\r" not in text:
            self.words.append(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever a stream has
        return getattr(self._stream, name)


@contextmanager
def _usage_noted() -> Iterator[None]:
    """What is wrong with the words, kept as a sentence: typer draws a box of it for people."""
    try:
        yield
    except _UsageError as exc:
        if isinstance(sys.stderr, _Overheard):
            sys.stderr.usage = cast("Any", exc).format_message()
        raise


@contextmanager
def _overheard() -> Iterator[tuple[_Overheard, _Overheard]]:
    before = sys.stdout, sys.stderr
    out, err = _Overheard(sys.stdout), _Overheard(sys.stderr)
    sys.stdout, sys.stderr = cast("TextIO", out), cast("TextIO", err)
    try:
        yield out, err
    finally:
        sys.stdout, sys.stderr = before


def _failure(err: _Overheard, status: int) -> dict[str, object]:
    said = err.usage or "".join(err.words).strip().removeprefix("o3ctl: ")
    silent = "it was interrupted" if status == _INTERRUPTED else "nothing is known of the cause"
    return {"ok": False, "error": said or silent, "exit_status": status}
