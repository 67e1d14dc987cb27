"""One decision, told so that a person can judge it: verdict, setpoints, counterexample, evidence."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.cli.told import words
from gateway.link.messages import DecisionView


def explain(out: Console, view: DecisionView) -> None:
    """Print `view`, the verdict first and the digests last."""
    out.print(Text(f"decision {view.id or '(not recorded)'} of {view.point}", style="bold"))
    out.print(f"{words.local_time(view.at_ns)}, asked for by {view.requested_by}, mode {view.mode}")
    out.print()
    style = words.OUTCOME_STYLE.get(view.outcome, "")
    out.print(Text.assemble((view.outcome.upper(), f"bold {style}"), "  ", words.verdict_sentence(view)))
    out.print(words.writing_sentence(view))
    _print_setpoints(out, view)
    _print_counterexample(out, view)
    _print_margins(out, view)
    _print_reported(out, view)
    _print_shadow(out, view)
    _print_inputs(out, view.inputs)
    _print_facts(out, view)


def _print_setpoints(out: Console, view: DecisionView) -> None:
    tags = list(dict.fromkeys([*view.proposal, *view.setpoints]))
    if not tags:
        return
    table = _section("output", "proposed", "let out", "")
    for tag in tags:
        proposed, let_out = view.proposal.get(tag, "-"), view.setpoints.get(tag, "-")
        table.add_row(tag, proposed, let_out, "" if proposed == let_out else "changed")
    _print_section(out, "setpoints", table)


def _print_counterexample(out: Console, view: DecisionView) -> None:
    said = words.counterexample_parts(view)
    if not view.counterexample and said is None:
        return
    out.print()
    out.print(Text("counterexample (to the proposal)", style="bold"))
    if view.counterexample:
        out.print(f"  {view.counterexample}")
    if said is None:
        return
    if said.constraint:
        place = f", {said.where}" if said.where else ""
        missed = f" misses its limit by {said.margin.removeprefix('-')}" if said.margin else ""
        out.print(f"  {said.constraint}{missed}{place}")
    if said.assignment:
        shown = words.plant_terms(said.assignment)
        table = _section("variable", "value")
        for name, value in shown.items():
            table.add_row(name, value)
        out.print(table)
        if hidden := len(said.assignment) - len(shown):
            out.print(f"  and {hidden} more in --json: disturbances, what was in force, timing")


def _print_margins(out: Console, view: DecisionView) -> None:
    if not view.margins:
        return
    table = _section("constraint", "margin")
    for name, margin, unit in view.margins:
        table.add_row(name, Text(words.with_unit(margin, unit), "red" if margin.startswith("-") else ""))
    _print_section(out, "margins, nearest first; what refuses nothing last", table)


def _print_reported(out: Console, view: DecisionView) -> None:
    """Violated, and no reason for the verdict."""
    if not view.reported:
        return
    out.print()
    out.print(Text("violated, only reported (refuses nothing)", style="bold"))
    for sentence in view.reported:
        out.print(f"  {sentence}")


def _print_shadow(out: Console, view: DecisionView) -> None:
    """Apart from the verdict, which they do not change."""
    if not view.shadow:
        return
    out.print()
    out.print(Text("modules in shadow (without effect)", style="bold"))
    for sentence in view.shadow:
        out.print(f"  {sentence}")


def _print_inputs(out: Console, inputs: Mapping[str, str]) -> None:
    if not inputs:
        return
    table = _section("input", "value", "quality")
    for tag, text in inputs.items():
        value, quality = words.sample_parts(text)
        table.add_row(tag, value, Text(quality, "" if quality.startswith("Good") else "red"))
    _print_section(out, "inputs", table)


def _print_facts(out: Console, view: DecisionView) -> None:
    if view.timings_ms:
        stages = ", ".join(f"{stage} {ms:.2f}" for stage, ms in view.timings_ms.items())
        out.print()
        out.print(Text.assemble(("timings, ms  ", "bold"), stages))
    table = _section("", "")
    for name, digest in (
        ("rule set", view.rule_set_digest),
        ("model", view.model_digest),
        ("certificate", view.certificate_digest),
    ):
        table.add_row(name, digest or "-")
    _print_section(out, "digests", table)
    if view.decoding:
        out.print(f"  decoding {view.decoding} (information; the whole block was checked all the same)")
        masked = ", ".join(f"{tag} {100 * mass:.1f} %" for tag, mass in view.masked_out.items())
        out.print(f"  probability masked out: {masked or 'not told'}")
    if view.shortlist:
        out.print(f"  {view.shortlist} (information; each was checked as if it were alone)")
    if view.confidence is not None:
        # S29: confidence is information and never stands beside the verdict.
        out.print(f"  model confidence {view.confidence:.2f} (information; no verdict depends on it)")


def _section(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="bright_black", show_header=any(columns))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _print_section(out: Console, title: str, table: Table) -> None:
    out.print()
    out.print(Text(title, style="bold"))
    out.print(table)
