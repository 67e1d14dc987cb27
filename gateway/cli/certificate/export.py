"""A certificate file from an audit log and the evidence kept beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gateway.cli.certificate.file import certificate_of, derive, file_document
from gateway.cli.certificate.signature import signed
from gateway.core.decision import DecisionId
from gateway.solver.certificates.basis import BasisStore, canonical
from gateway.solver.errors import CertificateError
from gateway.storage.anchored import read_decision


@dataclass(frozen=True, slots=True)
class Exported:
    """A file's bytes, its script, and what people are told."""

    data: bytes
    script: str
    digest: str
    words: str


def export(state: Path, decision: str, key: Path | None = None) -> Exported:
    """The certificate of an audited decision, signed where a key is given.

    Raises `CertificateError` or `StorageError`. Blocks; needs no gateway and writes nothing.
    """
    audited = read_decision(state / "audit.sqlite", DecisionId(decision))
    if audited is None:
        raise CertificateError(f"the audit log in `{state}` holds no decision `{decision}`")
    certificate, texts = certificate_of(audited.record, BasisStore(state / "evidence"))
    derived = derive(certificate, texts)
    document = file_document(
        certificate, texts, derived, {"sequence": audited.sequence, "row": audited.digest}
    )
    if key is not None:
        document = signed(document, key)
    return Exported(canonical(document), derived.script, document["digest"], derived.words)
