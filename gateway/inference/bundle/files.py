"""A bundle's folder: its description, and files that are whole, listed and not too large."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gateway.core.errors import InferenceError

BUNDLE_FILE = "bundle.json"
MODEL_FILE = "model.onnx"
MOST_FILE_BYTES = 1 << 30  # of one file; a graph itself is under 2 GiB by its format
MOST_DESCRIPTION_BYTES = 4 << 20

# How a graph names a file beside it: key 1 `location`, value 2 the name, both as length and text.
_KEY = b"\x0a\x08location"
_LOCATION = re.compile(re.escape(_KEY) + rb"\x12([\x01-\x7f])", re.DOTALL)


class BundleError(InferenceError):
    """A bundle cannot be used; the sentence says what to do."""

    def __init__(self, bundle: Path, problem: str) -> None:
        super().__init__(f"model bundle `{bundle}`: {problem}")
        self.bundle, self.problem = bundle, problem


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Unknown keys are refused everywhere."""


class FileSpec(Strict, frozen=True):
    """A file of the bundle."""

    sha256: str
    bytes: int


def read_description(directory: Path) -> bytes:
    """The bytes of `bundle.json`; raises `BundleError`."""
    path = directory / BUNDLE_FILE
    try:
        if path.stat().st_size > MOST_DESCRIPTION_BYTES:
            problem = f"{BUNDLE_FILE} is larger than {MOST_DESCRIPTION_BYTES >> 20} MiB: it is no description"
            raise BundleError(directory, problem)
        return path.read_bytes()
    except OSError as exc:
        problem = f"{BUNDLE_FILE} cannot be read ({exc.strerror}): copy the whole bundle folder"
        raise BundleError(directory, problem) from exc


def check_files(directory: Path, files: Mapping[str, FileSpec]) -> None:
    """Raise `BundleError` unless every file is listed and what the description says of it."""
    if MODEL_FILE not in files:
        raise BundleError(directory, f"{BUNDLE_FILE} does not list {MODEL_FILE}: export it again")
    for name, spec in files.items():
        if Path(name).name != name:
            raise BundleError(
                directory, f"file name `{name}` leaves the bundle: remove it from {BUNDLE_FILE}"
            )
        _check_file(directory, name, spec)
    named = external_files(directory / MODEL_FILE)
    if named is None:
        problem = (
            f"{MODEL_FILE} keeps weights in files whose names cannot be read "
            "(over 127 bytes, or in an unusual place): save it again with short names"
        )
        raise BundleError(directory, problem)
    for name in named:
        if name not in files:
            problem = (
                f"{MODEL_FILE} keeps weights in `{name}`, which {BUNDLE_FILE} does not list: "
                "put the file beside it and seal the bundle again"
            )
            raise BundleError(directory, problem)


def external_files(model: Path) -> list[str] | None:
    """Names of files in which a graph keeps weights, each once; None where one of them cannot be read."""
    content = model.read_bytes()
    if content.count(_KEY) != len(_LOCATION.findall(content)):
        return None
    found = (
        content[match.end() : match.end() + match.group(1)[0]].decode("utf-8", "replace")
        for match in _LOCATION.finditer(content)
    )
    return list(dict.fromkeys(found))


def digest_of(path: Path) -> str:
    """SHA-256 of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_file(directory: Path, name: str, spec: FileSpec) -> None:
    path = directory / name
    try:
        size = path.stat().st_size
        if size > MOST_FILE_BYTES:
            problem = (
                f"{name} has {size} bytes, a file of a bundle at most {MOST_FILE_BYTES}: "
                "use a smaller or quantized model"
            )
            raise BundleError(directory, problem)
        if size < spec.bytes:
            problem = (
                f"{name} ends after {size} of {spec.bytes} bytes: it was cut short, copy the bundle again"
            )
            raise BundleError(directory, problem)
        found = digest_of(path)
    except OSError as exc:
        problem = f"{name} cannot be read ({exc.strerror}): copy the whole bundle folder"
        raise BundleError(directory, problem) from exc
    if found != spec.sha256:
        problem = (
            f"{name} has SHA-256 {found[:12]}… but {BUNDLE_FILE} says {spec.sha256[:12]}…: "
            "the file was changed or damaged, copy the bundle again"
        )
        raise BundleError(directory, problem)
