"""Revisions compared in a process of its own: Z3 may take too long, too much memory or its process along."""

from __future__ import annotations

import resource
import subprocess
import sys

import structlog

from gateway.core.tag import TagDefinition
from gateway.solver.analysis.findings import NOT_KNOWN
from gateway.solver.modules.module import Module
from gateway.solver.rules.around import Around
from gateway.solver.wire import Compare, comparisons, encoder

log = structlog.get_logger().bind(component="registry")

BUDGET_S = 3.0
_START_S = 10.0  # for a busy machine to start a process
_MEMORY_BYTES = 1 << 30


_ALONE = Around()


def unkept(old: Module, new: Module, around: Around = _ALONE) -> str:
    """Why `new` may not demand all that `old` does; empty where it is proved that it does. Blocks."""
    tags: dict[str, TagDefinition] = {}
    for module in (old, new):
        tags |= {v.tag: v.definition for v in module.variables.values()}
    ask = Compare((old.source, old.text), (new.source, new.text), tuple(tags.values()), BUDGET_S, around)
    try:
        done = subprocess.run(  # noqa: S603  our own module
            [sys.executable, "-m", __spec__.name],
            input=encoder.encode(ask),
            capture_output=True,
            timeout=BUDGET_S + _START_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as exc:
        log.warning("comparison_failed", module=new.id, reason=str(exc))
        return f"whether it still demands all that it did is {NOT_KNOWN}"
    log.info("revisions_compared", module=new.id, revision=new.revision, unkept=done.stdout.decode())
    return done.stdout.decode()


def main() -> None:
    """Answer the one question on standard input: the reason on standard output, nothing where there is none.

    The same tags may be defined otherwise in both revisions: then structure alone calls it a weakening.
    """
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    from gateway.solver.analysis import difference  # noqa: PLC0415  z3, after the bound
    from gateway.solver.analysis.asking import Allowance  # noqa: PLC0415
    from gateway.solver.modules.compile import compile_module  # noqa: PLC0415

    ask = comparisons.decode(sys.stdin.buffer.read())
    known = {d.id: d for d in ask.tags}
    old, new = (compile_module(text.encode(), name, known) for name, text in (ask.old, ask.new))
    sys.stdout.write(difference.unkept(old, new, Allowance(seconds=ask.budget_s), ask.around))


if __name__ == "__main__":
    main()
