"""What main and the engine worker say to each other; values travel as exact decimal text.

Every body has the number of its request before it: answers come when they are ready.
"""

from __future__ import annotations

import msgspec


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A tagged frame body."""


class Cycle(msgspec.Struct, frozen=True, array_like=True):
    """One finished cycle: what was measured, and what was in force when it ended.

    Without `inputs` it says only what was in force before the first cycle.
    """

    inputs: tuple[str, ...]
    in_force: tuple[str, ...]


class OutputLimits(msgspec.Struct, frozen=True, array_like=True):
    """An output's counts and their meaning."""

    scale: str
    offset: str
    low: int
    high: int
    most: int | None = None  # counts from the value in force; None: any number


class Load(_Message, frozen=True):
    """The first frame: get ready to propose for these outputs."""

    outputs: tuple[OutputLimits, ...]


class Propose(_Message, frozen=True):
    """Ask for a decision. `in_force` ends the last cycle; `history` is sent when the worker may lack it.

    `missed` are the finished cycles from the newest that was answered on, where that is not the last one: a
    worker that holds it goes on from there.
    """

    session: str
    cycle: int
    inputs: tuple[str, ...]
    in_force: tuple[str, ...]
    history: tuple[Cycle, ...] | None = None
    missed: tuple[Cycle, ...] = ()
    aside: bool = False  # answered from a copy of the session, which stays as it was
    urgency: int = 1  # the class of the request: 0, 1 or 2, first to last
    due: float | None = None  # monotonic seconds of this machine; None: no matter when
    warm: bool = False  # only make the session ready: nothing is decoded, the answer has no counts
    guided_until: float | None = (
        None  # monotonic seconds: so long decoding waits for `Guide`; None: not at all
    )
    most: int = 1  # answers wanted, the first included


class Cancel(_Message, frozen=True):
    """Nobody waits for the request of this number any more. Only the request is answered, maybe `Failed`."""


class Guide(_Message, frozen=True):
    """Guidance for the request of this number, packed by the checker, or why there is none. No answer."""

    packed: bytes = b""
    because: str = ""


class Release(_Message, frozen=True):
    """Give a session's pages back."""

    session: str


class Report(_Message, frozen=True):
    """Ask for `Statistics`."""


class Serve(_Message, frozen=True):
    """Give way no more: answered with `Statistics` when the worker is as urgent as any other."""


class Ready(_Message, frozen=True):
    """The bundle is loaded, tested and warm."""

    digest: str
    ep_requested: str
    ep_actual: str
    runtime: str
    cpu: str
    aliased: bool
    incremental_error: float  # incremental against one-shot, relative
    decision_ms: float  # median of a warm decision
    slow_ms: float  # the slowest of about ten warm ones
    prefill_ms: float  # longest history, from nothing
    chunk_ms: float  # one chunk of it
    widest: int  # requests that one forward may hold
    batch_independent: bool  # shown at the start: an answer is the same bits alone and beside others
    ep_expected: str = ""  # where `ep_requested` would run, by the devices that are there
    steps_ms: tuple[tuple[int, float], ...] = ()  # requests in a forward, and one token's forward of so many


class Other(msgspec.Struct, frozen=True, array_like=True):
    """Another answer to the same request; see `Answer`."""

    raws: tuple[int, ...]
    confidence: float | None
    masked_out: tuple[float, ...]
    share: float  # of the model's probability, near all of its values: what it is ranked by


class Answer(_Message, frozen=True):
    """Counts per output, in the bundle's order."""

    raws: tuple[int, ...]
    confidence: float | None  # None where the bundle says nothing of it
    concentration: float  # what `confidence` was looked up by
    masked_out: tuple[float, ...]
    clamped: int  # inputs beyond the outer bins, taken as the outer bins
    reused_tokens: int
    computed_tokens: int
    engine_ms: float
    guided: bool = False  # decoded along guidance, to the end
    because: str = ""  # why it was not, though asked; or why some of what guidance left may not be permitted
    others: tuple[Other, ...] = ()  # as many as were wanted besides, or fewer; the likeliest first


class NeedHistory(_Message, frozen=True):
    """The worker does not hold this session's last cycle: ask again with `history`."""


class Failed(_Message, frozen=True):
    """The request cannot be answered; the worker is well."""

    problem: str


class Statistics(_Message, frozen=True):
    """Counters of the worker since it started."""

    sessions: int
    evicted: int
    decisions: int
    warmed: int
    rebuilt: int
    forwards: int
    rows: int  # of all forwards: over them, how many requests shared one
    pages: int
    pages_free: int
    pages_peak: int
    pages_refused: int
    pages_found_again: int  # settled, and held for whoever begins alike
    standing_tokens: int  # that every session begins with, held once
    prefix_lookups: int
    prefix_found: int
    cold_sessions: int
    offloaded: int
    returned: int
    internal_fragmentation: float
    external_fragmentation: float = 0.0


Request = Load | Propose | Cancel | Guide | Release | Report | Serve
Reply = Ready | Answer | NeedHistory | Failed | Statistics

_ENCODER = msgspec.msgpack.Encoder()
_REQUESTS = msgspec.msgpack.Decoder(Request)
_REPLIES = msgspec.msgpack.Decoder(Reply)


def encode(message: Request | Reply) -> bytes:
    """A message as a frame body."""
    return _ENCODER.encode(message)


def decode_request(body: bytes) -> Request:
    """A request; raises `msgspec.DecodeError`."""
    return _REQUESTS.decode(body)


def decode_reply(body: bytes) -> Reply:
    """A reply; raises `msgspec.DecodeError`."""
    return _REPLIES.decode(body)
