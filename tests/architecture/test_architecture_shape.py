from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "gateway").rglob("*.py"))
CODE = SOURCES + sorted((ROOT / "tests").rglob("*.py"))


@pytest.mark.parametrize("path", CODE, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_stays_under_400_lines(path: Path) -> None:
    lines = path.read_text().count("\n")

    assert lines < 400, f"{lines} lines: split along a noun"


def test_the_package_itself_imports_nothing() -> None:
    tree = ast.parse((ROOT / "gateway" / "__init__.py").read_text())

    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


# The composition root is the only place that names adapters; everyone else gets them as ports.
def test_nothing_but_the_entry_points_and_tests_imports_the_daemon() -> None:
    importers = {
        path.relative_to(ROOT / "gateway").parts[0]
        for path in SOURCES
        if any(name.startswith("gateway.daemon") for name in imported(path))
    }

    assert importers <= {"__main__.py", "daemon", "cli"}


def test_every_package_has_its_init_file() -> None:
    folders = {path.parent for path in SOURCES}

    assert [str(f) for f in folders if not (f / "__init__.py").exists()] == []


def imported(path: Path) -> set[str]:
    """Full names of the modules that a file imports, at any depth of nesting."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names
