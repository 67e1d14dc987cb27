"""Guidance on its way to a request, and what it leaves of each output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from gateway.core.guidance import NOTHING, Guidance
from gateway.core.spans import Spans, meet
from gateway.inference.decoding.decode import OutputRange

TOO_LATE = "guidance came too late"
_OTHER = "guidance is about another number of outputs"
_TOO_FAR = "no block within the most change of a decision can be permitted"

_decoder = msgspec.json.Decoder(Guidance)


@dataclass(slots=True)
class Awaited:
    """What a request's decoding waits for, until a monotonic second; then it goes on without."""

    until: float
    guidance: Guidance | None = None
    because: str = ""  # why there is none, or why it is not exact

    @property
    def open(self) -> bool:
        """True while it may come."""
        return self.guidance is None and not self.because

    def take(self, packed: bytes, because: str) -> None:
        """What the checker sent; what is told twice or too late does not count."""
        if not self.open:
            return
        if because:
            self.because = because
            return
        try:
            self.guidance = _decoder.decode(packed)
        except msgspec.DecodeError as exc:
            self.because = f"guidance cannot be read: {exc}"
        else:
            self.because = next((level.why for level in self.guidance.levels if level.why), "")

    def give_up(self) -> None:
        """Its time is over."""
        if self.open:
            self.because = TOO_LATE

    def counts(
        self, fixed: Sequence[int], limits: OutputRange, outputs: int, reach: Spans | None
    ) -> Spans | None:
        """What the next output may be, of what is in `reach`; that alone where nothing guides any more.

        Then `because` says why. None stands for all of the output's range.
        """
        if self.guidance is None:
            return reach
        if len(self.guidance.order) != outputs:
            self.guidance, self.because = None, _OTHER
            return reach
        counts = self.left(fixed, limits, reach)
        if counts == ():
            guided = limits.within(self.guidance.after(fixed))
            self.guidance, self.because = None, _TOO_FAR if guided else NOTHING
            return reach
        return counts

    def left(self, fixed: Sequence[int], limits: OutputRange, reach: Spans | None) -> Spans | None:
        """The same for a block of which nothing else depends: empty where it leads nowhere."""
        if self.guidance is None:
            return reach
        guided = limits.within(self.guidance.after(fixed))
        return guided if reach is None else meet(guided, reach)
