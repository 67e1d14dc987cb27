from __future__ import annotations

import io
import json

import msgspec
import pytest
from rich.console import Console

from gateway.cli.live.explaining import explain
from gateway.cli.live.following import News
from gateway.cli.told import show, words
from gateway.link.messages import DecisionView, ModelState, PointState, ResidualState, TagInfo, TagState


def a_view(**changes: object) -> DecisionView:
    view = DecisionView(
        id="d-7f3a",
        point="buffer-tank",
        mode="armed",
        requested_by="period",
        at_ns=1_700_000_000_123_000_000,
        outcome="permitted",
        reason="",
        proposal={"TK1.P101.SP": "42.5", "TK1.H101.CMD": "true"},
        setpoints={"TK1.P101.SP": "42.5", "TK1.H101.CMD": "true"},
        written_by="verdict",
        violated=[],
        counterexample="",
        counterexample_json="",
        margins=[("buffer-tank/max-level", "0.213", "m"), ("buffer-tank/max-temperature", "12", "K")],
        generation=12,
        rule_set_digest="sha256:aaaa",
        model_digest="sha256:bbbb",
        certificate_digest="sha256:cccc",
        confidence=0.93,
        write_outcome="confirmed",
        timings_ms={"propose": 3.25, "check": 1.5},
        inputs={"TK1.LT101": "1.98", "TK1.TT101": "45.1 (BadSensorFailure)"},
    )
    return msgspec.structs.replace(view, **changes)


def explained(view: DecisionView) -> str:
    out = io.StringIO()
    explain(Console(file=out, width=160, highlight=False, markup=False), view)
    return out.getvalue()


# S29: margin first, and never more than "under its assumptions".
def test_a_permitted_decision_is_said_with_its_margin_first() -> None:
    said = words.verdict_sentence(a_view())

    assert said == "margin 0.213 m to buffer-tank/max-level; permitted by rule set 12 under its assumptions"


@pytest.mark.parametrize("outcome", ["permitted", "repaired", "refused", "undetermined", "rejected"])
def test_no_verdict_is_called_safe_or_proved_and_confidence_stays_out_of_it(outcome: str) -> None:
    view = a_view(outcome=outcome, reason="queue full", margins=[], violated=["m/c"])

    said = words.verdict_sentence(view).lower()

    assert "safe" not in said
    assert "proved" not in said
    assert "confidence" not in said
    assert "0.93" not in said


def test_a_missed_limit_is_said_as_missed() -> None:
    view = a_view(outcome="refused", margins=[("m/max", "-0.2", "")], violated=["m/max"])

    assert words.verdict_sentence(view).startswith(
        "limit of m/max missed by 0.2; refused by rule set 12: m/max"
    )


# S12: setpoints that go less far than proposed are never passed over in silence.
def test_a_permitted_decision_says_why_it_goes_less_far_than_proposed() -> None:
    view = a_view(reason="`TK1.P101.SP` goes to 52 % only", write_outcome="confirmed")

    assert words.verdict_sentence(view).endswith("its assumptions; `TK1.P101.SP` goes to 52 % only")


def test_a_violated_rule_without_a_distance_is_said_not_to_hold() -> None:
    view = a_view(outcome="refused", margins=[("m/heater", "-", "")], violated=["m/heater"])

    assert words.verdict_sentence(view).startswith("m/heater does not hold; refused by rule set 12")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "confirm"),
        ({"write_outcome": "unconfirmed"}, "they are not repeated"),
        ({"write_outcome": "", "mode": "shadow"}, "the mode is shadow"),
        ({"written_by": "backup"}, "the checked fallback `backup`"),
        ({"setpoints": {}}, "nothing was let out"),
        ({"write_outcome": "refused", "reason": "kill switch"}, "last gate (kill switch)"),
    ],
)
def test_what_became_of_the_write_is_said_plainly(changes: dict[str, object], expected: str) -> None:
    assert expected in words.writing_sentence(a_view(**changes))


def test_explain_tells_verdict_then_setpoints_then_evidence() -> None:
    counterexample = {
        "module": "buffer-tank",
        "constraint": "max-level",
        "margin": "-0.04",
        "unit": "m",
        "where": "buffer-tank.json:31",
        "assignment": {"level": "2.96", "inflow": "30"},
    }
    view = a_view(
        outcome="repaired",
        setpoints={"TK1.P101.SP": "60", "TK1.H101.CMD": "true"},
        violated=["buffer-tank/max-level"],
        counterexample="with level 2.96 m and inflow 30 m3/h the tank is over 3 m after 5 s",
        counterexample_json=json.dumps(counterexample),
    )

    said = explained(view)

    order = [
        "decision d-7f3a of buffer-tank",
        "REPAIRED  margin 0.213 m",
        "working values confirm it",
        "let out",
        "changed",
        "counterexample",
        "over 3 m after 5 s",
        "misses its limit by 0.04 m, buffer-tank.json:31",
        "variable",
        "margins, nearest first",
        "BadSensorFailure",
        "propose 3.25, check 1.50",
        "sha256:cccc",
        "information; no verdict depends on it",
    ]
    places = [said.index(part) for part in order]
    assert places == sorted(places)


def test_explain_says_which_of_a_models_proposals_it_is_about_and_what_became_of_the_others() -> None:
    told = "proposal 2 of 4 of the model; not permitted: 1 by `tank/no-overflow`"
    assert f"{told} (information; each was checked as if it were alone)" in explained(a_view(shortlist=told))
    assert "proposal" not in explained(a_view(shortlist="")).replace("proposal:", "")


def test_explain_shows_words_with_brackets_as_they_are() -> None:
    assert "unit [bold]m[/bold]" in explained(a_view(outcome="rejected", reason="unit [bold]m[/bold]"))


# The whole assignment is for machines; a person reads tags, where they began, and when.
def test_a_counterexample_shows_what_a_plant_has_and_counts_the_rest() -> None:
    assignment = {"TK1.LT101": "3.61", "start:TK1.LT101": "3.5", "TK1.P101.SP": "0", "start:TK1.P101.SP": "0"}
    document = {"assignment": assignment | {"d0:leak": "0.0005", "old:TK1.P101.SP": "12", "at_s": "1.2"}}

    said = explained(a_view(outcome="refused", counterexample_json=json.dumps(document)))

    assert words.plant_terms(document["assignment"]) == {
        "TK1.LT101": "3.61",
        "TK1.P101.SP": "0",
        "TK1.LT101 when read": "3.5",
        "seconds after the reading": "1.2",
    }
    assert "d0:leak" not in said
    assert "and 3 more in --json" in said


@pytest.mark.parametrize("text", ["", "null", "[]", "{", '{"assignment": 3}'])
def test_a_counterexample_nobody_can_read_does_not_stop_the_explanation(text: str) -> None:
    assert "d-7f3a" in explained(a_view(counterexample_json=text, margins=[], inputs={}, timings_ms={}))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (0, "Good"),
        (0x808C0000, "BadSensorFailure"),
        (0x40990000, "Uncertain 0x40990000"),
        (0xC0000001, "Bad 0xC0000001"),
    ],
)
def test_quality_is_named_or_shown_with_its_code(status: int, expected: str) -> None:
    assert words.quality_text(status) == expected


def test_a_tag_without_a_value_is_a_dash_and_never_zero() -> None:
    info = TagInfo("T", "real", "m", "", None, None, writable=False)

    assert words.value_text(TagState("T", None, 0x80320000, None, 1), info) == "-"
    assert words.value_text(TagState("T", 1.25, 0, None, 1), info) == "1.25 m"
    assert words.value_text(TagState("T", True, 0, None, 1), info) == "true m"  # noqa: FBT003  # a value


@pytest.mark.parametrize(
    ("age_s", "expected"), [(0.04, "0.0 s"), (89, "89.0 s"), (600, "10 min"), (7200, "2 h"), (400_000, "5 d")]
)
def test_ages_are_said_in_the_unit_a_person_would_use(age_s: float, expected: str) -> None:
    now = 1_700_000_000_000_000_000
    assert words.ago(now - int(age_s * 1e9), now) == expected
    assert words.ago(0, now) == "-"


def test_following_shows_each_state_of_a_decision_once_and_no_old_news() -> None:
    news = News(point=None)
    first, second = a_view(id="d-1", at_ns=10, write_outcome=""), a_view(id="d-2", at_ns=20)
    confirmed = msgspec.structs.replace(first, write_outcome="confirmed")

    shown = [news.is_new(v) for v in (first, second, first, confirmed, confirmed, a_view(id="d-0", at_ns=5))]

    assert shown == [True, True, False, True, False, False]
    assert not News(point="other").is_new(first)


# One line a decision: its write outcome comes some milliseconds after the verdict.
def test_an_armed_decision_is_shown_with_its_write_outcome_or_when_the_next_one_comes() -> None:
    news = News(point=None)
    writing = a_view(id="d-1", at_ns=10, write_outcome="")
    written = msgspec.structs.replace(writing, write_outcome="confirmed")
    stuck, third = a_view(id="d-2", at_ns=20, write_outcome=""), a_view(id="d-3", at_ns=30, mode="shadow")

    assert news.ripe(writing) == []
    assert news.ripe(written) == [written]
    assert news.ripe(written) == []
    assert news.ripe(stuck) == []
    assert news.ripe(third) == [stuck, third]


# S29: margin first.
def test_a_followed_decision_is_one_line_with_its_margin_before_its_setpoints() -> None:
    line = show.decision_line(a_view()).plain

    assert "permitted    margin 0.213 m to buffer-tank/max-level; TK1.P101.SP=42.5, TK1.H101.CMD=true" in line
    assert line.endswith("confirmed")
    assert show.decision_line(a_view(mode="shadow", write_outcome="")).plain.endswith("not written (shadow)")
    refused = a_view(outcome="refused", violated=["m/c"], margins=[("m/c", "-0.2", "bar")], write_outcome="")
    assert "limit of m/c missed by 0.2" in show.decision_line(refused).plain
    assert show.decision_line(refused).plain.endswith("; violates m/c")


def test_the_engine_is_one_line_that_tells_what_was_asked_for_and_what_runs() -> None:
    facts = {
        "bundle": "tank/2",
        "digest": "ab" * 32,
        "ep_requested": "cuda",
        "ep_actual": "CPUExecutionProvider",
    }
    said = words.engine_sentence(facts | {"state": "ready", "kv_aliased": "yes", "prefill_ms": "26.21"})

    assert said == f"inference tank/2, digest {'ab' * 9}a, CPUExecutionProvider (asked for cuda), ready"
    assert "no provider yet (asked for auto)" in words.engine_sentence({"ep_requested": "auto"})


def test_what_a_model_holds_is_one_line_and_says_how_old_it_is() -> None:
    model = ModelState(
        id="tank",
        bundle="tank",
        revision="tank/2",
        digest="ab",
        state="ready",
        previous="",
        by="",
        at_ns=0,
        points=[],
        memory={
            "sessions": 3.0,
            "pages": 256.0,
            "pages_free": 212.0,
            "pages_peak": 60.0,
            "internal_fragmentation": 0.0352,
            "cold_sessions": 1.0,
            "prefix_found": 12.0,
            "prefix_lookups": 40.0,
            "pages_refused": 0.0,
        },
        counted_ns=1_000_000_000,
    )

    assert words.memory_sentence(model, 4_000_000_000) == (
        "tank: 3 sessions, 44 of 256 pages in use, at most 60, 3.5 % of their slots unfilled, "
        "1 session moved out now, 12 of 40 pages looked up were found, 0 refused for room, counted 3.0 s ago"
    )
    stateless = msgspec.structs.replace(model, memory={"sessions": 2.0})
    assert words.memory_sentence(stateless, 4_000_000_000) == "tank: 2 sessions, counted 3.0 s ago"
    assert words.memory_sentence(msgspec.structs.replace(model, memory={}), 1) == ""


def test_following_for_ever_needs_bounded_memory() -> None:
    news = News(point=None)
    for number in range(10_000):
        assert news.is_new(a_view(id=f"d-{number}", at_ns=number))
    assert len(news._shown) <= 4096


def test_s16_the_status_line_names_the_tag_that_is_nearest_to_the_end_of_its_band() -> None:
    def said(*residuals: ResidualState) -> str:
        return words.assumptions_sentence(
            PointState(
                id="tank",
                mode="armed",
                inputs=[],
                outputs=[],
                model="",
                alarm="",
                last_decision="",
                in_control=True,
                blocked="",
                residuals=list(residuals),
            )
        )

    assert said() == "assumptions: nothing measured against a prediction yet"
    near = ResidualState("FT", 1, 0.1, 0.0, 0.998, 0)
    missed = ResidualState("LT", 60, 0.3, 0.0123456, 1.2, 2)
    assert (
        said(near)
        == "assumptions: watched over up to 1 step; FT uses 99 % of the band predicted over one step"
    )
    assert said(near, missed) == (
        "assumptions: watched over up to 60 steps; LT is outside what was predicted over 60 steps, by 0.01235"
    )
