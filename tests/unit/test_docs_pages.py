"""Pages for people: links lead somewhere, verbs exist, and no page promises more than a check shows (S29)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from gateway.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "constraints/README.md",
]
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
_VERB = re.compile(r"(?:^|[\s`(])(?:\.venv/bin/)?o3ctl ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?", re.MULTILINE)
_PROMISES = re.compile(
    r"(?<![Nn]ever )\b(?:proved|proven|guaranteed) (?:to be )?safe\b(?! set)", re.IGNORECASE
)


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def unknown_verbs(text: str) -> list[str]:
    """What a page calls a verb of `o3ctl` and is none."""
    known = get_command(app)
    verbs = getattr(known, "commands", {})
    found: list[str] = []
    for verb, second in _VERB.findall(text):
        below = getattr(verbs.get(verb), "commands", None)
        if verb not in verbs or (below is not None and second and second not in below):
            found.append(f"o3ctl {verb} {second}".rstrip())
    return found


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    links = [link for link in _LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]

    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_verb_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    built = text.split("## Not there yet")[0] if page.name == "limitations.md" else text

    assert unknown_verbs(built) == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_s29_no_page_calls_anything_proved_safe(page: Path) -> None:
    assert _PROMISES.findall(page.read_text(encoding="utf-8")) == []


# Rule numbers are the developers' own; a reader cannot look them up.
@pytest.mark.parametrize("page", PAGES, ids=named)
def test_no_page_speaks_in_rule_numbers(page: Path) -> None:
    assert re.findall(r"\bS[0-9]{1,2}\b", page.read_text(encoding="utf-8")) == []


def test_a_verb_that_is_none_is_found() -> None:
    assert unknown_verbs("type `o3ctl statsu` or o3ctl runtime aprove x") == [
        "o3ctl statsu",
        "o3ctl runtime aprove",
    ]


def test_the_readme_leads_to_every_page() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    assert [p.name for p in (ROOT / "docs").glob("*.md") if f"docs/{p.name}" not in readme] == []
