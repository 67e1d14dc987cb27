"""Where a model was asked to run, and where its worker runs."""

from __future__ import annotations

from dataclasses import dataclass

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


@dataclass(frozen=True, slots=True)
class Place:
    """Of one worker, from its report."""

    asked: str  # auto, cpu, cuda:N
    expected: str  # where that leads, by the devices that the worker found
    actual: str

    def fell_back(self, *, ran_on_cuda: bool) -> str:
        """Why it does not run where it should, in words; empty where it does.

        `ran_on_cuda`: a worker before it did, so that a device that went away is missed under `auto`, too.
        """
        if self.actual == CUDA or self.asked == "cpu":
            return ""
        if self.asked.startswith("cuda"):
            return f"`{self.asked}` was asked for and the model runs on {self.actual}"
        if self.expected == CUDA:
            return f"a CUDA device is there, and the model runs on {self.actual}"
        return f"it ran on {CUDA}, and runs on {self.actual} now" if ran_on_cuda else ""
