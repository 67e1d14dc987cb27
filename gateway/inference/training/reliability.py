"""The picture of a calibration: confidence against the share of answers that agreed with the expert."""

from __future__ import annotations

from gateway.inference.bundle.described import Calibration

RELIABILITY_FILE = "reliability.svg"
_SIDE, _EDGE = 300, 44


def picture(name: str, calibration: Calibration) -> str:
    """An SVG; a dot for each group of held-out answers, on the diagonal where confidence is what it says."""
    dots = "".join(
        f'<circle cx="{_x(sure)}" cy="{_y(hit)}" r="4" fill="#06c">'
        f"<title>{count} answers, confidence {sure:.3f}, agreed {hit:.3f}</title></circle>"
        for sure, hit, count in calibration.reliability
    )
    ticks = "".join(
        f'<text x="{_x(at / 4)}" y="{_y(0) + 16}" text-anchor="middle">{at / 4:g}</text>'
        f'<text x="{_x(0) - 6}" y="{_y(at / 4) + 4}" text-anchor="end">{at / 4:g}</text>'
        for at in range(5)
    )
    size = _SIDE + 2 * _EDGE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size}" height="{size}" font-family="sans-serif" '
        f'font-size="11"><rect width="{size}" height="{size}" fill="#fff"/>'
        f'<rect x="{_EDGE}" y="{_EDGE}" width="{_SIDE}" height="{_SIDE}" fill="none" stroke="#888"/>'
        f'<line x1="{_x(0)}" y1="{_y(0)}" x2="{_x(1)}" y2="{_y(1)}" stroke="#888" stroke-dasharray="4 3"/>'
        f'<text x="{size / 2}" y="18" text-anchor="middle">{name}: calibration error '
        f"{calibration.error_before:.3f} before, {calibration.error_after:.3f} after</text>"
        f'{ticks}<text x="{size / 2}" y="{size - 8}" text-anchor="middle">confidence</text>'
        f'<text x="12" y="{size / 2}" text-anchor="middle" transform="rotate(-90 12 {size / 2})">'
        f"share that agreed with the expert</text>{dots}</svg>\n"
    )


def _x(share: float) -> float:
    return round(_EDGE + share * _SIDE, 1)


def _y(share: float) -> float:
    return round(_EDGE + (1 - share) * _SIDE, 1)
