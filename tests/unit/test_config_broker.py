"""The MQTT section: identity, password and TLS files, told before the daemon starts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gateway.config.load import load
from gateway.config.tags import tag_definitions
from gateway.core.errors import ConfigError
from gateway.core.tag import TagId
from gateway.daemon.broker import mqtt_settings, wide_integers

DEMO = Path(__file__).resolve().parents[2] / "packaging" / "demo"
PASSWORD = "correct horse"  # noqa: S105 - a test's password


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("gateway.toml", "tk1.csv", "binding.csv"):
        shutil.copy(DEMO / name, tmp_path)
    for name in ("ca.pem", "gateway.pem", "gateway.key.pem"):
        (tmp_path / name).write_text("-----BEGIN-----\n")
    (tmp_path / "mqtt.password").write_text(f"{PASSWORD}\n")
    (tmp_path / "mqtt.password").chmod(0o640)
    return tmp_path


def broker(folder: Path, *lines: str, tls: tuple[str, ...] = (), host: str = "192.0.2.1") -> Path:
    file = folder / "gateway.toml"
    text = file.read_text()
    start, end = text.index("[mqtt]"), text.index("[web]")
    section = [f'[mqtt]\nhost = "{host}"', *lines, *(("[mqtt.tls]", *tls) if tls else ()), "\n"]
    file.write_text(text[:start] + "\n".join(section) + text[end:])
    return file


def problems(file: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(file)
    return [problem.removeprefix(f"{file.parent}/") for problem in caught.value.problems]


def test_identity_password_and_tls_reach_the_bridge(folder: Path) -> None:
    file = broker(
        folder,
        'client_id = "line-3"',
        'username = "gateway"',
        'password_file = "mqtt.password"',
        "requests = true",
        tls=('ca = "ca.pem"', 'certificate = "gateway.pem"', 'key = "gateway.key.pem"'),
    )
    settings = mqtt_settings(load(file))
    assert settings is not None
    assert (settings.client_id, settings.username, settings.password) == ("line-3", "gateway", PASSWORD)
    assert settings.accept_requests
    assert settings.tls is not None
    assert settings.tls.ca_file == folder / "ca.pem"
    assert settings.tls.certificate_file == folder / "gateway.pem"
    assert settings.tls.key_file == folder / "gateway.key.pem"


@pytest.mark.parametrize(
    ("lines", "tls", "said"),
    [
        ((), ('ca = "no.pem"',), "`{folder}/no.pem` cannot be read: No such file or directory"),
        (
            ('username = "gateway"', 'password_file = "none"'),
            ("",),
            "`{folder}/none` cannot be read: No such file or directory",
        ),
        (('password_file = "mqtt.password"',), ("",), "a password needs a `username`"),
        (
            ('username = "g"', 'password_file = "mqtt.password"'),
            (),
            "the password would travel in clear to `192.0.2.1`; add [mqtt.tls]",
        ),
        (("requests = true",), (), "requests over the net need [mqtt.tls] to `192.0.2.1`"),
        ((), ('key = "gateway.key.pem"',), "`certificate` and `key` are given together"),
        ((), ('certificat = "gateway.pem"',), "unknown key `certificat`; did you mean `certificate`?"),
        (('username = "g"', 'password_file = "empty"'), ("",), "holds no password"),
        (
            ('username = "g"', 'password_file = "open"'),
            ("",),
            "is open to every user of this machine: chmod 640",
        ),
    ],
)
def test_what_is_missing_or_unwise_is_told_with_its_line(
    folder: Path, lines: tuple[str, ...], tls: tuple[str, ...], said: str
) -> None:
    (folder / "empty").write_text("\n")
    (folder / "empty").chmod(0o600)
    (folder / "open").write_text("secret\n")
    (folder / "open").chmod(0o644)
    found = problems(broker(folder, *lines, tls=tls))
    assert any(said.format(folder=folder) in problem for problem in found), found
    assert all(problem.startswith("gateway.toml:") for problem in found)
    assert PASSWORD not in str(found)


def test_on_this_machine_a_password_may_go_without_tls(folder: Path) -> None:
    file = broker(folder, 'username = "g"', 'password_file = "mqtt.password"', host="127.0.0.1")
    settings = mqtt_settings(load(file))
    assert settings is not None
    assert settings.password == PASSWORD


def test_sixty_four_bit_integers_travel_as_text(folder: Path) -> None:
    table = folder / "tk1.csv"
    table.write_text(
        table.read_text()
        + "TK1.TOTAL,input,20,uint64,,,,,,,fast,,,Counter,,\nTK1.N,input,30,uint32,,,,,,,fast,,,,,\n"
    )
    definitions = {d.id: d for d in tag_definitions(load(folder / "gateway.toml"))}
    assert wide_integers(definitions) == {TagId("TK1.TOTAL")}
