"""Exports of Hugging Face Optimum: new keys and values are put behind the old ones, into new tensors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gateway.inference.kv.exported import Exported

_Content = tuple[NDArray[np.floating], ...]  # by layer keys and values, [1, heads, tokens, head_dim]


class ConcatPast(Exported[_Content]):
    """A `KvBackend` over tensors that are never written to: copies share them."""

    @property
    def aliased(self) -> bool:
        """See `KvBackend`: each forward makes new tensors."""
        return False

    def empty(self) -> _Content:
        """See `Exported`."""
        architecture = self._architecture
        nothing = np.zeros((1, architecture.heads, 0, architecture.head_dim), dtype=self.kind)
        return (nothing,) * len(self.past)

    def copied(self, content: _Content) -> _Content:
        """See `Exported`."""
        return content

    def bytes_of(self, content: _Content) -> int:
        """See `Exported`."""
        return sum(part.nbytes for part in content)

    def cut(self, content: _Content, end: int) -> _Content:
        """See `Exported`: a tensor's beginning must lie in one piece for the runtime."""
        if content[0].shape[2] == end:
            return content
        return tuple(np.ascontiguousarray(part[:, :, :end]) for part in content)

    def ran(
        self,
        content: _Content,
        tokens: int,  # noqa: ARG002  the tensors know
        feeds: dict[str, NDArray[np.int64]],
    ) -> tuple[_Content, NDArray[np.floating]]:
        """See `Exported`."""
        past = dict(zip(self.past, content, strict=True))
        logits, *present = self._session.run(["logits", *self.present], {**feeds, **past})
        return tuple(present), logits
