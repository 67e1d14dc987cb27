"""One small mistake at a time in a Python file: a comparison, a sign, a number off by one, a branch.

Texts of errors, log lines, annotations and decorators are left alone: nothing a proof rests on is in them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_COUNTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip

Change = tuple[str, Callable[[], None]]  # in words, and done in place


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed file: the line, the line's text, what was changed, and the tree."""

    line: int
    text: str
    change: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """Stable as long as the line is: what stands in the list of those that change nothing."""
        return f"{self.text} [{self.change}]"


def mutants(source: str) -> Iterator[Mutant]:
    """Every mutant, in the order of the file's nodes; the same for ever for the same source."""
    lines = source.splitlines()
    for number in range(sum(len(_changes(node)) for node in _nodes(ast.parse(source)))):
        tree = ast.parse(source)
        sites = ((node, change) for node in _nodes(tree) for change in _changes(node))
        for index, (node, (words, act)) in enumerate(sites):
            if index == number:
                line: int = node.lineno  # type: ignore[attr-defined]  # all nodes that are changed have one
                act()
                yield Mutant(line, lines[line - 1].strip(), words, ast.fix_missing_locations(tree))
                break


def _nodes(tree: ast.Module) -> list[ast.AST]:
    """Nodes that may be changed."""
    left_alone: set[int] = set()
    for node in ast.walk(tree):
        for part in _not_judged(node):
            left_alone.update(id(inner) for inner in ast.walk(part))
    return [node for node in ast.walk(tree) if id(node) not in left_alone]


def _not_judged(node: ast.AST) -> list[ast.AST]:  # noqa: C901, PLR0911  # one return for each kind of node
    match node:
        case ast.Raise():
            return [node]
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            defaults: list[ast.AST] = [*node.decorator_list, *filter(None, [node.returns])]
            return [*defaults, *_docstring(node.body)]
        case ast.ClassDef():
            return [*node.decorator_list, *_docstring(node.body)]
        case ast.Module():
            return _docstring(node.body)
        case ast.arg(annotation=ast.expr() as annotation) | ast.AnnAssign(annotation=annotation):
            return [annotation]
        case ast.Subscript(value=ast.Name(id="Literal")):
            return [node]
        case ast.Call(func=ast.Name(id="cast"), args=[first, *_]):
            return [first]
        case ast.ImportFrom() | ast.Import():
            return [node]
        case ast.JoinedStr(values=parts):
            texts = [part for part in parts if isinstance(part, ast.Constant)]
            return list(texts) if any(" " in str(text.value) for text in texts) else []
        case ast.FormattedValue(format_spec=ast.JoinedStr() as digits):
            return [digits]
        case (
            ast.Call(func=ast.Attribute(value=ast.Name(id="log"))) | ast.Assign(targets=[ast.Name(id="log")])
        ):
            return [node]
        case _:
            return []


def _docstring(body: list[ast.stmt]) -> list[ast.AST]:
    match body:
        case [ast.Expr(value=ast.Constant(value=str())) as first, *_]:
            return [first]
        case _:
            return []


def _changes(node: ast.AST) -> list[Change]:  # noqa: C901, PLR0911  # one return for each kind of node
    match node:
        case ast.Compare(ops=ops):
            return [_swapped(ops, i, _COMPARED[type(op)]()) for i, op in enumerate(ops)]
        case ast.BinOp(op=op) if type(op) in _COUNTED:
            return [_set(node, "op", _COUNTED[type(op)]())]
        case ast.BoolOp(op=op):
            return [_set(node, "op", ast.And() if isinstance(op, ast.Or) else ast.Or())]
        case ast.UnaryOp(op=ast.Not()):
            return [_set(node, "operand", ast.UnaryOp(ast.Not(), node.operand), "not left out")]
        case ast.UnaryOp(op=ast.USub()):
            return [_set(node, "op", ast.UAdd())]
        case ast.Constant(value=bool() as value):
            return [_set(node, "value", not value)]
        case ast.Constant(value=int() as value):
            return [_set(node, "value", value + 1)]
        case ast.Constant(value=str() as value) if " " not in value:  # no sentence
            return [_set(node, "value", f"{value}~")]
        case ast.IfExp():
            return [("branches swapped", lambda: _swap_branches(node))]
        case ast.If() | ast.While():
            return [_set(node, "test", ast.UnaryOp(ast.Not(), node.test), "condition turned round")]
        case _:
            return []


def _set(node: ast.AST, name: str, value: object, words: str = "") -> Change:
    said = f"{_said(getattr(node, name))} -> {_said(value)}"
    return words or said, lambda: setattr(node, name, value)


def _said(value: object) -> str:
    return type(value).__name__ if isinstance(value, ast.AST) else repr(value)


def _swapped(ops: list[ast.cmpop], index: int, other: ast.cmpop) -> Change:
    def act() -> None:
        ops[index] = other

    return f"{_said(ops[index])} -> {_said(other)}", act


def _swap_branches(node: ast.IfExp) -> None:
    node.body, node.orelse = node.orelse, node.body
