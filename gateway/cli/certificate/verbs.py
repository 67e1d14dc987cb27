"""`o3ctl certificate`: export a decision's certificate, and check one, both without the running gateway."""

from __future__ import annotations

import enum
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.options import AsJson

app = typer.Typer(
    name="certificate",
    help="Certificates of decisions: export one, or check one anywhere. Neither needs the gateway.",
    no_args_is_help=True,
)

INSTALLED_STATE = Path("/var/lib/o3-gateway")
DEMO_STATES = (Path("var/demo/state"),)


class SolverChoice(enum.StrEnum):
    """SMT solvers that can be asked."""

    Z3 = "z3"
    CVC5 = "cvc5"
    BOTH = "both"


@app.command()
def export(
    decision: Annotated[str, typer.Argument(metavar="DECISION", help="A decision's id.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="F", help="Where to (default: DECISION.o3cert).")
    ] = None,
    smt2: Annotated[
        Path | None, typer.Option("--smt2", metavar="F", help="Write the SMT-LIB script as a file too.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state-dir", "--state", metavar="DIR", envvar="O3_STATE", help="The gateway's state_dir."
        ),
    ] = None,
    sign: Annotated[
        Path | None,
        typer.Option("--sign", metavar="KEY", envvar="O3_SIGNING_KEY", help="Ed25519 private key (PEM)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the certificate of a decision, from the audit log and the rule sets kept beside it."""
    from gateway.cli.certificate import export as certificate_export  # noqa: PLC0415  # z3, pydantic, sqlite
    from gateway.core.errors import GatewayError  # noqa: PLC0415

    try:
        made = certificate_export.export(find_state(state), decision, sign)
        target = output if output is not None else Path(f"{decision}.o3cert")
        target.write_bytes(made.data)
        if smt2 is not None:
            smt2.write_text(made.script, encoding="utf-8")
    except (GatewayError, OSError) as exc:
        typer.echo(f"o3ctl: {_sentence(exc)}", err=True)
        raise typer.Exit(1) from exc
    if as_json:
        said = {"ok": True, "file": str(target), "digest": made.digest, "words": made.words}
        print(json.dumps(said | ({"script": str(smt2)} if smt2 else {}), indent=2, ensure_ascii=False))
        return
    typer.echo(f"{made.words}\n{made.digest}\nwritten to {target} ({len(made.data)} bytes)")
    if smt2 is not None:
        typer.echo(f"script written to {smt2}")


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A certificate.")],
    modules: Annotated[
        Path | None, typer.Option("--modules", metavar="DIR", help="The modules' files must be here as well.")
    ] = None,
    solver: Annotated[
        SolverChoice | None,
        typer.Option("--solver", help="Which must answer (default: those that are installed)."),
    ] = None,
    audit: Annotated[
        Path | None, typer.Option("--audit", metavar="DB", help="The audit log that must hold the decision.")
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", metavar="PUB", help="Ed25519 public key (PEM) it must be signed with."),
    ] = None,
    smt2: Annotated[
        Path | None, typer.Option("--smt2", metavar="F", help="An exported script that must be the same.")
    ] = None,
    within: Annotated[
        float, typer.Option("--within", min=1.0, metavar="SECONDS", help="For each solver.")
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Check a certificate: its bytes, its claims by two judges that share no code, its script by solvers."""
    from gateway.cli.certificate import checks as certificate_checks  # noqa: PLC0415  # z3, pydantic, sqlite
    from gateway.cli.certificate.signature import public_key  # noqa: PLC0415
    from gateway.core.errors import GatewayError  # noqa: PLC0415

    try:
        wanted = certificate_checks.Wanted(
            modules=modules,
            audit=audit,
            key=None if key is None else public_key(key),
            script=None if smt2 is None else smt2.read_bytes(),
            solvers=certificate_checks.named(None if solver is None else solver.value),
            solver_named=solver is not None,
            within_s=within,
        )
        done = certificate_checks.verify(file.read_bytes(), wanted)
    except (GatewayError, OSError) as exc:
        typer.echo(f"o3ctl: {_sentence(exc)}", err=True)
        raise typer.Exit(2) from exc
    if as_json:
        print(json.dumps(done.plain(), indent=2, ensure_ascii=False))
    else:
        for sentence in done.sentences():
            print(sentence)
    raise typer.Exit(0 if done.good else 1)


def find_state(given: Path | None, environ: Mapping[str, str] = os.environ) -> Path:
    """The state directory: as given, systemd's, the installed gateway's, else the demo's if it is there."""
    if given is not None:
        return given
    if environ.get("STATE_DIRECTORY"):
        return Path(environ["STATE_DIRECTORY"].split(":")[0])
    known = (INSTALLED_STATE, *DEMO_STATES)
    return next((state for state in known if (state / "audit.sqlite").is_file()), INSTALLED_STATE)


def _sentence(exc: Exception) -> str:
    """What went wrong, with the file's name as it was given."""
    if isinstance(exc, OSError) and exc.filename is not None:
        return f"`{exc.filename}` cannot be read or written: {exc.strerror or exc}"
    return str(exc)
