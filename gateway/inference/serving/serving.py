"""What a worker asks of an engine, whatever its model remembers; and how a bundle's engine is started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from gateway.core.errors import InferenceError
from gateway.inference.bundle.any_bundle import AnyBundle
from gateway.inference.bundle.stateless import StatelessBundle
from gateway.inference.decoding.decode import OutputRange
from gateway.inference.kv.backend import PoolStatistics, ProviderTruth
from gateway.inference.kv.ort_session import Provider
from gateway.inference.messages import Answer, Failed, NeedHistory, Propose
from gateway.inference.serving.costs import Costs
from gateway.inference.serving.engine import Engine
from gateway.inference.serving.selftest import SelfTest, self_test
from gateway.inference.serving.stateless_engine import StatelessEngine
from gateway.inference.serving.stateless_selftest import self_test_stateless

_CUDA = "CUDAExecutionProvider"


class ServingEngine(Protocol):
    """One model and the histories of its sessions, used from one thread."""

    costs: Costs | None
    decisions: int
    warmed: int
    rebuilt: int
    forwards: int
    rows: int

    @property
    def evicted(self) -> int:
        """Sessions forgotten for others' sake."""
        ...

    @property
    def truth(self) -> ProviderTruth:
        """Where it runs."""
        ...

    @property
    def aliased(self) -> bool:
        """Whether keys and values are written in place; False where there are none."""
        ...

    @property
    def widest(self) -> int:
        """Requests that one forward may hold."""
        ...

    @property
    def busy(self) -> bool:
        """True while a step would run something or has something to tell."""
        ...

    @property
    def queued(self) -> int:
        """Requests that are not answered yet."""
        ...

    @property
    def sessions(self) -> int:
        """Sessions held now."""
        ...

    def propose(self, request: Propose) -> Answer | NeedHistory:
        """The answer to the only request; raises `InferenceError`."""
        ...

    def submit(self, number: int, request: Propose) -> None:
        """Take a request in; its answer comes out of `drain` under `number`."""
        ...

    def cancel(self, number: int) -> None:
        """Nobody waits for that answer any more."""
        ...

    @property
    def held_until(self) -> float | None:
        """Until which monotonic second it has nothing to do unless it is told something; None: for ever."""
        ...

    def guide(self, number: int, packed: bytes, because: str) -> None:
        """Guidance for that request, or why there is none."""
        ...

    def waits(self, window_s: float) -> None:
        """From now on requests wait so long for others to share their first forward."""
        ...

    def step(self) -> None:
        """Run one planned forward, unless it waits for company."""
        ...

    def drain(self) -> list[tuple[int, Answer | NeedHistory | Failed]]:
        """Replies that are ready, by the numbers of their requests."""
        ...

    def release(self, name: str) -> None:
        """Forget a session; unknown names are fine."""
        ...

    def pool_statistics(self) -> PoolStatistics:
        """The memory for keys and values now."""
        ...


@dataclass(frozen=True, slots=True)
class Size:
    """Where the engine runs and how much it may hold, in pages of its bundle."""

    provider: Provider = "cpu"
    pages: int = 256
    cold_pages: int = 0
    max_wait_s: float = 0.0  # that requests wait for others to share a forward, on CUDA


def make_engine(
    bundle: AnyBundle, outputs: tuple[OutputRange, ...], size: Size
) -> tuple[ServingEngine, Callable[[], SelfTest]]:
    """The engine of a bundle and its self-test, which also warms it; raises `InferenceError`."""
    with _in_words(bundle):
        if isinstance(bundle, StatelessBundle):
            stateless = StatelessEngine(bundle, outputs, provider=size.provider)
            return stateless, lambda: self_test_stateless(stateless, bundle)
        engine = Engine(bundle, outputs, provider=size.provider, pages=size.pages, cold_pages=size.cold_pages)
        engine.stand()
        return engine, lambda: self_test(engine, bundle)


def start_engine(
    bundle: AnyBundle, outputs: tuple[OutputRange, ...], size: Size
) -> tuple[ServingEngine, SelfTest]:
    """An engine that has shown itself: exact, warm, its costs known; raises `InferenceError`."""
    engine, test = make_engine(bundle, outputs, size)
    window_s = window_of(engine.truth, size.max_wait_s)
    with _in_words(bundle):
        shown = test()
    engine.costs = Costs(shown.decision_ms, shown.chunk_ms, shown.steps_ms)
    if window_s:
        engine.waits(window_s)
    return engine, shown


def window_of(truth: ProviderTruth, wanted_s: float) -> float:
    """How long requests wait for company: on CUDA as wanted; not at all where a model fell back from there.

    Raises `InferenceError` where it is to wait on the processor, which nothing would gain.
    """
    if wanted_s and _CUDA not in {truth.actual, truth.expected}:
        message = (
            f"requests are to wait {1e3 * wanted_s:g} ms for others and the model runs on {truth.actual}, "
            "where every millisecond of waiting is one more of each answer, and requests that wait anyway "
            'share a forward: write `max_wait = "0 ms"` in `[inference]`, or run it on CUDA'
        )
        raise InferenceError(message)
    return wanted_s if truth.actual == _CUDA else 0.0


@contextmanager
def _in_words(bundle: AnyBundle) -> Iterator[None]:
    """A graph that does not run as its description says ends in a sentence, whatever the runtime raises."""
    try:
        yield
    except InferenceError:
        raise
    except Exception as exc:  # the runtime raises its own types, some private
        message = (
            f"model bundle `{bundle.directory}`: the graph does not run as bundle.json says "
            f"({type(exc).__name__}: {exc}): correct bundle.json or export the model again"
        )
        raise InferenceError(message) from exc
