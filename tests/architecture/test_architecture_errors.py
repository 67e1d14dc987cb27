"""Every error class is met in a test that reads its sentence: what people are told belongs to the product."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_SPOKEN = frozenset({"str", "value", "problems", "sentence"})  # how a test comes by what was said


def errors(sources: Iterable[str]) -> set[str]:
    """Names of the classes that can be raised; those with an underscore never leave their module."""
    bases: dict[str, set[str]] = {}
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                bases.setdefault(node.name, set()).update(named(node.bases))
    raised = {name for name, kind in vars(builtins).items() if is_error(kind)}
    while more := {name for name, above in bases.items() if above & raised} - raised:
        raised |= more
    return {name for name in raised & bases.keys() if not name.startswith("_")}


def told(sources: Iterable[str]) -> set[str]:
    """Names that a test expects, while it looks at the words."""
    return {name for source in sources for test in each_test(source) for name in told_in(test)}


def each_test(source: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node


def told_in(test: ast.AST) -> set[str]:
    """Of one test."""
    looks = bool(named([test]) & _SPOKEN)
    found: set[str] = set()
    for call in ast.walk(test):
        match call:
            case ast.Call(func=ast.Attribute(attr="raises"), args=[first, *_], keywords=more):
                if looks or any(word.arg == "match" for word in more):
                    found |= named([first])
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, kind]) if looks:
                found |= named([kind])
            case _:
                pass
    return found


def named(nodes: Iterable[ast.AST]) -> set[str]:
    """Names and attributes within."""
    inner = [each for node in nodes for each in ast.walk(node)]
    names = {each.id for each in inner if isinstance(each, ast.Name)}
    return names | {each.attr for each in inner if isinstance(each, ast.Attribute)}


def is_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)


def test_every_error_class_is_met_in_a_test_that_reads_what_it_says() -> None:
    raised = errors(path.read_text() for path in (ROOT / "gateway").rglob("*.py"))
    read = told(
        path.read_text()
        for folder in ("unit", "property", "integration", "fuzz")
        for path in (ROOT / "tests" / folder).rglob("test_*.py")
    )

    assert len(raised) > 30
    assert sorted(raised - read) == []


def test_an_error_that_no_test_reads_is_found() -> None:
    source = (
        "class FirstError(ValueError): ...\n"
        "class SecondError(FirstError): ...\n"
        "class ThirdError(SecondError): ...\n"
        "class _OwnError(Exception): ...\n"
        "class Apart: ...\n"
    )
    test = (
        "def test_a():\n    with pytest.raises(FirstError, match='too late'): f()\n"
        "def test_b():\n    with pytest.raises(SecondError): f()\n"
        "def test_c():\n    with pytest.raises(ThirdError) as e: f()\n    assert 'x' in str(e.value)\n"
        "def no_test():\n    with pytest.raises(SecondError, match='too late'): f()\n"
    )

    assert errors([source]) == {"FirstError", "SecondError", "ThirdError"}
    assert errors([source]) - told([test]) == {"SecondError"}
