"""Server side of the internal port: a Unix socket whose peers are known by their Unix user."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

from gateway.core.errors import ConfigError, cause, remedy
from gateway.link.messages import Alarm, Answer, Ask, DecisionView, FeedBatch, FeedItem, Subscribe, ToServer
from gateway.supervision.frames import FrameError, frame, read_length
from gateway.supervision.seldom import Seldom

log = structlog.get_logger().bind(component="link")

_EVENT_CAPACITY = 10_000  # decisions and alarms held for one slow reader
_BATCH_PERIOD_S = 0.02
_MAX_CLIENTS = 64
_MAX_ASKS_PER_CLIENT = 64
_SILENT_S = 10.0  # a peer that connects and says nothing, or half a frame, holds the place of another
_LOOK_S = 2.0  # whether the socket's name still leads to us
_PEERCRED = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end, as the kernel says."""

    pid: int
    uid: int
    user: str


Answerer = Callable[[Ask, Peer], Awaitable[Answer]]
Snapshotter = Callable[[], list[FeedItem]]


@dataclass(frozen=True, slots=True)
class LinkStatistics:
    """Counters since start."""

    clients: int
    subscribers: int
    asks: int
    refused_peers: int
    events_dropped: int
    resyncs: int


class _Subscriber:
    """What one Feed reader has still to get: newest state per thing, every event in order."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, str], FeedItem] = {}
        self.events: deque[FeedItem] = deque()
        self.resync = True
        self.wake = asyncio.Event()
        self.sequence = 0
        self.dropped = 0

    def put(self, item: FeedItem) -> None:
        """Take an item; a state replaces its predecessor, an event never does."""
        if isinstance(item, DecisionView | Alarm):
            if len(self.events) >= _EVENT_CAPACITY:
                self.events.clear()
                self.dropped += _EVENT_CAPACITY
                self.resync = True
            self.events.append(item)
        else:
            self.states[type(item).__name__, item.id] = item
        self.wake.set()

    def take(self, snapshot: Snapshotter) -> FeedBatch:
        """Everything outstanding as one batch."""
        self.sequence += 1
        full, self.resync = self.resync, False
        items = snapshot() if full else list(self.states.values())
        items += self.events
        self.states.clear()
        self.events.clear()
        self.wake.clear()
        return FeedBatch(sequence=self.sequence, snapshot=full, items=items)


class LinkServer:
    """Feed and Ask for the northbound processes and `o3ctl`."""

    def __init__(
        self,
        path: Path,
        answer: Answerer,
        snapshot: Snapshotter,
        allowed_uids: frozenset[int],
        silent_s: float = _SILENT_S,
        look_s: float = _LOOK_S,
    ) -> None:
        self._path, self._answer, self._snapshot = path, answer, snapshot
        self._allowed = allowed_uids
        self._subscribers: set[_Subscriber] = set()
        self._clients = self._asks = self._refused = self._dropped = self._resyncs = 0
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(ToServer)
        self._writers: set[asyncio.StreamWriter] = set()
        self._stopped = False
        self._silent_s, self._look_s, self._crowd = silent_s, look_s, Seldom()
        self._server: asyncio.Server | None = None
        self._inode = 0
        self._unread: dict[asyncio.StreamWriter, tuple[int, float]] = {}  # whose Feed waits, and since when

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Listen while the block runs; refuses to take the socket of a gateway that is alive.

        A socket that somebody removes is made anew, else nobody could stop the writes any more. Raises
        `ConfigError`.
        """
        try:
            self._server = await self._bound()
        except OSError as exc:
            long = "its path is longer than a socket's may be (107 bytes): name a shorter `state_dir`"
            advice = long if "too long" in str(exc) else remedy(exc)
            raise ConfigError((f"the internal port {self._path}: {cause(exc)}: {advice}",)) from exc
        keeping = asyncio.create_task(self._keep(), name="internal-port")
        try:
            yield
        finally:
            self._stopped = True
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            if self._ours():
                self._path.unlink(missing_ok=True)

    async def _keep(self) -> None:
        """Look now and then whether the name is still ours."""
        while True:
            await asyncio.sleep(self._look_s)
            if self._ours():
                continue
            before = self._server
            try:
                self._server = await self._bound()
            except (OSError, ConfigError) as exc:
                log.error("internal_port_lost", path=str(self._path), problem=cause(exc))  # noqa: TRY400  # tried again
                continue
            log.warning("internal_port_made_anew", path=str(self._path), why="somebody removed its socket")
            if before is not None:
                before.close()

    def _ours(self) -> bool:
        with contextlib.suppress(OSError):  # gone, or its folder is
            return self._path.stat().st_ino == self._inode
        return False

    async def _bound(self) -> asyncio.Server:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists():
            with socket.socket(socket.AF_UNIX) as probe:
                try:
                    probe.connect(str(self._path))
                except OSError:
                    self._path.unlink(missing_ok=True)  # left behind by a kill
                else:
                    raise ConfigError((f"{self._path}: another gateway is running on this internal port",))
        server = await asyncio.start_unix_server(self._serve, path=str(self._path))
        self._path.chmod(0o660)
        self._inode = self._path.stat().st_ino
        return server

    def publish(self, item: FeedItem) -> None:
        """Hand an item to every subscriber; never blocks."""
        for subscriber in self._subscribers:
            subscriber.put(item)

    def unread_s(self, pid: int) -> float:
        """For how long a process has left unread what a Feed sent it; 0 where it reads, or has no Feed."""
        now = asyncio.get_running_loop().time()
        return max((now - since for feed, since in self._unread.values() if feed == pid), default=0.0)

    def statistics(self) -> LinkStatistics:
        """Counters since start."""
        dropped = self._dropped + sum(s.dropped for s in self._subscribers)
        return LinkStatistics(
            self._clients, len(self._subscribers), self._asks, self._refused, dropped, self._resyncs
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve_peer(reader, writer)
        except asyncio.CancelledError:
            if not self._stopped:  # on Python 3.11 a cancelled handler is logged as a fault of the loop
                raise

    async def _serve_peer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = _peer(writer)
        if peer.uid not in self._allowed or self._clients >= _MAX_CLIENTS:
            self._refuse(peer)
            writer.close()
            return
        self._clients += 1
        self._writers.add(writer)
        try:
            async with asyncio.TaskGroup() as tasks:
                feeds = await self._converse(reader, writer, peer, tasks)
                for feed in feeds:  # a Feed sender has no other end
                    feed.cancel()
        except* (ConnectionError, OSError, asyncio.IncompleteReadError):
            pass  # the peer left; its process says why
        finally:
            self._clients -= 1
            self._writers.discard(writer)
            writer.close()

    async def _converse(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        peer: Peer,
        tasks: asyncio.TaskGroup,
    ) -> list[asyncio.Task[None]]:
        feeds: list[asyncio.Task[None]] = []
        slots = asyncio.Semaphore(_MAX_ASKS_PER_CLIENT)
        first = True
        while True:
            try:
                message = self._decoder.decode(await self._frame(reader, first=first))
                first = False
            except asyncio.IncompleteReadError:
                return feeds
            except TimeoutError:
                log.warning("peer_silent", pid=peer.pid, user=peer.user, within_s=self._silent_s)
                return feeds
            except (msgspec.DecodeError, FrameError) as exc:
                log.warning("frame_refused", pid=peer.pid, problem=str(exc))
                return feeds
            if isinstance(message, Subscribe):
                feeds.append(tasks.create_task(self._feed(writer, peer.pid), name=f"feed-{message.client}"))
            else:
                await slots.acquire()
                tasks.create_task(self._one_ask(message, peer, writer, slots), name=f"ask-{message.verb}")

    async def _one_ask(
        self, ask: Ask, peer: Peer, writer: asyncio.StreamWriter, slots: asyncio.Semaphore
    ) -> None:
        self._asks += 1
        try:
            answer = await self._answer(ask, peer)
            writer.write(frame(self._encoder.encode(answer)))
            await writer.drain()  # what a peer does not read must not pile up for it: it may ask no more
        finally:
            slots.release()

    async def _feed(self, writer: asyncio.StreamWriter, pid: int) -> None:
        subscriber = _Subscriber()
        self._subscribers.add(subscriber)
        subscriber.wake.set()
        try:
            while True:
                await subscriber.wake.wait()
                if subscriber.resync:
                    self._resyncs += 1
                writer.write(frame(self._encoder.encode(subscriber.take(self._snapshot))))
                self._unread[writer] = pid, asyncio.get_running_loop().time()
                await writer.drain()
                del self._unread[writer]
                await asyncio.sleep(_BATCH_PERIOD_S)
        finally:
            self._unread.pop(writer, None)
            self._subscribers.discard(subscriber)
            self._dropped += subscriber.dropped

    async def _frame(self, reader: asyncio.StreamReader, *, first: bool) -> bytes:
        """The next; `TimeoutError` where the first does not come, or another begins and does not end."""
        async with asyncio.timeout(self._silent_s if first else None):
            length = await read_length(reader)
        async with asyncio.timeout(self._silent_s):
            return await reader.readexactly(length)

    def _refuse(self, peer: Peer) -> None:
        """Counted always, told now and then: whoever knocks a thousand times fills no log."""
        self._refused += 1
        if count := self._crowd.due(asyncio.get_running_loop().time()):
            full = f"all {_MAX_CLIENTS} connections are taken: end a client of this gateway"
            why = full if peer.uid in self._allowed else "its user is not listed under [access]"
            log.warning("peer_refused", user=peer.user, pid=peer.pid, why=why, peers=count)


def _peer(writer: asyncio.StreamWriter) -> Peer:
    """The peer's credentials (unix(7), SO_PEERCRED)."""
    sock: socket.socket = writer.get_extra_info("socket")
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)
    pid, uid, _ = _PEERCRED.unpack(raw)
    user = str(uid)
    with contextlib.suppress(KeyError):  # a uid without an account keeps its number
        user = pwd.getpwuid(uid).pw_name
    return Peer(pid, uid, user)


def own_uids() -> frozenset[int]:
    """Who may talk to the internal port by default: this daemon's own user and root."""
    return frozenset({os.getuid(), 0})
