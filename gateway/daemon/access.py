"""Who may do what over the internal port (S20, S27): authorised before anything is looked at."""

from __future__ import annotations

import enum
import pwd
from collections.abc import Mapping

from gateway.config.model import GatewayConfig
from gateway.link.messages import Ask
from gateway.link.server import Peer, own_uids


class Role(enum.IntEnum):
    """Each role may do all that those below it may."""

    VIEWER = 0
    OPERATOR = 1
    ENGINEER = 2


_NEEDS = {
    "status": Role.VIEWER,
    "tags": Role.VIEWER,
    "decisions": Role.VIEWER,
    "explain": Role.VIEWER,
    "runtime.list": Role.VIEWER,
    "runtime.coverage": Role.VIEWER,
    "binding.print": Role.VIEWER,
    "binding.show": Role.VIEWER,
    "override.list": Role.VIEWER,
    "model.list": Role.VIEWER,
    "decide": Role.OPERATOR,
    "ack": Role.OPERATOR,
    "stop-writes": Role.OPERATOR,
    "override.request": Role.OPERATOR,
    "override.release": Role.OPERATOR,
    "mode": Role.ENGINEER,
    "binding.sign": Role.ENGINEER,
    "override.confirm": Role.ENGINEER,
    "runtime.load": Role.ENGINEER,
    "runtime.unload": Role.ENGINEER,
    "runtime.approve": Role.ENGINEER,
    "runtime.rollback": Role.ENGINEER,
    "runtime.promote": Role.ENGINEER,
    "model.load": Role.ENGINEER,
    "model.unload": Role.ENGINEER,
    "model.rollback": Role.ENGINEER,
}
_BY_NAME = {"operator": Role.OPERATOR, "engineer": Role.ENGINEER, "admin": Role.ENGINEER}


class Access:
    """Roles from configuration: OPC UA users by name, Unix users by what the kernel says of the peer."""

    def __init__(self, config: GatewayConfig) -> None:
        users = config.opcua.user if config.opcua is not None else ()
        self._front_end: Mapping[str, Role] = {u.name: _BY_NAME.get(u.role, Role.VIEWER) for u in users}
        unix: dict[int, Role] = dict.fromkeys(own_uids(), Role.ENGINEER)
        for names, role in (
            (config.access.operators, Role.OPERATOR),
            (config.access.engineers, Role.ENGINEER),
        ):
            unix |= {uid: role for name in names if (uid := _uid(name)) is not None and uid not in unix}
        self._unix = unix

    @property
    def allowed_uids(self) -> frozenset[int]:
        """Unix users who may connect at all."""
        return frozenset(self._unix)

    def who(self, ask: Ask, peer: Peer) -> tuple[str, Role]:
        """Name and role behind a question. Only our own processes may speak for a user of theirs."""
        if ask.user and peer.uid in own_uids():
            return ask.user, self._front_end.get(ask.user, Role.VIEWER)
        return peer.user, self._unix.get(peer.uid, Role.VIEWER)

    def refusal(self, ask: Ask, peer: Peer) -> str:
        """Why this peer may not ask this; empty when it may."""
        needed = _NEEDS.get(ask.verb)
        if needed is None:
            return f"`{ask.verb}` is not a verb of this gateway; known: {', '.join(sorted(_NEEDS))}"
        name, role = self.who(ask, peer)
        if role < needed:
            return f"`{ask.verb}` needs the role {needed.name.lower()}; `{name}` is {role.name.lower()}"
        return ""


def _uid(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None
