"""Families of errors: each names what its caller can do; facts are attributes, the sentence is built here."""

from __future__ import annotations

import errno


def cause(exc: Exception) -> str:
    """Why something failed, for a sentence that names the file itself: no error numbers, no path again."""
    return (isinstance(exc, OSError) and exc.strerror) or str(exc)


def remedy(exc: Exception) -> str:
    """What helps where a file or folder cannot be used, as the end of a sentence that names it."""
    match getattr(exc, "errno", None):
        case errno.ENOSPC | errno.EDQUOT:
            return "make room on its disk"
        case errno.EROFS:
            return "its file system is mounted read-only"
        case _:
            return "this user must be able to read and write it"


class GatewayError(Exception):
    """Anything this gateway raises on purpose."""


class ConfigError(GatewayError):
    """A configuration cannot be used; `problems` lists everything wrong, each `file:line: sentence`."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class RegisterRangeError(GatewayError):
    """A value has no register count: it would wrap."""

    def __init__(self, tag: str, value: float, low: int, high: int) -> None:
        super().__init__(f"tag `{tag}`: {value:g} does not fit its register (counts {low} to {high})")
        self.tag, self.value, self.low, self.high = tag, value, low, high


class LinkError(GatewayError):
    """A link cannot do what was asked."""

    def __init__(self, link: str, problem: str = "") -> None:
        super().__init__(f"link `{link}`: {problem or type(self).__name__}")
        self.link, self.problem = link, problem


class LinkBrokenError(LinkError):
    """The peer or the network broke it: a new link may help."""


class LinkBusyError(LinkError):
    """Two tasks used one link at once; the second is refused."""


class LinkTimeoutError(LinkError):
    """No answer in time; whether the request arrived is unknown."""


class LinkRefusedError(LinkError):
    """The peer answered that it will not."""


class ConstraintError(GatewayError):
    """A constraint module cannot be used: where, and why, in the user's words."""

    def __init__(self, source: str, line: int, column: int, problem: str) -> None:
        super().__init__(f"constraint module `{source}`, line {line}, column {column}: {problem}")
        self.source, self.line, self.column, self.problem = source, line, column, problem


class WorkerLostError(GatewayError):
    """A supervised process died or was killed; what it held is undetermined."""


class InferenceError(GatewayError):
    """A model bundle or its engine cannot be used."""


class StorageError(GatewayError):
    """Something that must last could not be made durable."""
