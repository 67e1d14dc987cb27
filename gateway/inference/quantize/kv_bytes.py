"""What keys and values take: calculated from the description, and as a session really allocates them."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.inference.bundle.manifest import Bundle
from gateway.inference.kv.ort_session import PagedSession, Provider

_BYTES = {"float32": 4, "float16": 2, "int8": 1}
_SCALE = 2  # bytes of a float16, one for each head of each token kept in 8 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class KvBytes:
    """Bytes of keys and values, and of the pages they stand in."""

    token: int
    page: int
    session_pages: int  # a session holds at the most
    session: int
    pages: int
    pool: int

    @property
    def sessions(self) -> int:
        """How many full sessions the pool has room for; its last page is kept for the self-test."""
        return (self.pages - 1) // self.session_pages


def predicted(bundle: Bundle, pages: int) -> KvBytes:
    """By layers, heads, tokens and type; for a pool of `pages` pages."""
    manifest = bundle.manifest
    architecture, block, kv = manifest.architecture, manifest.block, manifest.quantization.kv
    head = architecture.head_dim * _BYTES[kv] + (_SCALE if kv == "int8" else 0)
    token = 2 * architecture.layers * architecture.heads * head
    held = _pages(bundle)
    return KvBytes(
        token=token,
        page=token * block,
        session_pages=held,
        session=held * token * block,
        pages=pages,
        pool=pages * token * block,
    )


def allocated(bundle: Bundle, pages: int, provider: Provider = "cpu") -> int | None:
    """Bytes of the pools of a session with `pages` pages; None for a model that brings its own caches."""
    manifest = bundle.manifest
    if manifest.backend != "paged_graph":
        return None
    session = PagedSession(
        bundle.model_path, manifest.architecture, pages=pages, block=manifest.block, provider=provider
    )
    return session.pool_bytes


def _pages(bundle: Bundle) -> int:
    """A band begins and ends anywhere in a page; a hop holds a window, and the half it will go on from."""
    window, block, each = bundle.manifest.window, bundle.manifest.block, bundle.tokens_per_cycle
    if window.mode == "hop":
        return -(-window.length // block) + -(-(1 + bundle.hop_cycles * each) // block)
    return -(-(window.length - 2 + each) // block) + 1
