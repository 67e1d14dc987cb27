"""Keys and values of sessions that are not at work, outside the pool, in shared memory."""

from __future__ import annotations

import mmap
from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray


class ColdTier:
    """Pages of equal size, in a region of its own. Content comes back bit for bit."""

    def __init__(self, pages: int, page_bytes: int) -> None:
        """Room for `pages` pages of `page_bytes` bytes, whatever types they keep."""
        size = pages * page_bytes
        self._region = mmap.mmap(-1, max(1, size), flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
        self._pages = np.frombuffer(self._region, dtype=np.uint8, count=size).reshape(pages, page_bytes)
        self._free = list(range(pages - 1, -1, -1))
        self._held: dict[Hashable, list[int]] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._held

    def __len__(self) -> int:
        return len(self._held)

    @property
    def free(self) -> int:
        """Pages."""
        return len(self._free)

    def put(self, key: Hashable, content: NDArray[np.uint8]) -> bool:
        """Keep content `[pages, page_bytes]`; False, changing nothing, where room lacks."""
        pages = content.shape[0]
        if pages > len(self._free):
            return False
        places = [self._free.pop() for _ in range(pages)]
        self._pages[places] = content
        self._held[key] = places
        return True

    def take(self, key: Hashable) -> NDArray[np.uint8]:
        """The content as it was put, no longer kept here."""
        places = self._held.pop(key)
        self._free.extend(places)
        content: NDArray[np.uint8] = self._pages[places]
        return content

    def drop(self, key: Hashable) -> None:
        """Keep it no longer; unknown keys are fine."""
        self._free.extend(self._held.pop(key, ()))
