"""What must hold of the MQTT section and of the files it names."""

from __future__ import annotations

from pathlib import Path

from gateway.config.keys import is_loopback
from gateway.config.model import MqttSection
from gateway.config.positions import Loc

_OTHERS = 0o007


def broker_problems(section: MqttSection | None) -> list[tuple[Loc, str]]:
    """Everything wrong with it: the key inside the section, and a sentence."""
    if section is None:
        return []
    found: list[tuple[Loc, str]] = []
    clear = section.tls is None and not is_loopback(section.host)
    if section.password_file is not None:
        where: Loc = ("password_file",)
        if section.username is None:
            found.append((where, "a password needs a `username`"))
        if clear:
            found.append((where, f"the password would travel in clear to `{section.host}`; add [mqtt.tls]"))
        found += [(where, why) for why in password_problems(section.password_file)]
    if section.requests and clear:
        found.append((("requests",), f"requests over the net need [mqtt.tls] to `{section.host}`"))
    if section.tls is not None:
        if (section.tls.certificate is None) != (section.tls.key is None):
            found.append((("tls",), "`certificate` and `key` are given together or not at all"))
        for name in ("ca", "certificate", "key"):
            file: Path | None = getattr(section.tls, name)
            if file is not None and (why := _unreadable(file)):
                found.append((("tls", name), why))
    return found


def password_problems(file: Path) -> list[str]:
    """Why a password cannot, or should not, be read from a file."""
    if why := _unreadable(file):
        return [why]
    found = []
    if not password_in(file):
        found.append(f"`{file}` holds no password: write it into the first line")
    if file.stat().st_mode & _OTHERS:
        found.append(f"`{file}` is open to every user of this machine: chmod 640 {file}")
    return found


def password_in(file: Path) -> str:
    """The first line of the file; raises `OSError` or `UnicodeDecodeError`."""
    return next(iter(file.read_text().splitlines()), "")


def _unreadable(file: Path) -> str:
    try:
        file.read_text()
    except OSError as exc:
        return f"`{file}` cannot be read: {exc.strerror or exc}"
    except UnicodeDecodeError:
        return f"`{file}` is not a text file"
    return ""
