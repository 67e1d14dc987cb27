"""Who may do what: roles, login with throttling, and decryption of the password a client sends."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog
from asyncua import ua
from asyncua.common.utils import ServiceError
from asyncua.crypto import uacrypto
from asyncua.crypto.permission_rules import PermissionRuleset, User, UserRole
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from gateway.core.clock import Clock
from gateway.protocols.opcua.passwords import hash_password, verify_password
from gateway.protocols.opcua.settings import Limits, UserSettings
from gateway.protocols.opcua.wire import standard

log = structlog.get_logger().bind(component="opcua")

_RANK = {"anonymous": 0, "viewer": 1, "auditor": 1, "operator": 2, "engineer": 3, "admin": 4}
_HASHES_AT_ONCE = 2
_REMEMBERED_LOGINS = 1000
_PASSWORD_BYTES = 1024


@dataclass
class GatewayUser(User):
    """Whom a session speaks for. asyncua's own role is always `User`: nobody here is its administrator."""

    gateway_role: str = "anonymous"

    def may(self, role: str) -> bool:
        """True when this user's role includes `role`."""
        return _RANK[self.gateway_role] >= _RANK[role]


ANONYMOUS = GatewayUser(role=UserRole.User, name="", gateway_role="anonymous")


class Login:
    """Checks names and passwords. Unknown names cost the same time as known ones; failures must wait."""

    def __init__(self, users: Sequence[UserSettings], limits: Limits, clock: Clock) -> None:
        self._users = {user.name: user for user in users}
        self._limits, self._clock = limits, clock
        self._nobody = hash_password("nobody has this password")
        self._failures: dict[tuple[str, str], tuple[int, float]] = {}
        self._hashing = asyncio.Semaphore(_HASHES_AT_ONCE)
        self.refused = 0

    async def user(self, name: str, password: str, address: str) -> GatewayUser:
        """The user, or `ServiceError` BadUserAccessDenied; never says which of the two was wrong."""
        key = (name[:64], address)
        count, since = self._failures.get(key, (0, 0.0))
        now = self._clock.monotonic()
        if now - since > self._limits.login_wait_s:
            count = 0
        if count >= self._limits.login_failures:
            self._refuse(key, count, "throttled")
        known = self._users.get(name)
        async with self._hashing:
            stored = known.password_hash if known is not None else self._nobody
            right = await asyncio.to_thread(verify_password, password, stored)
        if not right or known is None:
            self._refuse(key, count + 1, "wrong name or password")
            raise AssertionError  # unreachable: _refuse raises
        self._failures.pop(key, None)
        log.info("user_logged_in", user=name, role=known.role, address=address)
        return GatewayUser(role=UserRole.User, name=name, gateway_role=known.role)

    def _refuse(self, key: tuple[str, str], count: int, why: str) -> None:
        self.refused += 1
        if len(self._failures) >= _REMEMBERED_LOGINS:
            self._failures.pop(next(iter(self._failures)))
        self._failures[key] = (count, self._clock.monotonic())
        log.warning("login_refused", user=key[0], address=key[1], reason=why)
        raise ServiceError(ua.StatusCodes.BadUserAccessDenied)


def password_of(token: ua.UserNameIdentityToken, private_key: RSAPrivateKey, nonce: bytes) -> str:
    """The password in a token (OPC 10000-4, 7.41.2.2), in clear only where the channel encrypts.

    Raises `ServiceError` BadIdentityTokenInvalid for anything that is not as the standard has it.
    """
    raw = token.Password or b""
    if token.EncryptionAlgorithm:
        decrypt = _DECRYPT.get(token.EncryptionAlgorithm)
        if decrypt is None:
            raise ServiceError(ua.StatusCodes.BadIdentityTokenInvalid)
        try:
            clear = decrypt(private_key, raw)
            (length,) = struct.unpack_from("<I", clear)
        except (ValueError, struct.error) as exc:
            raise ServiceError(ua.StatusCodes.BadIdentityTokenInvalid) from exc
        secret, sent_nonce = clear[4 : 4 + length - len(nonce)], clear[4 + length - len(nonce) : 4 + length]
        if length < len(nonce) or sent_nonce != nonce:
            raise ServiceError(ua.StatusCodes.BadIdentityTokenInvalid)
        raw = secret
    if len(raw) > _PASSWORD_BYTES:
        raise ServiceError(ua.StatusCodes.BadIdentityTokenInvalid)
    try:
        return raw.decode()
    except UnicodeDecodeError as exc:
        raise ServiceError(ua.StatusCodes.BadIdentityTokenInvalid) from exc


_DECRYPT: dict[str, Callable[[RSAPrivateKey, bytes], bytes]] = {
    "http://www.w3.org/2001/04/xmlenc#rsa-oaep": uacrypto.decrypt_rsa_oaep,
    "http://opcfoundation.org/UA/security/rsa-oaep-sha2-256": uacrypto.decrypt_rsa_oaep_sha256,
}  # rsa-1_5 is left out: its padding can be attacked

_SERVICES = (
    "Read Write Browse BrowseNext TranslateBrowsePathsToNodeIds Call RegisterNodes UnregisterNodes "
    "CreateSubscription ModifySubscription DeleteSubscriptions TransferSubscriptions Publish Republish "
    "CreateMonitoredItems ModifyMonitoredItems DeleteMonitoredItems SetMonitoringMode SetPublishingMode "
    "CloseSecureChannel"
)


class Services(PermissionRuleset):
    """The services a session may use at all; address space changes and HistoryUpdate are not among them."""

    def __init__(self) -> None:
        self._allowed = frozenset(request_id(name) for name in _SERVICES.split())

    def check_validity(self, _user: User, action_type: ua.NodeId, _body: object) -> bool:
        """False refuses the request with BadUserAccessDenied."""
        return action_type in self._allowed


def request_id(service: str) -> ua.NodeId:
    """Encoding id of a service's request."""
    return standard(getattr(ua.ObjectIds, f"{service}Request_Encoding_DefaultBinary"))
