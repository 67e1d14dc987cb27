"""What an analysis found, as lines for people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModuleAnalysis:
    """A summary, what somebody should look at, and everything."""

    summary: str
    news: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    @staticmethod
    def failed(why: str) -> ModuleAnalysis:
        """Of one that ended without a report."""
        return ModuleAnalysis(f"not analysed: {why}")

    @staticmethod
    def unasked(file: str) -> ModuleAnalysis:
        """Of a module among too many that nothing is known of."""
        return ModuleAnalysis(f"not asked at the start; o3ctl analyze {file} --against DIR asks")

    @property
    def told(self) -> tuple[str, ...]:
        """The summary and what somebody should look at."""
        return self.summary, *self.news
