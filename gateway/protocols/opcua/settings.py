"""What o3-opcua is told at start: one JSON file, unknown fields refused."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import msgspec

from gateway.core.errors import ConfigError

Role = Literal["viewer", "operator", "engineer", "admin", "auditor"]


class UserSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One person or system that may log in. `password_hash` as `passwords.hash_password` makes it."""

    name: str
    password_hash: str
    role: Role = "viewer"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one server grants its clients together; every one answers with its own StatusCode when reached."""

    connections: int = 50
    sessions: int = 30
    subscriptions: int = 100
    monitored_items: int = 20_000
    monitored_items_per_session: int = 5_000
    nodes_per_call: int = (
        10_000  # Read, Write, Browse, RegisterNodes, TranslateBrowsePaths, CreateMonitoredItems
    )
    methods_per_call: int = 100
    calls_in_flight: int = 16  # method calls of one connection that wait for main
    publishing_interval_ms: float = 100.0
    message_bytes: int = 4 * 1024 * 1024
    references_per_browse: int = 1_000
    continuation_points: int = 10  # of one session
    login_failures: int = 5  # of one name from one address, before it must wait
    login_wait_s: float = 30.0


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole configuration of the process."""

    gateway_id: str
    pki_dir: str
    host: str = "127.0.0.1"
    port: int = 4840
    users: list[UserSettings] = []
    loopback_none: bool = False  # the demo's read-only endpoint without security, for loopback peers only
    beyond_loopback: bool = False  # a person's decision, after reading docs on what remains
    hostnames: list[str] = []  # further DNS names and IP addresses for the certificate
    limits: Limits = Limits()

    @property
    def application_uri(self) -> str:
        """Names this server for ever: certificate, ServerArray[0] and the namespace of every node."""
        return f"urn:o3-gateway:{quote(self.gateway_id, safe='')}"

    @property
    def url(self) -> str:
        """Where it listens."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"opc.tcp://{host}:{self.port}/o3"


def load(path: Path) -> Settings:
    """The settings in `path`; raises `ConfigError` with a sentence to act on."""
    try:
        settings = msgspec.json.decode(path.read_bytes(), type=Settings)
    except OSError as exc:
        raise ConfigError((f"{path}: {exc.strerror}",)) from exc
    except msgspec.MsgspecError as exc:
        raise ConfigError((f"{path}: {exc}",)) from exc
    problems = _problems(settings)
    if problems:
        raise ConfigError(tuple(f"{path}: {problem}" for problem in problems))
    return settings


def _problems(settings: Settings) -> list[str]:
    problems = []
    if not settings.beyond_loopback and not is_loopback(settings.host):
        problems.append(f"`host` {settings.host} is not a loopback address and `beyond_loopback` is false")
    if settings.loopback_none and not is_loopback(settings.host):
        problems.append("`loopback_none` needs a loopback `host`")
    names = [user.name for user in settings.users]
    problems += [f"user `{name}` is listed twice" for name in sorted(set(names)) if names.count(name) > 1]
    problems += ["a user has an empty name" for user in settings.users if not user.name]
    return problems


def is_loopback(host: str) -> bool:
    """True for a loopback address or the name `localhost`."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
