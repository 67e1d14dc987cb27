"""Which safe sets are proved invariant: digests committed with the modules, and those proved here at load."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import structlog

from gateway.core.durable import write_durably
from gateway.core.errors import GatewayError, cause
from gateway.solver.proofs.safeset import read_proofs
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.pool import CheckerPool

log = structlog.get_logger().bind(component="proofs")

PROVE_S = 60.0  # budget of one proof; no answer within it counts as no


class ProofBook:
    """Proof digests known to this gateway, in `state_dir/proofs.json` (as `constraints/proofs.json`)."""

    def __init__(self, path: Path) -> None:
        """A file that cannot be read proves nothing, and is told."""
        self._path = path
        self._writing = asyncio.Lock()
        try:
            self._digests = read_proofs(path)
        except (OSError, ValueError, KeyError, TypeError) as exc:
            log.error("proofs_unreadable", path=str(path), problem=cause(exc))  # noqa: TRY400  handled
            self._digests = frozenset()

    def __contains__(self, digest: str) -> bool:
        return digest in self._digests

    @property
    def digests(self) -> frozenset[str]:
        """Everything proved so far."""
        return self._digests

    async def add(self, digest: str, modules: list[str]) -> None:
        """Remember a proof; durable when this returns. Raises `OSError`."""
        async with self._writing:
            known = await asyncio.to_thread(_entries, self._path)
            known.append({"modules": modules, "digest": digest})
            body = json.dumps({"proved": known}, indent=1).encode()
            await asyncio.to_thread(write_durably, self._path, body)
            self._digests |= {digest}


async def prove(pool: CheckerPool, proofs: ProofBook, rule_set: RuleSet) -> str:
    """Empty when the set is proved and that is remembered; else why it is not."""
    if rule_set.proved_by(proofs.digests):
        return ""
    try:
        proof = await pool.prove(rule_set, PROVE_S)
        if proof.holds:
            await proofs.add(proof.digest, sorted(rule_set.module_ids))
            return ""
        why = proof.escape
    except (GatewayError, OSError) as exc:
        why = cause(exc)
    log.warning("safe_set_not_proved", modules=sorted(rule_set.module_ids), why=why)
    together = ", ".join(sorted(rule_set.module_ids))
    told = "o3ctl analyze MODULE.json --against DIR tells more"
    return f"the safe set of these modules ({together}) is not proved: {why}; {told}"


def _entries(path: Path) -> list[dict[str, object]]:
    """The readable entries of a file; what cannot be read proves nothing and is left out of the next one."""
    try:
        entries = list(json.loads(path.read_text())["proved"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [entry for entry in entries if isinstance(entry, dict) and "digest" in entry]
