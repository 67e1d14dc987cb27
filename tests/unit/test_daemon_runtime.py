"""Files that lie in the watched folder, and what people send: neither may stop the daemon."""

from __future__ import annotations

import pytest

from gateway.daemon.runtime import ToldModules, whole
from gateway.solver.in_force.module_status import Refusal, refused_status


@pytest.mark.parametrize("text", [b"[" * 200_000, b'{"a":' * 100_000, b"", b"\xff\xfe{", b"[1"])
def test_a_file_that_cannot_be_read_as_json_is_not_whole(text: bytes) -> None:
    assert not whole(text)


# What clients hold of a module is as old as the last word about it: that it is gone is a word, too.
def test_a_module_that_is_there_no_more_is_told_as_gone_once() -> None:
    told = ToldModules()
    one = refused_status("one", Refusal("one.json", ("one.json:1:1: it is empty",), 5))
    two = refused_status("two", Refusal("two.json", ("two.json:1:1: it is empty",), 5))

    assert [(s.id, s.state) for s in told.news([one, two])] == [("one", "refused"), ("two", "refused")]
    assert [(s.id, s.state) for s in told.news([two])] == [("one", "gone"), ("two", "refused")]
    assert [(s.id, s.state) for s in told.news([two])] == [("two", "refused")]
