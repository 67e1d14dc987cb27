"""A graph without a cache: rows of tag values in, arrays out; what it is must be what the bundle says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from gateway.core.errors import InferenceError
from gateway.inference.bundle.stateless import Scaling, StatelessBundle, StatelessManifest, Tensor
from gateway.inference.kv.ort_session import Provider, open_session

_TYPES: dict[str, type[np.number[Any] | np.bool_]] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
}
_RANKS = {"flat": 2, "steps_tags": 3, "tags_steps": 3}

Rows = NDArray[np.float64]  # [steps, tags], the oldest row first
Answers = list[NDArray[Any]]  # by output of the bundle, one entry for each request


@dataclass(frozen=True, slots=True)
class _Feed:
    """How an input of the graph is made of rows."""

    name: str
    columns: list[int]
    means: NDArray[np.float64]
    deviations: NDArray[np.float64]
    steps: int
    layout: str
    kind: type[np.number[Any] | np.bool_]

    def of(self, requests: Sequence[Rows]) -> NDArray[Any]:
        """The tensor for some requests."""
        part = np.stack([rows[-self.steps :, self.columns] for rows in requests])
        part = (part - self.means) / self.deviations
        if self.layout == "flat":
            part = part.reshape(len(requests), -1)
        elif self.layout == "tags_steps":
            part = part.transpose(0, 2, 1)
        whole = part if issubclass(self.kind, np.floating) else np.rint(part)
        return np.ascontiguousarray(whole.astype(self.kind))


class StatelessModel:
    """One session; used from one thread."""

    def __init__(self, bundle: StatelessBundle, provider: Provider) -> None:
        """Raises `InferenceError` where the graph is not what the bundle says."""
        manifest = bundle.manifest
        self._model = bundle.model_path
        self._session, self.truth = open_session(bundle.model_path, provider)
        self._names = [output.tensor for output in manifest.outputs]
        self._asked = list(dict.fromkeys(self._names))
        found = {each.name: each for each in self._session.get_inputs()}
        self._check_names(manifest.tensors, found)
        self._widest: int | None = None
        self._feeds = [self._feed(tensor, found[tensor.name], manifest) for tensor in manifest.tensors]

    @property
    def widest(self) -> int | None:
        """Requests that one run may hold, where the graph fixes it; None where any number may be asked."""
        return self._widest

    def run(self, requests: Sequence[Rows]) -> Answers:
        """Each output's tensor, its first axis the requests in their order. Raises `InferenceError`."""
        feeds = {feed.name: feed.of(requests) for feed in self._feeds}
        try:
            got = dict(zip(self._asked, self._session.run(self._asked, feeds), strict=True))
        except Exception as exc:  # noqa: BLE001  the runtime raises its own types, some private, for shapes that disagree
            self._refuse(f"cannot read what the bundle gives it ({exc})", exc)
        for name, array in got.items():
            if not isinstance(array, np.ndarray):
                self._refuse(f"answers with a list in `{name}` (for scikit-learn: export with zipmap=False)")
            if array.shape[:1] != (len(requests),):
                self._refuse(f"answers with shape {list(array.shape)} in `{name}` to {len(requests)} rows")
        return [got[name] for name in self._names]

    def _check_names(self, tensors: Sequence[Tensor], found: dict[str, onnxruntime.NodeArg]) -> None:
        outputs = {each.name for each in self._session.get_outputs()}
        given = {tensor.name for tensor in tensors}
        if missing := sorted(given - found.keys()) + sorted({*self._asked} - outputs):
            there = ", ".join(f"`{name}`" for name in (*found, *sorted(outputs)))
            self._refuse(f"has no tensor `{missing[0]}` (it has {there})")
        if unknown := sorted(found.keys() - given):
            self._refuse(f"asks for a tensor `{unknown[0]}` that the bundle does not give")

    def _feed(self, tensor: Tensor, found: onnxruntime.NodeArg, manifest: StatelessManifest) -> _Feed:
        if found.type not in _TYPES:
            self._refuse(f"wants {found.type} in `{tensor.name}`, which is not known here")
        count, steps = len(tensor.tags), tensor.steps
        wanted = {
            "flat": (steps * count,),
            "steps_tags": (steps, count),
            "tags_steps": (count, steps),
        }[tensor.layout]
        shape = found.shape
        fits = len(shape) == _RANKS[tensor.layout] and all(
            have == want or not isinstance(have, int) for have, want in zip(shape[1:], wanted, strict=True)
        )
        if not fits:
            self._refuse(
                f"wants shape {list(shape)} in `{tensor.name}`, the bundle gives "
                f"{['batch', *wanted]} ({steps} steps of {count} tags)"
            )
        if isinstance(shape[0], int):
            if shape[0] != 1:
                self._refuse(
                    f"wants {shape[0]} rows at once in `{tensor.name}`: export it for 1 or any number"
                )
            self._widest = 1
        specs = {spec.tag: spec for spec in (*manifest.inputs, *manifest.outputs)}
        scalings = [specs[tag].scaling or Scaling(mean="0", deviation="1") for tag in tensor.tags]
        return _Feed(
            name=tensor.name,
            columns=[manifest.tags.index(tag) for tag in tensor.tags],
            means=np.array([float(Fraction(scaling.mean)) for scaling in scalings]),
            deviations=np.array([float(Fraction(scaling.deviation)) for scaling in scalings]),
            steps=steps,
            layout=tensor.layout,
            kind=_TYPES[found.type],
        )

    def _refuse(self, problem: str, cause: Exception | None = None) -> NoReturn:
        message = f"model `{self._model}` {problem}: correct bundle.json or export the model again"
        raise InferenceError(message) from cause
