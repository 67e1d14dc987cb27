"""Which safe sets are proved invariant: digests committed with the modules, and those proved here at load."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from gateway.core.durable import write_durably
from gateway.solver.safeset import read_proofs


class ProofBook:
    """Proof digests known to this gateway, in `state_dir/proofs.json` (as `constraints/proofs.json`)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digests = read_proofs(path)

    def __contains__(self, digest: str) -> bool:
        return digest in self._digests

    @property
    def digests(self) -> frozenset[str]:
        """Everything proved so far."""
        return self._digests

    async def add(self, digest: str, modules: list[str]) -> None:
        """Remember a proof; durable when this returns. Raises `OSError`."""
        known = await asyncio.to_thread(_entries, self._path)
        known.append({"modules": modules, "digest": digest})
        body = json.dumps({"proved": known}, indent=1).encode()
        await asyncio.to_thread(write_durably, self._path, body)
        self._digests |= {digest}


def _entries(path: Path) -> list[dict[str, object]]:
    if not path.exists():
        return []
    entries: list[dict[str, object]] = json.loads(path.read_text())["proved"]
    return entries
