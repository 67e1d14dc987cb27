"""Which tests enter which function of a file: those alone can notice a mistake in it, quick ones first."""

from __future__ import annotations

import ast
import json
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

import pytest


class Functions:
    """The functions of a source, by the lines that they lie on."""

    def __init__(self, source: str) -> None:
        defined = (
            n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
        )
        self._spans = sorted(
            (
                min(n.lineno, *(d.lineno for d in n.decorator_list), n.lineno),
                n.body[0].lineno,
                n.end_lineno or 0,
            )
            for n in defined
        )

    def entered(self, line: int) -> int | None:
        """The innermost function that the line lies in, by its first line; None where it is run at import."""
        around = [first for first, _, last in self._spans if first <= line <= last]
        return around[-1] if around else None

    def of(self, line: int) -> int | None:
        """As `entered`, for a line that is changed: a signature is run when the file is imported."""
        around = [(first, body) for first, body, last in self._spans if first <= line <= last]
        return around[-1][0] if around and line >= around[-1][1] else None


class Watch:
    """A pytest plugin: notes, for each test, how long it took and which functions of a file it entered."""

    def __init__(self, file: Path, source: str, told: Path) -> None:
        self._file, self._told = str(file), told
        self._functions = Functions(source)
        self._lines: dict[int, int | None] = {}
        self._entered: set[int] = set()
        self._tests: dict[str, tuple[float, list[int]]] = {}

    def _seen(self, frame: FrameType, event: str, argument: object) -> None:
        del event, argument
        code = frame.f_code
        if code.co_filename == self._file:
            line = code.co_firstlineno
            if line not in self._lines:
                self._lines[line] = self._functions.entered(line)
            function = self._lines[line]
            if function is not None:
                self._entered.add(function)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Watches one test from its fixtures on."""
        self._entered.clear()
        self._tests[item.nodeid] = (0.0, [])
        threading.settrace(self._seen)
        sys.settrace(self._seen)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            self._tests[item.nodeid] = (self._tests[item.nodeid][0], sorted(self._entered))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds up set-up, call and tear-down."""
        took, entered = self._tests[report.nodeid]
        self._tests[report.nodeid] = (took + report.duration, entered)

    def pytest_sessionfinish(self) -> None:
        """Says what was seen."""
        told = {"tests": self._tests, "modules": list(sys.modules)}
        self._told.write_text(json.dumps(told), encoding="utf-8")


class Touching:
    """What a watched run told; `modules`: all that were imported in it, in that order."""

    def __init__(
        self, source: str, told: Mapping[str, tuple[float, Sequence[int]]], modules: Sequence[str]
    ) -> None:
        self._functions, self._told, self.modules = Functions(source), told, modules
        self._failed: Counter[str] = Counter()

    @property
    def took(self) -> list[float]:
        """Seconds of each test."""
        return [took for took, _ in self._told.values()]

    def failed(self, name: str) -> None:
        """Counts a test that noticed a mistake: it is asked sooner from now on."""
        self._failed[name] += 1

    def tests(self, line: int) -> list[str]:
        """Those that enter the function which the line lies in, all where it is in none.

        Those first that noticed most mistakes so far for the time they take.
        """
        function = self._functions.of(line)
        found = [
            (took / (1 + self._failed[name]), name)
            for name, (took, entered) in self._told.items()
            if function is None or function in entered
        ]
        return [name for _, name in sorted(found)]


class Chosen:
    """A pytest plugin: only these tests, in this order; what fails is told."""

    def __init__(self, names: Iterable[str], told: Path) -> None:
        self._place = {name: place for place, name in enumerate(names)}
        self._told = told

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tells the test that noticed."""
        if report.failed:
            self._told.write_text(report.nodeid, encoding="utf-8")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leaves out the others."""
        items[:] = sorted((i for i in items if i.nodeid in self._place), key=lambda i: self._place[i.nodeid])
