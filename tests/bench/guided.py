"""Guided decoding, and lists, under seeded random constraint sets: refusals, what they cost in the objective.

Refusals and objective: the demo plant in closed loop, each set three times from the same start under the same
disturbances: the model guided, unguided, and asked for a list of which the first permitted one is taken. A
refusal is a proposal that the check did not permit, repaired or not; those that were not repaired either are
told apart, as strictly refused. So are states in which no block can be permitted, as guidance says: no
decoding helps there.
Time: the real processes, each pair of decisions on the same readings, guided and not.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.progress import track
from rich.table import Table

from gateway.core.decision import DecisionRecord, Permitted, Refused, Undetermined
from gateway.core.guidance import NOTHING, Guidance
from gateway.core.tag import TagDefinition
from gateway.plantsim.objective import score
from gateway.plantsim.tank import TankState
from gateway.solver.checking.terms import Budget
from gateway.solver.workers.check import Checks
from tests.bench.guided_latency import added_ms
from tests.bench.guided_model import EngineProposer, Model, guides_of
from tests.bench.guided_sets import random_set
from tests.bench.policies import FillAndHeat, bundle_engine
from tests.bench.report import Figure
from tests.bench.simulator import demo, simulate

NAME = "guided"
SETS, STEPS = 50, 40
N_BEST = 4
_BUDGET = Budget(timeout_ms=10_000)  # time is simulated: a machine that pauses must not make answers unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """One run in closed loop."""

    decisions: int
    dead: int  # states in which nothing can be permitted; known of a guided run only
    refused: int  # of the others; repaired or not
    strictly: int  # of those: not repaired either, nothing of the model's came through
    undetermined: int
    again: int  # attempts beyond the first
    others: int  # permitted in place of a first proposal that was not
    objective: float


def run(console: Console) -> list[Figure]:
    """Every figure of this benchmark."""
    ran = [_ways(seed) for seed in track(seeds(SETS), "random sets", console=console)]
    free, led, listed = ([ways[at] for ways in ran] for at in range(3))
    guided_ms, plain_ms, paired_ms = asyncio.run(added_ms(console))
    made = {
        "unguided_refused_percent": _percent(free),
        "guided_refused_percent": _percent(led),
        "unguided_strictly_refused_percent": _percent(free, strictly=True),
        "guided_strictly_refused_percent": _percent(led, strictly=True),
        "n_best_strictly_refused_percent": _percent(listed, strictly=True),
        "refusals_fewer": sum(p.refused for p in free) / max(1, sum(p.refused for p in led)),
        "dead_states_percent": 100 * sum(p.dead for p in led) / sum(p.decisions for p in led),
        "undetermined": float(sum(p.undetermined for p in (*free, *led, *listed))),
        "n_best_refused_percent": _percent(listed),
        "n_best_taken_percent": 100 * _taken(listed),
        "n_best_objective_loss_percent": 100 * (_mean(listed) / _mean(free) - 1),
        "again": float(sum(p.again for p in led)),
        "objective_loss_percent": 100 * (_mean(led) / _mean(free) - 1),
        "added_p50_ms": paired_ms,
        "guided_p50_ms": guided_ms,
        "unguided_p50_ms": plain_ms,
    }
    table = Table("", "decisions", "nothing permitted", "refused or repaired", "refused", "objective")
    for name, loops in (("unguided, repaired", free), (f"the best {N_BEST}", listed), ("guided", led)):
        table.add_row(
            name,
            str(sum(p.decisions for p in loops)),
            str(sum(p.dead for p in loops)),
            f"{sum(p.refused for p in loops)} ({_percent(loops):.2f} %)",
            f"{sum(p.strictly for p in loops)} ({_percent(loops, strictly=True):.2f} %)",
            f"{_mean(loops):.4f}",
        )
    console.print(table)
    return [Figure(NAME, name, value) for name, value in made.items()]


def seeds(count: int) -> list[int]:
    """The first seeds whose sets permit something at the start: under the others nobody could do anything."""
    found = (s for s in itertools.count() if not asyncio.run(loop(s, guided=True, steps=1)).dead)
    return list(itertools.islice(found, count))


def _ways(seed: int) -> tuple[Loop, Loop, Loop]:
    return (
        asyncio.run(loop(seed, guided=False)),
        asyncio.run(loop(seed, guided=True)),
        asyncio.run(loop(seed, guided=False, n_best=N_BEST)),
    )


async def loop(seed: int, *, guided: bool, steps: int = STEPS, n_best: int = 1) -> Loop:
    """One set in closed loop. Also an unguided run asks for guidance beside, to tell dead states apart."""
    settings, definitions = demo()
    rules, _ = random_set(seed, definitions)
    checks = Checks(rules, _BUDGET)
    order = [definitions[tag] for tag in settings.outputs]
    proposer = EngineProposer(bundle_engine("buffer-tank"), settings.inputs, order)
    dice = random.Random(seed)  # noqa: S311  # reproducible, not a secret
    records: list[DecisionRecord] = []
    run = await simulate(
        FillAndHeat(),
        seed=seed,
        steps=steps,
        check=checks,
        start=TankState(dice.uniform(1.4, 2.6), dice.uniform(41.0, 49.0)),
        records=records,
        model=Model(proposer, guides_of(checks) if guided else None, n_best),
    )
    bundle_engine("buffer-tank").release("run")
    dead = [_dead(checks, record, order) for record in records]
    return Loop(
        decisions=len(records),
        dead=sum(dead),
        refused=sum(_refused(r) and not gone for r, gone in zip(records, dead, strict=True)),
        strictly=sum(
            isinstance(r.outcome, Refused) and not gone for r, gone in zip(records, dead, strict=True)
        ),
        undetermined=sum(isinstance(r.outcome, Undetermined) for r in records),
        others=sum(r.shortlist is not None and r.shortlist.rank > 1 for r in records),
        again=sum(r.decoding.attempts - 1 for r in records if r.decoding is not None),
        objective=score(run.moments).objective,
    )


def _dead(checks: Checks, record: DecisionRecord, order: Sequence[TagDefinition]) -> bool:
    """Whether no block could be permitted where a decision was taken."""
    if record.decoding is not None:
        return record.decoding.because == NOTHING
    if record.examined is None:
        return False
    found = checks.guidance(record.examined.request, tuple(d.id for d in order), ())
    return isinstance(found, Guidance) and not found.after(())


def _refused(record: DecisionRecord) -> bool:
    return not isinstance(record.outcome, Permitted | Undetermined)


def _taken(loops: Sequence[Loop]) -> float:
    """Share of the first proposals that were not permitted for which another one was."""
    others = sum(p.others for p in loops)
    return others / max(1, others + sum(p.refused for p in loops))


def _percent(loops: Sequence[Loop], *, strictly: bool = False) -> float:
    """Of the decisions in which something can be permitted."""
    refused = sum(p.strictly if strictly else p.refused for p in loops)
    return 100 * refused / sum(p.decisions - p.dead for p in loops)


def _mean(loops: Sequence[Loop]) -> float:
    return statistics.fmean(p.objective for p in loops)
