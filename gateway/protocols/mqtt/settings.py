"""What configuration says of the MQTT bridge, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from gateway.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class MqttTls:
    """Files of a TLS connection. The broker's certificate and name are always verified."""

    ca_file: Path | None = None  # None: the system's own authorities
    certificate_file: Path | None = None
    key_file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttSettings:
    """One broker, one identity, one topic prefix. Raises `ConfigError` naming everything wrong at once."""

    host: str
    port: int
    client_id: str
    prefix: str
    username: str | None = None
    password: str | None = None
    tls: MqttTls | None = None
    accept_requests: bool = False  # S20: read-only unless a person says otherwise
    retain_tags: bool = True
    keepalive_s: int = 10
    connect_timeout_s: float = 3.0
    backoff_s: tuple[float, float] = (0.25, 30.0)
    event_capacity: int = 10_000  # verdicts held while the broker is away; the oldest is dropped and counted
    event_limit_bytes: int = 16 * 2**20
    topic_capacity: int = 50_000  # topics whose newest value is kept; a further one is refused and counted
    request_capacity: int = 16  # decision requests in flight; a further one is rejected
    default_deadline_ms: float = 1000.0  # for a request without the user property `deadline_ms`

    def __post_init__(self) -> None:
        problems = []
        if not self.prefix or self.prefix.strip("/") != self.prefix or set(self.prefix) & set("+#$\0"):
            problems.append(f"mqtt.prefix: `{self.prefix}` is not a plain topic without wildcards")
        if not 0 < self.port < 65536:  # noqa: PLR2004 - the range of a TCP port
            problems.append(f"mqtt.port: {self.port} is not a TCP port")
        if not self.client_id:
            problems.append("mqtt.client_id: must not be empty")
        if self.password is not None and self.tls is None and not is_loopback(self.host):
            problems.append(f"mqtt.password: would travel in clear to `{self.host}`; configure mqtt.tls")
        if self.accept_requests and self.tls is None and not is_loopback(self.host):
            problems.append("mqtt.accept_requests: needs mqtt.tls where the broker is not on loopback")
        if problems:
            raise ConfigError(tuple(problems))


def is_loopback(host: str) -> bool:
    """True for `localhost` and the loopback addresses, without asking a name server."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
