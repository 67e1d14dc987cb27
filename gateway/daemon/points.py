"""Decision points from configuration."""

from __future__ import annotations

from fractions import Fraction

from gateway.config.model import DecisionPoint, GatewayConfig, RepairLimits
from gateway.core.decision import Mode, PointId, RequestClass
from gateway.core.tag import TagId
from gateway.pipeline.point import PointSettings
from gateway.pipeline.repairs import RepairLimit

_JITTER_S = 0.05  # of our own loop and of a poll under load
_UNASKED_HOLD_S = 1.0  # a point that is only asked has no period: its proposals are judged over this hold


def point_settings(config: GatewayConfig, point: DecisionPoint) -> PointSettings:
    """What the pipeline knows of a decision point; times in seconds.

    `hold_s` is the longest time from one acquisition to the next: the period, one poll of the inputs and the
    jitter of both. `effect_delay_s` is deadline + write delay + PLC scan (S4).
    """
    _, device = config.device_of(point.outputs[0])
    hand_over = device.hand_over
    poll_s = max(
        (device.poll_group[row.poll_group].interval for row in device.tags if row.id in point.inputs),
        default=0.0,
    )
    scan_s = hand_over.scan if hand_over is not None else 0.0
    period_s = point.trigger.period
    return PointSettings(
        id=PointId(point.id),
        inputs=tuple(TagId(tag) for tag in point.inputs),
        outputs=tuple(TagId(tag) for tag in point.outputs),
        read_back={
            TagId(output): TagId(tag)
            for output, tag in (hand_over.read_back if hand_over is not None else {}).items()
            if output in point.outputs
        },
        status_tag=TagId(hand_over.status_tag) if hand_over is not None else None,
        remote_bit=hand_over.remote_bit if hand_over is not None else 0,
        in_control_bit=hand_over.in_control_bit if hand_over is not None else 0,
        model=point.model,
        fallback=tuple(point.fallback),
        fallback_values={TagId(tag): Fraction(value) for tag, value in point.fallback_values.items()},
        required_modules=tuple(point.required_modules),
        period_s=period_s,
        on_request=point.trigger.on_request,
        deadline_s=point.deadline,
        request_class=RequestClass[point.priority],
        max_skew_s=point.max_skew,
        hold_s=(period_s or _UNASKED_HOLD_S) + poll_s + _JITTER_S,
        effect_delay_s=point.deadline + point.write_delay + scan_s,
        rearm_after_s=point.rearm_after,
        configured_mode=Mode(point.mode),
        least_change={
            TagId(row.id): Fraction(row.min_change)
            for row in device.tags
            if row.id in point.outputs and row.min_change is not None
        },
        release_margin=Fraction(point.release_margin),
        release_after_s=point.release_after,
        repair_limit=None if point.repair_limit == "off" else _repair_limit(point.repair_limit),
        repair=point.repair,
        guided=point.guided,
        n_best=point.n_best,
    )


def _repair_limit(limits: RepairLimits) -> RepairLimit:
    return RepairLimit(repairs=limits.repairs, reversals=limits.reversals, window_s=limits.window)
