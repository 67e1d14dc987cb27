"""Certificates of the running gateway: a digest before each write, and the evidence kept for later."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gateway.core.decision import DecisionRecord
from gateway.solver.certificates.basis import BasisStore
from gateway.solver.rules.ruleset import RuleSet
from gateway.storage.codec import certificate_digest

_GENERATIONS = 8  # decisions in flight are never judged under an older one


class Certifier:
    """Knows what each rule set in force was; makes digests on the loop and files off it."""

    def __init__(self, folder: Path) -> None:
        self._store = BasisStore(folder)
        self._encoded: dict[int, bytes] = {}

    async def keep(self, rule_set: RuleSet) -> None:
        """Keep what certificates under a rule set need; raises `StorageError`, and it must not be used."""
        basis = await asyncio.to_thread(self._store.keep, rule_set)
        self._encoded[rule_set.generation] = basis.encoded
        while len(self._encoded) > _GENERATIONS:
            del self._encoded[min(self._encoded)]

    def digest(self, record: DecisionRecord) -> str:
        """Digest of a decision's certificate; made before the write."""
        return certificate_digest(record, self._encoded)
