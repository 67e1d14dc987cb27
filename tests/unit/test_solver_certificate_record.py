"""What a decision's record must hold for its certificate, and what its digest costs before the write."""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import median

import pytest

from gateway.cli.certificate.file import certificate_of, record_of
from gateway.core.decision import Permitted, Refused, Repaired
from gateway.core.errors import StorageError
from gateway.core.ports import StateInterval, StateSet
from gateway.daemon.certifying import Certifier
from gateway.solver.certificates.basis import BasisStore
from gateway.storage.codec import certificate_digest, decode_record, encode_record
from tests.fakes.pipeline import PUMP, House
from tests.unit.certificate_demo import PERMITTED, REPAIRED, decided
from tests.unit.solver_demo import rule_set
from tests.unit.test_pipeline_decide import decided as decided_by_the_pipeline


async def test_the_record_holds_the_check_of_the_proposal() -> None:
    house = House()

    record = await decided_by_the_pipeline(house)

    assert isinstance(record.outcome, Permitted)
    assert record.fallback is None
    assert record.examined is not None
    assert record.examined.request.proposal == record.proposal
    assert record.examined.request.history[PUMP][0].value == Fraction(40)
    assert record.examined.result.verdict == record.outcome


async def test_s10_the_record_holds_the_check_of_the_fallback_that_was_let_out() -> None:
    house = House(fallback=("backup", "value_in_force"))
    house.proposer.percent, house.checker.backup = 90, 80

    record = await decided_by_the_pipeline(house)

    assert isinstance(record.outcome, Refused)
    assert record.examined is not None
    assert record.examined.result.verdict == record.outcome
    assert record.fallback is not None
    assert record.fallback.request.proposal is not None
    assert record.fallback.request.proposal.by == record.written_by == "value_in_force"
    assert isinstance(record.fallback.result.verdict, Permitted)


async def test_a_refusal_without_a_fallback_holds_no_check_of_one() -> None:
    house = House()
    house.proposer.percent = 90

    record = await decided_by_the_pipeline(house)

    assert isinstance(record.outcome, Refused)
    assert record.fallback is None


async def test_a_certificate_comes_back_from_the_durable_record_and_the_kept_rule_sets(
    tmp_path: Path,
) -> None:
    rules = rule_set(generation=12)
    certifier = Certifier(tmp_path)
    await certifier.keep(rule_set(generation=11))
    await certifier.keep(rules)
    carried = StateSet(
        at=999.0,
        intervals={
            tag: StateInterval(Fraction(low), Fraction(high))
            for tag, low, high in (
                ("TK1.LT101", "1.9", "2.1"),
                ("TK1.FT101", "10", "14"),
                ("TK1.TT101", "39", "41"),
            )
        },
    )
    record = decided(rules, replace(PERMITTED, generation=12, carried=carried), "d-7")
    record = replace(record, certificate_digest=certifier.digest(record))

    durable = decode_record(encode_record(record))
    certificate, texts = certificate_of(durable, BasisStore(tmp_path))

    again, bases = record_of(certificate)
    assert list(bases) == [12]
    assert again.examined == record.examined
    assert bases[12].rules({d: t.encode() for d, t in texts.items()}, 12).digest == rules.digest


async def test_a_digest_names_the_rule_set_of_its_own_generation(tmp_path: Path) -> None:
    certifier = Certifier(tmp_path)
    record = decided(rule_set(), PERMITTED, "d-7")

    without = certifier.digest(record)
    await certifier.keep(rule_set())

    assert without == certificate_digest(record)
    assert certifier.digest(record) != without


async def test_old_generations_are_forgotten_but_their_evidence_is_not(tmp_path: Path) -> None:
    certifier = Certifier(tmp_path)
    for generation in range(1, 30):
        await certifier.keep(rule_set(generation=generation))

    assert len(certifier._encoded) == 8
    assert len(list(tmp_path.glob("rules-*.json"))) == 1  # noqa: ASYNC240  # a test may


async def test_a_rule_set_whose_evidence_cannot_be_kept_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "evidence").write_text("in the way")

    with pytest.raises(StorageError):
        await Certifier(tmp_path / "evidence").keep(rule_set())


@pytest.mark.parametrize("request_", [PERMITTED, REPAIRED])
async def test_the_digest_takes_a_third_of_a_millisecond_on_the_loop_at_most(
    tmp_path: Path, request_: object
) -> None:
    certifier = Certifier(tmp_path)
    await certifier.keep(rule_set())
    record = decided(rule_set(), request_, "d-7")  # type: ignore[arg-type]  # a parameter
    assert isinstance(record.outcome, Permitted | Repaired)

    taken: list[float] = []
    for _ in range(200):
        started = time.thread_time()
        certifier.digest(record)
        taken.append(time.thread_time() - started)

    assert median(taken) < 0.000_33
