"""Which mutants of a file do these tests not notice? `python -m tests.mutation FILE TEST...`

Each mutant lives in a process of its own, which imports the changed file in place of the true one and runs
the tests until one fails. Survivors are printed as JSON. What does not import that file is imported once,
here; nothing that does.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Self

import numpy as np
import pytest
import z3

from tests.mutation.ahead import import_all, unaffected
from tests.mutation.mutator import Mutant, mutants
from tests.mutation.touched import Chosen, Touching, Watch

ROOT = Path(__file__).parents[2]
_PATIENCE = 10  # times what the tests took without a change: a mutant that never ends is noticed, too
_MEMORY = 4 * 1024**3
WARM = (np, z3)  # imported once, by the parent of all mutants


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds that all tests may compute, and that one may take."""

    cpu_s: int = 3_600
    wait_s: int = 1_800

    @classmethod
    def after(cls, took: Sequence[float]) -> Self:
        """For mutants, where the tests took so long on this machine without a change."""
        return cls(60 + int(_PATIENCE * sum(took)), 30 + int(_PATIENCE * max(took, default=0.0)))


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a tree."""

    def __init__(self, name: str, tree: ast.Module, path: Path) -> None:
        self._name, self._tree, self._path = name, tree, path

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._tree, str(self._path), "exec"), module.__dict__)  # noqa: S102  # our own source


def _name(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)


def survives(
    file: Path, tree: ast.Module, tests: Sequence[str], limits: Limits, plugin: object | None = None
) -> bool:
    """Whether all tests pass with the changed file. Blocks until a process has said so."""
    child = os.fork()
    if not child:
        os._exit(_trial(file, tree, tests, limits, [] if plugin is None else [plugin]))
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def _trial(
    file: Path, tree: ast.Module, tests: Sequence[str], limits: Limits, plugins: Sequence[object]
) -> int:
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, limits.cpu_s + 5))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    sys.meta_path.insert(0, _Changed(_name(file), tree, file))
    options = [
        "-x",
        "-q",
        "--assert=plain",
        f"--timeout={limits.wait_s}",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "--hypothesis-seed=0",
    ]
    try:
        return int(pytest.main([*options, *tests], plugins=plugins))
    except BaseException:  # noqa: BLE001  # a changed file may fail in any way, at any place
        return 1


def touching(file: Path, source: str, tests: Sequence[str]) -> Touching | None:
    """Which tests enter which function of the file as it is; None where they fail."""
    with TemporaryDirectory() as folder:
        told = Path(folder, "told.json")
        if not survives(file, ast.parse(source), tests, Limits(), Watch(file, source, told)):
            return None
        seen = json.loads(told.read_text(encoding="utf-8"))
        return Touching(source, seen["tests"], seen["modules"])


def noticed(file: Path, mutant: Mutant, tests: Sequence[str], touched: Touching) -> bool:
    """Whether a test fails: those that enter the changed function are asked first, then `tests`, if any."""
    first, limits = touched.tests(mutant.line), Limits.after(touched.took)
    files = list(dict.fromkeys(name.partition("::")[0] for name in first))
    with TemporaryDirectory() as folder:
        told = Path(folder, "failed")
        if first and not survives(file, mutant.tree, files, limits, Chosen(first, told)):
            if told.exists():
                touched.failed(told.read_text(encoding="utf-8"))
            return True
    return bool(tests) and not survives(file, mutant.tree, tests, limits)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print survivors; status 1 where the tests fail without any change, 0 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("file", type=Path)
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--only", action="append", default=[], metavar="WORDS", help="only those named so")
    parser.add_argument("--quick", action="store_true", help="ask only tests that enter the changed function")
    given = parser.parse_args(arguments)
    file = given.file.resolve()
    source = file.read_text(encoding="utf-8")
    touched = touching(file, source, given.tests)
    if touched is None:
        sys.stderr.write("the tests fail without any change\n")
        return 1
    import_all(unaffected(touched.modules, _name(file)))
    chosen = [m for m in mutants(source) if not given.only or any(words in m.name for words in given.only)]
    asked = () if given.quick else given.tests
    unchanged = Mutant(chosen[0].line if given.only and chosen else 1, "", "nothing", ast.parse(source))
    if noticed(file, unchanged, asked, touched):  # else everything would be
        sys.stderr.write("the tests fail without any change where modules were imported before\n")
        return 1
    found: list[Mutant] = []
    for mutant in chosen:
        if not noticed(file, mutant, asked, touched):
            found.append(mutant)
            sys.stderr.write(f"{file.name}:{mutant.line}: {mutant.name}\n")
    sys.stdout.write(json.dumps({"mutants": len(chosen), "survivors": [mutant.name for mutant in found]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
