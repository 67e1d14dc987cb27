"""The OPC UA server: asyncua's, with our sessions, subscriptions, connections and endpoints in it."""

from __future__ import annotations

import copy

import structlog
from asyncua import Server, ua
from asyncua.common.connection import TransportLimits
from asyncua.common.utils import ServiceError
from asyncua.crypto import security_policies
from asyncua.server.address_space import AddressSpace, ViewService
from asyncua.server.internal_server import InternalServer

from gateway.protocols.opcua.access import GatewayUser, Login, Services
from gateway.protocols.opcua.methods import Method, called
from gateway.protocols.opcua.pki import Identity, TrustList
from gateway.protocols.opcua.session import GatewaySession
from gateway.protocols.opcua.settings import Settings
from gateway.protocols.opcua.subscription import GatewaySubscription, GatewaySubscriptions
from gateway.protocols.opcua.transport import CHUNK_LIMIT_BYTES, GatewayListener
from gateway.protocols.opcua.wire import Foreign, status

log = structlog.get_logger().bind(component="opcua")

_POLICIES = [
    ua.SecurityPolicyType.Basic256Sha256_SignAndEncrypt,
    ua.SecurityPolicyType.Aes128Sha256RsaOaep_SignAndEncrypt,
    ua.SecurityPolicyType.Aes256Sha256RsaPss_SignAndEncrypt,
]
_ACTIVATION_S = 10.0


class GatewayInternalServer(InternalServer):
    """What all sessions share."""

    def __init__(self, settings: Settings, trust_list: TrustList, login: Login) -> None:
        super().__init__(user_manager=None)
        self.settings, self.trust_list, self.login = settings, trust_list, login
        self.methods: dict[ua.NodeId, Method] = {}
        self.allow_remote_admin = False
        self.subscription_service: GatewaySubscriptions = GatewaySubscriptions(self.aspace, iserver=self)
        self.subscription_service.limits = settings.limits
        self.isession.subscription_service = self.subscription_service
        self.view_service = QuickViews(self.aspace)
        self.max_connections = settings.limits.connections
        self.max_pending_activation_seconds = _ACTIVATION_S
        self.max_pending_messages_per_connection = 100

    def create_session(self, name: Foreign, user: Foreign = None, external: bool = False) -> GatewaySession:  # noqa: FBT001, FBT002, ARG002  # asyncua's signature
        """A session from outside."""
        return GatewaySession(self, str(name))

    def session_of(self, token: ua.NodeId) -> GatewaySession | None:
        """The live session with that authentication token."""
        session = self.lookup_external_session(token)
        return session if isinstance(session, GatewaySession) else None

    def session_count(self) -> int:
        """Sessions alive."""
        return len(self._external_sessions)

    async def room_for_a_session(self) -> bool:
        """True when one more fits; the longest idle session whose connection is gone makes room."""
        if self.session_count() < self.settings.limits.sessions:
            return True
        sessions = [s for s in self._external_sessions.values() if isinstance(s, GatewaySession)]
        left = [s for s in sessions if s.processor is not None and s.processor.gone]
        if not left:
            return False
        await min(left, key=lambda s: s.idle_since).close_session(delete_subs=True)
        return True

    async def close_if_left(self, session_id: ua.NodeId) -> None:
        """Close a session that has neither a connection nor subscriptions any more."""
        for session in list(self._external_sessions.values()):
            same = session.session_id == session_id
            if same and isinstance(session, GatewaySession) and session.is_left():
                await session.close_session(delete_subs=True)

    def item_count(self) -> int:
        """Monitored items of all clients."""
        every = self.subscription_service.subscriptions.values()
        return sum(s.item_count() for s in every if isinstance(s, GatewaySubscription))

    def register_server(self, server: Foreign, conf: Foreign = None) -> None:  # noqa: ARG002  # asyncua's signature
        """Nobody registers here: this is no discovery server."""
        raise ServiceError(ua.StatusCodes.BadServiceUnsupported)

    async def call(self, request: ua.CallMethodRequest, user: GatewayUser) -> ua.CallMethodResult:
        """One method call, by role and with checked arguments."""
        method = self.methods.get(request.MethodId)
        if method is None:
            known = request.MethodId in self.aspace
            code = ua.StatusCodes.BadMethodInvalid if known else ua.StatusCodes.BadNodeIdUnknown
            result = ua.CallMethodResult()
            result.StatusCode = status(code)
            return result
        return await called(method, request, user)


class QuickViews(ViewService):
    """Browse without walking the reference types anew for every reference."""

    def __init__(self, aspace: AddressSpace) -> None:
        super().__init__(aspace)
        self._subtypes: dict[ua.NodeId, frozenset[ua.NodeId]] = {}

    def _suitable_reftype(self, ref1: ua.NodeId, ref2: ua.NodeId, subtypes: bool) -> bool:  # noqa: FBT001  # asyncua's signature
        if ref1 == ref2 or ref1.is_null():
            return True
        if not subtypes:
            return False
        known = self._subtypes.get(ref1)
        if known is None:
            known = frozenset(self._get_sub_ref(ref1))
            if known and len(self._subtypes) < 100:  # noqa: PLR2004  # more reference types than the standard has below one
                self._subtypes[ref1] = known
        return ref2 in known


class GatewayServer(Server):
    """The endpoints: SignAndEncrypt for user names; None, if the demo asks, for readers on loopback."""

    def __init__(self, settings: Settings, trust_list: TrustList, login: Login) -> None:
        self.internal = GatewayInternalServer(settings, trust_list, login)
        super().__init__(iserver=self.internal)
        self._settings = settings
        self.set_endpoint(settings.url)
        self.set_server_name(f"O3 gateway {settings.gateway_id}")
        self.application_type = ua.ApplicationType.Server
        self.product_uri = "urn:o3-gateway"
        self.manufacturer_name = "O3"
        self._application_uri = settings.application_uri
        nothing = [ua.SecurityPolicyType.NoSecurity] if settings.loopback_none else []
        self.set_security_policy([*_POLICIES, *nothing], Services())  # type: ignore[arg-type]  # any ruleset has the one method
        self.limits = TransportLimits(
            max_recv_buffer=CHUNK_LIMIT_BYTES,
            max_send_buffer=CHUNK_LIMIT_BYTES,
            max_chunk_count=settings.limits.message_bytes // 8192 + 1,
            max_message_size=settings.limits.message_bytes,
        )

    async def load_identity(self, identity: Identity) -> None:
        """Our certificate and key."""
        await self.load_certificate(identity.certificate)
        await self.load_private_key(identity.private_key)

    async def start(self) -> None:
        """Listen; `port` says where when the settings said 0."""
        await self._setup_server_nodes()
        await self.internal.start()
        settings = self._settings
        self.bserver = GatewayListener(self.internal, settings.host, settings.port, self.limits)
        self.bserver.set_policies(self._policies)
        try:
            await self.bserver.start()
        except OSError:
            await self.internal.stop()
            raise
        log.info("server_started", host=self.bserver.hostname, port=self.bserver.port)

    @property
    def port(self) -> int:
        """The port it listens on; 0 before the start."""
        return self.bserver.port if self.bserver is not None else 0

    def _set_endpoints(
        self, policy: type[security_policies.SecurityPolicy], mode: ua.MessageSecurityMode, level: int
    ) -> None:
        super()._set_endpoints(policy, mode, level)
        endpoint = self.internal.endpoints[-1]
        secured = mode == ua.MessageSecurityMode.SignAndEncrypt
        token = ua.UserTokenPolicy()
        token.PolicyId = "username" if secured else "anonymous"
        token.TokenType = ua.UserTokenType.UserName if secured else ua.UserTokenType.Anonymous
        token.SecurityPolicyUri = policy.URI  # the password is encrypted by itself, too
        endpoint.UserIdentityTokens = [token]
        endpoint.Server = copy.copy(endpoint.Server)
        endpoint.Server.ApplicationType = ua.ApplicationType.Server
