"""What the pool and its workers say to each other; every number exact."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal, TypeVar

import msgspec

from gateway.core.decision import (
    CheckResult,
    Counterexample,
    Finding,
    Holds,
    Permitted,
    Proposal,
    Refused,
    RegisterValue,
    Repaired,
    Undetermined,
    Unknown,
    Verdict,
    Violated,
)
from gateway.core.errors import GatewayError
from gateway.core.guidance import Guidance, PackedGuidance, Refusal, Unguided
from gateway.core.override import Override
from gateway.core.ports import CheckRequest, ProvedBand, StateSet
from gateway.core.tag import TagDefinition, TagId
from gateway.solver.decoding.permitted_next import AtMost, Exactly, NotKnown, PermittedNext
from gateway.solver.rules.around import Around
from gateway.solver.rules.ruleset import RuleSet
from gateway.supervision.frames import FRAME_LIMIT_BYTES


class Load(msgspec.Struct, tag=True, frozen=True):
    """Compile a rule set beside the others and build the plans for these times (hold, effect delay)."""

    generation: int
    modules: tuple[tuple[str, str, int], ...]  # file name, text, priority
    tags: tuple[TagDefinition, ...]
    warm: tuple[tuple[float, float], ...]
    trial: tuple[tuple[str, str, int], ...] = ()  # the same with the shadow modules; empty: none
    overrides: tuple[Override, ...] = ()
    examined: bool = False  # another worker of the pool has found no contradiction between the modules
    outlines: dict[str, bool] = {}  # what Z3 said in another one, by part of a plan; see `Shelf.kept`


class Drop(msgspec.Struct, tag=True, frozen=True):
    """Forget a rule set."""

    generation: int


class Check(msgspec.Struct, tag=True, frozen=True):
    """Judge one proposal before a monotonic instant."""

    request: CheckRequest
    deadline_at: float


class Prepare(msgspec.Struct, tag=True, frozen=True):
    """Work out ahead what a check on these premises needs. Never answered.

    `order`, where it is not empty: also what `Next` on them needs, for outputs decoded in this order.
    """

    request: CheckRequest
    order: tuple[TagId, ...] = ()


class CheckAnother(msgspec.Struct, tag=True, frozen=True):
    """Judge a proposal, or the backup's action, on the premises told last."""

    proposal: Proposal | None
    may_repair: bool
    deadline_at: float


class Next(msgspec.Struct, tag=True, frozen=True):
    """Say which counts of the output after `fixed` can still lead to a permitted decision."""

    request: CheckRequest
    order: tuple[TagId, ...]
    fixed: tuple[int, ...]


class NextAnother(msgspec.Struct, tag=True, frozen=True):
    """The same on the premises told last."""

    order: tuple[TagId, ...]
    fixed: tuple[int, ...]


class Guide(msgspec.Struct, tag=True, frozen=True):
    """Say the same for whatever will be fixed, without what earlier checks of the decision refused."""

    request: CheckRequest
    order: tuple[TagId, ...]
    refusals: tuple[Refusal, ...]


class GuideAnother(msgspec.Struct, tag=True, frozen=True):
    """The same on the premises told last."""

    order: tuple[TagId, ...]
    refusals: tuple[Refusal, ...]


class Prove(msgspec.Struct, tag=True, frozen=True):
    """Prove a loaded rule set's safe set invariant within so many seconds."""

    generation: int
    budget_s: float


class Compare(msgspec.Struct, frozen=True):
    """Say why a new revision may not demand all that the old one does; each with file name and text."""

    old: tuple[str, str]
    new: tuple[str, str]
    tags: tuple[TagDefinition, ...]
    budget_s: float
    around: Around


class Done(msgspec.Struct, tag=True, frozen=True):
    """It is so; of a loaded rule set `digest` is its own, and `outlines` is what Z3 said of its rules'."""

    digest: str = ""
    outlines: dict[str, bool] = {}


class Failed(msgspec.Struct, tag=True, frozen=True):
    """It cannot be done."""

    reason: str


class Proved(msgspec.Struct, tag=True, frozen=True):
    """What became of a proof; `escape` is empty where the set is invariant."""

    digest: str
    escape: str


class Narrowed(msgspec.Struct, tag=True, frozen=True):
    """Counts of the next output, as spans; `because` of `at_most` and `not_known`."""

    is_a: Literal["exactly", "at_most", "not_known"]
    counts: tuple[tuple[int, int], ...] = ()
    because: str = ""


class Guiding(msgspec.Struct, tag=True, frozen=True):
    """Guidance as packed JSON: main hands it on as it is, and numbers may be of any size."""

    packed: bytes


class WireFinding(msgspec.Struct, frozen=True):
    """One finding; the fields of the kind that it is."""

    is_a: str
    module: str
    constraint: str
    margin: Fraction | None = None
    kind: str = ""
    witness: dict[str, Fraction] = {}
    message: str = ""
    where: str = ""
    unit: str = ""


class Checked(msgspec.Struct, tag=True, frozen=True):
    """A result and the state set to carry."""

    verdict: str
    setpoints: tuple[RegisterValue, ...]
    counterexample: Counterexample | None
    reason: str
    findings: tuple[WireFinding, ...]
    generation: int
    rule_set_digest: str
    timings_ms: dict[str, float]
    proposal: Proposal | None
    recovery: bool
    proved: dict[TagId, ProvedBand]
    state: StateSet | None
    shadow: tuple[WireFinding, ...] = ()
    overrides: tuple[Override, ...] = ()


Ask = Load | Drop | Prepare | Check | CheckAnother | Next | NextAnother | Guide | GuideAnother | Prove
Answer = Done | Failed | Checked | Narrowed | Guiding | Proved


def _enc(value: object) -> object:
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    raise NotImplementedError(type(value).__name__)


def _dec(kind: type, value: object) -> object:
    if kind is Fraction and isinstance(value, str):
        numerator, _, denominator = value.partition("/")  # as `_enc` wrote it; Fraction's own parser is slow
        return Fraction(int(numerator), int(denominator))
    raise NotImplementedError(kind.__name__)


class UntellableError(GatewayError):
    """A request holds what no worker can be told; the sentence says what."""


_T = TypeVar("_T")


def decoder(kind: type[_T]) -> msgspec.msgpack.Decoder[_T]:
    """Reads values of `kind` that `encoder` wrote."""
    return msgspec.msgpack.Decoder(kind, dec_hook=_dec)


encoder = msgspec.msgpack.Encoder(enc_hook=_enc)
asks: msgspec.msgpack.Decoder[Ask] = msgspec.msgpack.Decoder(Ask, dec_hook=_dec)
comparisons = msgspec.msgpack.Decoder(Compare, dec_hook=_dec)
answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer, dec_hook=_dec)


def written(ask: msgspec.Struct) -> bytes:
    """A request for the wire; raises `UntellableError`: inputs may be whatever a source sends."""
    try:
        body = encoder.encode(ask)
    except (OverflowError, TypeError, ValueError, NotImplementedError) as exc:
        raise UntellableError(f"what is asked cannot be told to a solver worker: {exc}") from exc
    if len(body) > FRAME_LIMIT_BYTES:
        raise UntellableError(
            f"what is asked has {len(body)} bytes; a solver worker takes {FRAME_LIMIT_BYTES}"
        )
    return body


def given(rules: RuleSet) -> tuple[tuple[str, str, int], ...]:
    """The modules of a rule set as a worker compiles them again."""
    return tuple((m.source, m.text, m.priority) for m in rules.modules)


def checked(result: CheckResult, state: StateSet | None) -> Checked:
    """A result for the wire."""
    setpoints: tuple[RegisterValue, ...] = ()
    counterexample: Counterexample | None = None
    reason = ""
    match result.verdict:
        case Permitted():
            setpoints, reason = result.verdict.setpoints, result.verdict.kept_back
        case Repaired():
            setpoints, counterexample = result.verdict.setpoints, result.verdict.counterexample
            reason = result.verdict.said
        case Refused():
            counterexample = result.verdict.counterexample
        case Undetermined():
            reason = result.verdict.reason
    return Checked(
        verdict=type(result.verdict).__name__,
        setpoints=setpoints,
        counterexample=counterexample,
        reason=reason,
        findings=tuple(_finding(f) for f in result.findings),
        generation=result.generation,
        rule_set_digest=result.rule_set_digest,
        timings_ms=dict(result.timings_ms),
        proposal=result.proposal,
        recovery=result.recovery,
        proved=dict(result.proved),
        state=state,
        shadow=tuple(_finding(f) for f in result.shadow),
        overrides=result.overrides,
    )


def narrowed(found: PermittedNext) -> Narrowed:
    """What may come next, for the wire."""
    match found:
        case Exactly(counts):
            return Narrowed("exactly", counts)
        case AtMost(counts, because):
            return Narrowed("at_most", counts, because)
        case NotKnown(because):
            return Narrowed("not_known", because=because)


def guiding(found: Guidance | NotKnown) -> Guiding | Narrowed:
    """Guidance, or that there is none, for the wire."""
    return narrowed(found) if isinstance(found, NotKnown) else Guiding(msgspec.json.encode(found))


def guided(answer: Answer) -> PackedGuidance | Unguided:
    """The guidance a worker sent, or why there is none."""
    if isinstance(answer, Guiding):
        return PackedGuidance(answer.packed)
    return Unguided(answer.because if isinstance(answer, Narrowed) else why_not(answer))


def permitted_next(found: Narrowed) -> PermittedNext:
    """What a worker said may come next."""
    match found.is_a:
        case "exactly":
            return Exactly(found.counts)
        case "at_most":
            return AtMost(found.counts, found.because)
        case "not_known":
            return NotKnown(found.because)


def why_not(answer: Answer) -> str:
    """Why an answer is not what was asked for."""
    return answer.reason if isinstance(answer, Failed) else "the worker answered something else"


def _finding(finding: Finding) -> WireFinding:
    match finding:
        case Holds(module, constraint, margin, unit):
            return WireFinding("holds", module, constraint, margin, unit=unit)
        case Violated():
            return WireFinding(
                "violated",
                finding.module,
                finding.constraint,
                finding.margin,
                finding.kind,
                dict(finding.witness),
                finding.message,
                finding.where,
                finding.unit,
            )
        case Unknown(module, constraint, reason):
            return WireFinding("unknown", module, constraint, message=reason)


def result(found: Checked) -> tuple[CheckResult, StateSet | None]:
    """The result a worker sent."""
    back = CheckResult(
        verdict=_verdict(found),
        findings=tuple(_found(f) for f in found.findings),
        generation=found.generation,
        rule_set_digest=found.rule_set_digest,
        timings_ms=found.timings_ms,
        proposal=found.proposal,
        recovery=found.recovery,
        proved=found.proved,
        shadow=tuple(_found(f) for f in found.shadow),
        overrides=found.overrides,
    )
    return back, found.state


def _verdict(found: Checked) -> Verdict:
    if found.verdict == "Permitted":
        return Permitted(found.setpoints, found.reason)
    if found.verdict == "Repaired" and found.counterexample is not None:
        return Repaired(found.setpoints, found.counterexample, found.reason)
    if found.verdict == "Refused" and found.counterexample is not None:
        return Refused(found.counterexample)
    return Undetermined(found.reason)


def _found(f: WireFinding) -> Finding:
    if f.is_a == "holds":
        return Holds(f.module, f.constraint, f.margin, f.unit)
    if f.is_a == "violated":
        return Violated(f.module, f.constraint, f.kind, f.margin, f.witness, f.message, f.where, f.unit)
    return Unknown(f.module, f.constraint, f.message)
