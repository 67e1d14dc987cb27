"""`o3ctl compile`, `disassemble` and `key generate`: module files without a gateway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.options import AsJson, Config, TagsCsv

key_app = typer.Typer(name="key", help="Keys that sign constraint modules.", no_args_is_help=True)


def compile_file(
    source: Annotated[Path, typer.Option("--input", "-i", metavar="M.json", help="The module's source.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="M.o3c", help="Where to write it.")],
    tags: TagsCsv = None,
    config: Config = None,
    sign: Annotated[
        Path | None, typer.Option("--sign", metavar="KEY", help="Sign it with this private key (PEM).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile a module into one file that can be signed; the same source gives the same bytes anywhere."""
    from gateway.cli import offline  # noqa: PLC0415  # pydantic and the grammars
    from gateway.core.durable import write_durably  # noqa: PLC0415
    from gateway.solver.bytecode import signing  # noqa: PLC0415
    from gateway.solver.bytecode.accept import compiled_file  # noqa: PLC0415
    from gateway.solver.errors import ModuleRefusedError  # noqa: PLC0415

    if output.suffix != ".o3c":
        raise typer.BadParameter("the output ends in .o3c")
    data = offline.file_bytes(source)
    try:
        encoded, signature = compiled_file(data, source.name, offline.tags_of(data, tags, config), sign)
    except ModuleRefusedError as exc:
        offline.fail("\n".join(f"{source}:{p.line}:{p.column}: {p.problem}" for p in exc.problems))
    except signing.KeyRefusedError as exc:
        offline.fail(f"o3ctl: {exc}")
    try:
        write_durably(output, encoded)
    except OSError as exc:
        offline.fail(f"o3ctl: `{output}` cannot be written: {exc.strerror or exc}")
    if as_json:
        said = {"ok": True, "file": str(output), "bytes": len(encoded), "signed_with": signature}
        print(json.dumps(said, indent=2))
        return
    signed = f"signed with key {signature}" if signature else "not signed"
    print(f"{output}: {len(encoded)} bytes, {signed}")


def disassemble_file(
    file: Annotated[Path, typer.Argument(metavar="M.o3c", help="A compiled module.")],
    source: Annotated[
        bool, typer.Option("--source", help="Print the source it was compiled from, and no more.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print what a compiled module holds, each instruction with the line it comes from."""
    from gateway.cli import offline  # noqa: PLC0415  # pydantic
    from gateway.solver.bytecode import (  # noqa: PLC0415
        disassemble,
        load,
        signing,
    )
    from gateway.solver.errors import ModuleRefusedError  # noqa: PLC0415

    try:
        compiled = load.load(offline.file_bytes(file), file.name)
    except ModuleRefusedError as exc:
        offline.fail("\n".join(f"{file}: {p.problem}" for p in exc.problems))
    problem = signing.signature_problem(compiled)
    if source:
        print(compiled.program.source.decode(), end="")
    elif as_json:
        said = disassemble.plain(compiled) | {"signature_problem": problem}
        print(json.dumps(said, indent=2, ensure_ascii=False))
    else:
        print("\n".join(disassemble.words(compiled)))
    if problem:
        offline.fail(f"{file}: {problem}")


@key_app.command("generate")
def key_generate(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="KEY", help="Where to write the private key.")
    ],
    as_json: AsJson = False,
) -> None:
    """Write a new key pair: KEY, which only you may read, and its public half beside it."""
    from gateway.cli import offline  # noqa: PLC0415
    from gateway.solver.bytecode import signing  # noqa: PLC0415  # cryptography

    try:
        public, text = signing.generate(output)
    except signing.KeyRefusedError as exc:
        offline.fail(f"o3ctl: {exc}")
    if as_json:
        said = {"ok": True, "private": str(output), "public": str(public), "trusted_key": text}
        print(json.dumps(said, indent=2))
        return
    print(f"{output}: the private key; keep it away from the gateway")
    print(f"{public}: the public key")
    print(f'in gateway.toml: [modules] trusted_keys = ["{text}"]')
