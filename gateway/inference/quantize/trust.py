"""Confidence of a model with fewer bits: the source's temperature is held against a new one."""

from __future__ import annotations

import msgspec

from gateway.inference.bundle.described import Confidence
from gateway.inference.bundle.manifest import Bundle, Manifest
from gateway.inference.kv.ort_session import Provider
from gateway.inference.quantize.figures import Progress
from gateway.inference.serving.engine import Engine
from gateway.inference.training.calibrate import FITTED, HELD_OUT, answers, calibration, measured
from gateway.inference.training.paired import plant_of
from gateway.inference.training.reliability import RELIABILITY_FILE, picture


def fitted_again(bundle: Bundle, runs: int, provider: Provider, progress: Progress) -> Manifest:
    """The description with confidence as `runs` runs of this very model, and as many others, say it.

    The temperature is fitted anew; whichever of this and the source's is nearer on the other runs is taken,
    and the description says both errors. The picture is drawn anew, where there is one. Where no run is
    wanted, or no simulator has the bundle's tags or knows its expert, nothing changes.
    """
    manifest, kind = bundle.manifest, plant_of(bundle)
    training, made = manifest.training, manifest.made
    before = None if manifest.confidence is None else manifest.confidence.calibration
    if not runs or kind is None or before is None or training is None or made is None:
        return manifest
    if training.expert not in kind.controllers:
        return manifest
    engine, done = Engine(bundle, kind.ranges, provider=provider), 0

    def advance() -> None:
        nonlocal done
        done += 1
        progress("confidence", done / (2 * runs))

    own, other = (
        answers(kind, engine, manifest, training.expert, range(seeds.start, seeds.start + runs), advance)
        for seeds in (FITTED, HELD_OUT)
    )
    kept, fitted = measured(other, before.temperature, before.offset), calibration(own, other)
    better = fitted if fitted.error_after < kept.error_after else kept
    if (bundle.directory / RELIABILITY_FILE).exists():
        (bundle.directory / RELIABILITY_FILE).write_text(picture(manifest.id, better))
    return msgspec.structs.replace(
        manifest,
        confidence=Confidence(edges=(), hit_rate=(round(float(own.agreed.mean()), 4),), calibration=better),
        made=msgspec.structs.replace(
            made,
            confidence="fitted" if better is fitted else "source",
            kept_error=kept.error_after,
            fitted_error=fitted.error_after,
        ),
    )
