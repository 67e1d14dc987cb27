"""The sessions of an engine: what each holds of its history, and which makes room when memory lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, ValuesView
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from gateway.inference.bundle.tokenizer import Token
from gateway.inference.kv.backend import CacheId, KvBackend, PoolExhaustedError
from gateway.inference.kv.recency import Recency
from gateway.inference.messages import Cycle, Propose
from gateway.inference.serving.numbers import numbers
from gateway.inference.serving.work import Logits

T = TypeVar("T")


@dataclass(slots=True)
class Ahead:
    """What a `hop` window will go on from: the newest half, and what of it is not computed yet."""

    cache: CacheId
    tokens: list[Token]


@dataclass(slots=True)
class Session:
    """INVARIANT: the cache holds the finished cycles up to position `base`, then this cycle's `tail`."""

    cache: CacheId
    cycle: int = -1
    base: int = 0  # position after the last finished cycle
    tail: list[Token] = field(default_factory=list)  # this cycle's tokens that are cached
    first_logits: Logits | None = None  # those of the first output, for self-tests
    ahead: Ahead | None = None  # of a `hop` window
    seen: tuple[float, ...] | None = None  # measurements of cycle `cycle`
    before: tuple[float, ...] | None = None  # and of the one before it

    def leads_to(self, request: Propose) -> bool:
        """Whether a request goes on from the cycle that is held, with what it says was missed."""
        return 0 <= request.cycle - self.cycle <= max(1, len(request.missed))

    def missed(self, request: Propose) -> tuple[Cycle, ...]:
        """The finished cycles that are not whole here; none where the request closes the last one itself."""
        behind = request.cycle - self.cycle
        return request.missed[-behind:] if behind > 1 and request.history is None else ()

    def seen_before(self, request: Propose) -> tuple[float, ...] | None:
        """Measurements one cycle before the request's, where they are known."""
        if request.history is not None:
            newest = request.history[-1].inputs if request.history else ()
            return numbers(newest) if newest else None
        if missed := self.missed(request):
            return numbers(missed[-1].inputs)
        return self.seen if request.cycle == self.cycle + 1 else self.before

    @property
    def caches(self) -> tuple[CacheId, ...]:
        """Everything it holds."""
        return (self.cache,) if self.ahead is None else (self.cache, self.ahead.cache)

    def fork(self, backend: KvBackend) -> Session:
        """The same over shared memory; what is done to one, the other never sees.

        Raises `PoolExhaustedError`, holding nothing more, where a copy takes room that lacks.
        """
        cache, ahead = backend.fork(self.cache), self.ahead
        if ahead is not None:
            try:
                ahead = Ahead(backend.fork(ahead.cache), list(ahead.tokens))
            except PoolExhaustedError:
                backend.close(cache)
                raise
        return replace(self, cache=cache, tail=list(self.tail), ahead=ahead)

    def close(self, backend: KvBackend) -> None:
        """Give its memory back."""
        for cache in self.caches:
            backend.close(cache)


class Sessions:
    """Sessions by name. Those at work stay; of the others the one used longest ago makes room."""

    def __init__(self, backend: KvBackend, uses: int, at_work: Callable[[], Iterable[str]]) -> None:
        """`uses` is the K of LRU-K; `at_work` tells the names that may not make room."""
        self._backend, self._at_work = backend, at_work
        self._recency: Recency[str] = Recency(uses)
        self._held: dict[str, Session] = {}
        self.evicted = 0  # forgotten for others' sake

    def __len__(self) -> int:
        return len(self._held)

    def __getitem__(self, name: str) -> Session:
        return self._held[name]

    def get(self, name: str) -> Session | None:
        """The session of that name, if there is one."""
        return self._held.get(name)

    def values(self) -> ValuesView[Session]:
        """All of them."""
        return self._held.values()

    def use(self, name: str, session: Session) -> None:
        """This is the session of that name, and it is used now."""
        self._held[name] = session
        self._recency.touch(name)

    def release(self, name: str) -> None:
        """Forget a session; unknown names are fine."""
        session = self._held.pop(name, None)
        if session is not None:
            self._recency.forget(name)
            session.close(self._backend)

    def restore(self, name: str) -> None:
        """Bring a session's content back into the pool; raises `PoolExhaustedError`."""
        for cache in self._held[name].caches:
            self.with_room(partial(self._backend.restore, cache), name)

    def with_room(self, work: Callable[[], T], wanted: str = "") -> T:
        """What `work` gives once idle sessions, but the `wanted`, have made room; raises without."""
        while True:
            try:
                return work()
            except PoolExhaustedError:
                if not self._make_room(wanted):
                    raise

    def _make_room(self, wanted: str) -> bool:
        """Move the session that was used longest ago out of the pool; where there is no room, forget it.

        Its next request brings it back, or brings the history. Sessions at work stay, and the one `wanted`.
        """
        staying = {wanted, *self._at_work()}
        for name in self._recency.oldest_first(name for name in self._held if name not in staying):
            resident = [cache for cache in self._held[name].caches if self._backend.resident(cache)]
            if not resident:
                continue
            if not all(map(self._backend.offload, resident)):
                self.release(name)
                self.evicted += 1
            return True
        return False
