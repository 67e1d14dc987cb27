"""The Prometheus text format (version 0.0.4) of what the Feed says. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from gateway.core.quality import severity
from gateway.link.messages import ConstraintCoverage
from gateway.web.mirror import Mirror

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_RESIDUALS = {
    "residual": "Reading minus middle of the band predicted so many steps before, in the tag's unit",
    "outside": "By how far the reading misses that band, in the tag's unit",
    "used_share": "Where the reading stands in that band: 1 at its end, more outside",
    "missed": "Of the newest five measurements, those outside",
}
_DRIFT = "Share of the model's probability on what could not be answered, averaged over some fifty decisions"
_COVERAGE: Mapping[str, tuple[Callable[[ConstraintCoverage], float | None], str]] = {
    "judged": (lambda c: c.judged, "Decisions it was judged in, over restarts"),
    "fired": (lambda c: c.fired, "Proposals that violated it, over restarts"),
    "unknown": (lambda c: c.unknown, "Decisions in which nobody could tell"),
    "last_fired_time_seconds": (lambda c: c.fired_ns / 1e9, "When it last fired, UTC; 0: never"),
    "last_binding_time_seconds": (lambda c: c.bound_ns / 1e9, "When it last left no margin, UTC; 0: never"),
    "least_margin": (lambda c: c.least_margin, "Least margin so far; no unit where nobody can tell"),
}
_READY = "1 while that bundle serves the model and can be asked"
_FELL_BACK = "1 while the model does not run on the provider that was asked for"
_MEMORY = (
    "What a model's worker counts of its sessions and of its memory for keys and values, since it started"
)
_COST = "What work of a model takes here, as measured when it got ready"
_NOT_A_NAME = re.compile(r"[^a-zA-Z0-9_]")


def exposition(mirror: Mirror) -> str:
    """All metrics. While the link is lost only this process's own: old counters are not told as new ones."""
    lines: list[str] = []
    lines += _one("o3_web_link_up", "gauge", "1 while the internal port is linked", int(not mirror.problem))
    lines += _one("o3_web_link_losses_total", "counter", "Times the internal port was lost", mirror.losses)
    lines += _one("o3_web_feed_batches_total", "counter", "Feed batches taken", mirror.batches)
    gateway = mirror.gateway
    if mirror.problem or gateway is None:
        return "\n".join(lines) + "\n"
    lines += _one("o3_healthy", "gauge", "1 while every part is well", int(gateway.healthy))
    lines += _one("o3_writes_stopped", "gauge", "1 while the kill switch is set", int(gateway.writes_stopped))
    lines += _one(
        "o3_rule_set_generation", "gauge", "Generation of the rule set in force", gateway.generation
    )
    lines += _one("o3_start_time_seconds", "gauge", "Start of the gateway, UTC", gateway.started_ns / 1e9)
    parts = {part: int(text == "ok") for part, text in gateway.parts.items()}
    lines += _family("o3_part_ok", "gauge", "1 while the part is well", "part", parts)
    qualities = Counter(severity(t.status).name.lower() for t in mirror.tags.values())
    lines += _family("o3_tags", "gauge", "Tags by quality", "quality", qualities)
    modes = {f"{p.id}": int(p.in_control) for p in mirror.points.values()}
    lines += _family("o3_point_in_control", "gauge", "1 while the point controls the plant", "point", modes)
    for name, what in _RESIDUALS.items():
        found: dict[tuple[str, ...], float] = {
            (p.id, r.tag, str(r.window)): getattr(r, name)
            for p in mirror.points.values()
            for r in p.residuals
        }
        lines += _labelled(f"o3_assumption_{name}", what, ("point", "tag", "window"), found)
    drift: dict[tuple[str, ...], float] = {
        (p.id, tag): mass for p in mirror.points.values() for tag, mass in p.drift.items()
    }
    lines += _labelled("o3_decoding_masked_out", _DRIFT, ("point", "output"), drift)
    for name, (counted, what) in _COVERAGE.items():
        measured = name == "least_margin"
        covered = {
            (*c.id.split("/", maxsplit=1), *([c.margin_unit] if measured else [])): value
            for c in mirror.coverage.values()
            if (value := counted(c)) is not None
        }
        labels = ("module", "constraint", *(["unit"] if measured else []))
        lines += _labelled(f"o3_constraint_{name}", what, labels, covered)
    serving: dict[tuple[str, ...], float] = {
        (m.id, m.bundle, m.digest): float(m.state == "ready") for m in mirror.models.values()
    }
    lines += _labelled("o3_model_ready", _READY, ("model", "bundle", "digest"), serving)
    fell_back: dict[tuple[str, ...], float] = {
        (m.id, m.asked_provider, m.provider): float(bool(m.fell_back)) for m in mirror.models.values()
    }
    lines += _labelled("o3_model_fell_back", _FELL_BACK, ("model", "asked", "provider"), fell_back)
    costs: dict[tuple[str, ...], float] = {
        (m.id, work): ms for m in mirror.models.values() for work, ms in m.costs_ms.items()
    }
    lines += _labelled("o3_model_cost_milliseconds", _COST, ("model", "work"), costs)
    memory: dict[tuple[str, ...], float] = {
        (m.id, figure): value for m in mirror.models.values() for figure, value in m.memory.items()
    }
    lines += _labelled("o3_model_memory", _MEMORY, ("model", "figure"), memory)
    states = Counter(m.state for m in mirror.modules.values())
    lines += _family("o3_modules", "gauge", "Constraint modules by state", "state", states)
    counters = {_NOT_A_NAME.sub("_", name): count for name, count in gateway.counters.items()}
    for name, count in sorted(counters.items()):
        lines += _one(f"o3_{name.removesuffix('_total')}_total", "counter", "Counted by the gateway", count)
    return "\n".join(lines) + "\n"


def _one(name: str, kind: str, what: str, value: float) -> list[str]:
    return [f"# HELP {name} {what}", f"# TYPE {name} {kind}", f"{name} {value}"]


def _family(name: str, kind: str, what: str, label: str, values: Mapping[str, int]) -> Iterable[str]:
    lines = [f"# HELP {name} {what}", f"# TYPE {name} {kind}"]
    return lines + [f'{name}{{{label}="{_escaped(k)}"}} {v}' for k, v in sorted(values.items())]


def _labelled(
    name: str, what: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]
) -> list[str]:
    lines = [f"# HELP {name} {what}", f"# TYPE {name} gauge"]
    for key, value in sorted(values.items()):
        said = ",".join(f'{label}="{_escaped(text)}"' for label, text in zip(labels, key, strict=True))
        lines.append(f"{name}{{{said}}} {value}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
