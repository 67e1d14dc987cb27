"""The standing prefix of a bundle: what every request begins with, computed once for all sessions.

It is the begin token and the header that the bundle declares. Its keys and values stay for as long as the
engine lives, in the engine's own memory: what another bundle computed can never be among them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence as Values

from gateway.inference.bundle.tokenizer import Token
from gateway.inference.kv.backend import CacheId, KvBackend, PoolExhaustedError


class Standing:
    """Held open and never written again; sessions begin as copies of it."""

    def __init__(self, backend: KvBackend, opening: Values[Token]) -> None:
        self._backend, self._opening = backend, list(opening)
        self._cache: CacheId | None = None

    @property
    def tokens(self) -> int:
        """Tokens that a new cache holds from the start."""
        return 0 if self._cache is None else len(self._opening)

    def compute(self, chunk: int) -> None:
        """Compute it, `chunk` tokens a forward; a lone begin token is not worth it.

        Raises `PoolExhaustedError`, holding nothing, where the pool is too small for it.
        """
        if self._cache is not None or len(self._opening) == 1:
            return
        cache = self._backend.open()
        try:
            for start in range(0, len(self._opening), chunk):
                self._backend.forward([(cache, self._opening[start : start + chunk])])
        except BaseException:
            self._backend.close(cache)
            raise
        self._cache = cache

    def open(self) -> tuple[CacheId, list[Token]]:
        """A new cache, and what of the opening it does not hold yet: all of it where a copy finds no room."""
        if self._cache is not None:
            with contextlib.suppress(PoolExhaustedError):  # whoever computes it makes room
                return self._backend.fork(self._cache), []
        return self._backend.open(), list(self._opening)
