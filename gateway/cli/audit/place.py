"""Where a gateway's audit log lies."""

from __future__ import annotations

from pathlib import Path

_FILE = "audit.sqlite"
_STATE_DIRS = (Path("/var/lib/o3-gateway"), Path("var/demo/state"))


def log_file(given: Path | None, config: Path | None = None) -> Path:
    """The audit log of a state folder, or of a configuration; else the installed gateway's, or the demo's."""
    if given is not None:
        return given / _FILE if given.is_dir() or not given.exists() else given
    if config is not None:
        return _state_dir(config) / _FILE
    return next((d / _FILE for d in _STATE_DIRS if (d / _FILE).exists()), _STATE_DIRS[0] / _FILE)


def _state_dir(config: Path) -> Path:
    from gateway.cli.offline import fail  # noqa: PLC0415  # pydantic
    from gateway.config.load import load  # noqa: PLC0415
    from gateway.core.errors import ConfigError  # noqa: PLC0415

    try:
        return load(config).gateway.state_dir
    except ConfigError as exc:
        fail(str(exc))
