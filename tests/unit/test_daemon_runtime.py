"""Files that lie in the watched folder, and what people send: neither may stop the daemon."""

from __future__ import annotations

import pytest

from gateway.daemon.runtime import whole


@pytest.mark.parametrize("text", [b"[" * 200_000, b'{"a":' * 100_000, b"", b"\xff\xfe{", b"[1"])
def test_a_file_that_cannot_be_read_as_json_is_not_whole(text: bytes) -> None:
    assert not whole(text)
