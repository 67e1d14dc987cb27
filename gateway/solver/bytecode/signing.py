"""Ed25519 keys, signatures of compiled modules, and which keys a gateway trusts."""

from __future__ import annotations

import contextlib
import os
import stat
import string
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from gateway.core.errors import GatewayError
from gateway.solver.bytecode.opcodes import CONTEXT
from gateway.solver.bytecode.program import Compiled, Signature

_KEY_DIGITS = 64
_SHOWN = 16  # digits of a key that people compare
_MOST_BYTES = 65_536  # of a key file
_OTHERS = stat.S_IRWXO | stat.S_IWGRP  # a group may be given a key to read


class KeyRefusedError(GatewayError):
    """A key file cannot be used or written; the sentence names it and says why."""


def generate(private: Path) -> tuple[Path, str]:
    """Write a new key pair: `private` for its owner only, and beside it the public one, with suffix `.pub`.

    The public file's path, and the public key as `trusted_keys` takes it. Never writes over a file; raises
    `KeyRefusedError`.
    """
    public = private.with_suffix(".pub")
    if public == private:
        raise KeyRefusedError(f"`{private}` is what the public key would be called; name the private one so")
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        if public.exists():
            raise KeyRefusedError(f"`{public}` is there already; it is not written over")
        _write_new(private, pem, 0o600)
        try:
            _write_new(
                public,
                key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
                0o644,
            )
        except OSError:
            private.unlink(missing_ok=True)  # ours, of a moment ago: a half of a pair helps nobody
            raise
    except FileExistsError as exc:
        raise KeyRefusedError(f"`{exc.filename}` is there already; it is not written over") from exc
    except OSError as exc:
        raise KeyRefusedError(f"`{private}` cannot be written: {exc.strerror or exc}") from exc
    return public, key_text(key.public_key())


def sign(encoded: bytes, key_file: Path) -> Signature:
    """The signature of an encoded module by the private key in a PEM file; raises `KeyRefusedError`."""
    key = _private(key_file)
    return Signature(bytes.fromhex(key_text(key.public_key())), key.sign(CONTEXT + encoded))


def key_text(key: Ed25519PublicKey) -> str:
    """A public key in hex, as `trusted_keys` takes it."""
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def shown(key: str) -> str:
    """The first digits of a key, for sentences."""
    return key[:_SHOWN]


def is_key(text: str) -> bool:
    """Whether a text can be a public key: 64 small hex digits."""
    return len(text) == _KEY_DIGITS and set(text) <= set(string.hexdigits.lower())


@dataclass(frozen=True, slots=True)
class Trust:
    """Which keys count, and whether a module needs a signature by one of them."""

    keys: AbstractSet[str] = frozenset()
    signed_only: bool = False

    def signer(self, compiled: Compiled) -> str:
        """The trusted key that signed a module, in hex; empty where none did."""
        signature = compiled.signature
        if signature is None or signature.key.hex() not in self.keys or signature_problem(compiled):
            return ""
        return signature.key.hex()

    def problem(self, compiled: Compiled) -> str:
        """Why a compiled module is not taken; empty where it is.

        A signature that does not fit is refused everywhere: something was changed after it was made. One by a
        key that is not trusted counts as none.
        """
        broken = signature_problem(compiled)
        if broken or not self.signed_only:
            return broken
        if compiled.signature is None:
            return "the module has no signature, and this gateway takes signed ones only (`signed_only`)"
        if compiled.signature.key.hex() not in self.keys:
            return (
                f"the module is signed with key {shown(compiled.signature.key.hex())}..., which is not among "
                "the `trusted_keys` of this gateway"
            )
        return ""


_ANSWERS = b"o3-analysis/1\n"  # no signature over a module is one over answers


@dataclass(frozen=True, slots=True)
class Seal:
    """A private key by which a gateway knows again what it wrote itself."""

    key: Ed25519PrivateKey = field(repr=False)

    @staticmethod
    def of(key_file: Path) -> Seal:
        """The key in a PEM file; raises `KeyRefusedError`."""
        return Seal(_private(key_file))

    def signature(self, data: bytes) -> str:
        """In hex."""
        return self.key.sign(_ANSWERS + data).hex()

    def fits(self, data: bytes, signature: str) -> bool:
        """Whether this key signed it."""
        try:
            self.key.public_key().verify(bytes.fromhex(signature), _ANSWERS + data)
        except (InvalidSignature, ValueError):
            return False
        return True


def signature_problem(compiled: Compiled) -> str:
    """Why a module's signature does not fit its bytes; empty where it does, or where there is none."""
    signature = compiled.signature
    if signature is None:
        return ""
    try:
        Ed25519PublicKey.from_public_bytes(signature.key).verify(signature.value, CONTEXT + compiled.signed)
    except (InvalidSignature, ValueError):
        return (
            f"the signature with key {shown(signature.key.hex())}... does not fit: something was changed "
            "after it was signed; take the file from its author again"
        )
    return ""


def _private(path: Path) -> Ed25519PrivateKey:
    try:
        data, mode = _key_file(path)
        key = load_pem_private_key(data, None)
    except OSError as exc:
        raise KeyRefusedError(f"key `{path}` cannot be read: {exc.strerror or exc}") from exc
    except (ValueError, TypeError, UnsupportedAlgorithm) as exc:
        raise KeyRefusedError(
            f"key `{path}` cannot be used: it is no private key in PEM without a password; "
            "`o3ctl key generate` makes one"
        ) from exc
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyRefusedError(f"`{path}` holds no Ed25519 private key")
    if mode & _OTHERS:
        raise KeyRefusedError(
            f"key `{path}` may be read or changed by other accounts (mode {mode:04o}): `chmod 600 {path}`, "
            "and make a new key where somebody may have copied this one"
        )
    return key


def _key_file(path: Path) -> tuple[bytes, int]:
    """What a key file holds, read without ever waiting, and its mode; `OSError` or `KeyRefusedError`."""
    if not stat.S_ISREG(path.stat().st_mode):  # to open a device may do something
        raise KeyRefusedError(f"key `{path}` cannot be read: it is not a regular file")
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        data, mode = file.read(_MOST_BYTES + 1), stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    if len(data) > _MOST_BYTES:
        raise KeyRefusedError(f"key `{path}` cannot be used: it is longer than {_MOST_BYTES} bytes")
    return data, mode


def _write_new(path: Path, data: bytes, mode: int) -> None:
    """Write a file that is not there yet, durably; raises `OSError`, and then nothing new is there."""
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:  # as the mode says
        try:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink()
            raise
