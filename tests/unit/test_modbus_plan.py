from __future__ import annotations

import pytest

from gateway.protocols.modbus.plan import Item, Learned, PlanLimits, bisect, plan

LIMITS = PlanLimits(max_gap=4)


def test_neighbours_share_a_request_and_a_far_register_has_its_own() -> None:
    items = [Item("a", "input", 0), Item("b", "input", 2), Item("c", "input", 40), Item("d", "holding", 1)]

    blocks = plan(items, LIMITS)

    assert [(b.table, b.address, b.count) for b in blocks] == [
        ("holding", 1, 1),
        ("input", 0, 3),
        ("input", 40, 1),
    ]


def test_a_value_of_four_registers_is_never_cut_at_the_limit() -> None:
    blocks = plan([Item("a", "input", 0, 122), Item("b", "input", 122, 4)], LIMITS)

    assert [(b.address, b.count) for b in blocks] == [(0, 122), (122, 4)]


# S14: what the liveness counter vouches for is read in the counter's own request.
def test_the_liveness_counters_request_reaches_over_any_gap_that_fits() -> None:
    items = [Item("live", "input", 0), Item("level", "input", 60), Item("far", "input", 200)]

    blocks = plan(items, LIMITS, anchor="live")

    assert [[i.key for i in b.items] for b in blocks] == [["live", "level"], ["far"]]


def test_two_bits_of_one_register_are_one_register_on_the_wire() -> None:
    (block,) = plan([Item("b0", "input", 7), Item("b1", "input", 7)], LIMITS)

    assert (block.address, block.count) == (7, 1)


def test_an_illegal_address_is_first_looked_for_in_the_widest_gap() -> None:
    (block,) = plan([Item("a", "input", 0), Item("b", "input", 1), Item("c", "input", 5)], LIMITS)

    learned = bisect(block, Learned())

    assert learned.seams == {("input", 5)}
    assert not learned.holes


def test_a_value_larger_than_a_request_is_refused() -> None:
    with pytest.raises(ValueError, match="takes 126 registers"):
        plan([Item("a", "input", 0, 126)], LIMITS)


# Else one wrong line in a spreadsheet would part the liveness counter from its inputs (S14).
def test_a_hole_once_found_no_longer_cuts_what_lies_before_it() -> None:
    items = [Item("live", "input", 0), Item("level", "input", 4), Item("missing", "input", 6)]
    learned = Learned()

    while any(block.end > 6 for block in plan(items, LIMITS, learned, anchor="live")):
        refused = next(b for b in plan(items, LIMITS, learned, anchor="live") if b.end > 6)
        learned = bisect(refused, learned)

    (block,) = plan(items, LIMITS, learned, anchor="live")
    assert (block.address, block.count) == (0, 5)
    assert [hole.key for hole in learned.holes] == ["missing"]
