"""What guidance adds to a decision, over the real engine and solver processes."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from rich.console import Console
from rich.progress import track

import gateway.inference
from gateway.core.clock import Deadline, SystemClock
from gateway.core.decision import DecisionId, DecisionRecord, DecisionRequest, Mode, Permitted, RequestClass
from gateway.core.quality import StatusCode
from gateway.core.tag import TagDefinition, TagId, TagValue
from gateway.core.tagstore import TagStore
from gateway.inference.client.model_engine import ModelEngine
from gateway.pipeline.decide import Decider
from gateway.pipeline.point import Point, PointSettings
from gateway.pipeline.rules import RulesHolder, RulesInForce
from gateway.solver.workers.pool import CheckerPool
from tests.bench.guided_sets import random_set
from tests.bench.no_way_out import KeptRecords, NoSink
from tests.bench.report import percentile
from tests.bench.simulator import demo

PAIRS, SET = 300, 3
_BUNDLE = Path(gateway.inference.__file__).parent / "bundles" / "buffer-tank"
_IN_FORCE = {"TK1.P101.SP": "25", "TK1.H101.CMD": "0", "TK1.M101.STAGE": "1"}


async def added_ms(console: Console) -> tuple[float, float, float]:
    """Medians in ms: of guided decisions, of unguided ones, and of what a guided one took more than its twin.

    Only pairs that were permitted both: a refusal costs a repair, which guidance saves.
    """
    settings, definitions = demo()
    rules, _ = random_set(SET, definitions)
    engine = ModelEngine(_BUNDLE, definitions)
    pool = CheckerPool(2, warm=[(settings.hold_s, settings.effect_delay_s)], guided=True)
    await engine.start()
    await pool.start()
    try:
        await pool.load(rules)
        desk = _Desk(settings, definitions, engine, pool, rules.digest)
        return await _paired(desk, console)
    finally:
        await engine.aclose()
        await pool.aclose()


async def _paired(desk: _Desk, console: Console) -> tuple[float, float, float]:
    took: dict[bool, list[float]] = {True: [], False: []}
    more: list[float] = []
    for number in track(range(PAIRS), "pairs of decisions", console=console):
        desk.measure(number)
        pair: dict[bool, float] = {}
        for guided in (True, False) if number % 2 else (False, True):
            began = time.perf_counter()
            record = await desk.decide(number, guided=guided)
            if isinstance(record.outcome, Permitted) and (not guided or _was_guided(record)):
                pair[guided] = 1000 * (time.perf_counter() - began)
        if len(pair) > 1 and number >= PAIRS // 10:
            took[True].append(pair[True])
            took[False].append(pair[False])
            more.append(pair[True] - pair[False])
    return percentile(took[True], 0.5), percentile(took[False], 0.5), percentile(more, 0.5)


def _was_guided(record: DecisionRecord) -> bool:
    return record.decoding is not None and record.decoding.guided


class _Desk:
    """Two decision points on the same plant, one of them guided."""

    def __init__(
        self,
        settings: PointSettings,
        definitions: dict[TagId, TagDefinition],
        engine: ModelEngine,
        pool: CheckerPool,
        digest: str,
    ) -> None:
        self._clock = SystemClock()
        self._store = TagStore(definitions.values(), self._clock)
        self._settings = settings
        rules = RulesHolder()
        rules.activate(RulesInForce(1, digest, frozenset(settings.required_modules), ""))
        self._points = {
            guided: Point(
                replace(settings, guided=guided),
                engine.for_point(f"guided {guided}"),
                NoSink(),
                mode=Mode.SHADOW,
            )
            for guided in (True, False)
        }
        for point in self._points.values():
            for tag, text in _IN_FORCE.items():
                raw = definitions[TagId(tag)].counts(Fraction(text))
                point.histories[TagId(tag)].observe(
                    definitions[TagId(tag)].engineering(raw), self._clock.monotonic() - 500.0
                )
        self._decider = Decider(
            clock=self._clock,
            store=self._store,
            checker=pool,
            audit=KeptRecords(None),
            rules=rules,
            link_session=lambda: 1,
            certify=lambda _: "",
        )

    def measure(self, number: int) -> None:
        """New readings near where the plant is run."""
        dice = random.Random(number)  # noqa: S311  # reproducible, not a secret
        readings = (dice.uniform(1.95, 2.05), dice.uniform(9.0, 13.0), dice.uniform(45.0, 47.0))
        tags = (*self._settings.inputs, *self._settings.read_back.values())
        values = (*(round(value, 2) for value in readings), *map(float, _IN_FORCE.values()))
        for tag, value in zip(tags, values, strict=True):
            self._store.update(
                tag,
                TagValue(
                    value=value,
                    status=StatusCode.Good,
                    source_ts_ns=None,
                    server_ts_ns=self._clock.utc_ns(),
                    confirmed_at=self._clock.monotonic(),
                ),
            )

    async def decide(self, number: int, *, guided: bool) -> DecisionRecord:
        """One decision of one of the points."""
        point = self._points[guided]
        point.carried = None
        decided = await self._decider.decide(
            point,
            DecisionRequest(
                id=DecisionId(f"d{number}{guided}"),
                point=point.settings.id,
                requested_by="bench",
                request_class=RequestClass.P1,
                deadline=Deadline.after(0.5, self._clock),
                received_at=self._clock.monotonic(),
            ),
        )
        return decided.record
