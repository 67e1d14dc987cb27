"""A decision's record against itself: what it tells twice, it must tell alike.

Whoever reads a certificate reads the record's outcome, margins, inputs and what was let out. The claims are
about the checks in it. Both must be one story, or what is shown is not what is told.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.core.decision import (
    CheckResult,
    DecisionRecord,
    Examination,
    Permitted,
    Refused,
    RegisterValue,
    Repaired,
    Violated,
    outcome_name,
)

_COMPUTED = frozenset({"backup", "recovery"})  # what the checker works out itself, without a proposal


def disagreement(record: DecisionRecord) -> str:
    """The first thing that a record tells in two ways; empty where there is none."""
    return next(_disagreements(record), "")


def _disagreements(record: DecisionRecord) -> Iterator[str]:
    yield from _of_another_kind(record)
    yield from _of_the_outcome(record)
    for examination in (record.examined, record.fallback):
        if examination is not None:
            yield from _of_a_check(record, examination)
    yield from _of_what_was_written(record)


def _of_another_kind(record: DecisionRecord) -> Iterator[str]:
    """A truth told as a number is equal to it, and is another byte all the same."""
    whole: dict[str, object] = {"received_utc_ns": record.received_utc_ns, "generation": record.generation}
    truths: dict[str, object] = {"what_if": record.what_if}
    texts: dict[str, object] = {
        name: getattr(record, name)
        for name in ("id", "point", "requested_by", "written_by", "rule_set_digest", "model_digest")
    }
    for number, each in enumerate(e for e in (record.examined, record.fallback) if e is not None):
        whole |= {f"generation {number}": each.request.generation, f"its {number}": each.result.generation}
        truths |= {
            f"may_repair {number}": each.request.may_repair,
            f"recovery {number}": each.result.recovery,
        }
    for tag, value in record.inputs.items():
        whole[f"server_ts_ns of {tag}"] = value.server_ts_ns
        if value.source_ts_ns is not None:
            whole[f"source_ts_ns of {tag}"] = value.source_ts_ns
    for kind, told in ((int, whole), (bool, truths), (str, texts)):
        for name, value_ in told.items():
            if type(value_) is not kind:
                yield f"`{name}` is of another kind than such a record holds"


def _of_the_outcome(record: DecisionRecord) -> Iterator[str]:
    examined, outcome = record.examined, record.outcome
    if examined is None:
        if isinstance(outcome, Permitted | Repaired | Refused):
            yield f"the decision is `{outcome_name(outcome)}` and holds no check that said so"
        return
    request, result = examined.request, examined.result
    pairs = {
        "outcome": (outcome, result.verdict),
        "findings": (record.findings, result.findings),
        "generation": (record.generation, result.generation),
        "rule_set_digest": (record.rule_set_digest, result.rule_set_digest),
        "proposal": (record.proposal, request.proposal),
    }
    for name, (told, checked) in pairs.items():
        if told != checked:
            yield f"`{name}` of the decision is another than in its check"
    model = record.proposal.model_digest if record.proposal is not None else ""
    if record.model_digest != model:
        yield "`model_digest` of the decision is another than in its proposal"


def _of_a_check(record: DecisionRecord, examination: Examination) -> Iterator[str]:
    request, result = examination.request, examination.result
    if (request.decision, request.point) != (record.id, record.point):
        yield "a check in it was made for another decision or point"
    if request.generation != result.generation:
        yield "a check in it was asked of one rule set and answered by another"
    for tag, value in request.inputs.items():
        if record.inputs.get(tag) != value:
            yield f"`inputs` tell of `{tag}` otherwise than the check was told"
    yield from _of_a_result(result, computed=request.proposal is None)


def _of_a_result(result: CheckResult, *, computed: bool) -> Iterator[str]:
    verdict, proposal = result.verdict, result.proposal
    if isinstance(verdict, Refused | Repaired):
        told = verdict.counterexample
        if not any(
            isinstance(f, Violated)
            and (f.module, f.constraint, f.margin, f.unit)
            == (told.module, told.constraint, told.margin, told.unit)
            and f.witness == told.assignment
            for f in result.findings
        ):
            yield f"no finding is the counterexample of `{told.module}/{told.constraint}`"
    if result.recovery and not (computed and isinstance(verdict, Refused) and proposal is not None):
        yield "a check calls something a recovery that is none"
    if isinstance(verdict, Permitted | Repaired) and proposal is not None:
        if proposal.values != verdict.setpoints:
            yield "a check permits other values than it proposes"
    elif proposal is not None and not result.recovery:
        yield "a check proposes what it does not permit"


def _of_what_was_written(record: DecisionRecord) -> Iterator[str]:
    fallback, by = record.fallback, record.written_by
    if (fallback is None) is not (by in {"", "verdict"}):
        yield f"`written_by` is `{by}`, and its check is {'missing' if fallback is None else 'not of that'}"
    if fallback is not None and isinstance(record.outcome, Permitted | Repaired):
        yield f"the decision is `{outcome_name(record.outcome)}` and fell back all the same"
    if fallback is not None:
        proposal = fallback.request.proposal
        if (proposal is None) is not (by in _COMPUTED) or (proposal is not None and proposal.by != by):
            yield f"the check behind `{by}` is of another proposal"
    if record.written != _permitted(record):
        yield "`written` are other values than were permitted"


def _permitted(record: DecisionRecord) -> tuple[RegisterValue, ...]:
    """What may be let out by whoever the record names."""
    fallback, by = record.fallback, record.written_by
    if by == "verdict":
        return _setpoints(record.outcome)
    if fallback is None:
        return ()
    if by == "recovery":
        proposal = fallback.result.proposal
        return proposal.values if proposal is not None and fallback.result.recovery else ()
    return _setpoints(fallback.result.verdict) if isinstance(fallback.result.verdict, Permitted) else ()


def _setpoints(outcome: object) -> tuple[RegisterValue, ...]:
    return outcome.setpoints if isinstance(outcome, Permitted | Repaired) else ()
