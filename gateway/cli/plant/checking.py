"""`o3ctl check FILE`: everything wrong at once, or what the configuration would run. Works offline."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gateway.cli.told.words import count
from gateway.config.binding import bound_tags, read_sheet, unsigned_problems
from gateway.config.lease import lease_sum
from gateway.config.load import load
from gateway.config.model import DecisionPoint, GatewayConfig
from gateway.core.errors import ConfigError, cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The sum of S11 for one decision point, in seconds."""

    point: str
    mode: str
    terms: list[tuple[str, float]]
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What is wrong, or a summary of what is right."""

    file: str
    problems: list[str]
    gateway: str = ""
    digest: str = ""
    channels: int = 0
    devices: int = 0
    tags: int = 0
    leases: list[Lease]
    notes: list[str] = field(default_factory=list)  # what does not stop the gateway, but arming

    def plain(self) -> dict[str, Any]:
        """For `--json`."""
        return {"ok": not self.problems, **asdict(self)}


def check(path: Path) -> CheckReport:
    """Read `path` as the daemon would; never raises for what is wrong with it."""
    try:
        config = load(path)
    except ConfigError as exc:
        return CheckReport(file=str(path), problems=list(exc.problems), leases=[])
    devices = [device for channel in config.channel for device in channel.device]
    return CheckReport(
        file=str(path),
        problems=[],
        gateway=config.gateway.id,
        digest=config.digest,
        channels=len(config.channel),
        devices=len(devices),
        tags=sum(len(device.tags) for device in devices),
        leases=[_lease(config, point) for point in config.decision_point],
        notes=[note for point in config.decision_point for note in _binding_notes(config, point)],
    )


def _lease(config: GatewayConfig, point: DecisionPoint) -> Lease:
    terms = lease_sum(config, point)
    return Lease(point=point.id, mode=point.mode, terms=terms, total=sum(seconds for _, seconds in terms))


def _binding_notes(config: GatewayConfig, point: DecisionPoint) -> list[str]:
    """What the binding sheet beside the configuration lacks, before anybody signs it (S26)."""
    file = point.binding_sheet
    if file is None:
        return []
    try:
        sheet = read_sheet(file.read_text(encoding="utf-8-sig"), file)
    except (OSError, UnicodeDecodeError) as exc:
        return [f"{file}: the binding sheet cannot be read: {cause(exc)}"]
    except ConfigError as exc:
        return list(exc.problems)
    return list(unsigned_problems(sheet, bound_tags(config, point.id), file))


def sentences(report: CheckReport) -> list[str]:
    """The report for people."""
    if report.problems:
        return [*report.problems, f"{count(len(report.problems), 'problem')}; nothing was changed"]
    parts = ", ".join(
        count(number, thing)
        for number, thing in (
            (report.channels, "channel"),
            (report.devices, "device"),
            (report.tags, "tag"),
            (len(report.leases), "decision point"),
        )
    )
    said = [
        f"{report.file}: gateway `{report.gateway}` can run with this",
        f"{parts}, digest {report.digest[:16]}",
    ]
    for lease in report.leases:
        terms = " + ".join(f"{name} {seconds:g}" for name, seconds in lease.terms)
        said.append(
            f"decision point `{lease.point}` ({lease.mode}): {terms} = {lease.total:g} s; armed needs a safe "
            "set, or a horizon at least this long"
        )
    said += [f"not to be armed before this is mended: {note}" for note in report.notes]
    return said
