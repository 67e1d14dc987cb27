"""A state directory with audited decisions of the demo plant, and certificates made from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from gateway.cli.certificate.export import export
from gateway.cli.certificate.looks import Verification
from gateway.core.clock import SystemClock
from gateway.core.decision import (
    CheckRequest,
    DecisionId,
    DecisionRecord,
    Examination,
    Mode,
    Permitted,
    Repaired,
)
from gateway.core.ports import InForce
from gateway.recheck.bounds import Bounds
from gateway.solver.certificates.basis import Basis, BasisStore, canonical
from gateway.solver.certificates.bounds import bounds
from gateway.solver.certificates.claims import Scene
from gateway.solver.certificates.smtlib import script_symbols
from gateway.solver.language.affine import symbols
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from gateway.storage.audit import AuditLog
from gateway.storage.codec import certificate_digest
from tests.unit.solver_demo import PATIENT, PUMP, Situation, proposal

RAMPED = {PUMP: (InForce(Fraction(38), 0.4), InForce(Fraction(30), 2.5))}
PERMITTED = Situation(older=RAMPED).request(replace(proposal("42"), model_digest="sha256:model"))
REPAIRED = Situation(level=2.5).request(proposal("80", heater=1))
REFUSED = Situation(level=3.56, inflow=30.0, pump="0", may_repair=False).request(proposal("0"))
UNDETERMINED = Situation(level=float("nan")).request(proposal("40"))
LOW = Situation(level=0.505, pump="10", may_repair=False)
FALLEN = LOW.request(proposal("10", heater=1))  # the heater would run dry
BACKUP = LOW.request(None)


def decided(
    rules: RuleSet, request: CheckRequest, name: str, *, checks: Checks | None = None
) -> DecisionRecord:
    """The durable record of one decision, its digest made as the gateway makes it."""
    result, _ = (checks or Checks(rules, PATIENT)).check(request)
    allowed = isinstance(result.verdict, Permitted | Repaired)
    record = DecisionRecord(
        id=DecisionId(name),
        point=request.point,
        mode=Mode.ARMED,
        requested_by="period",
        received_utc_ns=1_700_000_000_000_000_000,
        outcome=result.verdict,
        proposal=request.proposal,
        written=result.verdict.setpoints if isinstance(result.verdict, Permitted | Repaired) else (),
        written_by="verdict" if allowed else "",
        findings=result.findings,
        inputs=request.inputs,
        generation=request.generation,
        rule_set_digest=result.rule_set_digest,
        model_digest=request.proposal.model_digest if request.proposal is not None else "",
        timings_ms={"check": 1.5},
        examined=Examination(request=replace(request, decision=DecisionId(name)), result=result),
        overrides=result.overrides,
    )
    return sealed(record, Basis.of(rules))


def with_fallback(rules: RuleSet, record: DecisionRecord, request: CheckRequest) -> DecisionRecord:
    """The same decision with a backup that was let out on a check of its own."""
    result, _ = Checks(rules, PATIENT).check(request)
    assert isinstance(result.verdict, Permitted)
    fallback = Examination(request=replace(request, decision=record.id), result=result)
    changed = replace(
        record,
        fallback=fallback,
        written=result.verdict.setpoints,
        written_by="backup",
        certificate_digest="",
    )
    return sealed(changed, Basis.of(rules))


def sealed(record: DecisionRecord, basis: Basis) -> DecisionRecord:
    return replace(record, certificate_digest=certificate_digest(record, {record.generation: basis.encoded}))


@dataclass(frozen=True)
class State:
    """A gateway's state directory."""

    folder: Path

    @property
    def audit(self) -> Path:
        return self.folder / "audit.sqlite"


async def kept(folder: Path, rules: RuleSet, records: Sequence[DecisionRecord]) -> State:
    """What the gateway would have left behind: the audit log and the evidence."""
    BasisStore(folder / "evidence").keep(rules)
    log = AuditLog(folder / "audit.sqlite", SystemClock())
    await log.start()
    for record in records:
        await log.append(record)
    await log.aclose()
    return State(folder)


@dataclass(frozen=True)
class Keys:
    private: Path
    public: Path


def new_keys(folder: Path) -> Keys:
    key = Ed25519PrivateKey.generate()
    private, public = folder / "key.pem", folder / "key.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return Keys(private, public)


def wrong(done: Verification) -> list[str]:
    return [look.name for look in done.looks if look.good is False]


def again(state: State, decision: str, change: Callable[[dict[str, Any]], object]) -> bytes:
    """The file of a decision after a change, canonical as a careful forger leaves it."""
    document = json.loads(export(state.folder, decision).data)
    change(document)
    return canonical(document)


def claimed(scene: Scene, lines: list[dict[str, Any]] | None = None) -> Bounds:
    named = {name for duty in scene.duties for name in symbols(duty.formula)}
    return Bounds(
        premises=scene.premises(script_symbols(scene) | named),
        lines=bounds(scene) if lines is None else lines,
        hold_s=scene.plan.hold,
        effect_delay_s=scene.plan.delay,
        as_backup=scene.claim.as_backup,
    )
