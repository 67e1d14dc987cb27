"""Password hashes: argon2id (RFC 9106, second recommended option's shape), verified in constant time."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os

from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

_MEMORY_KIB, _ITERATIONS, _LANES, _BYTES = 19_456, 2, 1, 32  # OWASP's minimum: 25 ms on a slow core
_PBKDF2_FLOOR = 100_000
_LIMIT_BYTES = 1024


def hash_password(password: str) -> str:
    """A new argon2id hash in PHC form, for the configuration."""
    kdf = Argon2id(
        salt=os.urandom(16), length=_BYTES, iterations=_ITERATIONS, lanes=_LANES, memory_cost=_MEMORY_KIB
    )
    return kdf.derive_phc_encoded(password.encode())


def verify_password(password: str, stored: str) -> bool:
    """True when `password` made `stored`: `$argon2id$...` or `pbkdf2-sha256$ITERATIONS$SALT$KEY` (base64)."""
    secret = password.encode()
    if len(secret) > _LIMIT_BYTES:
        return False
    if stored.startswith("$argon2id$"):
        try:
            Argon2id.verify_phc_encoded(secret, stored)
        except (InvalidKey, ValueError):
            return False
        return True
    return _verify_pbkdf2(secret, stored)


def _verify_pbkdf2(secret: bytes, stored: str) -> bool:
    try:
        scheme, iterations, salt, key = stored.split("$")
        expected = base64.b64decode(key, validate=True)
        count = int(iterations)
        if scheme != "pbkdf2-sha256" or count < _PBKDF2_FLOOR or not expected:
            return False
        made = hashlib.pbkdf2_hmac(
            "sha256", secret, base64.b64decode(salt, validate=True), count, len(expected)
        )
    except (ValueError, binascii.Error):
        return False
    return hmac.compare_digest(made, expected)
