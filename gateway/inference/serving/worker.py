"""The engine worker's program: one bundle, one session of ONNX Runtime, one forward after another.

`python -m gateway.inference.serving.worker --socket-fd N --bundle DIR --provider auto`

Beside a worker that serves (`--give-way-s`) it gets ready only in time that nobody else wants.
"""

from __future__ import annotations

import argparse
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.inference.serving.giving_way import giving_way

if TYPE_CHECKING:
    from gateway.inference.serving.desk import Desk


def main(arguments: list[str] | None = None) -> int:
    """Serve frames until end of stream."""
    parser = argparse.ArgumentParser(prog="gateway.inference.serving.worker")
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--provider", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--pages", type=int, default=256)
    parser.add_argument("--cold-pages", type=int, default=1024)
    parser.add_argument("--max-wait-ms", type=float, default=0.0, help="for company, on CUDA only")
    parser.add_argument("--give-way-s", type=float, help="at most so long, and until `Serve`")
    options = parser.parse_args(arguments)
    with socket.socket(fileno=options.socket_fd) as sock:
        if options.give_way_s is None:
            desk = _desk(sock, options)
        else:
            desk = giving_way(lambda: _until_it_serves(sock, options), options.give_way_s)
        desk.serve()
    return 0


def _desk(sock: socket.socket, options: argparse.Namespace) -> Desk:
    # here, because reading all the modules is much of what a start costs, and may have to give way
    from gateway.inference.serving.desk import Desk  # noqa: PLC0415  see above
    from gateway.inference.serving.serving import Size  # noqa: PLC0415  see above

    size = Size(options.provider, options.pages, options.cold_pages, options.max_wait_ms / 1e3)
    return Desk(sock, options.bundle, size)


def _until_it_serves(sock: socket.socket, options: argparse.Namespace) -> Desk:
    desk = _desk(sock, options)
    desk.get_ready()
    return desk


if __name__ == "__main__":
    sys.exit(main())
