"""The only place that talks to ONNX Runtime: session, KV tensors, and the truth about the provider."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Mapping
from collections.abc import Sequence as Values
from pathlib import Path
from typing import Literal, cast

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from gateway.core.errors import InferenceError
from gateway.inference.bundle.manifest import Architecture
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.kv.backend import ProviderTruth
from gateway.inference.kv.block_pool import Appended, Sequence
from gateway.inference.kv.prepared import Prepared
from gateway.inference.kv.rows import Row

Provider = str  # auto, cpu, cuda (the first device) or cuda:N
_POOL_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int8)": np.int8}
_FATAL = 4  # what fails is raised; a shape that an export declares otherwise is warned of with every answer
_NO_OPERATOR = ("NOT_IMPLEMENTED", "is not a registered function/op")  # the runtime's words
_OTHER_OPERATORS = (
    "this runtime has not that operator here: install the one from the lock file, make the bundle by a "
    "recipe without it (`int8w` has none of its own), or, if it is your own, export it again without it"
)
_AGAIN = "export it again, or copy the whole bundle"
_NAMES = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


class PagedSession:
    """A decoder whose KV pool lives in tensors bound both as input and output."""

    def __init__(
        self, model: Path, architecture: Architecture, *, pages: int, block: int, provider: Provider
    ) -> None:
        self._architecture, self._block = architecture, block
        self._session, self.truth = open_session(model, provider)
        self.digest = hashlib.sha256(model.read_bytes()).hexdigest()
        self._device, self._number = device_of(self.truth), number_of(provider)
        half = architecture.head_dim // 2
        self._frequencies = architecture.rotary_base ** (-np.arange(half, dtype=np.float64) / half)
        self._binding = self._session.io_binding()
        self._slots = pages * block
        self._pools = self._bind_pools()
        self._prepared: Prepared | None = None
        self.aliased = self._aliasing_holds()
        if not self.aliased:
            self._bind_separate_outputs()
        elif self._device == "cpu":
            self._prepared = Prepared(self._session, self._pools, self._frequencies)

    def run(self, sequence: Sequence, tokens: Values[Token], appended: Appended) -> NDArray[np.float32]:
        """Logits `[T, vocabulary]` of `tokens`, for which the pool gave `appended` slots of `sequence`."""
        logits: NDArray[np.float32] = self.run_rows([Row(sequence, tokens, appended)])[0]
        return logits

    def run_rows(self, rows: Values[Row]) -> NDArray[np.float32]:
        """Logits `[B, T, vocabulary]` of B sequences' T tokens each."""
        if fresh := [page for row in rows for page in row.appended.fresh]:
            self._clear(fresh)
        if copies := [copy for row in rows for copy in row.appended.copies]:
            self._copy_pages(copies)
        if self._prepared is not None and self._prepared.fits(len(rows), len(rows[0].tokens)):
            return cast("NDArray[np.float32]", self._prepared.run(rows))
        for name, value in self._feeds(rows).items():
            self._binding.bind_cpu_input(name, value)
        self._binding.bind_output("logits", "cpu")
        self._session.run_with_iobinding(self._binding)
        outputs = self._binding.get_outputs()
        if not self.aliased:
            self._adopt(outputs)
        logits: NDArray[np.float32] = outputs[-1].numpy()
        return logits

    def _feeds(self, rows: Values[Row]) -> dict[str, NDArray[np.generic]]:
        """What the graph reads besides its pools.

        Tables are filled up to the longest with a page of the row's own, at positions after every query's.
        """
        count = len(rows[0].tokens)
        ends = np.array([row.sequence.end for row in rows], dtype=np.int64)
        positions = ends[:, None] + np.arange(-count, 0, dtype=np.int64)
        # float64 until the cosine: exact enough for centuries of growing positions
        angles = positions[:, :, None] * self._frequencies
        turned = (len(rows), count, len(self._frequencies))
        table = np.zeros((len(rows), max(len(row.sequence.pages) for row in rows)), dtype=np.int64)
        for line, row in zip(table, rows, strict=True):
            line[: len(row.sequence.pages)] = row.sequence.pages
            line[len(row.sequence.pages) :] = row.sequence.pages[-1]
        slots = [slot for row in rows for slot in row.appended.slots]
        return {
            "tokens": np.array([[token.id for token in row.tokens] for row in rows], dtype=np.int64),
            "fractions": np.array(
                [[token.fraction for token in row.tokens] for row in rows], dtype=np.float32
            ),
            "cos": np.cos(angles, out=np.empty(turned, dtype=np.float32)),
            "sin": np.sin(angles, out=np.empty(turned, dtype=np.float32)),
            "query_positions": positions,
            "first_positions": np.array([row.sequence.first for row in rows], dtype=np.int64),
            "write_slots": np.array(slots, dtype=np.int64)[:, None],
            "block_table": table,
        }

    @property
    def page_bytes(self) -> int:
        """Bytes that one page takes in all pools, as they are allocated."""
        return self.pool_bytes * self._block // self._slots

    @property
    def pool_bytes(self) -> int:
        """Bytes of all pools, as they are allocated."""
        return sum(pool.tensor_size_in_bytes() for pool in self._pools.values())

    def read_pages(self, pages: Values[int]) -> NDArray[np.uint8]:
        """Content of pages in the types they are kept in, `[pages, page_bytes]`."""
        slots = self._slots_of(pages)
        parts = [pool.numpy()[slots].reshape(len(pages), -1) for pool in self._pools.values()]
        return np.concatenate([part.view(np.uint8) for part in parts], axis=1)

    def write_pages(self, pages: Values[int], content: NDArray[np.uint8]) -> None:
        """Set the content of pages to what `read_pages` gave."""
        slots, begin = self._slots_of(pages), 0
        for name in self._pools:
            values = self._writable(name)
            size = self._block * values.shape[1] * values.itemsize
            part = np.ascontiguousarray(content[:, begin : begin + size]).view(values.dtype)
            values[slots] = part.reshape(len(pages), self._block, -1)
            self._pools[name].update_inplace(values)
            begin += size

    def _slots_of(self, pages: Values[int]) -> NDArray[np.int64]:
        return np.array(pages, dtype=np.int64)[:, None] * self._block + np.arange(self._block)

    def _writable(self, name: str) -> NDArray[np.generic]:
        """A pool's values: its own memory on the CPU, a copy elsewhere."""
        values: NDArray[np.generic] = self._pools[name].numpy()
        return values if values.flags.writeable else values.copy()

    def _bind_pools(self) -> dict[str, onnxruntime.OrtValue]:
        """Every input that the graph gives back as `..._out` is a pool, of the type and width it declares."""
        given_back = {output.name for output in self._session.get_outputs()}
        pools = {}
        for declared in self._session.get_inputs():
            name = declared.name
            if f"{name}_out" in given_back:
                # filled, not `zeros`: memory that is only promised may lack when a decision needs it
                empty = np.full((self._slots, declared.shape[1]), 0, dtype=_POOL_TYPES[declared.type])
                pools[name] = onnxruntime.OrtValue.ortvalue_from_numpy(empty, self._device, self._number)
                self._binding.bind_ortvalue_input(name, pools[name])
                self._binding.bind_ortvalue_output(f"{name}_out", pools[name])
        return pools

    def _bind_separate_outputs(self) -> None:
        self._binding.clear_binding_outputs()
        for name, pool in self._pools.items():
            self._binding.bind_ortvalue_input(name, pool)
            self._binding.bind_output(f"{name}_out", self._device, self._number)

    def _adopt(self, outputs: Values[onnxruntime.OrtValue]) -> None:
        """Without aliasing the new pools are the outputs: bind them as the next inputs."""
        for name, pool in zip(self._pools, outputs, strict=False):
            self._pools[name] = pool
            self._binding.bind_ortvalue_input(name, pool)
        self._binding.clear_binding_outputs()
        for name in self._pools:
            self._binding.bind_output(f"{name}_out", self._device, self._number)

    def _aliasing_holds(self) -> bool:
        """True when a run writes into the bound memory, exactly at the slots asked for, and nowhere else.

        INVARIANT: nothing but zeros stands there yet; a copy to compare with would take as much again.
        """
        slot = self._slots - 1
        addresses = {name: pool.data_ptr() for name, pool in self._pools.items()}
        probe = Sequence([slot // self._block], 0, self._block)
        self.aliased = True
        self.run(probe, [Token(self._architecture.begin_token, 0.0)], Appended((slot,), ()))
        for name, pool in self._pools.items():
            after = pool.numpy()
            written = np.count_nonzero(after[slot])
            if not written or np.count_nonzero(after) != written or pool.data_ptr() != addresses[name]:
                return False
        return True

    def _clear(self, pages: Values[int]) -> None:
        """Leave nothing of what stood there. Queries that may not see a slot multiply it by 0 all the same.

        So a row without numbers would make none of the next owner's. On the processor only: elsewhere it is
        a copy of the whole pool.
        """
        if self._device == "cpu":
            for name in self._pools:
                values = self._writable(name).reshape(self._slots // self._block, -1)
                for page in pages:
                    values[page] = 0

    def _copy_pages(self, copies: Values[tuple[int, int]]) -> None:
        sources, targets = zip(*copies, strict=True)
        self.write_pages(targets, self.read_pages(sources))


def open_session(
    model: Path, provider: Provider, cuda: Mapping[str, str] | None = None
) -> tuple[onnxruntime.InferenceSession, ProviderTruth]:
    """A session and where it really runs; raises `InferenceError` for a bad model or an absent device.

    `cuda` are options of the CUDA provider, where it is used.
    """
    refuse_mixed_runtimes()
    names = providers_for(provider)
    session = _open(model, names, {"device_id": str(number_of(provider)), **(cuda or {})})
    return session, ProviderTruth(provider, session.get_providers()[0], onnxruntime.__version__, names[0])


def device_of(truth: ProviderTruth) -> Literal["cpu", "cuda"]:
    """Where tensors must lie."""
    return "cuda" if truth.actual == _NAMES["cuda"] else "cpu"


def number_of(provider: Provider) -> int:
    """Which CUDA device a provider names; the first where it names none."""
    return int(provider.partition(":")[2] or 0)


def refuse_mixed_runtimes() -> None:
    """Raise when both ONNX Runtime distributions are installed: they overwrite each other's files."""
    found = []
    for distribution in ("onnxruntime", "onnxruntime-gpu"):
        try:
            importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
        found.append(distribution)
    if len(found) > 1:
        message = (
            "`onnxruntime` and `onnxruntime-gpu` are both installed and overwrite each other: "
            "uninstall both, then install the one from the lock file"
        )
        raise InferenceError(message)


def providers_for(provider: Provider) -> list[str]:
    """What a session is to be made with, the first runs what it can; raises for an absent device."""
    cuda = sum(device.ep_name == _NAMES["cuda"] for device in onnxruntime.get_ep_devices())
    if provider.startswith("cuda") and number_of(provider) >= cuda:
        there = f"the devices present end with `cuda:{cuda - 1}`" if cuda else "no CUDA device is present"
        message = f"provider `{provider}` was asked for but {there}: use `auto` or `cpu`"
        raise InferenceError(message)
    return [_NAMES["cuda"], _NAMES["cpu"]] if cuda and provider != "cpu" else [_NAMES["cpu"]]


def _open(model: Path, names: list[str], cuda: Mapping[str, str]) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    providers = [(name, dict(cuda) if name == _NAMES["cuda"] else {}) for name in names]
    try:
        return onnxruntime.InferenceSession(str(model), options, providers=providers)
    except Exception as exc:  # the runtime raises its own types, some private, for a bad model
        todo = _OTHER_OPERATORS if any(part in str(exc) for part in _NO_OPERATOR) else _AGAIN
        message = f"model `{model}` cannot be loaded ({exc}): {todo}"
        raise InferenceError(message) from exc
