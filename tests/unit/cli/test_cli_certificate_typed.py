"""Certificates as a person types the verbs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli.certificate.checks import Wanted, verify
from gateway.cli.certificate.export import export
from gateway.cli.certificate.looks import Look, Verification
from gateway.cli.main import app
from tests.unit.certificate_demo import PERMITTED, REPAIRED, Keys, State, decided, kept, new_keys, wrong
from tests.unit.solver_demo import BUFFER_TANK, rule_set


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    rules = rule_set()
    records = [decided(rules, PERMITTED, "permitted"), decided(rules, REPAIRED, "repaired")]
    return asyncio.run(kept(tmp_path_factory.mktemp("state"), rules, records))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return new_keys(tmp_path_factory.mktemp("keys"))


def test_export_and_verify_as_a_person_types_them(state: State, keys: Keys, tmp_path: Path) -> None:
    certificate, smt2 = tmp_path / "d.o3cert", tmp_path / "d.smt2"
    typed = ["certificate", "export", "repaired", "--state", str(state.folder), "-o", str(certificate)]
    made = CliRunner().invoke(app, [*typed, "--smt2", str(smt2), "--sign", str(keys.private)])
    assert made.exit_code == 0, made.output
    assert "repaired values permitted by rule set 1 under its assumptions" in made.output

    programs = json.loads(CliRunner().invoke(app, [*typed, "--json"]).output)
    assert (programs["ok"], programs["file"]) == (True, str(certificate))
    assert programs["digest"] in made.output
    made = CliRunner().invoke(app, [*typed, "--smt2", str(smt2), "--sign", str(keys.private)])
    assert made.exit_code == 0, made.output

    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "tank.json").write_bytes(BUFFER_TANK.read_bytes())
    (modules / "other.json").symlink_to(tmp_path / "nothing")  # only what the certificate names is needed
    asked = ["certificate", "verify", str(certificate), "--solver", "z3", "--key", str(keys.public)]
    asked += ["--audit", str(state.audit), "--modules", str(modules), "--smt2", str(smt2)]
    done = CliRunner().invoke(app, asked)

    assert done.exit_code == 0, done.output
    assert "solver z3: says sat, unsat, as the certificate needs" in done.output
    assert "WRONG" not in done.output

    smt2.write_text(smt2.read_text().replace("unsat", "sat"))
    (modules / "tank.json").write_text("{}")
    said = CliRunner().invoke(app, [*asked, "--json"])
    assert said.exit_code == 1
    report = json.loads(said.output)
    assert [look["name"] for look in report["looks"] if look["good"] is False] == ["modules", "script file"]
    assert report["good"] is False
    found = next(look for look in report["looks"] if look["name"] == "modules")
    assert "; `other.json` there cannot be read: No such file or directory" in json.dumps(found)


def test_a_solver_that_was_asked_for_and_is_missing_is_a_failure_and_else_a_remark(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.solver.certificates.solvers.command_of", lambda _solver: [])
    data = export(state.folder, "permitted").data

    asked = verify(data, Wanted(solvers=("cvc5",), solver_named=True))
    assert wrong(asked) == ["solver cvc5"]
    assert "o3-gateway[verify]" in next(look.said for look in asked.looks if look.name == "solver cvc5")
    assert wrong(verify(data, Wanted())) == []


def test_a_certificate_that_is_not_there_is_named_with_the_reason(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["certificate", "verify", str(tmp_path / "none.o3cert")])

    assert done.exit_code == 2
    assert f"`{tmp_path / 'none.o3cert'}` cannot be read or written: No such file" in done.output


BROKEN_SOLVERS = {
    "silent": "exit 0",
    "does not know": "echo unknown",
    "answers and breaks off": "echo unsat; exit 1",
    "answers and is killed": "echo unsat; kill -9 $$",
    "answers too often": "echo unsat; echo unsat",
    "answers otherwise": "echo sat",
    "says what is no text": "printf '\\377\\376unsat'",
    "complains in what is no text": "printf '\\377' >&2; echo unsat; exit 3",
    "never ends": "sleep 60",
}


@pytest.mark.parametrize("name", BROKEN_SOLVERS)
def test_a_solver_that_is_broken_confirms_nothing(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    program = tmp_path / "z3"
    program.write_text(f"#!/bin/sh\n{BROKEN_SOLVERS[name]}\n")
    program.chmod(0o755)
    monkeypatch.setattr("gateway.solver.certificates.solvers.command_of", lambda _solver: [str(program)])
    data = export(state.folder, "permitted").data

    done = verify(data, Wanted(solvers=("z3",), solver_named=True, within_s=1.0))

    assert wrong(done) == ["solver z3"]
    assert not done.good


def test_what_is_left_to_a_solver_is_not_shown_without_one() -> None:
    done = Verification(
        decision="d", words="w", looks=[Look("bounds", good=True, said="", needs_solver=True)]
    )

    assert (done.wrong, done.open, done.good) == (False, True, False)
    assert "a solver must answer" in done.sentences()[-1]
    done.solver("z3", "", "says unsat")
    assert done.good
    assert done.sentences()[-1] == "decision d: w"
