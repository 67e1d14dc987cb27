"""o3-opcua with certificates it cannot use: a sentence in the log, not a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.protocols.opcua import pki
from gateway.protocols.opcua.__main__ import EXIT_CONFIG
from gateway.protocols.opcua.settings import load

OPCUA = (sys.executable, "-m", "gateway.protocols.opcua")

pytestmark = pytest.mark.integration


def started(folder: Path, pki_dir: Path) -> tuple[int, dict[str, str]]:
    settings = folder / "opcua.json"
    settings.write_text(json.dumps({"gateway_id": "test", "pki_dir": str(pki_dir), "port": 0}))
    done = subprocess.run(  # noqa: S603  # our own interpreter
        [*OPCUA, "--link", str(folder / "none.sock"), "--config", str(settings)],
        capture_output=True,
        text=True,
        timeout=360,
        check=False,
    )
    return done.returncode, json.loads(done.stderr)


def test_a_key_that_is_none_is_told_with_what_to_do(tmp_path: Path) -> None:
    directory = tmp_path / "pki"
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"gateway_id": "test", "pki_dir": str(directory), "port": 0}))
    pki.TrustList(directory)
    own = pki.own_identity(directory, load(settings).application_uri, [])
    own.private_key.write_text("no key")
    status, line = started(tmp_path, directory)
    assert status == EXIT_CONFIG
    assert line["event"] == "cannot_serve"
    assert (
        f"{directory / 'own'}: the certificate or the key cannot be used: put back a copy" in line["problem"]
    )
    assert own.private_key.read_text() == "no key"


def test_a_folder_that_cannot_be_used_is_told_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "pki").write_text("")
    status, line = started(tmp_path, tmp_path / "pki")
    assert status == EXIT_CONFIG
    assert str(tmp_path / "pki") in line["problem"]
    assert "this user must be able to read and write it" in line["problem"]
