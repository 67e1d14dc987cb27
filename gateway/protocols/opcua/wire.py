"""asyncua's value types behind plain signatures: its own annotations name types that nobody constructs."""

from __future__ import annotations

import datetime as dt
from typing import Any

from asyncua import ua
from asyncua.ua.ua_binary import uatcp_to_binary

Foreign = Any  # what asyncua hands over or expects without a type one could name

_STATUS: Any = ua.StatusCode
_NODE: Any = ua.NodeId
_DATA: Any = ua.DataValue
_ERROR: Any = ua.ErrorMessage
_ENCODE: Any = uatcp_to_binary


def status(code: int) -> ua.StatusCode:
    """A StatusCode of that number."""
    made: ua.StatusCode = _STATUS(code)
    return made


def standard(number: int) -> ua.NodeId:
    """A node of the standard's namespace."""
    made: ua.NodeId = _NODE(number)
    return made


def named(name: str, namespace: int) -> ua.NodeId:
    """A node by name."""
    made: ua.NodeId = _NODE(name, namespace)
    return made


def opaque(token: bytes) -> ua.NodeId:
    """An opaque NodeId: an authentication token."""
    made: ua.NodeId = _NODE(token, 0, ua.NodeIdType.ByteString)
    return made


def sample(
    value: ua.Variant | None = None,
    code: int = 0,
    source: dt.datetime | None = None,
    server: dt.datetime | None = None,
) -> ua.DataValue:
    """An immutable value with quality and times."""
    made: ua.DataValue = _DATA(value, _STATUS(code), source, server)
    return made


def error_message(code: int, reason: str) -> bytes:
    """An ERR message (OPC 10000-6, 7.1.2.5), sent before a connection is closed."""
    made: bytes = _ENCODE(ua.MessageType.Error, _ERROR(_STATUS(code), reason))
    return made
