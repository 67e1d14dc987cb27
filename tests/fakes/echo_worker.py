"""Answers each frame with itself, but for a few words that tell it to misbehave."""

from __future__ import annotations

import argparse
import os
import socket

from gateway.supervision.frames import receive, send

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket-fd", type=int, required=True)
    with socket.socket(fileno=parser.parse_args().socket_fd) as sock:
        while (body := receive(sock)) is not None:
            match body:
                case b"quiet":
                    continue
                case b"die":
                    os._exit(3)
                case b"late":
                    receive(sock)
                case b"twice":
                    send(sock, body)
            send(sock, body)
