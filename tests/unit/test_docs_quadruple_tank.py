"""The quadruple tank's interlocks and tags fit the shipped model."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from gateway.cli.main import app
from gateway.config.model import TagRow
from gateway.config.tags import parse_csv, tag_definition
from gateway.inference.bundle.manifest import check_tags, load_bundle
from gateway.inference.client.values import limits_of
from gateway.inference.training.four_tank import FOUR_TANK
from tests.unit.inference_demo import BUNDLES

FOLDER = Path(__file__).parents[2] / "docs" / "examples"
MODULE, TAGS = FOLDER / "quadruple-tank.json", FOLDER / "quadruple-tank.csv"


def test_every_rule_judges_its_cases_as_they_say() -> None:
    told = CliRunner().invoke(app, ["schema", "validate", "--file", str(MODULE), "--tags", str(TAGS)])

    assert told.exit_code == 0
    assert "7 cases judged as they say" in told.output


def test_the_model_fits_the_tags_and_counts_as_they_do() -> None:
    rows = parse_csv(TAGS.read_text(encoding="utf-8")).plain()
    assert isinstance(rows, list)
    definitions = {d.id: d for d in (tag_definition(TagRow.model_validate(row)) for row in rows)}
    bundle = load_bundle(BUNDLES / "four-tank")

    check_tags(bundle, definitions)
    for spec, limits in zip(bundle.manifest.outputs, FOUR_TANK.ranges, strict=True):
        found = limits_of(definitions[next(tag for tag in definitions if tag == spec.tag)])
        assert (found.low, found.high) == (limits.low, limits.high)
