"""`make run` begins here: a Ctrl-C while modules are still being loaded ends in silence, too."""

from __future__ import annotations

import importlib
import sys

_INTERRUPTED = 130  # as a shell says it of SIGINT


def main() -> None:
    """The demo (`run.py`), whose modules take a quarter of a second to load."""
    try:
        run = importlib.import_module("gateway.cli.demo.run").main
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    run()


if __name__ == "__main__":
    main()
