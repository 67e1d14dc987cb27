"""Puts a bundle's figures into its card: this writes the part of `README.md` below its last heading."""

from __future__ import annotations

from pathlib import Path

from gateway.inference.bundle.manifest import Manifest

CARD_FILE = "README.md"
HEADING = "## Figures"


def write_card(directory: Path, manifest: Manifest) -> None:
    """Keep the words, renew the figures; a bundle without words gets its description."""
    path = directory / CARD_FILE
    words = path.read_text() if path.exists() else f"# {manifest.id}\n\n{manifest.description}\n\n{HEADING}\n"
    head = words.split(HEADING)[0]
    path.write_text(f"{head}{HEADING}\n\n{_figures(manifest)}")


def _figures(manifest: Manifest) -> str:
    lines = []
    if manifest.training is not None:
        lines += [
            f"{manifest.training.seconds:g} s of training on one thread, seed {manifest.training.seeds}."
        ]
    calibration = manifest.confidence.calibration if manifest.confidence is not None else None
    if calibration is not None:
        answers = sum(count for _, _, count in calibration.reliability)
        lines += [
            (
                f"Confidence: temperature {calibration.temperature:g}, offset {calibration.offset:g}; "
                f"expected calibration error over {answers} held-out answers "
                f"{calibration.error_before:g} before, {calibration.error_after:g} after (`reliability.svg`)."
            ),
        ]
    lines += ["", "| figure | value | bar |", "|---|---|---|"]
    known = manifest.familiarity.figures if manifest.familiarity is not None else {}
    detector = {f"detector_{name}": value for name, value in known.items()}
    for name, value in (manifest.accuracy | detector | manifest.closed_loop).items():
        bar = f"{manifest.gates[name]:g}" if name in manifest.gates else ""
        lines.append(f"| {name} | {value:g} | {bar} |")
    return "\n".join(lines) + "\n"
