"""The page about ten plants says what the check says now."""

from __future__ import annotations

from tests.unit.industries_page import PAGE, PLANTS, page
from tests.unit.solver_modules import NAMES


def test_the_page_shows_every_shipped_plant_as_the_check_judges_it_now() -> None:
    assert {plant.module for plant in PLANTS} == set(NAMES) - {
        "tclab-twin"
    }  # the twin has a page of its own kind
    assert page() == PAGE.read_text(encoding="utf-8"), "run: python -m tests.unit.industries_page"
