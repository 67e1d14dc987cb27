"""One decision, hop 6 to hop 11: propose, check, fall back, record durably. Writing is `writer.py`'s."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction

from gateway.core.clock import Clock, Deadline
from gateway.core.decision import (
    CheckResult,
    DecisionRecord,
    DecisionRequest,
    Examination,
    Mode,
    Permitted,
    Proposal,
    Refused,
    RegisterValue,
    Repaired,
    Undetermined,
)
from gateway.core.errors import InferenceError, WorkerLostError
from gateway.core.ports import AuditLog, Checker, CheckRequest, Guide, StateSet
from gateway.core.quality import StatusCode
from gateway.core.restraint import UNRESTRAINED, Restraint
from gateway.core.tag import TagId, TagValue
from gateway.core.tagstore import Snapshot, TagStore
from gateway.pipeline.guided import GuidedDecoding
from gateway.pipeline.point import Point
from gateway.pipeline.rules import Overdue, RulesHolder, nothing_overdue
from gateway.pipeline.shortlist import first_permitted
from gateway.pipeline.working import Decided, Working, register_values, with_what_if

PROPOSE_SHARE = 0.6  # of the deadline: what is left must do for check, audit and write
LIST_COSTS = 4  # times the first answer: it is made once more, and up to seven others with it


class Decider:
    """Carries single decisions from request to durable record. One decision in flight per point (S19)."""

    def __init__(
        self,
        *,
        clock: Clock,
        store: TagStore,
        checker: Checker,
        audit: AuditLog,
        rules: RulesHolder,
        link_session: Callable[[], int],
        certify: Callable[[DecisionRecord], str],
        overdue: Overdue = nothing_overdue,
    ) -> None:
        """`overdue` says which override of a rule set has ended, or "" (S25)."""
        self._clock, self._store, self._checker = clock, store, checker
        self._audit, self._rules = audit, rules
        self._link_session, self._certify, self._overdue = link_session, certify, overdue
        self.guided = GuidedDecoding(checker, clock)

    async def decide(self, point: Point, request: DecisionRequest) -> Decided:
        """The decision with its record durable; nothing is written yet.

        Raises `StorageError` when the record cannot be kept: then nothing may be written.
        """
        work = self._take(point, request)
        result, state = await self._examine(work)
        under = work.rules
        written, written_by, fallback_state = await self._settle(work, result)
        if fallback_state is not None:
            state, under = fallback_state, work.rules
        if state is not None and request.what_if is None:
            point.carry(state, under)
        work.timings["verdict"] = 1000 * (self._clock.monotonic() - request.received_at)
        record = self._record(work, result, written, written_by)
        point.repairs.took(record, point.previous(), work.snapshot.taken_at)
        started = self._clock.monotonic()
        await self._audit.append(record)
        work.timings["audit"] = 1000 * (self._clock.monotonic() - started)
        return Decided(replace(record, timings_ms={**record.timings_ms, **work.timings}), work)

    def _take(self, point: Point, request: DecisionRequest) -> Working:
        settings = point.settings
        tags = list(dict.fromkeys((*settings.inputs, *settings.read_back.values())))
        snapshot = self._store.snapshot(tags)
        if request.what_if is not None:
            snapshot = with_what_if(snapshot, request.what_if, self._clock)
        return Working(
            point=point,
            request=request,
            rules=self._rules.current,
            snapshot=snapshot,
            session=self._link_session(),
            previous=point.values_in_force(),
            timings={"queue": 1000 * (snapshot.taken_at - request.received_at)},
            examined=not request.deadline.passed(self._clock),
        )

    def _record(
        self, work: Working, result: CheckResult, written: tuple[RegisterValue, ...], written_by: str
    ) -> DecisionRecord:
        record = DecisionRecord(
            id=work.request.id,
            point=work.point.settings.id,
            mode=work.point.mode,
            requested_by=work.request.requested_by,
            received_utc_ns=self._clock.utc_ns(),
            outcome=result.verdict,
            proposal=work.proposal,
            written=written,
            written_by=written_by,
            findings=result.findings,
            inputs=work.snapshot.values,
            generation=result.generation,
            rule_set_digest=result.rule_set_digest,
            model_digest=work.proposal.model_digest if work.proposal else "",
            timings_ms={**work.timings, **{f"solver_{name}": ms for name, ms in result.timings_ms.items()}},
            what_if=work.request.what_if is not None,
            examined=next((c for c in reversed(work.checks) if c.result is result), None),
            fallback=work.checks[-1] if written_by and written_by != "verdict" else None,
            shadow=result.shadow,
            overrides=result.overrides,
            decoding=work.decoding,
            shortlist=work.shortlist,
        )
        return replace(record, certificate_digest=self._certify(record))

    async def _examine(self, work: Working) -> tuple[CheckResult, StateSet | None]:
        """Propose, then check; every reason not to know ends in `Undetermined`."""
        why = self._unusable(work)
        if why:
            return _undetermined(work, why), None
        attempts = 0
        found: tuple[CheckResult, StateSet | None] | None = None
        while True:
            started = self._clock.monotonic()
            try:
                given = self._given(work)
                # Guidance has to be asked for once only, so a guided model answers with its list at once.
                most = work.point.settings.n_best if work.point.settings.guided else 1
                proposal = given or await self._propose(work, most)
            except (InferenceError, WorkerLostError) as exc:
                return found or (_undetermined(work, f"no proposal: {exc}"), None)
            attempts += 1
            work.decoding = self.guided.took(work.point, proposal, attempts)
            found = await self._judged(work, proposal, listed=given is None)
            spent_s = self._clock.monotonic() - started
            if not self.guided.again(work, found[0], attempts, spent_s, PROPOSE_SHARE):
                return found

    async def _judged(
        self, work: Working, proposal: Proposal, *, listed: bool
    ) -> tuple[CheckResult, StateSet | None]:
        """What the checker says of a proposal, or of the first of a model's list that it permits."""
        first = work.proposal = proposal.alone()
        work.shortlist, most = None, work.point.settings.n_best

        async def check(one: Proposal, may_repair: bool) -> tuple[CheckResult, StateSet | None]:  # noqa: FBT001
            return await self._check(work, one, may_repair=may_repair)

        async def more() -> list[Proposal]:
            told = proposal
            if not work.point.settings.guided:
                left_s = work.request.deadline.remaining(self._clock) * PROPOSE_SHARE
                if 1000 * left_s < LIST_COSTS * work.timings["propose"]:
                    return []
                try:
                    told = await self._propose(work, most)
                except (InferenceError, WorkerLostError):
                    return []  # then the first is all there is
            return [each.alone() for each in (told, *told.others) if each.values != first.values]

        if not listed or most == 1:
            return await check(first, True)  # noqa: FBT003
        return await first_permitted(work, first, more, check, self._clock)

    def _given(self, work: Working) -> Proposal | None:
        """What is proposed without a model: a person's wish, or the value in force as the first write."""
        point, request = work.point, work.request
        if request.proposal is not None:
            if point.mode is Mode.ARMED and point.first_write_due:
                msg = "the first write is the value in force; ask again after it"
                raise InferenceError(msg)
            by = f"request:{request.requested_by}"
            return register_values(request.proposal, self._store.definitions, by=by)
        if point.mode is Mode.ARMED and point.first_write_due and request.what_if is None:
            return register_values(self._confirmed(point), self._store.definitions, by="value_in_force")
        return None

    def _confirmed(self, point: Point) -> Mapping[TagId, Fraction]:
        previous = point.previous()
        if previous is None:
            msg = "the value in force of an output is not confirmed yet"
            raise InferenceError(msg)
        return previous

    async def _propose(self, work: Working, most: int) -> Proposal:
        """What the model proposes, and as many others as are wanted besides."""
        point, request = work.point, work.request
        previous, started = self._confirmed(point), self._clock.monotonic()
        budget_s = request.deadline.remaining(self._clock) * PROPOSE_SHARE
        deadline = Deadline.after(budget_s, self._clock)
        guide = self._guide(work, deadline)
        # Once the model is asked, the checker gets ready for whatever it will propose. Not before: waking one
        # process may put this one to sleep.
        asked_before = work.proposal is not None
        ahead = None if guide or asked_before else asyncio.get_running_loop().call_soon(self._prepare, work)
        try:
            ask = point.proposer.propose if request.what_if is None else point.proposer.propose_aside
            return await ask(work.snapshot, previous, deadline, guide, most)
        finally:
            if ahead is not None:
                ahead.cancel()
            spent_ms = 1000 * (self._clock.monotonic() - started)
            work.timings["propose"] = work.timings.get("propose", 0.0) + spent_ms

    def _guide(self, work: Working, deadline: Deadline) -> Guide | None:
        if not work.point.settings.guided:
            return None
        request = _check_request(work, work.rules.generation, None, may_repair=True)
        return self.guided.guide(work, request, deadline)

    def _prepare(self, work: Working) -> None:
        self._checker.prepare(_check_request(work, work.rules.generation, None, may_repair=True))

    async def _check(
        self, work: Working, proposal: Proposal | None, *, may_repair: bool = False, fallback: bool = False
    ) -> tuple[CheckResult, StateSet | None]:
        """One check under the rule set in force; after a swap meanwhile, again under the new one (S17)."""
        while True:
            work.rules = rules = self._rules.current
            started = self._clock.monotonic()
            request = _check_request(
                work, rules.generation, proposal, may_repair=may_repair, fallback=fallback
            )
            # While the checker works, main has time for what the record will say.
            ahead = asyncio.get_running_loop().call_soon(self._audit.expect, request, work.snapshot.values)
            try:
                result, state = await self._checker.check(request, work.request.deadline)
            finally:
                ahead.cancel()
            spent_ms = 1000 * (self._clock.monotonic() - started)
            work.timings["check"] = work.timings.get("check", 0.0) + spent_ms
            if self._rules.current.generation == rules.generation:
                if why := self._overdue(rules):
                    return _undetermined(work, why), None
                work.checks.append(Examination(request=request, result=result))
                return result, state
            if work.request.deadline.passed(self._clock):
                return _undetermined(work, "the rule set changed and the deadline passed"), None

    async def _settle(
        self, work: Working, result: CheckResult
    ) -> tuple[tuple[RegisterValue, ...], str, StateSet | None]:
        """What may be written on this result: the verdict's setpoints, else the first checked fallback's."""
        match result.verdict:
            case Permitted(setpoints, _) | Repaired(setpoints, _):
                return setpoints, "verdict", None
            case Refused() | Undetermined():
                if work.is_question or self._unusable(work):
                    return (), "", None
                return await self._fall_back(work)

    async def _fall_back(self, work: Working) -> tuple[tuple[RegisterValue, ...], str, StateSet | None]:
        """The first entry of the ordered list that passes a check with present inputs (S10)."""
        for name in work.point.settings.fallback:
            proposal = self._fallback_proposal(work, name)
            if name != "backup" and proposal is None:
                continue
            result, state = await self._check(work, proposal, fallback=True)
            match result.verdict:
                case Permitted(setpoints):
                    return setpoints, name, state
                case Refused() if result.recovery and name == "backup" and result.proposal is not None:
                    return result.proposal.values, "recovery", state  # S9: no worst case may grow
                case _:
                    continue
        return (), "", None

    def _fallback_proposal(self, work: Working, name: str) -> Proposal | None:
        """The proposal a fallback's name stands for; None for `backup`, which the checker computes."""
        definitions = self._store.definitions
        if name == "value_in_force":
            previous = work.point.previous()
            return register_values(previous, definitions, by=name) if previous is not None else None
        if name == "value":
            values = work.point.settings.fallback_values
            return register_values(values, definitions, by=name) if values else None
        return None

    def _unusable(self, work: Working) -> str:
        """Why nothing can be decided on this snapshot, in words; empty when it can."""
        settings, snapshot = work.point.settings, work.snapshot
        if work.request.deadline.passed(self._clock):
            return "the deadline passed while the request waited"
        why = work.rules.unusable_for(settings.required_modules) or self._overdue(work.rules)
        if why:
            return why
        needed = [tag for tag in settings.inputs if tag not in work.rules.tolerated]
        for tag in needed:
            status = snapshot.values[tag].status
            if not work.rules.usable(tag, status):
                return f"input `{tag}` is {StatusCode(status).name}"
        since = work.point.in_sight_since
        early = next((tag for tag in needed if snapshot.values[tag].confirmed_at < since), None)
        if early is not None:
            return f"input `{early}` was read before the values in force were: nobody knows what acted since"
        inputs = Snapshot(snapshot.taken_at, {t: snapshot.values[t] for t in needed})
        if work.request.what_if is None and inputs.skew_s() > settings.max_skew_s:
            return f"inputs lie {inputs.skew_s():.2f} s apart, more than max_skew {settings.max_skew_s:g} s"
        unknown = next((tag for tag in settings.outputs if not work.previous.get(tag)), None)
        return f"the value in force of `{unknown}` is not known yet" if unknown else ""


def _check_request(
    work: Working,
    generation: int,
    proposal: Proposal | None,
    *,
    may_repair: bool,
    fallback: bool = False,
) -> CheckRequest:
    point, taken_at = work.point, work.snapshot.taken_at
    return CheckRequest(
        decision=work.request.id,
        point=point.settings.id,
        generation=generation,
        inputs={t: _since(work.snapshot.values[t], point.in_sight_since) for t in point.settings.inputs},
        taken_at=taken_at,
        history=point.in_force(taken_at),
        held_s=point.held_s(taken_at),
        proposal=proposal,
        carried=point.carried_into(work.rules) if work.request.what_if is None else None,
        hold_s=point.settings.hold_s,
        effect_delay_s=point.settings.effect_delay_s,
        may_repair=may_repair,
        restraint=UNRESTRAINED if fallback else _restraint(work, taken_at),
        repair=point.settings.repair,
    )


def _since(reading: TagValue, seconds: float) -> TagValue:
    """A reading; one from before a moment counts as none, where the rules in force go on without (S23)."""
    if reading.confirmed_at >= seconds:
        return reading
    return reading.degraded_to(StatusCode.BadWaitingForInitialData)


def _restraint(work: Working, now: float) -> Restraint:
    """What keeps the outputs from moving about (S12); the plant's past holds no what-if."""
    settings = work.point.settings
    kept_back = {} if work.request.what_if is not None else work.point.repairs.kept_back(now)
    return Restraint(least_change=settings.least_change, kept_back=kept_back, margin=settings.release_margin)


def _undetermined(work: Working, reason: str) -> CheckResult:
    return CheckResult(
        verdict=Undetermined(reason),
        findings=(),
        generation=work.rules.generation,
        rule_set_digest=work.rules.digest,
        overrides=work.rules.overrides,
    )
