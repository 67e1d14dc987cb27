"""A bundle's folder: its description, and files that are whole, listed and not too large."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import NoReturn

import msgspec

from gateway.core.errors import InferenceError
from gateway.inference.bundle.beside import NoGraphError, external_files

BUNDLE_FILE = "bundle.json"
MODEL_FILE = "model.onnx"
_GRAPH = ".onnx"
MOST_FILE_BYTES = 1 << 30  # of one file; a graph itself is under 2 GiB by its format
MOST_BUNDLE_BYTES = 2 << 30  # of all its files
MOST_DESCRIPTION_BYTES = 4 << 20


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
    """The bytes of `bundle.json`, in which every key stands once; raises `BundleError`."""
    try:
        with _opened(directory, BUNDLE_FILE) as file:
            content = file.read(MOST_DESCRIPTION_BYTES + 1)
    except OSError as exc:
        problem = f"{BUNDLE_FILE} cannot be read ({exc.strerror}): copy the whole bundle folder"
        raise BundleError(directory, problem) from exc
    if len(content) > MOST_DESCRIPTION_BYTES:
        problem = f"{BUNDLE_FILE} is larger than {MOST_DESCRIPTION_BYTES >> 20} MiB: it is no description"
        raise BundleError(directory, problem)
    try:
        json.loads(content, object_pairs_hook=_once_each, parse_int=str, parse_float=str)
    except RecursionError as exc:
        problem = f"{BUNDLE_FILE} is nested deeper than any description: export it again"
        raise BundleError(directory, problem) from exc
    except ValueError as exc:
        raise BundleError(directory, f"{BUNDLE_FILE} is no bundle description ({exc}): correct it") from exc
    return content


def check_files(directory: Path, files: Mapping[str, FileSpec]) -> None:
    """Raise `BundleError` unless every file is listed and what the description says of it."""
    if MODEL_FILE not in files:
        raise BundleError(directory, f"{BUNDLE_FILE} does not list {MODEL_FILE}: export it again")
    for name in files:
        if not _is_plain(name):
            problem = f"file name {name!a} leaves the bundle: remove it from {BUNDLE_FILE}"
            raise BundleError(directory, problem)
    if (whole := sum(max(0, spec.bytes) for spec in files.values())) > MOST_BUNDLE_BYTES:
        problem = (
            f"its files have {whole} bytes together, a bundle at most {MOST_BUNDLE_BYTES}: "
            "use a smaller or quantized model"
        )
        raise BundleError(directory, problem)
    for name, spec in files.items():
        _check_file(directory, name, spec)
    for graph in (name for name in files if name.endswith(_GRAPH)):
        for name in weights_beside(directory, graph):
            if name not in files:
                problem = (
                    f"{graph} keeps weights in `{name}`, which {BUNDLE_FILE} does not list: "
                    "put the file beside it and seal the bundle again"
                )
                raise BundleError(directory, problem)


def weights_beside(directory: Path, graph: str = MODEL_FILE) -> list[str]:
    """Names of the files in which a graph of the bundle keeps weights; raises `BundleError`."""
    try:
        with _opened(directory, graph) as file:
            return external_files(file)
    except NoGraphError as exc:
        problem = f"{graph} cannot be loaded ({exc}): export it again, or copy the whole bundle"
        raise BundleError(directory, problem) from exc
    except OSError as exc:
        _refuse_unreadable(directory, graph, exc)


def measured(directory: Path, name: str) -> FileSpec:
    """What a description says of a file as it is now; raises `BundleError`."""
    if not _is_plain(name):
        raise BundleError(directory, f"file name {name!a} leaves the bundle: put the file into it")
    try:
        with _opened(directory, name) as file:
            return FileSpec(sha256=_digest(file), bytes=os.fstat(file.fileno()).st_size)
    except OSError as exc:
        problem = f"{name} cannot be read ({exc.strerror}): put it there"
        raise BundleError(directory, problem) from exc


def _check_file(directory: Path, name: str, spec: FileSpec) -> None:
    try:
        with _opened(directory, name) as file:
            size = os.fstat(file.fileno()).st_size
            _check_size(directory, name, size, spec.bytes)
            found = _digest(file)
    except OSError as exc:
        _refuse_unreadable(directory, name, exc)
    if found != spec.sha256:
        problem = (
            f"{name} has SHA-256 {found[:12]}… but {BUNDLE_FILE} says {spec.sha256[:12]}…: "
            "the file was changed or damaged, copy the bundle again"
        )
        raise BundleError(directory, problem)


def _check_size(directory: Path, name: str, size: int, said: int) -> None:
    if size > MOST_FILE_BYTES:
        problem = (
            f"{name} has {size} bytes, a file of a bundle at most {MOST_FILE_BYTES}: "
            "use a smaller or quantized model"
        )
        raise BundleError(directory, problem)
    if size < said:
        problem = f"{name} ends after {size} of {said} bytes: it was cut short, copy the bundle again"
        raise BundleError(directory, problem)


def _opened(directory: Path, name: str) -> BufferedReader:
    """A file for reading; raises `OSError`, and `BundleError` for what is no file of the folder's own.

    A link may lead anywhere, and a pipe or a device would never end.
    """
    path = directory / name
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        if path.is_symlink():
            problem = f"{name} is a link: put the file itself into the folder (`cp -rL` copies so)"
            raise BundleError(directory, problem) from exc
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BundleError(directory, f"{name} is no regular file: copy the whole bundle folder")
    return os.fdopen(descriptor, "rb")


def _digest(file: BufferedReader) -> str:
    """SHA-256, as hexadecimal digits."""
    return hashlib.file_digest(file, "sha256").hexdigest()


def _is_plain(name: str) -> bool:
    """Whether it names a file of the folder itself."""
    return Path(name).name == name not in {"", ".."} and name.isprintable()


def _once_each(pairs: list[tuple[str, object]]) -> None:
    """Of two values of one key each reader may take another."""
    seen = set()
    for key, _ in pairs:
        if key in seen:
            message = f"the key `{key}` stands there twice"
            raise ValueError(message)
        seen.add(key)


def _refuse_unreadable(directory: Path, name: str, exc: OSError) -> NoReturn:
    problem = f"{name} cannot be read ({exc.strerror}): copy the whole bundle folder"
    raise BundleError(directory, problem) from exc
