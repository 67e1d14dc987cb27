"""The northbound processes: what they are told at start, and who keeps them running."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from gateway.config.model import GatewayConfig
from gateway.core.clock import Clock
from gateway.core.durable import write_durably
from gateway.core.errors import ConfigError, cause, remedy
from gateway.supervision.service import ServiceProcess


def northbound_services(
    config: GatewayConfig, socket_path: Path, clock: Clock, unread_s: Callable[[int], float]
) -> list[ServiceProcess]:
    """One supervised child for each northbound front end that is configured.

    `unread_s` says for how long a process has not read what the internal port sent it.
    """
    services: list[ServiceProcess] = []
    if config.opcua is not None:
        settings = _opcua_settings(config, socket_path.with_name("opcua.json"))
        services.append(
            ServiceProcess(
                "o3-opcua",
                "gateway.protocols.opcua",
                lambda: ("--link", str(socket_path), "--config", str(settings), "--parent", str(os.getpid())),
                clock,
                unread_s,
            )
        )
    if config.web is not None:
        arguments: Sequence[str] = (
            "--link",
            str(socket_path),
            "--host",
            config.web.host,
            "--port",
            str(config.web.port),
            "--parent",
            str(os.getpid()),
        )
        services.append(ServiceProcess("o3-web", "gateway.web", lambda: arguments, clock, unread_s))
    return services


def _opcua_settings(config: GatewayConfig, path: Path) -> Path:
    """Writes the process's one settings file, readable by this user only; raises `ConfigError`."""
    section = config.opcua
    users: list[dict[str, str]] = []
    for user in section.user if section is not None else ():
        try:
            stored = user.password_file.read_text().strip()
        except OSError as exc:
            file = f"{user.password_file} cannot be read: {exc.strerror}"
            why = f"{config.path}: opcua.user `{user.name}`: {file}"
            raise ConfigError((why,)) from exc
        users.append({"name": user.name, "password_hash": stored, "role": user.role})
    settings = {
        "gateway_id": config.gateway.id,
        "pki_dir": str(config.gateway.state_dir / "pki"),
        "host": section.host if section is not None else "127.0.0.1",
        "port": section.port if section is not None else 0,
        "users": users,
        "loopback_none": section.loopback_none if section is not None else False,
    }
    try:
        write_durably(path, msgspec.json.encode(settings))
        path.chmod(0o600)
    except OSError as exc:
        why = f"the folder for sockets, {path.parent}, cannot be used: {cause(exc)}: {remedy(exc)}"
        raise ConfigError((why,)) from exc
    return path
