"""`o3ctl schema`: the shape of a module file for editors, and a module file judged without a gateway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.options import AsJson, Config, TagsCsv

app = typer.Typer(
    name="schema", help="The shape of constraint modules; needs no gateway.", no_args_is_help=True
)


@app.command("print")
def schema_print() -> None:
    """Print the JSON Schema (2020-12) of a module file."""
    from gateway.solver.language.json_schema import json_schema  # noqa: PLC0415  # pydantic

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))


@app.command("validate")
def schema_validate(
    file: Annotated[Path, typer.Option("--file", "-f", metavar="FILE", help="A module, .json or .o3c.")],
    tags: TagsCsv = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Tell everything that is wrong with a module, each with line and column; its cases are judged, too."""
    from gateway.cli import offline  # noqa: PLC0415  # pydantic and the grammars
    from gateway.solver.bytecode.accept import accepted, source_of  # noqa: PLC0415
    from gateway.solver.bytecode.signing import Trust  # noqa: PLC0415
    from gateway.solver.errors import ModuleRefusedError  # noqa: PLC0415

    data = offline.file_bytes(file)
    assumed = tags is None and config is None
    try:
        known = offline.tags_of(source_of(data, file.name), tags, config)
        module = accepted(data, file.name, known, Trust())
    except ModuleRefusedError as exc:
        found = [{"line": p.line, "column": p.column, "problem": p.problem} for p in exc.problems]
        if as_json:
            print(
                json.dumps({"ok": False, "file": str(file), "problems": found}, indent=2, ensure_ascii=False)
            )
        else:
            for p in exc.problems:
                print(f"{file}:{p.line}:{p.column}: {p.problem}")
            print(f"{len(found)} problem{'s' if len(found) > 1 else ''}")
        raise typer.Exit(1) from exc
    note = "tags were taken as the module says they are; --tags or --config compares them" if assumed else ""
    if as_json:
        said = {
            "ok": True,
            "file": str(file),
            "problems": [],
            "module": module.id,
            "revision": module.revision,
        }
        print(json.dumps(said | {"note": note}, indent=2, ensure_ascii=False))
        return
    counts = f"{len(module.constraints)} rules, {len(module.cases)} cases judged as they say"
    print(f"{file}: module `{module.id}` revision {module.revision}: {counts}")
    if note:
        print(note)
