"""`o3ctl decisions --follow`: the newest decisions, then each new one as the gateway reports it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from gateway.cli.live.asking import connected, newest, typed
from gateway.link.messages import DecisionView

_REMEMBERED = 4096


async def follow(socket: Path, limit: int, point: str | None, show: Callable[[DecisionView], None]) -> None:
    """Show decisions, oldest first, until cancelled or the link breaks (`LinkError`).

    An armed decision is shown once its write has an outcome, at the latest when the next one of its point
    comes; never twice the same.
    """
    news = News(point)
    async with connected(socket) as client:
        for view in reversed(typed(await newest(client, limit, point), list[DecisionView])):
            for ripe in news.ripe(view):
                show(ripe)
        async for batch in client.feed():
            for item in batch.items:
                for view in news.ripe(item) if isinstance(item, DecisionView) else ():
                    show(view)


class News:
    """Knows what was shown. The Feed's snapshot repeats old decisions; they are not news."""

    def __init__(self, point: str | None) -> None:
        self._point = point
        self._shown: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._newest_ns = 0
        self._writing: dict[str, DecisionView] = {}  # by point, until the write has an outcome

    def ripe(self, view: DecisionView) -> list[DecisionView]:
        """What may be shown now that `view` has come, oldest first."""
        if not self.is_new(view):
            return []
        before = self._writing.pop(view.point, None)
        late = [before] if before is not None and before.id != view.id else []
        if view.mode == "armed" and view.setpoints and not view.write_outcome and view.id:
            self._writing[view.point] = view
            return late
        return [*late, view]

    def is_new(self, view: DecisionView) -> bool:
        """True once per state of each decision that is not older than what was shown last."""
        if self._point is not None and view.point != self._point:
            return False
        key = view.id or f"{view.at_ns}"
        state = (view.outcome, view.write_outcome)
        if self._shown.get(key) == state or (key not in self._shown and view.at_ns < self._newest_ns):
            return False
        self._shown[key] = state
        self._newest_ns = max(self._newest_ns, view.at_ns)
        if len(self._shown) > _REMEMBERED:
            self._shown.popitem(last=False)
        return True
