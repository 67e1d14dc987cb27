"""Sums of times: how long values stay in force after the last good decision (S11), when they first act."""

from __future__ import annotations

from gateway.config.model import DecisionPoint, GatewayConfig


def lease_sum(config: GatewayConfig, point: DecisionPoint) -> list[tuple[str, float]]:
    """Terms and seconds a horizon must cover where no safe set does: their sum is the longest hold.

    A point that is only asked has no period of its own: its lease ends between requests.
    """
    terms = [
        ("period", point.trigger.period or 0.0),
        ("deadline", point.deadline),
        ("write delay", point.write_delay),
    ]
    _, device = config.device_of(point.outputs[0])
    if device.hand_over is not None:
        terms += [
            ("PLC lease", device.hand_over.lease),
            ("PLC scan", device.hand_over.scan),
            ("fallback ramp", device.hand_over.fallback_ramp),
        ]
    return terms


def until_effect(config: GatewayConfig, point: DecisionPoint) -> list[tuple[str, float]]:
    """Terms and seconds from acquisition until a proposal acts, at the latest."""
    parts = [("deadline", point.deadline), ("write delay", point.write_delay)]
    _, device = config.device_of(point.outputs[0])
    if device.hand_over is not None:
        parts.append(("PLC scan", device.hand_over.scan))
    return parts
