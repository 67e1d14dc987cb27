"""`o3-gateway --config gateway.toml`: the installed daemon."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from gateway.config.load import load
from gateway.core.errors import GatewayError
from gateway.daemon.service import run_gateway
from gateway.observability.logging import configure_logging
from gateway.supervision.child_log import LEVEL, STYLE


def main() -> None:
    """Run the daemon until SIGTERM or SIGINT; exit status 2 where the configuration cannot be used."""
    parser = argparse.ArgumentParser(prog="o3-gateway", description="the O3 edge gateway daemon")
    parser.add_argument("--config", type=Path, required=True, help="gateway.toml")
    arguments = parser.parse_args()
    try:
        config = load(arguments.config.resolve())
        os.environ[STYLE] = configure_logging(style=config.log.format, level=config.log.level)
        os.environ[LEVEL] = config.log.level
        asyncio.run(run_gateway(config))
    except GatewayError as exc:
        print(exc, file=sys.stderr)  # noqa: T201  # before and after logging, people read standard error
        sys.exit(2)


if __name__ == "__main__":
    main()
