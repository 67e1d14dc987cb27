"""What can be imported once, before all mutants: whatever does not import the changed file, by any way."""

from __future__ import annotations

import ast
import gc
import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

OURS = ("gateway", "tests")


def unaffected(names: Iterable[str], changed: str) -> list[str]:
    """Of some modules those that do not come to import a changed one: any mutant may find them there."""
    given = list(names)
    asks = {name: _asked(name) for name in given if name.partition(".")[0] in OURS}
    spoilt = {changed}
    while more := {name for name, asked in asks.items() if name not in spoilt and asked & spoilt}:
        spoilt |= more
    return [name for name in given if name not in spoilt]


def import_all(names: Iterable[str]) -> None:
    """Imports what there is of it, in that order, and keeps it out of the way of processes forked off.

    What is private comes with what is public: `_asyncio` before `asyncio` would be half of it.
    """
    for name in names:
        private = name.startswith("_") or name.endswith(("conftest", "__main__"))
        if name not in sys.modules and not private:
            try:
                importlib.import_module(name)
            except Exception:  # noqa: BLE001, S112  # it only saves time: a test that needs it says so itself
                continue
    gc.collect()
    gc.freeze()


def _asked(name: str) -> set[str]:
    """The modules that a module of ours names in its import statements, packages on the way included."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return set()
    found = {name.rpartition(".")[0]}
    for node in ast.walk(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=aliases):
                found.update(alias.name for alias in aliases)
            case ast.ImportFrom(module=str() as module, names=aliases):
                found.update((module, *(f"{module}.{alias.name}" for alias in aliases)))
    return found
