"""Why a module or a set of modules is refused."""

from __future__ import annotations

from gateway.core.errors import ConstraintError, GatewayError


class ModuleRefusedError(GatewayError):
    """A module cannot be used; `problems` lists everything wrong, in the order of its lines."""

    def __init__(self, problems: tuple[ConstraintError, ...]) -> None:
        super().__init__("\n".join(str(p) for p in problems))
        self.problems = problems


class NothingToApproveError(GatewayError):
    """No change of that module waits."""

    def __init__(self, module: str) -> None:
        super().__init__(f"module `{module}`: no change waits for approval")
        self.module = module


class CertificateError(GatewayError):
    """A certificate, or what it was made from, cannot be used."""
