"""Where a worker takes requests in: what is answered while it gets ready, and what only when it serves."""

from __future__ import annotations

import gc
import resource
import socket
import threading
from collections.abc import Iterator

import pytest

from gateway.inference.bundle.any_bundle import load_any
from gateway.inference.decision_model import ranges_of
from gateway.inference.messages import (
    Failed,
    Load,
    OutputLimits,
    Propose,
    Ready,
    Reply,
    Report,
    Request,
    Serve,
    Statistics,
    decode_reply,
    encode,
)
from gateway.inference.serving.desk import Desk
from gateway.inference.serving.serving import Size
from gateway.supervision.frames import Frames, frame
from gateway.supervision.numbered import numbered, parted
from tests.unit.inference_exports import REGRESSOR

LIMITS = tuple(
    OutputLimits(str(each.scale), str(each.offset), each.low, each.high)
    for each in ranges_of(load_any(REGRESSOR)).values()
)
ASKED = Propose(session="a", cycle=0, inputs=("2", "12", "40"), in_force=("27",), history=())


@pytest.fixture(autouse=True)
def own_process_again() -> Iterator[None]:
    """A desk bounds its process and ends its garbage collection; this process goes on with other tests."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    yield
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    gc.unfreeze()
    gc.enable()


class Peer:
    """Main's end of the socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._frames = sock, Frames()
        self._held: list[tuple[int, Reply]] = []
        sock.settimeout(120)

    def send(self, *requests: Request) -> None:
        """All at once, numbered from 1."""
        bodies = (numbered(number, encode(each)) for number, each in enumerate(requests, 1))
        self._sock.sendall(b"".join(frame(body) for body in bodies))

    def next(self) -> tuple[int, Reply]:
        """The next reply."""
        while not self._held:
            for body in self._frames.fed(self._sock.recv(65536)):
                number, rest = parted(body)
                self._held.append((number, decode_reply(rest)))
        return self._held.pop(0)

    @property
    def silent(self) -> bool:
        """True while nothing has come that was not taken."""
        self._sock.settimeout(0)
        try:
            return not self._held and not self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return not self._held
        finally:
            self._sock.settimeout(120)


@pytest.fixture
def ends() -> Iterator[tuple[Desk, Peer, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Desk(theirs, REGRESSOR, Size("cpu")), Peer(ours), ours


def test_what_comes_before_it_serves_is_answered_and_what_comes_behind_waits(
    ends: tuple[Desk, Peer, socket.socket],
) -> None:
    desk, peer, ours = ends
    peer.send(Load(outputs=LIMITS), Report(), Serve(), ASKED)
    desk.get_ready()
    assert isinstance(peer.next()[1], Ready)
    number, reply = peer.next()
    assert (number, type(reply)) == (2, Statistics)
    assert peer.silent  # neither `Serve` nor what came behind it, though all came at once

    serving = threading.Thread(target=desk.serve)
    serving.start()
    number, reply = peer.next()
    assert (number, type(reply)) == (3, Statistics)
    assert peer.next()[0] == 4
    ours.close()
    serving.join(120)
    assert not serving.is_alive()


def test_a_stream_that_ends_while_it_gets_ready_ends_it(ends: tuple[Desk, Peer, socket.socket]) -> None:
    desk, peer, ours = ends
    peer.send(Report())
    ours.shutdown(socket.SHUT_WR)
    desk.get_ready()
    desk.serve()
    assert isinstance(peer.next()[1], Failed)  # no bundle is loaded
