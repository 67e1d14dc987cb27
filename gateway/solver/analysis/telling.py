"""A report as lines for people who look at a running gateway."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.solver.analysis.findings import Finding, Report
from gateway.solver.in_force.module_analysis import ModuleAnalysis

_WORDS = {"unknown": "not known"}
_COUNTED = {
    "refused": ("refused", "refused"),
    "unknown": ("not known", "not known"),
    "warning": ("warning", "warnings"),
    "note": ("note", "notes"),
}
_NEWS = ("refused", "unknown", "warning")  # and what a revision changes
_MOST_NEWS = 8
_MOST_NAMED = 6
_MOST_CHARACTERS = 300


def told(report: Report) -> ModuleAnalysis:
    """The same report."""
    few = len(report.against) <= _MOST_NAMED
    others = ", ".join(report.against) if few else f"{len(report.against)} modules"
    among = f"among {others}" if report.against else "alone"
    worth = [f for f in report.findings if f.level in _NEWS or f.question == "difference"]
    news = [_shortened(_said(f)) for f in worth[:_MOST_NEWS]]
    if len(worth) > _MOST_NEWS:
        news.append(f"and {len(worth) - _MOST_NEWS} more, in the report beside the file")
    return ModuleAnalysis(f"{counted(report)}, {among}", tuple(news), tuple(_lines(report)))


def counted(report: Report) -> str:
    """How many findings of each level but the fine ones there are."""
    counts = {level: sum(1 for f in report.findings if f.level == level) for level in _COUNTED}
    parts = [f"{n} {words[n > 1]}" for level, words in _COUNTED.items() if (n := counts[level])]
    return f"{', '.join(parts) or 'nothing to mend'}; asked for {report.took_s:.1f} s"


def _said(finding: Finding) -> str:
    place = f"{finding.where}: " if finding.where else ""
    return f"{_WORDS.get(finding.level, finding.level)}: {finding.question}: {place}{finding.said}"


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} ..."


def _lines(report: Report) -> Iterator[str]:
    for finding in report.findings:
        yield _said(finding)
        yield from (f"    {line}" for line in (*finding.story, *finding.lines))
        if finding.todo:
            yield f"    what to do: {finding.todo}"
    for row in report.errors:
        worst = f", at the oldest {row.worst}" if row.drift else ""
        yield (
            f"error of {row.name} ({row.tag}): {row.reading} {row.unit} (sensor {row.error}, half a count "
            f"{row.half_count}, deadband {row.deadband}){worst}; then {row.after}"
        )
    for unit in report.units:
        yield f"{unit.where}: {unit.number} in `{unit.subject}` is {unit.unit}"
    if report.times:
        total = sum(seconds for _, seconds in report.times)
        parts = " + ".join(f"{name} {seconds:g}" for name, seconds in report.times)
        yield f"a proposal acts from {total:g} s after acquisition at the latest: {parts}"
