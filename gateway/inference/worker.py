"""The engine worker: one bundle, one session of ONNX Runtime, one request at a time.

`python -m gateway.inference.worker --socket-fd N --bundle DIR --provider auto`
"""

from __future__ import annotations

import argparse
import gc
import platform
import socket
import sys
from fractions import Fraction
from pathlib import Path

import msgspec

from gateway.core.errors import InferenceError
from gateway.inference.bundle import load_bundle
from gateway.inference.decode import OutputRange
from gateway.inference.engine import Engine
from gateway.inference.messages import (
    Answer,
    Failed,
    Load,
    NeedHistory,
    Propose,
    Ready,
    Release,
    Reply,
    Report,
    Statistics,
    decode_request,
    encode,
)
from gateway.inference.ort_session import Provider
from gateway.inference.selftest import self_test
from gateway.supervision.frames import receive, send


def main(arguments: list[str] | None = None) -> int:
    """Serve frames until end of stream."""
    parser = argparse.ArgumentParser(prog="gateway.inference.worker")
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--provider", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--pages", type=int, default=256)
    options = parser.parse_args(arguments)
    with socket.socket(fileno=options.socket_fd) as sock:
        serve(sock, options.bundle, options.provider, options.pages)
    return 0


def serve(sock: socket.socket, directory: Path, provider: Provider, pages: int) -> None:
    """Answer each frame with one frame."""
    engine: Engine | None = None
    while (body := receive(sock)) is not None:
        reply: Reply
        try:
            request = decode_request(body)
            if isinstance(request, Load):
                engine, reply = _load(request, directory, provider, pages)
            elif engine is None:
                reply = Failed(problem="no bundle is loaded: send Load first")
            else:
                reply = _answer(engine, request)
        except InferenceError as exc:
            reply = Failed(problem=str(exc))
        except msgspec.DecodeError as exc:
            reply = Failed(problem=f"not a request: {exc}")
        send(sock, encode(reply))


def _load(request: Load, directory: Path, provider: Provider, pages: int) -> tuple[Engine, Ready]:
    bundle = load_bundle(directory)
    outputs = tuple(
        OutputRange(Fraction(limits.scale), Fraction(limits.offset), limits.low, limits.high)
        for limits in request.outputs
    )
    engine = Engine(bundle, outputs, provider=provider, pages=pages)
    shown = self_test(engine, bundle)
    gc.collect()
    gc.freeze()
    gc.disable()
    truth = engine.backend.truth
    return engine, Ready(
        digest=bundle.digest,
        ep_requested=truth.requested,
        ep_actual=truth.actual,
        runtime=truth.runtime,
        cpu=platform.machine(),
        aliased=engine.backend.aliased,
        incremental_error=shown.incremental_error,
        decision_ms=shown.decision_ms,
        slow_ms=shown.slow_ms,
        prefill_ms=shown.prefill_ms,
    )


def _answer(engine: Engine, request: Propose | Release | Report) -> Answer | NeedHistory | Statistics:
    if isinstance(request, Propose):
        return engine.propose(request)
    if isinstance(request, Release):
        engine.release(request.session)
    pool = engine.pool_statistics()
    return Statistics(
        sessions=engine.sessions,
        evicted=engine.evicted,
        decisions=engine.decisions,
        rebuilt=engine.rebuilt,
        pages=pool.pages,
        pages_free=pool.free,
        pages_peak=pool.peak_used,
        pages_refused=pool.refused,
    )


if __name__ == "__main__":
    sys.exit(main())
