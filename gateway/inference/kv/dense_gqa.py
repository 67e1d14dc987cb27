"""Exports of onnxruntime-genai's builder: `GroupQueryAttention` writes into one buffer for each cache.

Past and present are bound to the same memory, as long as the longest window: a cache takes all of it from
its first token on, and is counted so. What stands behind the tokens that are held is never read: cutting back
needs no work.
"""

from __future__ import annotations

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from gateway.core.errors import InferenceError
from gateway.inference.kv.exported import Exported

_Content = tuple[
    onnxruntime.OrtValue, ...
]  # by layer keys and values, [1, heads, longest, head_dim]; () before the first


class DenseGqa(Exported[_Content]):
    """A `KvBackend` over buffers of `longest` tokens each."""

    @property
    def aliased(self) -> bool:
        """See `KvBackend`: without, there is no such backend."""
        return True

    def unfit(self) -> str:
        """See `Exported`."""
        if self._writes_in_place():
            return ""
        return (
            f"does not write keys and values where they stand on {self._truth.actual}: "
            "export it with a shared buffer, or as `concat_past`"
        )

    def empty(self) -> _Content:
        """See `Exported`: no buffer yet."""
        return ()

    def _buffer(self) -> _Content:
        architecture = self._architecture
        shape = (1, architecture.heads, self.longest, architecture.head_dim)
        return tuple(
            onnxruntime.OrtValue.ortvalue_from_numpy(
                np.zeros(shape, dtype=self.kind), self.device, self.number
            )
            for _ in self.past
        )

    def copied(self, content: _Content) -> _Content:
        """See `Exported`."""
        return tuple(
            onnxruntime.OrtValue.ortvalue_from_numpy(part.numpy().copy(), self.device, self.number)
            for part in content
        )

    def bytes_of(self, content: _Content) -> int:
        """See `Exported`: the whole buffer, however many tokens stand in it."""
        return sum(part.tensor_size_in_bytes() for part in content)

    def taken(self, tokens: int) -> int:
        """See `Exported`: the whole buffer from the first token on."""
        return self.longest if tokens else 0

    def cut(self, content: _Content, end: int) -> _Content:
        """See `Exported`, and the module."""
        return content if end else ()

    def ran(
        self, content: _Content, tokens: int, feeds: dict[str, NDArray[np.int64]]
    ) -> tuple[_Content, NDArray[np.floating]]:
        """See `Exported`; raises `InferenceError` where the buffer ends."""
        if feeds["attention_mask"].shape[1] > self.longest:
            message = f"the model's buffer ends after {self.longest} tokens, {tokens} are held"
            raise InferenceError(message)
        content = content or self._buffer()
        binding = self._session.io_binding()
        for name, value in feeds.items():
            binding.bind_cpu_input(name, value)
        for past, present, part in zip(self.past, self.present, content, strict=True):
            binding.bind_ortvalue_input(past, part)
            binding.bind_ortvalue_output(present, part)
        binding.bind_output("logits", "cpu")
        self._session.run_with_iobinding(binding)
        return content, binding.get_outputs()[-1].numpy()

    def _writes_in_place(self) -> bool:
        """Whether a second run leaves what the first one wrote, and writes behind it."""
        content = self.empty()
        ids = np.array([[self._architecture.begin_token]], dtype=np.int64)
        held = []
        for tokens in range(2):
            feeds = {"input_ids": ids, "attention_mask": np.ones((1, tokens + 1), dtype=np.int64)}
            if self._with_positions:
                feeds["position_ids"] = np.array([[tokens]], dtype=np.int64)
            content, _ = self.ran(content, tokens, feeds)
            held.append([part.numpy().copy() for part in content])
        return all(
            np.array_equal(first[:, :, :1], second[:, :, :1])
            and np.any(second[:, :, 1])
            and not np.any(second[:, :, 2:])
            for first, second in zip(*held, strict=True)
        )
