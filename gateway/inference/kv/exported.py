"""Decoders that other tools export: keys and values travel as `past_key_values.N.*` and `present.N.*`.

Each cache has arrays of its own; rows of a forward run one after another, so that no row knows of its
companions. Such models read whole tokens only: the bundle says `nearest`.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence as Values
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from gateway.core.errors import InferenceError
from gateway.inference.bundle.manifest import Architecture
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.kv.backend import CacheId, PoolExhaustedError, PoolStatistics, ProviderTruth, Span
from gateway.inference.kv.ort_session import Provider, device_of, number_of, open_session

H = TypeVar("H")

_TYPES: dict[str, type[np.floating]] = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


class Exported(ABC, Generic[H]):
    """A `KvBackend` whose caches hold `H` each; memory is counted in pages of `block` tokens."""

    def __init__(
        self,
        model: Path,
        architecture: Architecture,
        *,
        pages: int,
        block: int,
        provider: Provider,
        longest: int,
    ) -> None:
        """A cache has room for `longest` tokens, where its kind sets memory aside for them."""
        self._session, self._truth = open_session(model, provider)
        self._architecture, self._pages, self._block = architecture, pages, block
        inputs = {each.name: each for each in self._session.get_inputs()}
        self._outputs = [each.name for each in self._session.get_outputs()]
        self._with_positions = "position_ids" in inputs
        self.past = [f"past_key_values.{n}.{kind}" for n in range(architecture.layers) for kind in _KINDS]
        self.present = [f"present.{n}.{kind}" for n in range(architecture.layers) for kind in _KINDS]
        self._check(model, inputs)
        self.kind: type[np.floating] = _TYPES[inputs[self.past[0]].type]
        self.kv = np.dtype(self.kind).name  # as a bundle's description says it
        self._held: dict[CacheId, tuple[H, int]] = {}  # content and tokens
        self._numbers = itertools.count(1)
        self._peak_used = self._allocations = self._refused = 0
        self.longest, self.device, self.number = longest, device_of(self._truth), number_of(provider)
        if said := self.unfit():
            message = f"model `{model}` {said}"
            raise InferenceError(message)

    def _check(self, model: Path, inputs: dict[str, onnxruntime.NodeArg]) -> None:
        """Refuse a graph that is not what the bundle says of it."""
        known = {"input_ids", "attention_mask", "position_ids", *self.past}
        wanted = {"input_ids", "attention_mask", *self.past}
        architecture = self._architecture
        problem = ""
        if missing := sorted(wanted - inputs.keys()) + sorted({"logits", *self.present} - {*self._outputs}):
            problem = f"has no tensor `{missing[0]}`"
        elif (width := self._width()) not in {None, architecture.vocabulary}:
            problem = f"answers over {width} tokens, the bundle says {architecture.vocabulary}"
        elif unknown := sorted(inputs.keys() - known):
            problem = f"asks for a tensor `{unknown[0]}` that nobody here can give"
        else:
            for name in self.past:
                _, heads, _, size = inputs[name].shape
                if heads != architecture.heads or size not in {architecture.head_dim, "kv_cache_dim"}:
                    problem = (
                        f"has `{name}` for {heads} heads of {size}, the bundle says "
                        f"{architecture.heads} of {architecture.head_dim}"
                    )
                    break
                if inputs[name].type not in _TYPES:
                    problem = f"has `{name}` of {inputs[name].type}, which is not known here"
                    break
        if problem:
            message = f"model `{model}` {problem}: correct bundle.json or export the model again"
            raise InferenceError(message)

    def _width(self) -> int | None:
        """Tokens that the graph says it answers over; None where it does not say."""
        (shape,) = (each.shape for each in self._session.get_outputs() if each.name == "logits")
        return shape[-1] if isinstance(shape[-1], int) else None

    @property
    def truth(self) -> ProviderTruth:
        """See `KvBackend`."""
        return self._truth

    def open(self) -> CacheId:
        """See `KvBackend`."""
        return self._named(self.empty(), 0)

    def adopt(self, cache: CacheId, tokens: Values[Token]) -> int:  # noqa: ARG002  such caches share nothing
        """See `KvBackend`: such caches share nothing."""
        return 0

    def settle(self, cache: CacheId, position: int) -> None:
        """See `KvBackend`: such caches share nothing."""

    def fork(self, cache: CacheId) -> CacheId:
        """See `KvBackend`."""
        content, tokens = self._held[cache]
        self._require(self._pages_of(tokens))
        return self._named(self.copied(content), tokens)

    def close(self, cache: CacheId) -> None:
        """See `KvBackend`."""
        del self._held[cache]

    def span(self, cache: CacheId) -> Span:
        """See `KvBackend`."""
        return Span(0, self._held[cache][1])

    def truncate(self, cache: CacheId, end: int) -> None:
        """See `KvBackend`."""
        content, tokens = self._held[cache]
        if not 0 <= end <= tokens:
            message = f"cannot cut to position {end}: the cache holds 0 to {tokens}"
            raise InferenceError(message)
        self._held[cache] = self.cut(content, end), end

    def forget_before(self, cache: CacheId, position: int) -> None:
        """See `KvBackend`: every later query sees every token of such a model."""

    def resident(self, cache: CacheId) -> bool:
        """See `KvBackend`."""
        return self._held[cache][1] > 0

    def offload(self, cache: CacheId) -> bool:  # noqa: ARG002  there is no other place
        """See `KvBackend`: there is no other place."""
        return False

    def restore(self, cache: CacheId) -> None:
        """See `KvBackend`: nothing is ever elsewhere."""

    def even_out(self) -> bool:
        """See `KvBackend`: rows run one after another in any case."""
        return False

    def forward(self, rows: Values[tuple[CacheId, Values[Token]]]) -> NDArray[np.float32]:
        """See `KvBackend`."""
        grown = (
            self._pages_of(self._held[cache][1] + len(tokens)) - self._pages_of(self._held[cache][1])
            for cache, tokens in rows
        )
        self._require(sum(grown))
        return np.stack([self._run(cache, tokens) for cache, tokens in rows])

    @property
    def held_bytes(self) -> int:
        """What all caches take in memory now; copies that share count each."""
        return sum(self.bytes_of(content) for content, _ in self._held.values())

    def statistics(self) -> PoolStatistics:
        """See `KvBackend`."""
        used = [tokens for _, tokens in self._held.values()]
        pages = sum(map(self._pages_of, used))
        free = self._pages - pages
        return PoolStatistics(
            pages=self._pages,
            free=free,
            stranded=free % self._pages_of(1),
            shared=0,
            found_again=0,
            in_tables=pages,
            unfilled_slots=pages * self._block - sum(used),
            slots_a_page=self._block,
            peak_used=self._peak_used,
            allocations=self._allocations,
            copies=0,
            made_room=0,
            refused=self._refused,
            prefix_lookups=0,
            prefix_found=0,
        )

    # --- what an export's kind decides

    def unfit(self) -> str:
        """Why a graph with the right tensors can be no backend of this kind after all; empty: it can."""
        return ""

    @abstractmethod
    def empty(self) -> H:
        """Content of no token."""

    @abstractmethod
    def copied(self, content: H) -> H:
        """The same, independent."""

    @abstractmethod
    def bytes_of(self, content: H) -> int:
        """What it takes in memory."""

    def taken(self, tokens: int) -> int:
        """Tokens that it takes memory for where it holds `tokens`."""
        return tokens

    @abstractmethod
    def cut(self, content: H, end: int) -> H:
        """The first `end` tokens of it; nothing is kept for none."""

    @abstractmethod
    def ran(
        self, content: H, tokens: int, feeds: dict[str, NDArray[np.int64]]
    ) -> tuple[H, NDArray[np.floating]]:
        """Content after the fed tokens, behind `tokens` before them, and logits `[1, T, vocabulary]`."""

    # --- one row

    def _run(self, cache: CacheId, tokens: Values[Token]) -> NDArray[np.float32]:
        content, before = self._held[cache]
        count = len(tokens)
        feeds = {
            "input_ids": np.array([[token.id for token in tokens]], dtype=np.int64),
            "attention_mask": np.ones((1, before + count), dtype=np.int64),
        }
        if self._with_positions:
            feeds["position_ids"] = np.arange(before, before + count, dtype=np.int64)[None]
        try:
            content, logits = self.ran(content, before, feeds)
        except InferenceError:
            raise
        except Exception as exc:  # the runtime raises its own types, some private
            message = f"the model cannot go on ({exc}): nothing is proposed"
            raise InferenceError(message) from exc
        self._allocations += self._pages_of(before + count) - self._pages_of(before)
        self._held[cache] = content, before + count
        self._peak_used = max(self._peak_used, self._pages - self.statistics().free)
        row: NDArray[np.float32] = logits[0, -1].astype(np.float32)
        return row

    def _named(self, content: H, tokens: int) -> CacheId:
        number = CacheId(next(self._numbers))
        self._held[number] = content, tokens
        return number

    def _pages_of(self, tokens: int) -> int:
        return -(-self.taken(tokens) // self._block)

    def _require(self, pages: int) -> None:
        free = self.statistics().free
        if pages > free:
            self._refused += 1
            raise PoolExhaustedError(pages, free)


_KINDS = ("key", "value")
