from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.modbus.plan import Block, Item, Learned, PlanLimits, Table, bisect, plan

TABLES: tuple[Table, ...] = ("input", "holding", "coil")
PLACES = st.lists(
    st.tuples(st.sampled_from(TABLES), st.integers(0, 300), st.integers(1, 4)), min_size=1, max_size=25
)
LIMITS = st.builds(
    PlanLimits, max_gap=st.integers(0, 20), max_registers=st.integers(4, 125), max_bits=st.integers(4, 2000)
)


def items_of(places: list[tuple[Table, int, int]]) -> list[Item]:
    return [Item(f"t{n}", table, address, count) for n, (table, address, count) in enumerate(places)]


def keys(blocks: tuple[Block, ...]) -> list[str]:
    return sorted(item.key for block in blocks for item in block.items)


@given(PLACES, LIMITS, st.booleans())
def test_every_value_is_whole_in_exactly_one_request_within_the_limits(
    places: list[tuple[Table, int, int]],
    limits: PlanLimits,
    anchored: bool,  # noqa: FBT001 - drawn by hypothesis
) -> None:
    items = items_of(places)

    blocks = plan(items, limits, anchor="t0" if anchored else None)

    assert keys(blocks) == sorted(item.key for item in items)
    for block in blocks:
        assert 0 < block.count <= limits.of(block.table)
        for item in block.items:
            assert item.table == block.table
            assert block.address <= item.address
            assert item.end <= block.end


@given(PLACES, st.integers(0, 20))
def test_no_request_reads_over_a_gap_wider_than_allowed(
    places: list[tuple[Table, int, int]], max_gap: int
) -> None:
    for block in plan(items_of(places), PlanLimits(max_gap=max_gap)):
        reached = block.address
        for item in sorted(block.items, key=lambda i: i.address):
            assert item.address - reached <= max_gap
            reached = max(reached, item.end)


@given(PLACES, LIMITS, st.sets(st.tuples(st.sampled_from(TABLES), st.integers(0, 304)), max_size=40))
def test_bisecting_finds_exactly_the_values_the_device_does_not_have(
    places: list[tuple[Table, int, int]], limits: PlanLimits, missing: set[tuple[Table, int]]
) -> None:
    items = items_of(places)

    def readable(table: Table, address: int, end: int) -> bool:
        return not any((table, a) in missing for a in range(address, end))

    learned, asked = Learned(), 0
    while True:
        blocks = plan(items, limits, learned, anchor="t0")
        refused = [b for b in blocks if not readable(b.table, b.address, b.end)]
        if not refused:
            break
        taught = bisect(refused[0], learned)
        assert taught != learned
        learned, asked = taught, asked + 1
        assert asked <= (len(items) + 1) ** 2

    absent = {i.key for i in items if not readable(i.table, i.address, i.end)}
    assert {item.key for item in learned.holes} == absent
    assert keys(blocks) == sorted(i.key for i in items if i.key not in absent)
