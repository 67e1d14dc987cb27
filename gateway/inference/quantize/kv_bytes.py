"""What keys and values take as a session really allocates them."""

from __future__ import annotations

from gateway.inference.bundle.manifest import Bundle
from gateway.inference.kv.ort_session import PagedSession, Provider


def allocated(bundle: Bundle, pages: int, provider: Provider = "cpu") -> int | None:
    """Bytes of the pools of a session with `pages` pages; None for a model that brings its own caches."""
    manifest = bundle.manifest
    if manifest.backend != "paged_graph":
        return None
    session = PagedSession(
        bundle.model_path, manifest.architecture, pages=pages, block=manifest.block, provider=provider
    )
    return session.pool_bytes
