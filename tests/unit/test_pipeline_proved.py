"""S17: which newest readings contradict what a check proved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.decision import CheckResult, Examination, Permitted
from gateway.core.ports import ProvedBand
from gateway.core.tag import TagId, TagValue
from gateway.pipeline.proved import outside_proof
from tests.unit.solver_small import NOW, TAGS, Plant

LEVEL = TagId("L")
CHECKED = Examination(
    request=Plant().request(),
    result=CheckResult(
        verdict=Permitted(()),
        findings=(),
        generation=1,
        rule_set_digest="digest",
        proved={LEVEL: ProvedBand(((0.0, 1.5, 2.5), (1.0, 1.5, 2.5)))},
    ),
)


def told(**changed: object) -> str:
    """Of a level that was read half a second after the check."""
    sample = replace(CHECKED.request.inputs[LEVEL], confirmed_at=NOW + 0.5, **changed)  # type: ignore[arg-type]
    return outside_proof(CHECKED, {LEVEL: sample}, TAGS)


@pytest.mark.parametrize(("level", "contradicts"), [(1.5, False), (2.5, False), (1.49, True), (2.51, True)])
def test_s17_a_reading_contradicts_the_proof_only_outside_what_was_proved(
    level: float, *, contradicts: bool
) -> None:
    assert told(value=level).startswith("broken assumption") is contradicts


def test_s17_an_input_that_the_check_went_on_without_contradicts_nothing() -> None:
    assert outside_proof(CHECKED, {}, TAGS) == ""


@pytest.mark.parametrize("value", [None, "", "off"])
def test_s17_a_newest_sample_that_is_no_number_contradicts_the_proof(value: str | None) -> None:
    assert "not a number" in told(value=value)


def test_s17_the_sample_that_was_checked_is_not_looked_at_twice() -> None:
    low: dict[TagId, TagValue] = {LEVEL: replace(CHECKED.request.inputs[LEVEL], value=0.1)}
    checked = replace(CHECKED, request=replace(CHECKED.request, inputs=low))

    assert outside_proof(checked, low, TAGS) == ""
    assert outside_proof(CHECKED, low, TAGS) != ""


def test_s17_a_reading_of_nothing_agrees_with_a_proof_of_nothing() -> None:
    dry = ProvedBand(((0.0, 0.0, 0.0), (1.0, 0.0, 0.0)))
    checked = replace(CHECKED, result=replace(CHECKED.result, proved={LEVEL: dry}))
    sample = replace(CHECKED.request.inputs[LEVEL], value=0.0, confirmed_at=NOW + 0.5)

    assert outside_proof(checked, {LEVEL: sample}, TAGS) == ""
