"""The paged decoder on CUDA: `com.microsoft.PagedAttention` over caches that stay on the device."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence as Values
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from gateway.core.errors import InferenceError
from gateway.inference.bundle.manifest import Architecture
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.kv.block_pool import Appended, Sequence
from gateway.inference.kv.cuda_plan import BUCKETS, WARM_UP_RUNS, Feeds, Layout, bucket_of, graph_id, pack
from gateway.inference.kv.ort_session import Provider, device_of, number_of, open_session, providers_for
from gateway.inference.kv.paged_graph import Paged
from gateway.inference.kv.rows import Row

_CUDA = "CUDAExecutionProvider"
_ON_THE_HOST = frozenset({"bounds"})  # the operator reads it there, or it would stall the device each step


@dataclass(slots=True)
class _Captured:
    """A bucket's tensors: the graph reads and writes these addresses for ever."""

    binding: onnxruntime.IOBinding
    inputs: dict[str, onnxruntime.OrtValue]
    logits: onnxruntime.OrtValue
    options: onnxruntime.RunOptions


class PagedAttentionSession:
    """A decoder of `training.graph_cuda` and its caches `[pages, block, heads, head_dim]` on the device."""

    def __init__(
        self,
        model: Path,
        architecture: Architecture,
        *,
        pages: int,
        block: int,
        provider: Provider,
        longest: int,
        capture: bool = True,
    ) -> None:
        """`longest` tokens stand in one sequence at the most. Raises `InferenceError` without a device."""
        if providers_for(provider)[0] != _CUDA:
            message = (
                f"model `{model}` keeps its pages by PagedAttention, which runs on CUDA only: "
                "use a machine with a CUDA device, or a bundle for `paged_graph`"
            )
            raise InferenceError(message)
        options = {"enable_cuda_graph": "1"} if capture else None
        self._session, self.truth = open_session(model, provider, options)
        self._device, self._number = device_of(self.truth), number_of(provider)
        self.digest = hashlib.sha256(model.read_bytes()).hexdigest()
        half = architecture.head_dim // 2
        self._layout = Layout(
            block=block,
            table_pages=-(-longest // block) + 1,  # the first page may be used in part
            probe_page=pages - 1,
            frequencies=architecture.rotary_base ** (-np.arange(half, dtype=np.float64) / half),
        )
        shape = (pages, block, architecture.heads, architecture.head_dim)
        self._pools = {
            name: onnxruntime.OrtValue.ortvalue_from_numpy(
                np.zeros(shape, np.float16), self._device, self._number
            )
            for name in (each.name for each in self._session.get_inputs())
            if name.startswith(("keys_", "values_"))
        }
        self._vocabulary = architecture.vocabulary
        self._begin = Token(architecture.begin_token, 0.0)
        self._captured: dict[int, _Captured] = {}
        self.aliased = self._writes_in_place()
        if capture:
            self._warm_up()

    @property
    def page_bytes(self) -> int:
        """Bytes that one page takes in all caches."""
        return sum(pool.tensor_size_in_bytes() // pool.shape()[0] for pool in self._pools.values())

    def run_rows(self, rows: Values[Row]) -> NDArray[np.float32]:
        """Logits `[B, 1, vocabulary]` after each row's last token."""
        if copies := [copy for row in rows for copy in row.appended.copies]:
            sources, targets = zip(*copies, strict=True)
            self.write_pages(targets, self.read_pages(sources))
        bucket = bucket_of(rows) if self._captured else None
        feeds = pack(rows, self._layout, bucket)
        logits = self._eager(feeds) if bucket is None else self._replayed(bucket, feeds)
        return logits[: len(rows), None]

    def read_pages(self, pages: Values[int]) -> NDArray[np.uint8]:
        """Content of pages, `[pages, page_bytes]`."""
        parts = [pool.numpy()[list(pages)].reshape(len(pages), -1) for pool in self._pools.values()]
        return np.concatenate([part.view(np.uint8) for part in parts], axis=1)

    def write_pages(self, pages: Values[int], content: NDArray[np.uint8]) -> None:
        """Set the content of pages to what `read_pages` gave."""
        begin = 0
        for pool in self._pools.values():
            values = pool.numpy().copy()
            size = values[0].nbytes
            part = np.ascontiguousarray(content[:, begin : begin + size]).view(values.dtype)
            values[list(pages)] = part.reshape(len(pages), *values.shape[1:])
            pool.update_inplace(values)
            begin += size

    def _eager(self, feeds: Feeds) -> NDArray[np.float32]:
        binding, options = self._bound(), _options(None)
        for name, value in feeds.items():
            binding.bind_cpu_input(name, value)
        binding.bind_output("logits", "cpu")
        self._session.run_with_iobinding(binding, options)
        logits: NDArray[np.float32] = binding.get_outputs()[-1].numpy()
        return logits

    def _replayed(self, bucket: int, feeds: Feeds) -> NDArray[np.float32]:
        captured = self._captured[bucket]
        for name, value in feeds.items():
            captured.inputs[name].update_inplace(value)
        self._session.run_with_iobinding(captured.binding, captured.options)
        logits: NDArray[np.float32] = captured.logits.numpy()
        return logits

    def _warm_up(self) -> None:
        """Every bucket: the runs before the runtime captures, and the first replay."""
        for bucket in BUCKETS:
            feeds = pack([self._probe()], self._layout, bucket)
            binding, inputs = self._bound(), {}
            for name, value in feeds.items():
                place = ("cpu", 0) if name in _ON_THE_HOST else (self._device, self._number)
                inputs[name] = onnxruntime.OrtValue.ortvalue_from_numpy(value, *place)
                binding.bind_ortvalue_input(name, inputs[name])
            empty = np.zeros((bucket, self._vocabulary), dtype=np.float32)
            logits = onnxruntime.OrtValue.ortvalue_from_numpy(empty, self._device, self._number)
            binding.bind_ortvalue_output("logits", logits)
            self._captured[bucket] = _Captured(binding, inputs, logits, _options(bucket))
            for _ in range(WARM_UP_RUNS + 2):
                self._replayed(bucket, feeds)

    def _bound(self) -> onnxruntime.IOBinding:
        """A binding of the caches: each is input and output where it stands."""
        binding = self._session.io_binding()
        for name, pool in self._pools.items():
            binding.bind_ortvalue_input(name, pool)
            binding.bind_ortvalue_output(f"{name}_out", pool)
        return binding

    def _probe(self) -> Row:
        page = self._layout.probe_page
        slot = page * self._layout.block
        return Row(Sequence([page], 0, 1), [self._begin], Appended((slot,), ()))

    def _writes_in_place(self) -> bool:
        """Whether a run writes the probe's first slot, and nothing else, where the caches stand."""
        self._eager(pack([self._probe()], self._layout, None))
        page = self._layout.probe_page
        for name, pool in self._pools.items():
            values = pool.numpy().copy()
            written = bool(np.any(values[page, 0]))
            values[page, 0] = 0
            if not written or np.any(values):
                message = f"the runtime does not write `{name}` where it stands: change the runtime"
                raise InferenceError(message)
        return True


class PagedAttentionCuda(Paged):
    """A `KvBackend` on a CUDA device: graphs are captured for steps, prefill runs as it comes."""

    def __init__(
        self,
        model: Path,
        architecture: Architecture,
        *,
        pages: int,
        block: int,
        provider: Provider,
        longest: int,
        bundle: str = "",
        cold_pages: int = 0,
        uses: int = 2,
        capture: bool = True,
    ) -> None:
        """See `PagedGraph` and `PagedAttentionSession`."""
        session = PagedAttentionSession(
            model,
            architecture,
            pages=pages,
            block=block,
            provider=provider,
            longest=longest,
            capture=capture,
        )
        super().__init__(session, pages=pages, block=block, bundle=bundle, cold_pages=cold_pages, uses=uses)


def _options(bucket: int | None) -> onnxruntime.RunOptions:
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("gpu_graph_id", graph_id(bucket))
    return options
