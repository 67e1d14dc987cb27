"""Certificates: our own, the trust list, and the demo's client. Key files end in `.pem`, mode 0600.

python -m gateway.protocols.opcua.pki --dir DIR [--gateway-id ID] [--demo] [--trust FILE]
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import ipaddress
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_KEY_BITS = 2048
_YEARS = 10
_REJECTED_LIMIT = 100  # files; a stranger must not fill the disk
_WARNING_DAYS = 30
DEMO_CLIENT_URI = "urn:o3-gateway:demo-client"


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate and its key, as paths; `uri` is the ApplicationUri in the certificate."""

    certificate: Path
    private_key: Path
    uri: str


class UntrustedError(Exception):
    """A peer's certificate may not be used; `reason` names why for the log."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TrustList:
    """`trusted/`, `issuers/`, `crl/` and `rejected/` below one directory, read again whenever they change."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for name in ("own", "trusted", "issuers", "crl", "rejected"):
            (directory / name).mkdir(parents=True, exist_ok=True, mode=0o750)

    def check(self, der: bytes, now: dt.datetime) -> x509.Certificate:
        """The peer's certificate; one that may not enter raises `UntrustedError`, a copy lies in `rejected/`.

        Trusted is: the very certificate lies in `trusted/`, or an issuer in `trusted/` signed it. Revoked,
        expired, too short a key or an unreadable certificate is refused either way.
        """
        certificate = leaf(der)
        try:
            self._check(certificate, now)
        except UntrustedError:
            self._keep_rejected(certificate)
            raise
        return certificate

    def _check(self, certificate: x509.Certificate, now: dt.datetime) -> None:
        if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
            raise UntrustedError("it is not valid today")
        key = certificate.public_key()
        if not isinstance(key, rsa.RSAPublicKey) or not _KEY_BITS <= key.key_size <= 4096:  # noqa: PLR2004  # policy limits
            raise UntrustedError("its key is not RSA of 2048 to 4096 bits")
        anchors = self._certificates("trusted")
        if any(certificate == anchor for anchor in anchors):
            issuer = None
        else:
            issuer = next((anchor for anchor in anchors if _issued(anchor, certificate)), None)
            if issuer is None:
                raise UntrustedError("it is not in the trust list")
            if not issuer.not_valid_before_utc <= now <= issuer.not_valid_after_utc:
                raise UntrustedError("its issuer is not valid today")
        if self._revoked(certificate, issuer):
            raise UntrustedError("it is revoked")

    def _certificates(self, folder: str) -> list[x509.Certificate]:
        found = []
        for path in sorted((self._directory / folder).iterdir()):
            if path.suffix in {".pem", ".der", ".crt", ".cer"}:
                try:
                    found.append(read_certificate(path))
                except ValueError:
                    continue  # a file that is no certificate trusts nobody
        return found

    def _revoked(self, certificate: x509.Certificate, issuer: x509.Certificate | None) -> bool:
        issuers = [issuer] if issuer is not None else self._certificates("issuers")
        for path in sorted((self._directory / "crl").iterdir()):
            raw = path.read_bytes()
            try:
                pem = raw.lstrip().startswith(b"-----")
                crl = x509.load_pem_x509_crl(raw) if pem else x509.load_der_x509_crl(raw)
            except ValueError:
                continue  # a file that is no revocation list revokes nobody
            signed = any(crl.is_signature_valid(i.public_key()) for i in issuers)  # type: ignore[arg-type]  # RSA by policy
            if signed and crl.get_revoked_certificate_by_serial_number(certificate.serial_number) is not None:
                return True
        return False

    def _keep_rejected(self, certificate: x509.Certificate) -> None:
        folder = self._directory / "rejected"
        raw = certificate.public_bytes(serialization.Encoding.DER)
        path = folder / f"{hashlib.sha256(raw).hexdigest()[:40]}.der"
        if not path.exists() and len(list(folder.iterdir())) < _REJECTED_LIMIT:
            path.write_bytes(raw)


def leaf(der: bytes) -> x509.Certificate:
    """The first certificate of a DER chain (OPC 10000-6, 6.2.6); raises `UntrustedError` when it is none."""
    try:
        if len(der) >= 4 and der[:2] == b"\x30\x82":  # noqa: PLR2004  # a SEQUENCE with a two-byte length
            der = der[: 4 + int.from_bytes(der[2:4], "big")]
        return x509.load_der_x509_certificate(der)
    except ValueError as exc:
        raise UntrustedError("it cannot be read") from exc


def read_certificate(path: Path) -> x509.Certificate:
    """The certificate in a PEM or DER file; raises ValueError when it is none."""
    raw = path.read_bytes()
    if raw.lstrip().startswith(b"-----"):
        return x509.load_pem_x509_certificate(raw)
    return x509.load_der_x509_certificate(raw)


def own_identity(directory: Path, uri: str, hostnames: list[str]) -> Identity:
    """Our certificate in `own/`; made when it is missing or was made for another ApplicationUri."""
    identity = Identity(directory / "own" / "cert.der", directory / "own" / "key.pem", uri)
    if identity.certificate.exists() and identity.private_key.exists():
        try:
            names = _alternative_names(read_certificate(identity.certificate))
        except ValueError:
            names = []
        if uri in names:
            return identity
    make_certificate(
        identity, "O3 gateway", sorted({"localhost", socket.gethostname(), *hostnames}), server=True
    )
    return identity


def days_left(path: Path, now: dt.datetime) -> int:
    """Days until the certificate ends; below `WARNING_DAYS` an operator should renew it."""
    return (read_certificate(path).not_valid_after_utc - now).days


def expires_soon(path: Path, now: dt.datetime) -> bool:
    """True in the last thirty days of a certificate."""
    return days_left(path, now) < _WARNING_DAYS


def demo_client(directory: Path) -> Identity:
    """A client certificate in `demo/`, trusted; made once."""
    TrustList(directory)
    folder = directory / "demo"
    folder.mkdir(exist_ok=True, mode=0o750)
    identity = Identity(folder / "client-cert.pem", folder / "client-key.pem", DEMO_CLIENT_URI)
    if not (identity.certificate.exists() and identity.private_key.exists()):
        make_certificate(identity, "O3 demo client", ["localhost"], server=False)
    trust(directory, identity.certificate)
    return identity


def trust(directory: Path, certificate: Path) -> Path:
    """Copy a certificate into `trusted/`; returns where it lies. Takes effect at the next connection."""
    found = read_certificate(certificate)
    raw = found.public_bytes(serialization.Encoding.DER)
    path = directory / "trusted" / f"{hashlib.sha256(raw).hexdigest()[:40]}.der"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
    path.write_bytes(raw)
    (directory / "rejected" / path.name).unlink(missing_ok=True)
    return path


def make_certificate(
    identity: Identity, name: str, hosts: list[str], *, server: bool, days: int = 365 * _YEARS
) -> None:
    """A self-signed application instance certificate (OPC 10000-6, 6.2.2) and its key, as files."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)
    subject = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, name), x509.NameAttribute(NameOID.ORGANIZATION_NAME, "O3")]
    )
    start = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH] + ([ExtendedKeyUsageOID.SERVER_AUTH] if server else [])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + dt.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(_names(identity.uri, hosts)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_KEY_USAGE, critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )
    certificate = builder.sign(key, hashes.SHA256())
    identity.private_key.unlink(missing_ok=True)
    descriptor = os.open(identity.private_key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
    pem = identity.certificate.suffix == ".pem"
    encoding = serialization.Encoding.PEM if pem else serialization.Encoding.DER
    identity.certificate.write_bytes(certificate.public_bytes(encoding))


_KEY_USAGE = x509.KeyUsage(
    digital_signature=True,
    content_commitment=True,
    key_encipherment=True,
    data_encipherment=True,
    key_agreement=False,
    key_cert_sign=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


def _names(uri: str, hosts: list[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri)]
    addresses = {"127.0.0.1", "::1"}
    for host in hosts:
        try:
            addresses.add(str(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names + [x509.IPAddress(ipaddress.ip_address(a)) for a in sorted(addresses)]


def _alternative_names(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return list(names.get_values_for_type(x509.UniformResourceIdentifier))


def application_uris(certificate: x509.Certificate) -> list[str]:
    """The ApplicationUris a certificate speaks for."""
    return _alternative_names(certificate)


def _issued(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        if not issuer.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return False
        certificate.verify_directly_issued_by(issuer)
    except (x509.ExtensionNotFound, ValueError, TypeError, InvalidSignature):
        return False
    return True


def main(arguments: list[str] | None = None) -> int:
    """Make what is missing and print where it lies."""
    parser = argparse.ArgumentParser(prog="python -m gateway.protocols.opcua.pki")
    parser.add_argument("--dir", type=Path, required=True, help="the gateway's pki directory")
    parser.add_argument("--gateway-id", default="", help="make the server's own certificate for this id")
    parser.add_argument("--demo", action="store_true", help="make a trusted client certificate for the demo")
    parser.add_argument("--trust", type=Path, help="copy this certificate into trusted/")
    options = parser.parse_args(arguments)
    TrustList(options.dir)
    lines = []
    if options.gateway_id:
        own = own_identity(options.dir, f"urn:o3-gateway:{quote(options.gateway_id, safe='')}", [])
        lines.append(f"server certificate  {own.certificate}")
    if options.demo:
        client = demo_client(options.dir)
        lines += [f"client certificate  {client.certificate}", f"client key          {client.private_key}"]
        lines.append(f"client uri          {client.uri}")
    if options.trust is not None:
        lines.append(f"trusted             {trust(options.dir, options.trust)}")
    sys.stdout.write("\n".join(lines) + ("\n" if lines else ""))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
