"""A certificate file: the certificate, and everything that follows from it. One certificate, one byte string.

`certificate` is what the digest in the audit log covers. `modules` are the texts by digest; `claims`,
`script` and `words` follow from both, so a file is whole when it can be made again byte for byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from gateway.core.decision import (
    DecisionRecord,
    Examination,
    Holds,
    Permitted,
    Refused,
    Rejected,
    Repaired,
    Undetermined,
    Violated,
)
from gateway.core.errors import StorageError
from gateway.core.override import Override, phrase
from gateway.core.tag import decimal_text
from gateway.solver.certificates.basis import Basis, BasisStore, canonical
from gateway.solver.certificates.bounds import bounds
from gateway.solver.certificates.claims import Scene, claims_of, playable, scene_of
from gateway.solver.certificates.smtlib import script, script_symbols
from gateway.solver.errors import CertificateError
from gateway.solver.language.affine import symbols
from gateway.solver.rules.ruleset import RuleSet
from gateway.storage.codec import (
    CERTIFICATE_FORMAT,
    certificate_document,
    parsed,
    record_from_plain,
)

KEYS = frozenset({"anchor", "certificate", "claims", "digest", "modules", "script", "signature", "words"})
_LEFT_OUT: Mapping[str, Any] = {
    "write_outcome": None,
    "certificate_digest": "",
    "timings_ms": {},
    "shadow": [],
}

Plain = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Derived:
    """What follows from a certificate and its module texts."""

    scenes: tuple[Scene, ...]
    examined: tuple[tuple[Examination, RuleSet], ...]  # every check in it, with the rules it was made under
    claims: list[dict[str, Any]]
    script: str
    words: str


def digest_of(document: bytes) -> str:
    """The digest under which the audit log knows a certificate."""
    return "sha256:" + hashlib.sha256(document).hexdigest()


def certificate_of(record: DecisionRecord, store: BasisStore) -> tuple[Plain, dict[str, str]]:
    """The certificate of an audited decision and its module texts by digest, both from what was kept.

    Raises `CertificateError` where what was kept does not give the digest made before the write.
    """
    named = {record.generation: record.rule_set_digest}
    for examination in (record.examined, record.fallback):
        if examination is not None:
            named[examination.request.generation] = examination.result.rule_set_digest
    for chosen in _choices(named, store):
        document = certificate_document(record, {g: basis.encoded for g, basis in chosen.items()})
        if digest_of(document) == record.certificate_digest:
            texts: dict[str, str] = {}
            for basis in chosen.values():
                texts |= {digest: text.decode() for digest, text in store.texts(basis).items()}
            return parsed(document), texts
    raise CertificateError(
        f"decision `{record.id}`: the record and the kept rule sets do not give its digest "
        f"{record.certificate_digest[:19]}; the evidence folder is not the one of this audit log, or one of "
        "them was changed"
    )


def _choices(named: Mapping[int, str], store: BasisStore) -> list[dict[int, Basis]]:
    """Every way to give each generation one of its kept bases, or none."""
    found: list[dict[int, Basis]] = [{}]
    for generation, digest in sorted(named.items()):
        bases = list(store.bases(digest))
        found = [{**chosen, generation: basis} for chosen in found for basis in bases] + found
    return found


def record_of(certificate: Plain) -> tuple[DecisionRecord, dict[int, Basis]]:
    """The decision and the rule sets in a certificate; raises `CertificateError` for anything else."""
    try:
        if certificate["format"] != CERTIFICATE_FORMAT or set(certificate) != {
            "format",
            "decision",
            "rule_sets",
        }:
            raise CertificateError(f"the format is not `{CERTIFICATE_FORMAT}`")
        record = record_from_plain({**certificate["decision"], **_LEFT_OUT})
        again = parsed(certificate_document(record, {}))["decision"]
        if canonical(again) != canonical(certificate["decision"]):
            raise CertificateError("the decision is not spelled as this gateway spells it")
        return record, _bases(record, certificate["rule_sets"])
    except StorageError as exc:
        raise CertificateError(f"the decision in the certificate cannot be read: {exc}") from exc
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as exc:
        raise CertificateError(f"the certificate cannot be read: {exc!r}") from exc


def _bases(record: DecisionRecord, told: Mapping[str, Plain]) -> dict[int, Basis]:
    """The rule sets by generation: those that the record names and no others."""
    named = {record.generation: record.rule_set_digest}
    for examination in (record.examined, record.fallback):
        if examination is not None:
            named[examination.request.generation] = examination.result.rule_set_digest
    if strange := told.keys() - {str(generation) for generation in named}:
        raise CertificateError(f"nothing in the decision was judged under rule set {min(strange)}")
    bases = {int(g): Basis.read(document) for g, document in told.items()}
    for generation, basis in bases.items():
        if basis.rule_set_digest != named[generation]:
            raise CertificateError(f"rule set {generation} is not the one the decision was judged under")
    return bases


def derive(certificate: Plain, texts: Mapping[str, str]) -> Derived:
    """Claims, script and words of a certificate; raises `CertificateError`."""
    record, bases = record_of(certificate)
    scenes: list[Scene] = []
    _same_overrides(record, bases)
    encoded = {digest: text.encode() for digest, text in texts.items()}
    rules = {generation: basis.rules(encoded, generation) for generation, basis in bases.items()}
    for claim in claims_of(record):
        if claim.generation not in rules:
            raise CertificateError(f"rule set {claim.generation} is not in the certificate")
        scenes.append(scene_of(claim, rules[claim.generation]))
    said = words(record)
    title = (
        f"decision {record.id} of decision point {record.point}",
        said,
        digest_of(canonical(certificate)),
    )
    checks = [e for e in (record.examined, record.fallback) if e and e.request.generation in rules]
    for check in checks:
        playable(check.request, rules[check.request.generation])
    return Derived(
        scenes=tuple(scenes),
        examined=tuple((check, rules[check.request.generation]) for check in checks),
        claims=[_claim(scene) for scene in scenes],
        script=script(title, scenes),
        words=said,
    )


def _same_overrides(record: DecisionRecord, bases: Mapping[int, Basis]) -> None:
    """What a record says was overridden is what its rule sets say; raises `CertificateError` (S25)."""
    said = {(record.generation, record.overrides)}
    said |= {(e.request.generation, e.result.overrides) for e in (record.examined, record.fallback) if e}
    for generation, overrides in said:
        basis = bases.get(generation)
        try:
            known = basis.overrides if basis is not None else ()
        except ValueError as exc:
            raise CertificateError(f"the overrides of rule set {generation} cannot be read: {exc}") from exc
        if overrides != known:
            raise CertificateError(
                f"the decision names other overrides than its rule set {generation}: "
                f"{phrase(overrides) or 'none'}, and {phrase(known) or 'none'}"
            )


def _claim(scene: Scene) -> dict[str, Any]:
    claim = scene.claim
    used = script_symbols(scene).union(*(symbols(duty.formula) for duty in scene.duties))
    told = claim.counterexample
    return {
        "says": claim.says,
        "of": claim.of,
        "expected": claim.expected,
        "generation": claim.generation,
        "as_backup": claim.as_backup,
        "action": {tag: decimal_text(value) for tag, value in claim.action.items()},
        "effect_delay_s": decimal_text(scene.plan.delay),
        "until_s": decimal_text(scene.plan.hold),
        "premises": {
            name: [decimal_text(low), decimal_text(high)]
            for name, (low, high) in scene.premises(used).items()
        },
        "in_force": {tag: [decimal_text(v) for v in values] for tag, values in scene.facts.old.items()},
        "carried_used": scene.facts.carried_used,
        "counterexample": None if told is None else f"{told.module}/{told.constraint}",
        "witness": {name: decimal_text(value) for name, value in sorted(scene.witness.items())},
        "bounds": bounds(scene) if claim.says == "holds" else [],
    }


def file_document(
    certificate: Plain, texts: Mapping[str, str], derived: Derived, anchor: Plain | None
) -> dict[str, Any]:
    """The whole file, not yet signed."""
    return {
        "anchor": anchor,
        "certificate": certificate,
        "claims": derived.claims,
        "digest": digest_of(canonical(certificate)),
        "modules": dict(texts),
        "script": derived.script,
        "signature": None,
        "words": derived.words,
    }


def words(record: DecisionRecord) -> str:
    """The result as people may say it (S29): the nearest margin first, never more than was shown."""
    rules, under = f"rule set {record.generation}", _under(record.overrides)
    margin = _nearest(record)
    match record.outcome:
        case Permitted():
            said = f"{margin}permitted by {rules} under its assumptions{under}"
        case Repaired(_, counterexample, told):
            said = f"not permitted as asked: {counterexample.text}; {told}{'; ' * bool(told)}"
            said += f"repaired values permitted by {rules} under its assumptions{under}"
        case Refused(counterexample):
            said = f"not permitted by {rules}{under}: {counterexample.text}"
        case Undetermined(reason) | Rejected(reason):
            name = type(record.outcome).__name__.lower()
            said = f"{name} under {rules}{under}, so nothing was permitted: {reason}"
    if record.fallback is not None and isinstance(record.fallback.result.verdict, Permitted):
        generation = record.fallback.request.generation
        said += f"; fallback `{record.written_by}` permitted by rule set {generation} under its assumptions"
        said += _under(record.fallback.result.overrides)
    if record.written_by == "recovery":
        said += "; recovery: the backup was let out because no worst case grows by it; it is not permitted"
    return f"what-if: {said}" if record.what_if else said


def _under(overrides: tuple[Override, ...]) -> str:
    return f", {phrase(overrides)}" if overrides else ""


def _nearest(record: DecisionRecord) -> str:
    found: list[tuple[Fraction, str, str]] = [
        (f.margin, f"{f.module}/{f.constraint}", f" {f.unit}" if f.unit else "")
        for f in record.findings
        if isinstance(f, Holds | Violated)
        and f.margin is not None
        and not (isinstance(f, Violated) and f.kind in {"informational", "monitor"})
        and not f.constraint.endswith(".range")  # an action at the end of its range is no news
    ]
    if not found:
        return ""
    margin, name, unit = min(found)
    return f"margin {float(margin):.6g}{unit} to {name}; "
