from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from asyncua import ua
from asyncua.common.utils import ServiceError
from asyncua.crypto import uacrypto
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from gateway.core.clock import FakeClock
from gateway.core.errors import ConfigError
from gateway.protocols.opcua import pki
from gateway.protocols.opcua.access import ANONYMOUS, Login, password_of
from gateway.protocols.opcua.passwords import hash_password, verify_password
from gateway.protocols.opcua.settings import Limits, UserSettings, load
from gateway.protocols.opcua.wire import Foreign

NOW = dt.datetime.now(dt.UTC)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pki")
    pki.TrustList(path)
    pki.own_identity(path, "urn:o3-gateway:line-3", ["gateway.example", "192.0.2.7"])
    pki.demo_client(path)
    return path


def test_a_password_is_verified_and_nothing_else_is() -> None:
    stored = hash_password("right")
    assert stored.startswith("$argon2id$")
    assert verify_password("right", stored)
    assert not verify_password("wrong", stored)
    assert not verify_password("", stored)
    assert not verify_password("right", "$argon2id$nonsense")
    assert not verify_password("x" * 2000, stored)


def test_a_pbkdf2_hash_needs_enough_rounds() -> None:
    def stored(rounds: int) -> str:
        key = hashlib.pbkdf2_hmac("sha256", b"right", b"salt", rounds)
        return f"pbkdf2-sha256${rounds}${base64.b64encode(b'salt').decode()}${base64.b64encode(key).decode()}"

    assert verify_password("right", stored(100_000))
    assert not verify_password("wrong", stored(100_000))
    assert not verify_password("right", stored(1_000))
    assert not verify_password("right", "")


async def test_failures_must_wait_and_success_forgets_them() -> None:
    clock = FakeClock()
    users = [UserSettings(name="ada", password_hash=hash_password("right"), role="operator")]
    login = Login(users, Limits(login_failures=2, login_wait_s=30), clock)
    for _ in range(2):
        with pytest.raises(ServiceError):
            await login.user("ada", "wrong", "192.0.2.1")
    with pytest.raises(ServiceError):
        await login.user("ada", "right", "192.0.2.1")
    assert (await login.user("ada", "right", "192.0.2.2")).may("operator")  # another address is not held up
    clock.advance(31)
    user = await login.user("ada", "right", "192.0.2.1")
    assert user.may("viewer")
    assert user.may("operator")
    assert not user.may("engineer")
    assert login.refused == 3


def test_an_anonymous_user_may_call_nothing() -> None:
    assert not any(ANONYMOUS.may(role) for role in ("viewer", "operator", "engineer", "admin", "auditor"))


@pytest.mark.parametrize(
    ("algorithm", "encrypt"),
    [
        ("http://www.w3.org/2001/04/xmlenc#rsa-oaep", uacrypto.encrypt_rsa_oaep),
        ("http://opcfoundation.org/UA/security/rsa-oaep-sha2-256", uacrypto.encrypt_rsa_oaep_sha256),
    ],
)
def test_an_encrypted_password_must_carry_the_nonce(
    directory: Path, algorithm: str, encrypt: Foreign
) -> None:
    key = serialization.load_pem_private_key((directory / "own" / "key.pem").read_bytes(), None)
    assert isinstance(key, RSAPrivateKey)
    nonce = bytes(range(32))
    token: Any = ua.UserNameIdentityToken()
    token.EncryptionAlgorithm = algorithm
    token.Password = encrypt(key.public_key(), struct.pack("<I", 5 + 32) + b"right" + nonce)
    assert password_of(token, key, nonce) == "right"
    with pytest.raises(ServiceError):
        password_of(token, key, bytes(32))  # replayed into another session
    token.EncryptionAlgorithm = "http://www.w3.org/2001/04/xmlenc#rsa-1_5"
    with pytest.raises(ServiceError):
        password_of(token, key, nonce)


def test_our_certificate_has_its_uri_and_every_name_and_is_kept(directory: Path) -> None:
    first = (directory / "own" / "cert.der").read_bytes()
    identity = pki.own_identity(directory, "urn:o3-gateway:line-3", [])
    assert identity.certificate.read_bytes() == first
    certificate = pki.read_certificate(identity.certificate)
    assert pki.application_uris(certificate) == ["urn:o3-gateway:line-3"]
    text = str(certificate.extensions)
    for name in ("gateway.example", "192.0.2.7", "localhost", "127.0.0.1"):
        assert name in text
    assert identity.private_key.stat().st_mode & 0o077 == 0
    assert not pki.expires_soon(identity.certificate, NOW)
    assert pki.expires_soon(identity.certificate, certificate.not_valid_after_utc - dt.timedelta(days=29))


def test_trust_is_the_very_certificate_and_ends_with_its_validity(directory: Path) -> None:
    trust_list = pki.TrustList(directory)
    client = pki.read_certificate(directory / "demo" / "client-cert.pem")
    der = client.public_bytes(serialization.Encoding.DER)
    trust_list.check(der, NOW)
    trust_list.check(der + der, NOW)  # a chain: the leaf counts
    with pytest.raises(pki.UntrustedError, match="not valid today"):
        trust_list.check(der, client.not_valid_after_utc + dt.timedelta(days=1))
    own = (directory / "own" / "cert.der").read_bytes()
    with pytest.raises(pki.UntrustedError, match="not in the trust list"):
        trust_list.check(own, NOW)
    assert any(path.read_bytes() == own for path in (directory / "rejected").iterdir())
    with pytest.raises(pki.UntrustedError, match="cannot be read"):
        trust_list.check(b"nonsense", NOW)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"host": "0.0.0.0"}, "loopback"),  # noqa: S104  # refused
        ({"hots": "127.0.0.1"}, "hots"),
        ({"users": [{"name": "a", "password_hash": "x"}] * 2}, "twice"),
        ({"users": [{"name": "a", "password_hash": "x", "role": "king"}]}, "king"),
        ({"host": "192.0.2.1", "beyond_loopback": True, "loopback_none": True}, "loopback_none"),
    ],
)
def test_wrong_settings_are_refused_with_a_sentence(
    tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    path = tmp_path / "opcua.json"
    path.write_text(json.dumps({"gateway_id": "line-3", "pki_dir": "pki", **change}))
    with pytest.raises(ConfigError, match=problem):
        load(path)


def test_settings_name_the_server_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "opcua.json"
    path.write_text(json.dumps({"gateway_id": "line 3", "pki_dir": "pki"}))
    assert load(path).application_uri == "urn:o3-gateway:line%203"


def test_the_pki_command_makes_a_trusted_demo_client(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pki.main(["--dir", str(tmp_path), "--demo"]) == 0
    printed = capsys.readouterr().out
    assert str(tmp_path / "demo" / "client-key.pem") in printed
    client = pki.read_certificate(tmp_path / "demo" / "client-cert.pem")
    pki.TrustList(tmp_path).check(client.public_bytes(serialization.Encoding.DER), NOW)
