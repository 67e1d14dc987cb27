"""Whether the newest readings still agree with what a check assumed and predicted (S17)."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.core.decision import Examination
from gateway.core.tag import TagDefinition, TagId, TagValue


def outside_proof(
    examination: Examination,
    newest: Mapping[TagId, TagValue],
    definitions: Mapping[TagId, TagDefinition],
) -> str:
    """The first reading that contradicts the proof, in words; empty while all agree with it.

    Pure, and quick enough for the instant before the bytes. Inputs that no rule reads, and those left out of
    `newest`, are no premise, so they contradict nothing; the sample that was checked needs no second look.
    """
    taken_at = examination.request.taken_at
    for tag, band in examination.result.proved.items():
        sample = newest.get(tag)
        if sample is None or sample == examination.request.inputs.get(tag):
            continue
        unit = definitions[tag].unit
        allowed = band.at(sample.confirmed_at - taken_at)
        if allowed is None:
            return f"the newest sample of `{tag}` was taken outside the time that the check covers"
        if isinstance(sample.value, str) or sample.value is None:
            return f"the newest sample of `{tag}` is `{sample.value}`, not a number"
        if not allowed[0] <= sample.value <= allowed[1]:
            return (
                f"broken assumption: `{tag}` now reads {_text(sample.value, unit)}, and the check proved it "
                f"between {_text(allowed[0], unit)} and {_text(allowed[1], unit)} for that moment"
            )
    return ""


def _text(value: float, unit: str) -> str:
    return f"{value:.6g} {unit}".strip()
