"""One question to the running gateway, and what its failures mean to the person who asked."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gateway.core.errors import LinkBrokenError, LinkError, LinkTimeoutError
from gateway.link.client import LinkClient
from gateway.link.messages import DECISIONS_PAGE

_T = TypeVar("_T")

EXIT_REFUSED = 1
EXIT_NOT_RUNNING = 3
INSTALLED_SOCKET = Path("/run/o3-gateway/o3.sock")
DEMO_SOCKETS = (Path("var/demo/run/o3.sock"), Path("var/demo/state/run/o3.sock"))


class CommandError(Exception):
    """A command ends with one sentence a person can act on, and an exit status."""

    def __init__(self, sentence: str, exit_status: int) -> None:
        super().__init__(sentence)
        self.sentence, self.exit_status = sentence, exit_status


def find_socket(
    given: Path | None, environ: Mapping[str, str] = os.environ, installed: Path = INSTALLED_SOCKET
) -> Path:
    """As given, `$O3_SOCKET`, the installed gateway's socket, else the demo's if it is there."""
    if given is not None:
        return given
    if environ.get("O3_SOCKET"):
        return Path(environ["O3_SOCKET"])
    if installed.exists():
        return installed
    return next((demo for demo in DEMO_SOCKETS if demo.exists()), installed)


def ask(socket: Path, verb: str, args: dict[str, Any] | None = None, *, deadline_ms: float = 5000.0) -> Any:  # noqa: ANN401  # plain data, typed by `typed`
    """The result as plain data; raises `CommandError` for a refusal and for a gateway that is not there."""

    async def _ask() -> Any:  # noqa: ANN401
        async with connected(socket) as client:
            return await asked(client, verb, args, deadline_ms=deadline_ms)

    return run(socket, _ask())


async def asked(
    client: LinkClient, verb: str, args: dict[str, Any] | None = None, *, deadline_ms: float = 5000.0
) -> Any:  # noqa: ANN401
    """The result as plain data; raises `CommandError` for a refusal, `LinkError` for no answer."""
    answer = await client.ask(verb, args or {}, deadline_ms=deadline_ms)
    if not answer.ok:
        raise CommandError(answer.error or f"the gateway refused `{verb}`", EXIT_REFUSED)
    return answer.result


async def newest(
    client: LinkClient, limit: int, point: str | None, *, deadline_ms: float = 5000.0
) -> list[dict[str, Any]]:
    """The newest decisions, newest first, page by page: the gateway goes on deciding between two pages."""
    found: list[dict[str, Any]] = []
    while len(found) < limit:
        wanted = min(limit - len(found), DECISIONS_PAGE)
        before = {"before": found[-1]["id"]} if found else {}
        args = {"limit": wanted, "point": point, **before}
        page = await asked(client, "decisions", args, deadline_ms=deadline_ms)
        found += page
        if len(page) < wanted:
            break
    return found


@asynccontextmanager
async def connected(socket: Path) -> AsyncIterator[LinkClient]:
    """A connection for as long as the block runs."""
    client = await LinkClient.connect(socket, "o3ctl")
    try:
        yield client
    finally:
        await client.aclose()


def run(socket: Path, conversation: Coroutine[Any, Any, _T]) -> _T:
    """Hold a conversation with the gateway at `socket`; link failures become sentences."""
    try:
        return asyncio.run(conversation)
    except LinkError as exc:
        raise CommandError(_sentence(socket, exc), EXIT_NOT_RUNNING) from exc


def typed(result: object, kind: type[_T]) -> _T:
    """`result` as the message type it should be; a gateway of another version is a sentence."""
    try:
        return msgspec.convert(result, kind)
    except msgspec.ValidationError as exc:
        sentence = f"the gateway answered in another version's words ({exc}); use the o3ctl installed with it"
        raise CommandError(sentence, EXIT_REFUSED) from exc


def _sentence(socket: Path, exc: LinkError) -> str:
    cause = exc.__cause__
    if isinstance(cause, PermissionError):
        return (
            f"user `{getpass.getuser()}` may not talk to the gateway at {socket}: "
            "join its group, or use sudo -u with the gateway's user"
        )
    if isinstance(exc, LinkTimeoutError):
        return f"the gateway at {socket} runs but did not answer ({exc.problem}): see its log"
    if isinstance(exc, LinkBrokenError) and cause is None:
        return (
            f"the gateway at {socket} closed the connection: it is stopping, its connections are all taken, "
            f"or user `{getpass.getuser()}` is not listed under [access] in its gateway.toml; its log tells"
        )
    return (
        f"no gateway runs at {socket}: start it (systemctl start o3-gateway, or make run for the demo), "
        "or name its socket with --socket"
    )
