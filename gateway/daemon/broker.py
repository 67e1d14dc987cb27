"""The MQTT broker from configuration."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.config.broker import password_in
from gateway.config.model import GatewayConfig
from gateway.core.errors import ConfigError, cause
from gateway.core.tag import TagDefinition, TagId
from gateway.protocols.mqtt.settings import MqttSettings, MqttTls

_WIDE = frozenset({"int64", "uint64"})


def mqtt_settings(config: GatewayConfig) -> MqttSettings | None:
    """The broker, where one is configured; raises `ConfigError` where its password cannot be read."""
    section = config.mqtt
    if section is None:
        return None
    password = None
    if section.password_file is not None:
        try:
            password = password_in(section.password_file)
        except (OSError, UnicodeDecodeError) as exc:
            where = f"{config.path}: mqtt.password_file"
            problem = f"{where}: `{section.password_file}` cannot be read: {cause(exc)}"
            raise ConfigError((problem,)) from exc
    tls = section.tls
    return MqttSettings(
        host=section.host,
        port=section.port,
        client_id=section.client_id or f"o3-{config.gateway.id}",
        prefix=section.topic_prefix,
        username=section.username,
        password=password,
        tls=MqttTls(tls.ca, tls.certificate, tls.key) if tls is not None else None,
        accept_requests=section.requests,
    )


def wide_integers(definitions: Mapping[TagId, TagDefinition]) -> frozenset[TagId]:
    """Tags whose numbers travel as JSON strings: many readers of JSON lose what lies beyond 2^53."""
    return frozenset(tag for tag, definition in definitions.items() if definition.raw_type in _WIDE)
