"""Pages that several sequences may read, found by what stands in them and in front of them.

A page's name is a digest over all that its keys and values depend on: the model and how it runs, every token
before it, and its own. Two pages of one name hold the same numbers, up to rounding in the chunks they were
computed in.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Values
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from gateway.inference.bundle.tokenizer import Token
from gateway.inference.kv.recency import Recency

_TOKEN = struct.Struct("<qf")  # the graph's own precision of a fraction


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes keys and values of one engine useless to another."""

    model: str  # SHA-256 of the graph
    bundle: str  # SHA-256 of bundle.json: bins, window, quantization
    block: int
    provider: str
    runtime: str

    def seed(self) -> bytes:
        """The digest every chain begins with."""
        text = "\0".join((self.model, self.bundle, str(self.block), self.provider, self.runtime))
        return hashlib.sha256(text.encode()).digest()


class Settled(NamedTuple):
    """A page that nobody writes to any more."""

    position: int  # of its first token
    name: bytes
    before: bytes  # the name of the page in front of it, or the seed


@dataclass(slots=True)
class Chain:
    """The names of a sequence's settled pages so far, and the tokens after them."""

    block: int
    name: bytes  # of the newest settled page; the seed before the first
    settled: int = 0  # tokens
    tokens: list[Token] = field(default_factory=list)  # from position `settled` on

    def copy(self) -> Chain:
        """The same, to go on apart."""
        return Chain(self.block, self.name, self.settled, list(self.tokens))

    def truncate(self, end: int) -> None:
        """Forget tokens at position `end` and after it; settled ones are never forgotten."""
        del self.tokens[max(0, end - self.settled) :]

    def settle(self, position: int) -> Iterator[Settled]:
        """Each page that ends at or before `position` and had no name yet."""
        while self.settled + self.block <= min(position, self.settled + len(self.tokens)):
            before, self.name = self.name, page_name(self.name, self.tokens[: self.block])
            del self.tokens[: self.block]
            yield Settled(self.settled, self.name, before)
            self.settled += self.block


def page_name(before: bytes, tokens: Values[Token]) -> bytes:
    """The name of a full page after the one called `before`."""
    body = b"".join(_TOKEN.pack(token.id, token.fraction) for token in tokens)
    return hashlib.blake2b(body, digest_size=32, key=before).digest()


def page_names(seed: bytes, tokens: Values[Token], block: int) -> list[bytes]:
    """The names of all full pages of `tokens`, which stand at position 0."""
    names: list[bytes] = []
    for start in range(0, len(tokens) - block + 1, block):
        names.append(page_name(names[-1] if names else seed, tokens[start : start + block]))
    return names


class PrefixIndex:
    """Settled pages by name. It counts as a reader of each of them until room lacks.

    A page is found only through all that stand in front of it.
    """

    def __init__(self, recency: Recency[bytes]) -> None:
        self._pages: dict[bytes, int] = {}
        self._names: dict[int, bytes] = {}
        self._before: dict[bytes, bytes] = {}
        self._recency = recency
        self.lookups = self.found = 0  # pages

    def __len__(self) -> int:
        return len(self._pages)

    def find(self, names: Values[bytes]) -> list[int]:
        """Pages of the longest run of `names`, from the first on, that is held."""
        pages: list[int] = []
        self.lookups += len(names)
        for name in names:
            page = self._pages.get(name)
            if page is None:
                break
            self._recency.touch(name)
            pages.append(page)
        self.found += len(pages)
        return pages

    def add(self, settled: Settled, page: int) -> bool:
        """Hold a page under its name; False where the name is taken, or the page has one."""
        name = settled.name
        if name in self._pages or page in self._names:
            return False
        self._pages[name], self._names[page], self._before[name] = page, name, settled.before
        self._recency.touch(name)
        return True

    def removable(self, readers: Callable[[int], int], most: int) -> tuple[int, list[int]]:
        """How many pages nobody else reads, and the first `most` of them to make room.

        Rows make room from their ends, the row first whose end was used longest ago. A page that somebody
        reads does not keep those in front of it: whoever goes on from there has forgotten them.
        """
        free = {name for name, page in self._pages.items() if readers(page) == 1}
        behind = Counter(map(self._before.__getitem__, free))
        ends = [(self._recency.rank(name), name) for name in free if name not in behind]
        heapify(ends)
        first: list[int] = []
        while ends and len(first) < most:
            _, name = heappop(ends)
            first.append(self._pages[name])
            before = self._before[name]
            behind[before] -= 1
            if before in free and not behind[before]:
                heappush(ends, (self._recency.rank(before), before))
        return len(free), first

    def remove(self, page: int) -> None:
        """Hold a page no longer."""
        name = self._names.pop(page)
        del self._pages[name], self._before[name]
        self._recency.forget(name)
