"""Everything that is looked at in a certificate file, without the gateway. Each look stands by itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gateway.cli.certificate.file import (
    KEYS,
    Derived,
    derive,
    digest_of,
    file_document,
    record_of,
)
from gateway.cli.certificate.premises import premises_problem
from gateway.cli.certificate.signature import signature_problem
from gateway.core.decision import CheckResult, DecisionRecord, Refused, Unknown, outcome_name
from gateway.core.errors import StorageError
from gateway.core.override import phrase
from gateway.recheck.bounds import Bounds, misproved, violated
from gateway.recheck.check import Question, recheck
from gateway.recheck.language import LanguageError
from gateway.solver.certificates.basis import canonical
from gateway.solver.certificates.bounds import BY_SOLVER, bounds
from gateway.solver.certificates.claims import Scene
from gateway.solver.certificates.smtlib import acting, script_symbols
from gateway.solver.certificates.solvers import SOLVERS, SolverName, ask, expected_answers
from gateway.solver.checking.terms import Budget
from gateway.solver.errors import CertificateError
from gateway.solver.language.affine import symbols
from gateway.solver.workers.check import Checks
from gateway.storage.anchored import read_anchored
from gateway.storage.codec import certificate_document, parsed

_SAMPLES = 64
_INDEPENDENT = "independent checker"
_PATIENT = Budget(rlimit=50_000_000, timeout_ms=20_000)


@dataclass(frozen=True, slots=True)
class Look:
    """One thing looked at. `good` None: it was not asked for or could not be."""

    name: str
    good: bool | None
    said: str


@dataclass(slots=True)
class Verification:
    """All looks at one file, in order."""

    decision: str = ""
    words: str = ""
    looks: list[Look] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Nothing is wrong, and where the independent checker cannot judge, a solver did."""
        unread = any(look.good is None and look.name.startswith(_INDEPENDENT) for look in self.looks)
        solved = any(look.good and look.name.startswith("solver ") for look in self.looks)
        wrong = any(look.good is False for look in self.looks)
        return bool(self.looks) and not wrong and (solved or not unread)

    def add(self, name: str, problem: str, said: str) -> None:
        """Note a look: `problem` where there is one, else what it showed."""
        self.looks.append(Look(name, not problem, problem or said))

    def plain(self) -> dict[str, Any]:
        """For programs."""
        return {
            "decision": self.decision,
            "good": self.good,
            "words": self.words,
            "looks": [{"name": look.name, "good": look.good, "said": look.said} for look in self.looks],
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
    _judged_again(done, derived)
    for scene in derived.scenes:
        _independent(done, scene, [m.text for m in scene.rules.modules])
    for solver in wanted.solvers:
        _solver(done, solver, derived, wanted)
    return done


def untouched(data: bytes, key: str) -> bool:
    """Whether every byte is as the owner of this key signed it. Quick; says nothing of the claims."""
    done = Verification()
    document = _shape(done, data)
    return document is not None and document["signature"] is not None and not signature_problem(document, key)


def _shape(done: Verification, data: bytes) -> Mapping[str, Any] | None:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as exc:
        done.add("schema", f"the file is not JSON: {exc}", "")
        return None
    problem = ""
    if not isinstance(document, dict) or set(document) != KEYS:
        problem = f"the file has not exactly the keys {', '.join(sorted(KEYS))}"
    else:
        kinds = {
            "certificate": dict,
            "claims": list,
            "digest": str,
            "modules": dict,
            "script": str,
            "words": str,
        }
        wrong = [key for key, kind in kinds.items() if not isinstance(document[key], kind)]
        if wrong:
            problem = f"`{wrong[0]}` is of the wrong kind"
        elif canonical(document) != data:
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
    return record


def _signature(done: Verification, document: Mapping[str, Any], wanted: Wanted) -> None:
    if document["signature"] is None:
        if wanted.key is not None:
            done.add("signature", "the file is not signed", "")
        else:
            done.looks.append(Look("signature", None, "not signed"))
        return
    problem = signature_problem(document, wanted.key)
    whose = "yours" if wanted.key is not None else "nobody said whose it must be; give --key"
    said = "" if problem else f"fits key {document['signature']['key'][:16]} ({whose})"
    done.add("signature", problem, said)


def _anchor(
    done: Verification, document: Mapping[str, Any], record: DecisionRecord | None, wanted: Wanted
) -> None:
    if wanted.audit is None or record is None:
        done.looks.append(Look("anchor", None, "no audit log was given; give --audit"))
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
    elif document["anchor"] != {"sequence": audited.sequence, "row": audited.digest}:
        problem = "the certificate names another row of the audit log"
    else:
        sets = document["certificate"]["rule_sets"]
        encoded = {int(g): canonical(basis) for g, basis in sets.items()}
        if parsed(certificate_document(audited.record, encoded)) != document["certificate"]:
            problem = "the audit log's record of this decision says something else"
    said = f"row {audited.sequence} of {report.rows}, head {report.head[:16]}" if audited is not None else ""
    done.add("anchor", problem, said)


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
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError, RecursionError) as exc:
        done.add("made again", f"nothing can be made from the certificate: {exc!r}", "")
        return None
    again = file_document(document["certificate"], texts, derived, document["anchor"])
    differs = [key for key in ("claims", "script", "words") if again[key] != document[key]]
    problem = f"in the file not what the certificate gives: {', '.join(differs)}" if differs else ""
    done.words = derived.words
    claims = ", ".join(f"{claim['of']}: {claim['says']}" for claim in derived.claims) or "nothing is claimed"
    done.add("made again", problem, f"claims and script are the same, byte by byte ({claims})")
    return derived


def _judged_again(done: Verification, derived: Derived) -> None:
    """The gateway's own check once more, with patience: the same verdict and the same margins."""
    scenes = {id(scene.claim.examination): scene for scene in derived.scenes}
    for scene in scenes.values():
        told = scene.claim.examination.result
        # A check cut short looks for no repair; one that refused is not asked to look longer now.
        refused = isinstance(told.verdict, Refused)
        request = scene.claim.examination.request
        again, _ = Checks(scene.rules, _PATIENT).check(request, late=partial(bool, refused))
        verdict, before = outcome_name(again.verdict), outcome_name(told.verdict)
        problem = "" if verdict == before else f"the check says {verdict}, the certificate {before}"
        under = f", {phrase(scene.rules.overrides)}" if scene.rules.overrides else ""
        wrong = sorted(_margins(again) ^ _margins(told))
        if not problem and wrong:
            problem = f"the margin of {wrong[0][0]} comes out otherwise"
        done.add("judged again", problem, f"{verdict}, {len(told.findings)} margins the same{under}")


def _margins(result: CheckResult) -> frozenset[tuple[str, str, str]]:
    return frozenset(
        (f"{f.module}/{f.constraint}", type(f).__name__, "" if isinstance(f, Unknown) else str(f.margin))
        for f in result.findings
    )


def _independent(done: Verification, scene: Scene, texts: Sequence[str]) -> None:
    """The checker that shares no code with the solver (S7)."""
    premises = scene.premises({f"x:{v.tag}" for v in scene.rules.measured})
    name = f"{_INDEPENDENT}, {scene.claim.of}"
    try:
        done.add(
            f"independent premises, {scene.claim.of}",
            premises_problem(scene, texts),
            "the state stood on holds all that readings, ages and the state carried in allow",
        )
        if scene.claim.says == "violated":
            _look_at_witness(done, name, scene, texts)
            return
        question = Question(
            inputs={symbol[2:]: ends for symbol, ends in premises.items()},
            previous={tag: list(values) for tag, values in scene.facts.old.items()},
            proposal={str(tag): value for tag, value in scene.claim.action.items()},
            held_s={} if scene.claim.as_backup else dict(scene.facts.held),
            hold_s=scene.plan.hold - scene.plan.delay,
            effect_delay_s=scene.plan.delay,
        )
        report = recheck(texts, question, samples=_SAMPLES, overridden=overridden(scene))
        if report.undetermined:  # it has judged nothing, which is no consent
            why = "; ".join(report.undetermined)
            done.looks.append(Look(name, None, f"it is told too little, so a solver must answer: {why}"))
            return
        breaches = sorted(report.violated)
        problem = f"it found {breaches[0]} violated inside the assumptions" if breaches else ""
        done.add(name, problem, f"no violation in {report.runs} courses of events")
        claimed = _bounds(scene)
        wrong = misproved(texts, claimed)
        summed = sum(line["proof"] != BY_SOLVER for line in claimed.lines)
        said = f"{summed} of {len(claimed.lines)} duties shown by sums, added up again exactly"
        done.add(f"interval bounds, {scene.claim.of}", wrong[0] if wrong else "", said)
    except LanguageError as exc:
        done.looks.append(Look(name, None, f"it cannot read a module, so a solver must answer: {exc}"))
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as exc:
        done.add(name, f"it cannot judge: {exc!r}", "")


def _look_at_witness(done: Verification, name: str, scene: Scene, texts: Sequence[str]) -> None:
    told = scene.claim.counterexample
    rule = f"{told.module}/{told.constraint}" if told is not None else ""
    values = [acting(duty) for duty in scene.duties]
    fails = violated(texts, _bounds(scene), rule, scene.duties[0].instant, values, scene.witness)
    problem = "" if fails else f"the witness does not violate {rule} inside the assumptions"
    done.add(name, problem, f"the witness violates {rule}")


def overridden(scene: Scene) -> tuple[str, ...]:
    """Names of what was overridden when the claim was made."""
    return tuple(override.name for override in scene.rules.overrides)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _bounds(scene: Scene) -> Bounds:
    named = {n for duty in scene.duties for n in symbols(duty.formula)}
    return Bounds(
        premises=scene.premises(script_symbols(scene) | named),
        lines=bounds(scene) if scene.claim.says == "holds" else [],
        hold_s=scene.plan.hold,
        effect_delay_s=scene.plan.delay,
        as_backup=scene.claim.as_backup,
        overridden=overridden(scene),
    )


def _solver(done: Verification, solver: SolverName, derived: Derived, wanted: Wanted) -> None:
    expected = expected_answers(derived.script)
    if not expected:
        done.looks.append(Look(f"solver {solver}", None, "nothing is claimed, so nothing is asked"))
        return
    answers = ask(solver, derived.script, within_s=wanted.within_s)
    if answers.missing and not wanted.solver_named:
        done.looks.append(Look(f"solver {solver}", None, answers.problem))
        return
    problem = answers.problem
    if not problem and not answers.confirms(expected):
        said = ", ".join(answers.said) or "nothing"
        problem = f"it says {said} where the certificate needs {', '.join(expected)}"
    done.add(f"solver {solver}", problem, f"says {', '.join(answers.said)}, as the certificate needs")


def named(solver: str | None) -> tuple[SolverName, ...]:
    """The solvers a person meant; all where none was named."""
    match solver:
        case "z3":
            return ("z3",)
        case "cvc5":
            return ("cvc5",)
        case _:
            return SOLVERS


def sentences(done: Verification) -> list[str]:
    """The report for people."""
    marks = {True: "ok     ", False: "WRONG  ", None: "-      "}
    lines = [f"{marks[look.good]}{look.name}: {look.said}" for look in done.looks]
    if not done.good:
        return [*lines, "this certificate does NOT hold; believe nothing it says"]
    return [*lines, f"decision {done.decision}: {done.words}"]
