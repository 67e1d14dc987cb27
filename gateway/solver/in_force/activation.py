"""What must survive a stop: generation numbers, the modules in force and before, and who did what."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from gateway.core.durable import write_durably
from gateway.core.errors import StorageError, cause
from gateway.core.override import Override

_AUTHORS = 1_000
_HISTORY = 10  # accepted revisions before the present one, of each module


class KeptModule(BaseModel):
    """A module in force: where its bytes are kept, and which file of the folder it came from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str
    content: str  # sha256 of the bytes
    revision: int
    digest: str
    last_success_ns: int
    priority: int | None = None  # given by a person beside these bytes; None: the file's own
    priority_by: str = ""


class _State(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int = 1
    reserved: int = 0  # highest generation number ever given out
    generation: int = 0  # the one the modules below were activated under
    modules: dict[str, KeptModule] = {}
    shadow: dict[str, KeptModule] = {}  # judged beside, never in force
    highest: dict[str, tuple[int, str]] = {}  # module -> highest revision ever in force, and its digest
    history: dict[str, list[KeptModule]] = {}  # module -> accepted revisions before, oldest first
    taken_back: dict[str, str] = {}  # digest rolled back -> by whom
    overrides: tuple[Override, ...] = ()  # in force with them; a restart ends these
    authors: dict[str, tuple[str, str]] = {}  # file we wrote for somebody -> its sha256, and the account


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
    def shadow(self) -> Mapping[str, KeptModule]:
        """Modules that were judged beside them last."""
        return self._state.shadow

    @property
    def overrides(self) -> tuple[Override, ...]:
        """What was overridden last, by name."""
        return self._state.overrides

    @property
    def highest(self) -> Mapping[str, tuple[int, str]]:
        """The highest revision each module ever had in force, and that revision's digest."""
        return self._state.highest

    @property
    def taken_back(self) -> Mapping[str, str]:
        """Digests of revisions that were rolled back, and by whom."""
        return self._state.taken_back

    @property
    def generation(self) -> int:
        """Generation of the last completed activation; 0 before the first."""
        return self._state.generation

    @property
    def complete(self) -> bool:
        """False before the first activation, and where a stop cut one short."""
        return 0 < self._state.generation == self._state.reserved

    def before(self, module: str) -> KeptModule | None:
        """The accepted revision before the one in force; None when there is none."""
        found = self._state.history.get(module)
        return found[-1] if found else None

    def author(self, file: str, content: str) -> str:
        """For whom we wrote these bytes into the watched folder; empty when we did not."""
        kept = self._state.authors.get(file)
        return kept[1] if kept is not None and kept[0] == content else ""

    def load(self) -> None:
        """Read what was kept; raises `StorageError` when it is there and cannot be read."""
        path = self.folder / "state.json"
        try:
            self._state = _State.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            self._state = _State()
        except OSError as exc:
            raise StorageError(f"module state `{path}` cannot be read: {cause(exc)}") from exc
        except ValidationError as exc:
            raise StorageError(
                f"module state `{path}` is damaged: put back a copy of its folder; without one, move the "
                "folder away: the files of the watched folder are then taken as at a first start"
            ) from exc

    def reserve(self) -> int:
        """A generation number that was never given out before; durable when this returns."""
        self._write(self._state.model_copy(update={"reserved": self._state.reserved + 1}))
        return self._state.reserved

    def note_author(self, file: str, content: str, who: str) -> None:
        """Remember for whom a file is written into the watched folder; durable when this returns."""
        kept = {name: entry for name, entry in self._state.authors.items() if name != file}
        self._write(self._state.model_copy(update={"authors": {**kept, file: (content, who)}}))

    def commit(
        self,
        generation: int,
        modules: Mapping[str, KeptModule],
        shadow: Mapping[str, KeptModule],
        taken_back: Mapping[str, str],
        overrides: tuple[Override, ...] = (),
    ) -> None:
        """These modules are in force under this generation; durable when this returns.

        `taken_back` adds revisions that a rollback replaced.
        """
        old = self._state
        highest = dict(old.highest)
        for name, module in modules.items():
            highest[name] = max(highest.get(name, (0, "")), (module.revision, module.digest))
        back = {**old.taken_back, **taken_back}
        self._write(
            old.model_copy(
                update={
                    "generation": generation,
                    "modules": dict(modules),
                    "shadow": dict(shadow),
                    "highest": highest,
                    "history": _history(old, modules, back),
                    "taken_back": back,
                    "overrides": overrides,
                    "authors": _authors(old.authors, {m.file for m in (*modules.values(), *shadow.values())}),
                }
            )
        )
        self._sweep()

    def keep(self, data: bytes) -> str:
        """Store a module's bytes; their sha256, by which `kept` finds them."""
        content = hashlib.sha256(data).hexdigest()
        path = self.folder / f"{content}.json"
        if not _holds(path, data):
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
        """Drop bytes nobody can go back to any more."""
        state = self._state
        every = [*state.modules.values(), *state.shadow.values()]
        every += [kept for history in state.history.values() for kept in history]
        needed = {f"{m.content}.json" for m in every} | {"state.json"}
        for path in self.folder.glob("*.json"):
            if path.name not in needed:
                with contextlib.suppress(OSError):  # what nobody needs may as well stay
                    path.unlink(missing_ok=True)


def _history(
    old: _State, modules: Mapping[str, KeptModule], taken_back: Mapping[str, str]
) -> dict[str, list[KeptModule]]:
    """Accepted revisions before the present ones; what was rolled back from is nothing to go back to."""
    history = {name: list(kept) for name, kept in old.history.items()}
    for name, was in old.modules.items():
        now = modules.get(name)
        if (now is not None and now.content == was.content) or was.digest in taken_back:
            continue
        history.setdefault(name, []).append(was)
    for name, kept in history.items():
        present = modules[name].content if name in modules else ""
        history[name] = [k for k in kept if k.content != present and k.digest not in taken_back][-_HISTORY:]
    return history


def _authors(kept: Mapping[str, tuple[str, str]], files: AbstractSet[str]) -> dict[str, tuple[str, str]]:
    """All of them, files that wait for approval included, while they are few."""
    return dict(kept) if len(kept) <= _AUTHORS else {f: a for f, a in kept.items() if f in files}


def _holds(path: Path, data: bytes) -> bool:
    """Whether a file is there and holds these bytes; they may have rotted since they were kept."""
    try:
        return path.read_bytes() == data
    except OSError:
        return False


def store_durably(path: Path, data: bytes) -> None:
    """`write_durably` for the registry: raises `StorageError` with the reason."""
    try:
        write_durably(path, data)
    except OSError as exc:
        raise StorageError(f"`{path}` cannot be written: {exc.strerror or exc}") from exc
