"""Which requests read a poll group: few, and never one that cuts a value in two. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

Table = Literal["input", "holding", "coil", "discrete"]

MAX_REGISTERS = 125  # Modbus Application Protocol 1.1b3, 6.3 and 6.4
MAX_BITS = 2000  # Modbus Application Protocol 1.1b3, 6.1 and 6.2


@dataclass(frozen=True, slots=True)
class Item:
    """One value's place: `count` registers (or bits) from `address`, which counts from 0."""

    key: str
    table: Table
    address: int
    count: int = 1

    @property
    def end(self) -> int:
        """First address behind the value."""
        return self.address + self.count


@dataclass(frozen=True, slots=True)
class Block:
    """One read request and the values it answers."""

    table: Table
    address: int
    count: int
    items: tuple[Item, ...]

    @property
    def end(self) -> int:
        """First address behind the request."""
        return self.address + self.count


@dataclass(frozen=True, slots=True)
class Learned:
    """What exceptions taught: `seams` no request may reach over, `holes` the device does not have."""

    seams: frozenset[tuple[Table, int]] = field(default_factory=frozenset)
    holes: frozenset[Item] = field(default_factory=frozenset)

    def forbids(self, low: Block, high: Block) -> bool:
        """True where one request for both would reach over a seam or into a hole."""
        end = max(low.end, high.end)
        starts = {item.address for item in (*low.items, *high.items)}
        return any(
            table == low.table and low.address < seam and seam in starts for table, seam in self.seams
        ) or any(h.table == low.table and h.address < end and low.address < h.end for h in self.holes)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits:
    """What one request may take. `max_gap` is how many unwanted registers are read to save a request."""

    max_gap: int = 8
    max_registers: int = MAX_REGISTERS
    max_bits: int = MAX_BITS

    def of(self, table: Table) -> int:
        """Most registers or bits in one request."""
        return self.max_registers if table in {"input", "holding"} else self.max_bits


def plan(
    items: Iterable[Item], limits: PlanLimits, learned: Learned | None = None, anchor: str | None = None
) -> tuple[Block, ...]:
    """The requests that read every item that is no hole, each item whole in exactly one of them.

    `anchor` names an item that as many others as fit are read together with, whatever the gap (S14).
    Raises ValueError for an item larger than a request.
    """
    learned = learned or Learned()
    wanted = sorted(
        (i for i in items if i not in learned.holes), key=lambda i: (i.table, i.address, -i.count, i.key)
    )
    blocks: list[Block] = []
    for item in wanted:
        if item.count > limits.of(item.table):
            raise ValueError(f"`{item.key}` takes {item.count} registers, a request {limits.of(item.table)}")
        last = blocks[-1] if blocks else None
        if last is not None and last.table == item.table and item.address - last.end <= limits.max_gap:
            joined = _joined(last, _alone(item), limits, learned)
            if joined is not None:
                blocks[-1] = joined
                continue
        blocks.append(_alone(item))
    return tuple(blocks if anchor is None else _around(anchor, blocks, limits, learned))


def bisect(block: Block, learned: Learned) -> Learned:
    """What an illegal address in `block` teaches: a new seam, or its one remaining value is a hole.

    The seam lies at the widest gap, where holes hide, else in the middle. A hole may be the reason for every
    seam on the way to it, so those are forgotten and found again where they are needed. Asking again ends:
    between two holes there are only new seams, and holes are few.
    """
    starts = sorted({item.address for item in block.items})
    if len(starts) > 1:
        middle = block.address + block.count / 2

        def gap_before(start: int) -> int:
            return start - max(i.end for i in block.items if i.address < start)

        at = min(starts[1:], key=lambda start: (-max(0, gap_before(start)), abs(start - middle)))
        return replace(learned, seams=learned.seams | {(block.table, at)})
    longest = max(item.count for item in block.items)
    return Learned(holes=learned.holes | {item for item in block.items if item.count == longest})


def _alone(item: Item) -> Block:
    return Block(item.table, item.address, item.count, (item,))


def _joined(low: Block, high: Block, limits: PlanLimits, learned: Learned) -> Block | None:
    """Both in one request, or None where a limit or a seam forbids it. `high` begins no earlier."""
    end = max(low.end, high.end)
    if end - low.address > limits.of(low.table):
        return None
    if learned.forbids(low, high):
        return None
    return Block(low.table, low.address, end - low.address, low.items + high.items)


def _around(anchor: str, blocks: list[Block], limits: PlanLimits, learned: Learned) -> list[Block]:
    """The same values with the anchor's neighbours drawn into its request."""
    at = next((i for i, block in enumerate(blocks) if any(item.key == anchor for item in block.items)), None)
    if at is None:
        return blocks
    grown = True
    while grown:
        grown = False
        for low in (at, at - 1):
            if not 0 <= low < len(blocks) - 1 or blocks[low].table != blocks[low + 1].table:
                continue
            joined = _joined(blocks[low], blocks[low + 1], limits, learned)
            if joined is not None:
                blocks[low : low + 2] = [joined]
                at, grown = low, True
                break
    return blocks
