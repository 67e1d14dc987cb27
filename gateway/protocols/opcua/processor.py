"""One secure channel: what asyncua lets through and must not is stopped here, before its own code runs."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from typing import TYPE_CHECKING, Any

import structlog
from asyncua import ua
from asyncua.common.connection import TransportLimits
from asyncua.common.utils import ServiceError
from asyncua.server.uaprocessor import UaProcessor
from asyncua.ua.ua_binary import struct_from_binary
from cryptography.exceptions import InvalidSignature

from gateway.protocols.opcua.access import ANONYMOUS, GatewayUser, password_of, request_id
from gateway.protocols.opcua.pki import UntrustedError, application_uris
from gateway.protocols.opcua.settings import is_loopback
from gateway.protocols.opcua.wire import Foreign, error_message, standard, status

if TYPE_CHECKING:
    from gateway.protocols.opcua.server import GatewayInternalServer
    from gateway.protocols.opcua.session import GatewaySession

log = structlog.get_logger().bind(component="opcua")

_BEFORE_SESSION_BYTES = 65_536
_NONCE_BYTES = 32
_CHANNEL_LIFETIME_MS = (10_000, 3_600_000)

_CREATE, _ACTIVATE, _CLOSE = (
    request_id("CreateSession"),
    request_id("ActivateSession"),
    request_id("CloseSession"),
)
_CALL, _BROWSE_NEXT = request_id("Call"), request_id("BrowseNext")
_TRANSFER = request_id("TransferSubscriptions")
_OPEN_TO_ALL = frozenset({_CREATE, _ACTIVATE, _CLOSE, request_id("GetEndpoints"), request_id("FindServers")})
_REFUSED = frozenset({request_id("RegisterServer"), request_id("RegisterServer2")})


class GatewayProcessor(UaProcessor):
    """The messages of one connection. Every refusal has a StatusCode; nothing unexpected keeps it open."""

    iserver: GatewayInternalServer
    session: GatewaySession | None

    def __init__(
        self, internal_server: Foreign, transport: asyncio.Transport, limits: TransportLimits
    ) -> None:
        super().__init__(internal_server, transport, limits)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        self._calls: set[asyncio.Task[None]] = set()

    @property
    def gone(self) -> bool:
        """True when nobody is at the other end any more."""
        return bool(self._transport.is_closing())

    @property
    def secured(self) -> bool:
        """True when this channel signs and encrypts."""
        return bool(self._connection.security_policy.Mode == ua.MessageSecurityMode.SignAndEncrypt)

    async def process(self, header: Foreign, body: Foreign) -> bool:
        """One chunk; False ends the connection."""
        activated = self.session is not None and self.session.is_activated()
        kind = header.MessageType
        if not activated and self._connection._incoming_size + header.body_size > _BEFORE_SESSION_BYTES:  # noqa: SLF001  # no public name
            return self._end(ua.StatusCodes.BadTcpMessageTooLarge, "65536 bytes may come before a session")
        if (
            kind in (ua.MessageType.SecureMessage, ua.MessageType.SecureClose)
            and not self._connection.is_open()
        ):
            return self._end(ua.StatusCodes.BadTcpSecureChannelUnknown, "no secure channel is open")
        try:
            return bool(await super().process(header, body))  # type: ignore[no-untyped-call]  # asyncua
        except UntrustedError as exc:
            log.warning("certificate_refused", peer=self.address, reason=exc.reason)
            return self._end(ua.StatusCodes.BadSecurityChecksFailed, "the certificate is not trusted")
        except Exception as exc:  # noqa: BLE001  # a peer's bytes can raise anything; the peer is sent away
            log.warning(
                "message_refused", peer=self.address, kind=str(kind), problem=f"{type(exc).__name__}: {exc}"
            )
            return self._end(ua.StatusCodes.BadSecurityChecksFailed, "the message cannot be accepted")

    def open_secure_channel(self, algohdr: Foreign, seqhdr: Foreign, body: Foreign) -> None:
        """Open or renew; a client certificate is judged before anything is granted."""
        request = struct_from_binary(ua.OpenSecureChannelRequest, body)
        parameters = request.Parameters
        connection = self._connection
        if not connection.is_open():
            connection.select_policy(
                algohdr.SecurityPolicyURI, algohdr.SenderCertificate, parameters.SecurityMode
            )
            if self.secured:
                self.iserver.trust_list.check(algohdr.SenderCertificate, dt.datetime.now(dt.UTC))
        elif parameters.RequestType != ua.SecurityTokenRequestType.Renew:
            raise ServiceError(ua.StatusCodes.BadRequestTypeInvalid)
        low, high = _CHANNEL_LIFETIME_MS
        parameters.RequestedLifetime = min(max(parameters.RequestedLifetime, low), high)
        response = ua.OpenSecureChannelResponse()
        response.Parameters = connection.open(parameters, self.iserver)
        self.send_response(  # type: ignore[no-untyped-call]  # asyncua
            request.RequestHeader.RequestHandle, seqhdr, response, ua.MessageType.SecureOpen
        )

    async def _process_message(
        self, typeid: Foreign, requesthdr: Foreign, seqhdr: Foreign, body: Foreign
    ) -> bool:
        if typeid in _REFUSED:
            log.warning("registration_refused", peer=self.address)
            raise ServiceError(ua.StatusCodes.BadServiceUnsupported)
        if typeid == _CREATE:
            await self._may_create_session(struct_from_binary(ua.CreateSessionParameters, body.copy()))
        elif typeid not in _OPEN_TO_ALL or typeid == _CLOSE:
            self._owns_session(requesthdr.AuthenticationToken)
        match typeid:
            case t if t == _ACTIVATE:
                await self._activate(
                    struct_from_binary(ua.ActivateSessionParameters, body), requesthdr, seqhdr
                )
            case t if t == _CALL:
                self._call(struct_from_binary(ua.CallParameters, body), requesthdr, seqhdr)
            case t if t == _BROWSE_NEXT:
                self._browse_next(struct_from_binary(ua.BrowseNextParameters, body), requesthdr, seqhdr)
            case t if t == _TRANSFER:
                parameters = struct_from_binary(ua.TransferSubscriptionsParameters, body)
                await self._transfer(parameters, requesthdr, seqhdr)
            case _:
                done = await super()._process_message(typeid, requesthdr, seqhdr, body)  # type: ignore[no-untyped-call]  # asyncua
                if typeid == _CREATE and self.session is not None:
                    self.session.bind(self._connection.security_policy.peer_certificate, self.address)
                return bool(done)
        return True

    async def _may_create_session(self, parameters: Foreign) -> None:
        """Sessions are for endpoints on offer, and for the certificate the channel was opened with."""
        if not self.secured:
            if not (self.iserver.settings.loopback_none and is_loopback(self.address)):
                raise ServiceError(ua.StatusCodes.BadSecurityPolicyRejected)
        else:
            presented, channel = (
                parameters.ClientCertificate,
                self._connection.security_policy.peer_certificate,
            )
            if not presented or not presented.startswith(channel):
                raise ServiceError(ua.StatusCodes.BadCertificateInvalid)
            try:
                certificate = self.iserver.trust_list.check(presented, dt.datetime.now(dt.UTC))
            except UntrustedError as exc:
                raise ServiceError(ua.StatusCodes.BadCertificateUntrusted) from exc
            if parameters.ClientDescription.ApplicationUri not in application_uris(certificate):
                raise ServiceError(ua.StatusCodes.BadCertificateUriInvalid)
            if len(parameters.ClientNonce or b"") < _NONCE_BYTES:
                raise ServiceError(ua.StatusCodes.BadNonceInvalid)
        if self.session is not None and not self.session.is_closed():
            raise ServiceError(ua.StatusCodes.BadTooManySessions)
        if not await self.iserver.room_for_a_session():
            raise ServiceError(ua.StatusCodes.BadTooManySessions)

    def _owns_session(self, token: ua.NodeId) -> None:
        if self.session is None or self.session.is_closed() or token != self.session.auth_token:
            raise ServiceError(ua.StatusCodes.BadSessionIdInvalid)

    async def _activate(self, parameters: Foreign, requesthdr: Foreign, seqhdr: Foreign) -> None:
        session = self.session
        if session is None or session.auth_token != requesthdr.AuthenticationToken:
            session = self.iserver.session_of(requesthdr.AuthenticationToken)
        policy = self._connection.security_policy
        if session is None or session.is_closed() or session.client_certificate != policy.peer_certificate:
            raise ServiceError(ua.StatusCodes.BadSessionIdInvalid)
        nonce = session.nonce or b""
        try:
            policy.asymmetric_cryptography.verify(  # type: ignore[no-untyped-call]  # asyncua
                (policy.host_certificate or b"") + nonce, parameters.ClientSignature.Signature
            )
        except (InvalidSignature, TypeError) as exc:
            raise ServiceError(ua.StatusCodes.BadApplicationSignatureInvalid) from exc
        user = await self._user(parameters.UserIdentityToken, nonce)
        if session.is_activated() and session.processor is not self and session.user.name != user.name:
            raise ServiceError(
                ua.StatusCodes.BadUserAccessDenied
            )  # OPC 10000-4, 5.7.3: same user on a new channel
        result = session.activate(user, self)
        self.session, self._closing = session, False
        self.session_last_activity = time.monotonic()
        response = ua.ActivateSessionResponse()
        response.Parameters = result
        self.send_response(requesthdr.RequestHandle, seqhdr, response)  # type: ignore[no-untyped-call]  # asyncua

    async def _user(self, token: Foreign, nonce: bytes) -> GatewayUser:
        anonymous = isinstance(token, ua.AnonymousIdentityToken) or (
            isinstance(token, ua.ExtensionObject) and token.TypeId == standard(ua.ObjectIds.Null)
        )
        if token is None or anonymous:
            if self.secured:
                raise ServiceError(ua.StatusCodes.BadIdentityTokenRejected)
            return ANONYMOUS
        if not isinstance(token, ua.UserNameIdentityToken) or not self.secured:
            raise ServiceError(ua.StatusCodes.BadIdentityTokenRejected)
        password = password_of(token, self.iserver.private_key, nonce)
        return await self.iserver.login.user(token.UserName or "", password, self.address)

    def _call(self, parameters: Foreign, requesthdr: Foreign, seqhdr: Foreign) -> None:
        """Calls wait for main; they run beside the connection's other requests, counted and bounded."""
        session = self._active_session()
        if len(self._calls) >= self.iserver.settings.limits.calls_in_flight:
            raise ServiceError(ua.StatusCodes.BadTooManyOperations)
        task = asyncio.create_task(
            self._answer_call(session, parameters, requesthdr, seqhdr), name="opcua-call"
        )
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _answer_call(
        self, session: GatewaySession, parameters: Foreign, requesthdr: Foreign, seqhdr: Foreign
    ) -> None:
        response: Any = ua.CallResponse()
        try:
            response.Results = await session.call(parameters.MethodsToCall or [])
        except (ServiceError, ua.UaStatusCodeError) as exc:
            response = ua.ServiceFault()
            response.ResponseHeader.ServiceResult = status(exc.code)
        if not self._transport.is_closing():
            self.send_response(requesthdr.RequestHandle, seqhdr, response)  # type: ignore[no-untyped-call]  # asyncua

    def _browse_next(self, parameters: Foreign, requesthdr: Foreign, seqhdr: Foreign) -> None:
        response = ua.BrowseNextResponse()
        response.Parameters.Results = self._active_session().browse_more(
            parameters.ContinuationPoints or [], release=bool(parameters.ReleaseContinuationPoints)
        )
        self.send_response(requesthdr.RequestHandle, seqhdr, response)  # type: ignore[no-untyped-call]  # asyncua

    async def _transfer(self, parameters: Foreign, requesthdr: Foreign, seqhdr: Foreign) -> None:
        response = ua.TransferSubscriptionsResponse()
        session, ids = self._active_session(), parameters.SubscriptionIds or []
        response.Parameters.Results = await session.take_over(ids, self)
        self.send_response(requesthdr.RequestHandle, seqhdr, response)  # type: ignore[no-untyped-call]  # asyncua

    def _active_session(self) -> GatewaySession:
        session = self.session
        if session is None or not session.is_activated():
            raise ServiceError(ua.StatusCodes.BadSessionNotActivated)
        session.touch()
        self.session_last_activity = time.monotonic()
        return session

    def forget_subscription(self, subscription_id: int) -> None:
        """The subscription is answered on another channel from now on."""
        waiting: dict[Any, Any] = self._publish_results_subs
        waiting.pop(subscription_id, None)

    def _end(self, code: int, reason: str) -> bool:
        self._transport.write(error_message(code, reason))
        return False

    async def close(self) -> None:
        """The connection is gone: calls are given up, the session lives on while it has subscriptions."""
        for task in list(self._calls):
            task.cancel()
        self._publish_requests.clear()  # nobody is there to be answered
        if self.session is not None and self.session.processor is not self and self.session.is_activated():
            self.session = None  # it moved to another channel, which owns it now
        await super().close()  # type: ignore[no-untyped-call]  # asyncua
