"""TLS, client certificates and passwords against a mosquitto that demands them."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import pwd
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.config.load import load
from gateway.core.clock import SystemClock
from gateway.core.quality import StatusCode
from gateway.core.tag import TagId, TagValue
from gateway.daemon.broker import mqtt_settings
from gateway.protocols.mqtt.bridge import MqttBridge
from gateway.protocols.mqtt.broker import mosquitto_path
from gateway.protocols.mqtt.settings import MqttSettings, MqttTls
from tests.integration.mqtt_peer import PATIENCE_S, needs_mosquitto
from tests.ports import free_port

pytestmark = [
    pytest.mark.integration,
    needs_mosquitto,
    pytest.mark.skipif(shutil.which("mosquitto_passwd") is None, reason="mosquitto_passwd is not installed"),
]

DEMO = Path(__file__).resolve().parents[2] / "packaging" / "demo"
PASSWORD = "correct horse"  # noqa: S105 - a test's password


@dataclass(frozen=True)
class Authority:
    folder: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def ca_file(self) -> Path:
        return self.folder / "ca.pem"

    def issue(self, name: str, *, ca: bool = False) -> tuple[Path, Path]:
        """Certificate and key file of `name`, also valid for 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate(name, key, self.certificate.subject, self.key, ca=ca)
        return _store(self.folder, name, certificate, key)


def authority(folder: Path) -> Authority:
    folder.mkdir()
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")])
    certificate = _certificate("ca", key, subject, key, ca=True)
    _store(folder, "ca", certificate, key)
    return Authority(folder, key, certificate)


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    ca: bool,
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(issuer_id, critical=False)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .sign(issuer_key, hashes.SHA256())
    )


def _store(
    folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> tuple[Path, Path]:
    pem = serialization.Encoding.PEM
    files = folder / f"{name}.pem", folder / f"{name}.key.pem"
    files[0].write_bytes(certificate.public_bytes(pem))
    files[1].write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files


@asynccontextmanager
async def strict_broker(port: int, folder: Path, trust: Authority) -> AsyncIterator[None]:
    certificate, key = trust.issue("broker")
    passwords = folder / "passwords"
    tool = shutil.which("mosquitto_passwd") or ""
    await asyncio.to_thread(
        subprocess.run,
        [tool, "-c", "-b", str(passwords), "gateway", PASSWORD],
        check=True,
        timeout=PATIENCE_S,
    )
    config = folder / "strict.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous false\npassword_file {passwords}\nuser {_user()}\n"
        f"cafile {trust.ca_file}\ncertfile {certificate}\nkeyfile {key}\nrequire_certificate true\n"
    )
    process = await asyncio.create_subprocess_exec(
        str(mosquitto_path()), "-c", str(config), stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            while b" running" not in await process.stderr.readline():
                assert process.returncode is None
        yield
    finally:
        process.kill()
        await process.communicate()


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


@asynccontextmanager
async def running(settings: MqttSettings) -> AsyncIterator[MqttBridge]:
    bridge = MqttBridge(settings, SystemClock())
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(bridge.run())
        try:
            yield bridge
        finally:
            task.cancel()


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - statistics have no event to wait for
            await asyncio.sleep(0.01)


async def test_only_the_right_certificates_and_password_get_a_link(tmp_path: Path) -> None:
    trust, stranger, port = authority(tmp_path / "trust"), authority(tmp_path / "stranger"), free_port()
    certificate, key = trust.issue("gateway")
    good = MqttSettings(
        host="127.0.0.1",
        port=port,
        client_id="o3",
        prefix="o3",
        username="gateway",
        password=PASSWORD,
        tls=MqttTls(ca_file=trust.ca_file, certificate_file=certificate, key_file=key),
        backoff_s=(0.05, 0.1),
    )
    refused = {
        "a broker we do not trust": replace(
            good, tls=replace(good.tls or MqttTls(), ca_file=stranger.ca_file)
        ),
        "no client certificate": replace(good, tls=MqttTls(ca_file=trust.ca_file)),
        "another name than the certificate's": replace(good, host="localhost"),
        "a wrong password": replace(good, password="wrong"),  # noqa: S106 - a test's password
        "a missing key file": replace(good, tls=MqttTls(certificate_file=tmp_path / "none.pem")),
        "no TLS": replace(good, tls=None),
    }
    async with strict_broker(port, tmp_path, trust):
        async with running(good) as bridge:
            sample = TagValue(
                value="x" * 50_000,  # several TLS records
                status=StatusCode.Good,
                source_ts_ns=None,
                server_ts_ns=1,
                confirmed_at=0.0,
            )
            for n in range(20):
                bridge.publish_tag(TagId(f"T.{n}"), sample)
            await eventually(lambda: bridge.statistics().published >= 21)
        for why, settings in refused.items():
            async with running(settings) as bridge:
                await eventually(lambda b=bridge: b.statistics().connect_failures >= 2)  # type: ignore[misc]
                assert bridge.statistics().connects == 0, why
                assert not bridge.health().ok
                assert PASSWORD not in bridge.health().text


async def test_the_same_by_the_keys_of_the_configuration(tmp_path: Path) -> None:
    trust, port = authority(tmp_path / "trust"), free_port()
    certificate, key = trust.issue("gateway")
    for name in ("gateway.toml", "tk1.csv", "binding.csv"):
        shutil.copy(DEMO / name, tmp_path)
    secret = tmp_path / "mqtt.password"
    secret.write_text(f"{PASSWORD}\n")
    secret.chmod(0o600)
    file = tmp_path / "gateway.toml"
    text = file.read_text()
    section = (
        f'[mqtt]\nhost = "127.0.0.1"\nport = {port}\nclient_id = "line-3"\nusername = "gateway"\n'
        f'password_file = "mqtt.password"\n[mqtt.tls]\nca = "{trust.ca_file}"\n'
        f'certificate = "{certificate}"\nkey = "{key}"\n\n'
    )
    file.write_text(text[: text.index("[mqtt]")] + section + text[text.index("[web]") :])
    settings = mqtt_settings(load(file))
    assert settings is not None
    async with strict_broker(port, tmp_path, trust), running(settings) as bridge:
        await eventually(lambda: bridge.health().ok)
        assert bridge.statistics().connects == 1
