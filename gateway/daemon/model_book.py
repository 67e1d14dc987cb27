"""Which bundle serves each model of the configuration, and which did before; kept over a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import structlog

from gateway.core.durable import write_durably
from gateway.core.errors import StorageError, cause

log = structlog.get_logger().bind(component="models")

_FORMAT = 1


class ServedBundle(msgspec.Struct, frozen=True, kw_only=True):
    """What a person, or the gateway going back by itself, put in service. `previous` is empty for none."""

    bundle: str
    digest: str
    previous: str = ""
    previous_digest: str = ""
    by: str = ""
    at_utc_ns: int = 0


class _File(msgspec.Struct, frozen=True, kw_only=True):
    format: int = _FORMAT
    models: dict[str, ServedBundle] = {}


class ModelBook:
    """One small file. Where it cannot be read the configured bundles serve, and `problem` says so (S23)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = asyncio.Lock()
        self.problem = ""
        self._models = dict(self._loaded())

    def of(self, model: str) -> ServedBundle | None:
        """What serves a model; None: the bundle that the configuration names."""
        return self._models.get(model)

    def names(self, model: str) -> list[str]:
        """Names of bundles to serve a model with after a start: each where those before it cannot be."""
        held = self.of(model)
        wanted = [held.bundle, held.previous, model] if held is not None else [model]
        return [name for name in dict.fromkeys(wanted) if name]

    async def keep(self, model: str, served: ServedBundle | None) -> None:
        """Durable when this returns; raises `StorageError`, and then nothing has changed."""
        async with self._lock:
            models = {name: held for name, held in self._models.items() if name != model}
            if served is not None:
                models[model] = served
            body = msgspec.json.format(msgspec.json.encode(_File(models=models)))
            try:
                await asyncio.to_thread(write_durably, self._path, body)
            except OSError as exc:
                raise StorageError(f"model file `{self._path}` cannot be written: {cause(exc)}") from exc
            self._models = models
            self.problem = ""

    def _loaded(self) -> dict[str, ServedBundle]:
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=_File)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as exc:
            return self._unreadable(cause(exc))
        return found.models if found.format == _FORMAT else self._unreadable(f"format {found.format}")

    def _unreadable(self, why: str) -> dict[str, ServedBundle]:
        self.problem = f"`{self._path}` cannot be read ({why}): the configured bundles serve"
        log.error("model_book_unreadable", path=str(self._path), problem=why)
        return {}
