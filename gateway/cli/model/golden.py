"""`o3ctl model golden`: whether this machine answers, and judges the answers, as the one that wrote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.model.files import progress_bar, refusals
from gateway.cli.options import AsJson

if TYPE_CHECKING:
    from gateway.cli.model.golden_verdicts import Told
    from gateway.inference.golden import Golden, Replayed


def model_golden(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A decoder's folder.")],
    rules: Annotated[
        list[Path] | None,
        typer.Option("--rules", metavar="M.json", help="A module verdicts are given under; may be repeated."),
    ] = None,
    write: Annotated[
        bool,
        typer.Option("--write", help="Write this machine's verdicts into the bundle and seal it, instead."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Ask a bundle's golden questions: same counts, same actions, same verdicts? Status 1 where not."""
    if write and not rules:
        raise typer.BadParameter("verdicts are given under modules: name them with --rules")
    with refusals(), progress_bar() as progress:
        from gateway.cli.model import golden_verdicts  # noqa: PLC0415  # z3
        from gateway.inference.bundle.files import BundleError  # noqa: PLC0415
        from gateway.inference.bundle.twin import load_decoder  # noqa: PLC0415
        from gateway.inference.golden import compared, read_golden, replays  # noqa: PLC0415

        loaded = load_decoder(bundle)
        golden = read_golden(loaded)
        judge = golden_verdicts.Judge.of(loaded, golden, rules) if rules else None
        if judge is not None and not write:
            golden_verdicts.check_same_rules(loaded, golden, judge)
        total, found = sum(bool(cycle.counts) for run in golden.runs for cycle in run), []
        told: dict[tuple[int, int], Told] = {}
        for one in replays(loaded, golden):
            found.append(one)
            if judge is not None:
                told[one.run, one.at] = judge.verdict(one)
            progress("answers", len(found) / total)
        answers = compared(golden, found)
        if write and judge is not None:
            if not answers.same:
                problem = (
                    "this machine gives other answers, its verdicts would be of those: write them elsewhere"
                )
                raise BundleError(bundle, problem)
            written = golden_verdicts.write_verdicts(loaded, golden, judge, told)
            print(json.dumps(written.plain(), indent=2) if as_json else written.sentence())
            return
    other = sum(told[one.run, one.at] != (one.asked.verdict, one.asked.repaired) for one in found if told)
    _show(answers, golden, len(told), other, as_json=as_json)
    raise typer.Exit(0 if answers.same and not other else 1)


def _show(answers: Replayed, golden: Golden, verdicts: int, other: int, *, as_json: bool) -> None:
    from gateway.inference.golden import ACTION_TOLERANCE  # noqa: PLC0415

    same = answers.same and not other
    if as_json:
        plain = {
            "answers": answers.answers,
            "other_counts": answers.wrong_counts,
            "worst_action_error_of_span": answers.worst_action_error_of_span,
            "action_tolerance": ACTION_TOLERANCE,
            "verdicts": verdicts,
            "other_verdicts": other,
            "same": same,
        }
        print(json.dumps(plain, indent=2))
        return
    print(
        f"{answers.answers} answers, {answers.wrong_counts} with other counts, actions off by "
        f"{answers.worst_action_error_of_span:.2g} of their span at most"
    )
    if verdicts:
        print(f"{verdicts} verdicts, {other} other than the golden ones")
    elif golden.rules is not None:
        named = ", ".join(f"`{name}`" for name in golden.rules.modules)
        print(f"verdicts not compared: name the files of {named} with --rules")
    else:
        print("verdicts not compared: the bundle has none")
    print("the same" if same else "not the same machine for this model")


def register(app: typer.Typer) -> None:
    """Put this verb into the group `model`."""
    app.command("golden")(model_golden)
