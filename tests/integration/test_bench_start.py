"""Each way in which the benchmark starts an engine goes without what it says, by counters, not by times."""

from __future__ import annotations

import time

import pytest

from gateway.inference.bundle.manifest import Bundle
from tests.bench.inference_kv import decisions_bundle
from tests.bench.inference_load import POINTS, Seen
from tests.bench.inference_start import WAYS, started, without
from tests.unit.random_decoder import TINY

pytestmark = pytest.mark.integration

_ROUNDS = 2  # requests of each point


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return decisions_bundle(tmp_path_factory.mktemp("tiny"), TINY)


@pytest.mark.parametrize(
    ("way", "warmed", "sent", "found"),
    [
        ("all", POINTS, 0, False),
        ("not warmed", 0, POINTS, False),
        ("no prefixes", POINTS, 0, False),
        ("no sessions", POINTS, _ROUNDS * POINTS, True),
        ("none", 0, _ROUNDS * POINTS, False),
    ],
)
async def test_a_way_of_starting_goes_without_what_it_says(
    bundle: Bundle,
    way: str,
    warmed: int,
    sent: int,
    found: bool,  # noqa: FBT001  a parameter
) -> None:
    """`found`: a history that is sent again finds its own pages, unless nothing is ever found."""
    seen = Seen()
    with without(WAYS[way]):
        async with started(bundle) as (engine, client):
            before = (await engine.refresh()).worker  # the self-test looks for prefixes, too
            for _ in range(_ROUNDS * POINTS):
                await client.ask(seen, time.perf_counter(), deadline_s=60.0)
            counted = await engine.refresh()

    assert seen.failed == 0
    assert before is not None
    assert counted.worker is not None
    assert counted.worker.warmed == warmed
    assert counted.histories_sent == sent
    assert (counted.worker.prefix_found > before.prefix_found) == found
