"""How single keys of gateway.toml are written: durations, names, endpoints, and what every table refuses."""

from __future__ import annotations

import ipaddress
import re
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    ValidationInfo,
)

_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|min|h)")
_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "min": Decimal(60), "h": Decimal(3600)}
_WORD_ORDERS = ("ABCD", "CDAB", "BADC", "DCBA")


def parse_duration(value: object) -> float:
    """Seconds of a text such as `100 ms`, `1.5 s`, `2 min`, `1 h`; `ValueError` says how to write one."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(
            f"`{value}` is not a duration; write a number and a unit (ms, s, min or h), "
            'such as "100 ms" or "30 min"'
        )
    return float(Decimal(match[1]) * _SECONDS[match[2]])


def _positive(value: float) -> float:
    if value <= 0:
        raise ValueError("the duration must be longer than nothing")
    return value


def _beside(value: Path, info: ValidationInfo) -> Path:
    """A relative path starts at the folder of the configuration file."""
    folder = (info.context or {}).get("folder", Path())
    return Path(folder) / value


def _endpoint(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise ValueError(f"`{value}` is not an endpoint; write host:port, such as 192.0.2.10:502")
    return value


def _word_order(value: str) -> str:
    if value not in _WORD_ORDERS:
        raise ValueError(f"`{value}` is not a byte order; known: {', '.join(_WORD_ORDERS)}")
    return value


def is_loopback(host: str) -> bool:
    """True where only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


Duration = Annotated[float, BeforeValidator(parse_duration)]  # seconds
Period = Annotated[float, BeforeValidator(parse_duration), AfterValidator(_positive)]  # seconds, > 0
FileBeside = Annotated[Path, AfterValidator(_beside)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]
TagName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:-]*$", max_length=128)]
Endpoint = Annotated[str, AfterValidator(_endpoint)]
WordOrder = Annotated[str, AfterValidator(_word_order)]
Port = Annotated[StrictInt, Field(ge=0, le=65535)]  # 0: any free one
Register = Annotated[StrictInt, Field(ge=0, le=65535)]
Bit = Annotated[int, Field(ge=0, le=15)]
Table = Literal["holding", "input", "coil", "discrete"]
RawType = Literal["bool", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]


class Section(BaseModel):
    """A table of the file: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=False)
