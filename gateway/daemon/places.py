"""Where models run, held against what was asked for: a person sees one alarm of each that fell back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from gateway.core.health import PartHealth
from gateway.inference.client.place import CUDA, Place

log = structlog.get_logger().bind(component="models")

_CONSEQUENCE = "its answers take the time that they take there, and more of them may come too late"


class RaiseAlarm(Protocol):
    """The reporter's."""

    def __call__(
        self, source: str, *, active: bool, acknowledged: bool, cause: str, consequence: str, action: str
    ) -> None:
        """One alarm, on or off."""
        ...


class Places:
    """Looks at each model's newest worker; a model whose worker is being replaced is as it was."""

    def __init__(self, places: Mapping[str, Callable[[], Place | None]], raise_alarm: RaiseAlarm) -> None:
        self._places, self._raise_alarm = places, raise_alarm
        self._ran_on_cuda: set[str] = set()
        self._told: dict[str, str] = {}

    def fell_back(self, model: str) -> str:
        """Why a model does not run where it should, as it was last told; empty where it does."""
        return self._told.get(model, "")

    def tell(self) -> None:
        """Raise or end each model's alarm where something changed; one warning in the log each time."""
        for model, read in self._places.items():
            place = read()
            if place is None:
                continue
            if place.actual == CUDA:
                self._ran_on_cuda.add(model)
            why = place.fell_back(ran_on_cuda=model in self._ran_on_cuda)
            if why != self.fell_back(model):
                self._change(model, why, place)

    def health(self) -> list[PartHealth]:
        """One part for each model that fell back."""
        return [PartHealth(f"provider of {model}", ok=False, text=why) for model, why in self._told.items()]

    def _change(self, model: str, why: str, place: Place) -> None:
        before = self._told.pop(model, "")
        if why:
            self._told[model] = why
            log.warning("model_fell_back", model=model, asked=place.asked, actual=place.actual, problem=why)
        else:
            log.info("model_runs_as_asked", model=model, asked=place.asked, actual=place.actual)
        self._raise_alarm(
            f"provider:{model}",
            active=bool(why),
            acknowledged=False,
            cause=why or f"over: {before}",
            consequence=_CONSEQUENCE,
            action=(
                f"mend the GPU, its driver or cuDNN, then `o3ctl model load` the bundle of `{model}` again; "
                "`[inference] require_cuda = true` refuses such a start"
            ),
        )
