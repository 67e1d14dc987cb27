"""`o3ctl import` and `o3ctl export`: tables of engineers to module files and back, without a gateway."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.options import AsJson

Table = Annotated[Path, typer.Option("--file", "-f", metavar="CSV", help="The table.")]
Into = Annotated[
    Path, typer.Option("--into", metavar="MODULE.json", help="The module whose variables it names.")
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write; else standard output.")
]
Alone = Annotated[
    str,
    typer.Option("--as", metavar="ID", help="A module of its own: these rules, and the variables they name."),
]
Prefix = Annotated[
    str, typer.Option("--prefix", help="Stands before each row id: which table a rule is from.")
]


class What(enum.StrEnum):
    """Kinds of tables."""

    MATRIX = "matrix"
    WINDOWS = "windows"


Kind = Annotated[
    What,
    typer.Argument(metavar="matrix|windows", help="A cause-and-effect matrix, or operating windows."),
]


def import_table(
    what: Kind,
    file: Table,
    into: Into,
    output: Output = None,
    prefix: Prefix = "",
    alone: Alone = "",
    as_json: AsJson = False,
) -> None:
    """Put a cause-and-effect matrix or a table of operating windows into a module file, a revision higher.

    With --as the module named by --into only lends its variables, and a file of the same id that is there as
    --output is the revision before.
    """
    from gateway.cli import offline  # noqa: PLC0415  # pydantic
    from gateway.solver.errors import ModuleRefusedError  # noqa: PLC0415
    from gateway.solver.tables import matrix, merge, windows  # noqa: PLC0415

    module = _module(into)
    data = offline.file_bytes(file)
    try:
        if what is What.MATRIX:
            rules = matrix.import_matrix(data, file.name)
        else:
            rules = windows.import_windows(data, file.name, module)
    except ModuleRefusedError as exc:
        found = [{"line": p.line, "cell": p.column, "problem": p.problem} for p in exc.problems]
        if as_json:
            print(
                json.dumps({"ok": False, "file": str(file), "problems": found}, indent=2, ensure_ascii=False)
            )
        else:
            for p in exc.problems:
                print(f"{file}, line {p.line}, cell {p.column}: {p.problem}")
        raise typer.Exit(1) from exc
    if alone:
        before = _module(output) if output is not None and output.exists() else None
        module = merge.alone(module, rules, alone, before)
    done = merge.merged(module, rules, prefix)
    _give(merge.file_text(done), output)
    if output is None:
        return
    ours = {f"{prefix}{rule['id']}" for rule in rules}
    bare = [name for name in merge.unshown(done) if name in ours]
    gone = merge.gone(module, done)
    if as_json:
        facts = {"ok": True, "file": str(output), "rules": len(rules), "critical": bare, "gone": gone}
        print(json.dumps(facts, indent=2))
        return
    print(f"{output}: {len(rules)} rules from {file.name}")
    if alone:
        named = ", ".join(module["variables"]) or "none"
        print(f"module `{alone}` revision {int(module['revision']) + 1}; variables of {into.name}: {named}")
    _tell(file.name, gone, bare)
    print(f"next: o3ctl schema validate --file {output}")


def _tell(table: str, gone: list[str], bare: list[str]) -> None:
    """What a person should know of a module that a table was put into."""
    if gone:
        named = ", ".join(f"`{row}`" for row in gone)
        what = "row" if len(gone) == 1 else f"{len(gone)} rows"
        print(f"taken out, for {table} has them no more: the rules of {what} {named}")
        print("rules of another table stay where each table is imported with a `--prefix` of its own")
    if bare:
        named = ", ".join(f"`{name}`" for name in bare)
        print(f"each critical rule needs a case that violates it: {named}")


def export_table(what: Kind, file: Table, output: Output = None) -> None:
    """Write the rules of a module that came from a table as that table, with the same row ids."""
    from gateway.cli import offline  # noqa: PLC0415  # pydantic
    from gateway.solver.tables import matrix, windows  # noqa: PLC0415
    from gateway.solver.tables.hand import ByHandError  # noqa: PLC0415

    write: Callable[[list[Mapping[str, Any]]], str]
    write = matrix.export_matrix if what is What.MATRIX else windows.export_windows
    try:
        table = write(_module(file).get("constraints", []))
    except ByHandError as exc:
        offline.fail("\n".join(f"{file}: {sentence}" for sentence in str(exc).splitlines()))
    _give(table, output)


def _module(file: Path) -> dict[str, Any]:
    from gateway.cli import offline  # noqa: PLC0415  # pydantic
    from gateway.solver.tables.merge import module_of  # noqa: PLC0415

    try:
        return module_of(offline.file_bytes(file))
    except ValueError as exc:
        print(f"{file}: {exc}; `o3ctl schema validate --file {file}` tells more", file=sys.stderr)
        raise typer.Exit(1) from exc


def _give(text: str, output: Path | None) -> None:
    if output is None:
        print(text, end="")
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as exc:
        print(f"o3ctl: `{output}` cannot be written: {exc.strerror or exc}", file=sys.stderr)
        raise typer.Exit(1) from exc
