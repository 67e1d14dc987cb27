"""What keys and values take by a bundle's description, and how many pages its points need."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.inference.bundle.manifest import Bundle

_BYTES = {"float32": 4, "float16": 2, "int8": 1}
_SCALE = 2  # bytes of a float16, one for each head of each token kept in 8 bits
_LEAST_PAGES = 256
_LEAST_DENSE = 5  # of two buffers: the self-test holds nine caches at once
_MOST_POOL_BYTES = 256 * 2**20


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


@dataclass(frozen=True, slots=True)
class Room:
    """Pages of the pool, and of the cold tier behind it."""

    pages: int
    cold_pages: int
    sessions: int  # of full length that stand in the pool at once


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
        session=token * (_own_tokens(bundle) or held * block),
        pages=pages,
        pool=pages * token * block,
    )


def room_for(bundle: Bundle, points: int) -> Room:
    """A pool in which so many points' sessions stand at once, and one more for what-ifs on the way.

    Beyond 256 MiB, or 256 pages where that is more, sessions take turns: the cold tier holds all of them.
    A session that is moved out and back for every request costs more than its decision.
    """
    kv = predicted(bundle, _LEAST_PAGES)
    at_once = max(points + 1, _LEAST_DENSE) if bundle.manifest.backend == "dense_gqa" else points + 1
    wanted = 1 + at_once * kv.session_pages
    most = max(_LEAST_PAGES, _MOST_POOL_BYTES // kv.page)
    pages = min(max(_LEAST_PAGES, wanted), most)
    sessions = predicted(bundle, pages).sessions
    cold_pages = 4 * _LEAST_PAGES if pages >= wanted else max(4 * _LEAST_PAGES, wanted)
    return Room(pages, cold_pages, sessions)


def _own_tokens(bundle: Bundle) -> int:
    """Tokens a session of an export has room for, in memory of its own; 0 for one in pages.

    It hops from what it holds to the newest half: `dense_gqa` from one whole buffer to another.
    """
    window, each = bundle.manifest.window.length, bundle.tokens_per_cycle
    match bundle.manifest.backend:
        case "dense_gqa":
            return 2 * (window + each)
        case "concat_past":
            return window + 1 + bundle.hop_cycles * each
        case _:
            return 0


def _pages(bundle: Bundle) -> int:
    """A band begins and ends anywhere in a page; a hop holds a window, and the half it will go on from.

    In `dense_gqa` both are whole buffers, however little stands in them.
    """
    window, block, each = bundle.manifest.window, bundle.manifest.block, bundle.tokens_per_cycle
    if bundle.manifest.backend == "dense_gqa":
        return 2 * -(-(window.length + each) // block)
    if window.mode == "hop":
        return -(-window.length // block) + -(-(1 + bundle.hop_cycles * each) // block)
    return -(-(window.length - 2 + each) // block) + 1
