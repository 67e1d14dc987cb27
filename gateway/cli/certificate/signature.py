"""Ed25519 signatures of certificate files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from gateway.solver.certificates.basis import canonical
from gateway.solver.errors import CertificateError

ALGORITHM = "ed25519"
_CONTEXT = b"o3-certificate-file/1\n"  # no signature over anything else is one over a certificate


def signed(document: Mapping[str, Any], key_file: Path) -> dict[str, Any]:
    """The file's document with its signature; raises `CertificateError` for a key that cannot be used."""
    key = _read(key_file, load_private=True)
    if not isinstance(key, Ed25519PrivateKey):
        raise CertificateError(f"`{key_file}` holds no Ed25519 private key")
    value = key.sign(_CONTEXT + _unsigned(document)).hex()
    return {**document, "signature": {"algorithm": ALGORITHM, "key": _hex(key.public_key()), "value": value}}


def public_key(key_file: Path) -> str:
    """A public key in hex, from a PEM file; raises `CertificateError`."""
    key = _read(key_file, load_private=False)
    if not isinstance(key, Ed25519PublicKey):
        raise CertificateError(f"`{key_file}` holds no Ed25519 public key")
    return _hex(key)


def signature_problem(document: Mapping[str, Any], known: str | None) -> str:
    """What is wrong with a file's signature; empty when nothing is. `known` is the key it must be from."""
    signature = document["signature"]
    try:
        if set(signature) != {"algorithm", "key", "value"} or signature["algorithm"] != ALGORITHM:
            return "the signature is of another kind"
        if known is not None and signature["key"] != known:
            return f"it was signed with key {str(signature['key'])[:16]}, not with yours"
        key = Ed25519PublicKey.from_public_bytes(_bytes(signature["key"]))
        key.verify(_bytes(signature["value"]), _CONTEXT + _unsigned(document))
    except InvalidSignature:
        return "the signature does not fit: something was changed after it was signed"
    except (TypeError, ValueError) as exc:
        return f"the signature cannot be read: {exc}"
    return ""


def _unsigned(document: Mapping[str, Any]) -> bytes:
    return canonical({**document, "signature": None})


def _bytes(text: str) -> bytes:
    """The bytes of small hex digits; other spellings of the same bytes are other files."""
    data = bytes.fromhex(text)
    if data.hex() != text:
        raise ValueError("it is not spelled in small hex digits")
    return data


def _hex(key: Ed25519PublicKey) -> str:
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def _read(path: Path, *, load_private: bool) -> object:
    try:
        data = path.read_bytes()
        return load_pem_private_key(data, None) if load_private else load_pem_public_key(data)
    except OSError as exc:
        raise CertificateError(f"key `{path}` cannot be read: {exc.strerror}") from exc
    except (ValueError, TypeError) as exc:
        kind = "private" if load_private else "public"
        raise CertificateError(
            f"key `{path}` cannot be used: it is no {kind} key in PEM without a password; "
            "`o3ctl key generate` makes a pair"
        ) from exc
