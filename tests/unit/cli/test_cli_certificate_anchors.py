"""Certificates held against audit logs: their own, another one, and what somebody else made of it."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.cli.certificate.checks import Wanted, verify
from gateway.cli.certificate.export import export
from gateway.core.decision import DecisionRecord
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.certificate_demo import PERMITTED, REFUSED, State, decided, kept, wrong
from tests.unit.solver_demo import rule_set

NOBODY = Wanted(solvers=())


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return rule_set()


@pytest.fixture(scope="module")
def records(rules: RuleSet) -> dict[str, DecisionRecord]:
    requests = {"permitted": PERMITTED, "refused": REFUSED}
    return {name: decided(rules, request, name) for name, request in requests.items()}


@pytest.fixture(scope="module")
def state(
    tmp_path_factory: pytest.TempPathFactory, rules: RuleSet, records: dict[str, DecisionRecord]
) -> State:
    return asyncio.run(kept(tmp_path_factory.mktemp("state"), rules, list(records.values())))


async def test_an_audit_log_whose_row_was_changed_anchors_nothing(
    tmp_path: Path, rules: RuleSet, records: dict[str, DecisionRecord]
) -> None:
    state = await kept(tmp_path, rules, [records["permitted"], records["refused"]])
    data = export(state.folder, "refused").data
    with sqlite3.connect(state.audit) as connection:
        connection.execute(
            "UPDATE audit SET body = CAST(replace(CAST(body AS TEXT), 'armed', 'shade') AS BLOB)"
            " WHERE sequence = 1"
        )
    connection.close()

    done = verify(data, replace(NOBODY, audit=state.audit))

    assert wrong(done) == ["anchor"]
    assert "chain is broken" in next(look.said for look in done.looks if look.name == "anchor")


async def test_a_certificate_of_another_audit_log_is_not_anchored(
    tmp_path: Path, rules: RuleSet, state: State, records: dict[str, DecisionRecord]
) -> None:
    other = await kept(tmp_path, rules, [records["refused"]])

    done = verify(export(state.folder, "permitted").data, replace(NOBODY, audit=other.audit))

    assert wrong(done) == ["anchor"]


def rewritten(source: Path, target: Path, *statements: str) -> None:
    """A copy of an audit log after some statements, its chain made anew over whatever it then holds."""
    with sqlite3.connect(source) as read, sqlite3.connect(target) as log:
        read.backup(log)
        for statement in statements:
            log.execute(statement)
        digest = bytes(32)
        for sequence, body in log.execute("SELECT sequence, body FROM audit ORDER BY sequence").fetchall():
            if isinstance(body, bytes):
                digest = hashlib.sha256(digest + body).digest()
                log.execute("UPDATE audit SET digest = ? WHERE sequence = ?", (digest, sequence))
    read.close()
    log.close()


_LOOSE = "CREATE TABLE audit AS SELECT sequence, kind, decision, point, {} FROM old"
HOSTILE_LOGS = {
    "a body without its kind": ["UPDATE audit SET body = x'7b7d' WHERE sequence = 2"],
    "a decision without a record": ["UPDATE audit SET body = x'7b7d' WHERE sequence = 1"],
    "a body that is no JSON": ["UPDATE audit SET body = x'00' WHERE sequence = 2"],
    "an outcome that is a number": [
        "INSERT INTO audit VALUES (9, 'outcome', 'permitted', 'tank', CAST('{\"outcome\":7}' AS BLOB), x'00')"
    ],
    "no bodies": ["ALTER TABLE audit RENAME TO old", _LOOSE.format("NULL AS body, digest")],
    "digests as text": [
        "ALTER TABLE audit RENAME TO old",
        _LOOSE.format("hex(body) AS body, hex(digest) AS digest"),
    ],
    "no table": ["ALTER TABLE audit RENAME TO old", "CREATE TABLE audit (sequence, body)"],
    "a row put in between": [
        "UPDATE audit SET sequence = 99 WHERE sequence = 1",
        "UPDATE audit SET sequence = 1 WHERE sequence = 2",
        "UPDATE audit SET sequence = 2 WHERE sequence = 99",
    ],
    "the first row cut off": ["DELETE FROM audit WHERE sequence = 1"],
}


@pytest.mark.parametrize("name", HOSTILE_LOGS)
def test_an_audit_log_that_somebody_else_made_anchors_nothing(
    state: State, tmp_path: Path, name: str
) -> None:
    rewritten(state.audit, tmp_path / "log.sqlite", *HOSTILE_LOGS[name])
    data = export(state.folder, "permitted").data

    done = verify(data, replace(NOBODY, audit=tmp_path / "log.sqlite"))

    assert wrong(done) == ["anchor"]
