"""What the assumption monitor says, below each decision point: `Assumptions/<tag>/Window<steps>` (S16)."""

from __future__ import annotations

from asyncua import ua

from gateway.link.messages import PointState, ResidualState
from gateway.protocols.opcua.points import Field, Objects
from gateway.protocols.opcua.space import Space, node_id

_FIELDS = (
    Field("Residual", ua.VariantType.Double),
    Field("Outside", ua.VariantType.Double),
    Field("UsedShare", ua.VariantType.Double),
    Field("Missed", ua.VariantType.Int64),
)


class ResidualNodes:
    """One object a tag and window; without a residual its variables are `BadNoData`, never an old value."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._tags: dict[str, dict[str, Objects]] = {}  # by point, by tag
        self._shown: dict[str, dict[tuple[str, int], ResidualState]] = {}

    async def put(self, state: PointState, point: str, at_ns: int) -> None:
        """What a point's state says; `point` is the key of its object."""
        now = {(r.tag, r.window): r for r in state.residuals}
        shown = self._shown.get(state.id, {})
        for (tag, window), found in now.items():
            objects = self._of(state.id, point, tag)
            objects.add(_name(window))
            if shown.get((tag, window)) != found:
                values = {
                    "Residual": found.residual,
                    "Outside": found.outside,
                    "UsedShare": found.used_share,
                    "Missed": found.missed,
                }
                await objects.put(_name(window), values, at_ns)
        for tag, window in shown.keys() - now.keys():
            nothing = dict.fromkeys(field.name for field in _FIELDS)
            await self._of(state.id, point, tag).put(_name(window), nothing, at_ns)
        self._shown[state.id] = now

    async def lost(self, code: int, at_ns: int) -> None:
        """No value is good any more."""
        self._shown.clear()
        for tags in self._tags.values():
            for objects in tags.values():
                for name in objects.names:
                    await objects.put_status(name, code, at_ns)

    def forget(self, point: str) -> None:
        """A point and all below it is gone."""
        self._tags.pop(point, None)
        self._shown.pop(point, None)

    def _of(self, point_id: str, point: str, tag: str) -> Objects:
        tags = self._tags.setdefault(point_id, {})
        if tag not in tags:
            root = self._space.object(f"{point}/Assumptions", node_id(point), "Assumptions")
            key = f"{point}/Assumptions/{tag}"
            tags[tag] = Objects(self._space, key, self._space.object(key, root, tag), _FIELDS)
        return tags[tag]


def _name(window: int) -> str:
    return f"Window{window}"
