"""An engine worker that finds nothing again that was settled: what shared prefixes are worth."""

from __future__ import annotations

import sys
from unittest import mock

from gateway.inference.kv.paged_graph import PagedGraph
from gateway.inference.serving.worker import main

if __name__ == "__main__":
    with mock.patch.object(PagedGraph, "adopt", return_value=0), mock.patch.object(PagedGraph, "settle"):
        sys.exit(main())
