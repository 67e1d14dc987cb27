"""Everything that is looked at in a certificate file, without the gateway. Each look stands by itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gateway.cli.certificate.accord import disagreement
from gateway.cli.certificate.file import (
    KEYS,
    Derived,
    derive,
    digest_of,
    file_document,
    record_of,
)
from gateway.cli.certificate.judges import in_words, independent, judged_again, solver_asked
from gateway.cli.certificate.looks import Verification
from gateway.cli.certificate.signature import signature_problem
from gateway.core.decision import DecisionRecord, outcome_name
from gateway.core.errors import StorageError
from gateway.solver.certificates.basis import canonical
from gateway.solver.certificates.solvers import SOLVERS, SolverName
from gateway.solver.errors import CertificateError
from gateway.storage.anchored import read_anchored
from gateway.storage.codec import certificate_document, parsed

_KINDS: Mapping[str, tuple[type, ...]] = {
    "anchor": (dict, type(None)),
    "certificate": (dict,),
    "claims": (list,),
    "digest": (str,),
    "modules": (dict,),
    "script": (str,),
    "words": (str,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to hold a file against."""

    modules: Path | None = None
    audit: Path | None = None
    key: str | None = None  # public key in hex
    script: bytes | None = None  # an exported script
    solvers: tuple[SolverName, ...] = SOLVERS
    solver_named: bool = False  # a person asked for these: one that is missing is then a failure
    within_s: float = 60.0


def verify(data: bytes, wanted: Wanted) -> Verification:
    """Look at everything; never raises for what the file holds. Blocks, for seconds."""
    done = Verification()
    document = _shape(done, data)
    if document is None:
        return done
    certificate = document["certificate"]
    made = digest_of(canonical(certificate))
    problem = (
        "" if made == document["digest"] else f"the certificate's digest is {made[:19]}, not the one told"
    )
    done.add("digest", problem, made)
    record = _record(done, certificate)
    _signature(done, document, wanted)
    _anchor(done, document, record, wanted)
    texts = _texts(done, document, wanted)
    derived = _derived(done, document, texts)
    if derived is None:
        return done
    if wanted.script is not None:
        same = wanted.script == derived.script.encode()
        done.add(
            "script file", "" if same else "the script differs from the one the certificate gives", "same"
        )
    judged_again(done, derived)
    for scene in derived.scenes:
        independent(done, scene, [m.text for m in scene.rules.modules])
        in_words(done, scene)
    for solver in wanted.solvers:
        solver_asked(done, solver, derived, within_s=wanted.within_s, by_name=wanted.solver_named)
    return done


def untouched(data: bytes, key: str) -> bool:
    """Whether every byte is as the owner of this key signed it. Quick; says nothing of the claims."""
    done = Verification()
    document = _shape(done, data)
    return document is not None and document["signature"] is not None and not signature_problem(document, key)


def _shape(done: Verification, data: bytes) -> Mapping[str, Any] | None:
    try:
        document = json.loads(data)
        again = canonical(document)
    except (ValueError, RecursionError, OverflowError, TypeError, msgspec.MsgspecError) as exc:
        done.add("schema", f"the file is not JSON that a certificate could be: {exc}", "")
        return None
    problem = ""
    if not isinstance(document, dict) or set(document) != KEYS:
        problem = f"the file has not exactly the keys {', '.join(sorted(KEYS))}"
    else:
        wrong = [key for key, kinds in _KINDS.items() if not isinstance(document[key], kinds)]
        if wrong:
            problem = f"`{wrong[0]}` is of the wrong kind"
        elif again != data:
            problem = "the file is not spelled as certificates are: its bytes were changed"
    done.add("schema", problem, "one certificate, one spelling")
    return None if problem else document


def _record(done: Verification, certificate: Mapping[str, Any]) -> DecisionRecord | None:
    try:
        record, _ = record_of(certificate)
    except CertificateError as exc:
        done.add("decision", str(exc), "")
        return None
    done.decision = record.id
    done.add("decision", "", f"{record.id}, {outcome_name(record.outcome)}")
    done.add("one story", disagreement(record), "what was told and let out is what was checked")
    return record


def _signature(done: Verification, document: Mapping[str, Any], wanted: Wanted) -> None:
    if document["signature"] is None:
        if wanted.key is not None:
            done.add("signature", "the file is not signed", "")
        else:
            done.pass_over("signature", "not signed")
        return
    problem = signature_problem(document, wanted.key)
    whose = "yours" if wanted.key is not None else "nobody said whose it must be; give --key"
    said = "" if problem else f"fits key {document['signature']['key'][:16]} ({whose})"
    done.add("signature", problem, said)


def _anchor(
    done: Verification, document: Mapping[str, Any], record: DecisionRecord | None, wanted: Wanted
) -> None:
    if wanted.audit is None or record is None:
        done.pass_over("anchor", "no audit log was given; give --audit")
        return
    try:
        audited, report = read_anchored(wanted.audit, record.id)
    except StorageError as exc:
        done.add("anchor", str(exc), "")
        return
    problem = ""
    if not report.intact:
        problem = f"the audit log's own chain is broken: {report.problem}"
    elif audited is None:
        problem = f"the audit log does not hold decision `{record.id}`"
    elif audited.record.certificate_digest != document["digest"]:
        problem = "the audit log holds another digest for this decision"
    elif canonical(document["anchor"]) != canonical({"sequence": audited.sequence, "row": audited.digest}):
        problem = "the certificate names another row of the audit log"
    else:
        sets = document["certificate"]["rule_sets"]
        encoded = {int(g): canonical(basis) for g, basis in sets.items()}
        said = parsed(certificate_document(audited.record, encoded))
        if canonical(said) != canonical(document["certificate"]):
            problem = "the audit log's record of this decision says something else"
    row = f"row {audited.sequence} of {report.rows}, head {report.head[:16]}" if audited is not None else ""
    done.add("anchor", problem, row)


def _texts(done: Verification, document: Mapping[str, Any], wanted: Wanted) -> dict[str, str]:
    """The module texts: those in the file, each of its digest, none missing, none too many."""
    texts = {str(digest): str(text) for digest, text in document["modules"].items()}
    said = f"{len(texts)} in the file"
    problem = ""
    try:
        needed = {
            str(m["digest"]) for r in document["certificate"]["rule_sets"].values() for m in r["modules"]
        }
        wrong = [d for d, text in texts.items() if _sha256(text.encode()) != d] or needed ^ texts.keys()
        if wrong:
            problem = f"module text {min(wrong)[:12]} is missing, changed, or belongs to no rule set here"
        elif wanted.modules is not None:
            there, unread = _digests(wanted.modules)
            if missing := needed - there:
                problem = f"no module in `{wanted.modules}` has the digest {min(missing)[:12]}{unread}"
            said = f"{len(needed)} of the same digest in `{wanted.modules}`"
    except (KeyError, TypeError, AttributeError, OSError, UnicodeEncodeError) as exc:
        problem = f"the module texts cannot be read: {exc!r}"
    done.add("modules", problem, said)
    return texts


def _digests(folder: Path) -> tuple[set[str], str]:
    """Of a folder's module texts, and which of them cannot be read, for the end of a sentence."""
    found: set[str] = set()
    unread = ""
    for path in sorted(folder.glob("*.json")):
        try:
            found.add(_sha256(path.read_bytes()))
        except OSError as exc:
            unread += f"; `{path.name}` there cannot be read: {exc.strerror}"
    return found, unread


def _derived(done: Verification, document: Mapping[str, Any], texts: Mapping[str, str]) -> Derived | None:
    """Everything made again from the certificate and compared byte by byte."""
    try:
        derived = derive(document["certificate"], texts)
    except CertificateError as exc:
        done.add("made again", str(exc), "")
        return None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as exc:
        done.add("made again", f"nothing can be made from the certificate: {exc!r}", "")
        return None
    again = file_document(document["certificate"], texts, derived, document["anchor"])
    differs = [
        key for key in ("claims", "script", "words") if canonical(again[key]) != canonical(document[key])
    ]
    problem = f"in the file not what the certificate gives: {', '.join(differs)}" if differs else ""
    done.words = derived.words
    claims = ", ".join(f"{claim['of']}: {claim['says']}" for claim in derived.claims) or "nothing is claimed"
    done.add("made again", problem, f"claims and script are the same, byte by byte ({claims})")
    return derived


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def named(solver: str | None) -> tuple[SolverName, ...]:
    """The solvers a person meant; all where none was named."""
    match solver:
        case "z3":
            return ("z3",)
        case "cvc5":
            return ("cvc5",)
        case _:
            return SOLVERS
