"""Files that are no certificates."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli.certificate.checks import Wanted, verify
from gateway.cli.main import app
from tests.unit.certificate_demo import wrong

NOBODY = Wanted(solvers=())


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"{}", b"null", b'{"a":' * 3000, b"1e999"])
def test_a_file_that_is_no_certificate_is_told_so(data: bytes) -> None:
    done = verify(data, NOBODY)

    assert wrong(done) == ["schema"]
    assert not done.good


def test_a_file_that_is_not_there_is_a_wrong_usage(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["certificate", "verify", str(tmp_path / "none.o3cert")])

    assert done.exit_code == 2
    assert "none.o3cert" in done.output
