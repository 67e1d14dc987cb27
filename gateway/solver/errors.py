"""Why a module or a set of modules is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from gateway.core.errors import ConstraintError, GatewayError

log = structlog.get_logger().bind(component="solver")


class ModuleRefusedError(GatewayError):
    """A module cannot be used; `problems` lists everything wrong, in the order of its lines."""

    def __init__(self, problems: tuple[ConstraintError, ...]) -> None:
        super().__init__("\n".join(str(p) for p in problems))
        self.problems = problems


@contextmanager
def refused_on_a_fault(source: str) -> Iterator[None]:
    """Whatever fails on a file is a refusal of it: none may end the gateway, nor every start after it.

    What is wrong with a module is told by those who look for it; this is for what they all forgot.
    """
    try:
        yield
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as exc:
        log.exception("compiler_failed", file=source)
        said = f"the compiler failed on it ({type(exc).__name__}: {exc})"
        raise ModuleRefusedError((ConstraintError(source, 1, 1, said),)) from exc


class NothingToApproveError(GatewayError):
    """No change of that module waits."""

    def __init__(self, module: str) -> None:
        super().__init__(f"module `{module}`: no change waits for approval")
        self.module = module


class CertificateError(GatewayError):
    """A certificate, or what it was made from, cannot be used."""
