"""What must survive a stop: generation numbers, the modules in force, and the highest revision of each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from gateway.core.durable import write_durably
from gateway.core.errors import StorageError


class KeptModule(BaseModel):
    """A module in force: where its bytes are kept, and which file of the folder it came from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str
    content: str  # sha256 of the bytes
    revision: int
    digest: str
    last_success_ns: int


class _State(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int = 1
    reserved: int = 0  # highest generation number ever given out
    generation: int = 0  # the one the modules below were activated under
    modules: dict[str, KeptModule] = {}
    highest: dict[str, tuple[int, str]] = {}  # module -> highest revision ever in force, and its digest


@dataclass(slots=True)
class Activation:
    """The durable side of the registry. Methods block: call them in a thread."""

    folder: Path
    _state: _State = field(default_factory=_State)

    @property
    def modules(self) -> Mapping[str, KeptModule]:
        """Modules that were in force last."""
        return self._state.modules

    @property
    def highest(self) -> Mapping[str, tuple[int, str]]:
        """The highest revision each module ever had in force, and that revision's digest."""
        return self._state.highest

    @property
    def generation(self) -> int:
        """Generation of the last completed activation; 0 before the first."""
        return self._state.generation

    @property
    def complete(self) -> bool:
        """False before the first activation, and where a stop cut one short."""
        return 0 < self._state.generation == self._state.reserved

    def load(self) -> None:
        """Read what was kept; raises `StorageError` when it is there and cannot be read."""
        path = self.folder / "state.json"
        try:
            self._state = _State.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            self._state = _State()
        except (OSError, ValidationError) as exc:
            raise StorageError(f"module state `{path}` cannot be read: {exc}") from exc

    def reserve(self) -> int:
        """A generation number that was never given out before; durable when this returns."""
        self._write(self._state.model_copy(update={"reserved": self._state.reserved + 1}))
        return self._state.reserved

    def commit(self, generation: int, modules: Mapping[str, KeptModule]) -> None:
        """These modules are in force under this generation; durable when this returns."""
        highest = dict(self._state.highest)
        for name, module in modules.items():
            highest[name] = max(highest.get(name, (0, "")), (module.revision, module.digest))
        self._write(
            self._state.model_copy(
                update={"generation": generation, "modules": dict(modules), "highest": highest}
            )
        )
        self._sweep()

    def keep(self, data: bytes) -> str:
        """Store a module's bytes; their sha256, by which `kept` finds them."""
        content = hashlib.sha256(data).hexdigest()
        path = self.folder / f"{content}.json"
        if not path.exists():
            store_durably(path, data)
        return content

    def kept(self, content: str) -> bytes:
        """Stored bytes; raises `StorageError` when they are gone or no longer the same."""
        path = self.folder / f"{content}.json"
        try:
            data = path.read_bytes()
        except OSError as exc:
            raise StorageError(f"kept module `{path}` cannot be read: {exc.strerror}") from exc
        if hashlib.sha256(data).hexdigest() != content:
            raise StorageError(f"kept module `{path}` has changed on disk")
        return data

    def _write(self, state: _State) -> None:
        text = json.dumps(state.model_dump(mode="json"), indent=1, sort_keys=True)
        store_durably(self.folder / "state.json", text.encode())
        self._state = state

    def _sweep(self) -> None:
        """Drop bytes no module in force needs any more."""
        needed = {f"{m.content}.json" for m in self._state.modules.values()} | {"state.json"}
        for path in self.folder.glob("*.json"):
            if path.name not in needed:
                path.unlink(missing_ok=True)


def store_durably(path: Path, data: bytes) -> None:
    """`write_durably` for the registry: raises `StorageError` with the reason."""
    try:
        write_durably(path, data)
    except OSError as exc:
        raise StorageError(f"`{path}` cannot be written: {exc.strerror or exc}") from exc
