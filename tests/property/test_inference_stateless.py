"""Whatever order requests, cancels and steps come in: each request has one answer, and it is its own."""

from __future__ import annotations

import hypothesis.strategies as st
import msgspec
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from gateway.inference.bundle.any_bundle import load_any
from gateway.inference.bundle.stateless import StatelessBundle
from gateway.inference.messages import Answer, Cycle, Failed, NeedHistory, Propose
from gateway.inference.serving.engine import CANCELLED
from gateway.inference.serving.stateless_engine import StatelessEngine
from tests.unit.inference_exports import FORECASTER, PUMP, REGRESSOR

_BUNDLES = [
    bundle for bundle in map(load_any, (REGRESSOR, FORECASTER)) if isinstance(bundle, StatelessBundle)
]
_ALONE = [StatelessEngine(bundle, (PUMP,)) for bundle in _BUNDLES]
_SESSIONS = st.sampled_from("abc")


class Requests(RuleBasedStateMachine):
    """Three sessions of one engine, beside a second engine that is asked the same alone, from its history."""

    @initialize(which=st.integers(0, 1), widest=st.integers(1, 8))
    def begin(self, which: int, widest: int) -> None:
        self.model, self.alone = _BUNDLES[which], _ALONE[which]
        self.engine = StatelessEngine(self.model, (PUMP,))
        self.engine.merges(widest if which == 0 else 1)  # the forecaster's rows depend on their companions
        self.histories: dict[str, list[Cycle]] = {name: [Cycle((), ("27",))] for name in "abc"}
        self.wholes: list[Propose] = []
        self.cancelled: set[int] = set()
        self.replies: dict[int, Answer | NeedHistory | Failed] = {}

    @rule(name=_SESSIONS, level=st.integers(0, 500), urgency=st.integers(0, 2), aside=st.booleans())
    def ask(self, name: str, level: int, urgency: int, *, aside: bool) -> None:
        number, history = len(self.wholes), self.histories[name]
        whole = Propose(
            session=name,
            cycle=len(history),
            inputs=(f"{level / 100}", "12", "40"),
            in_force=("27",),
            history=tuple(history)[-self.model.history_cycles :],
            urgency=urgency,
            aside=aside,
        )
        self.wholes.append(whole)
        self.engine.submit(number, msgspec.structs.replace(whole, history=None))
        self.collect()
        if isinstance(self.replies.get(number), NeedHistory):  # as the client does
            del self.replies[number]
            self.engine.submit(number, whole)
        if not aside:
            history.append(Cycle(whole.inputs, ("27",)))

    @rule(number=st.integers(0, 40))
    def cancel(self, number: int) -> None:
        self.engine.cancel(number)
        self.cancelled.add(number)
        self.collect()

    @rule()
    def step(self) -> None:
        self.engine.step()
        self.collect()

    @rule(name=_SESSIONS)
    def release(self, name: str) -> None:
        self.engine.release(name)

    def collect(self) -> None:
        for number, reply in self.engine.drain():
            assert number not in self.replies
            self.replies[number] = reply

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        while self.engine.busy:
            self.engine.step()
            self.collect()
        assert self.engine.queued == 0
        assert self.replies.keys() == set(range(len(self.wholes)))
        for number, reply in self.replies.items():
            if reply == Failed(problem=CANCELLED):
                assert number in self.cancelled
            else:
                self.compare(reply, self.wholes[number])

    def compare(self, reply: Answer | NeedHistory | Failed, whole: Propose) -> None:
        self.alone.submit(0, whole)
        while not (found := self.alone.drain()):
            self.alone.step()
        ((_, exact),) = found
        if isinstance(exact, Failed):
            assert reply == exact  # too few rows yet
            return
        assert isinstance(reply, Answer)
        assert isinstance(exact, Answer)
        assert reply.raws == exact.raws


TestRequests = Requests.TestCase
TestRequests.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
