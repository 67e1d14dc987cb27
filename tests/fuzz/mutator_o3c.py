"""A seeded mutator of compiled modules: every seed gives the same bytes for ever.

`python -m tests.fuzz.mutator_o3c` writes the corpus that the tests read.
"""

from __future__ import annotations

import hashlib
import random
from functools import lru_cache
from pathlib import Path

from gateway.solver.bytecode.encode import Section
from gateway.solver.bytecode.opcodes import MAGIC
from tests.unit.bytecode_modules import file

CORPUS = Path(__file__).parent / "corpus" / "o3c"
KEPT = 48
_BASES = ("lower-level-limit", "level-crossing", "lower-level-limit", "chlorination")
_HEAD = len(MAGIC) + 2 + 2 + 4 + 32
_WORDS = (
    b"\0", b"\xff", b"\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x80\0", b"\x7f\xff", b"\0\1",
    b"\x30\xff\xff", b"\x40\0\2\0", b"\x40\0\2\7", b"\x04\0\0", b"\x01\0\0", b"\x24", b"\x23" * 50,
    b"\x02" * 100, b"\x10" * 300, b"\xed\xa0\x80", b"\0" * 64, b"A" * 64,
)  # fmt: skip


@lru_cache
def sections(name: str) -> tuple[bytes, ...]:
    """The contents of a good file's sections."""
    data, at, found = file(name), _HEAD, []
    for _ in Section:
        size = int.from_bytes(data[at + 1 : at + 5])
        found.append(data[at + 5 : at + 5 + size])
        at += 5 + size
    return tuple(found)


def sealed_again(name: str, parts: list[bytes]) -> bytes:
    """A file of these sections in which lengths, digest and checksum fit: only what they hold is wrong."""
    content = b"".join(
        int(n).to_bytes(1) + len(part).to_bytes(4) + part for n, part in zip(Section, parts, strict=True)
    )
    head = file(name)[: len(MAGIC) + 4] + (_HEAD + len(content)).to_bytes(4)
    body = head + hashlib.sha256(parts[-1]).digest() + content
    return body + hashlib.sha256(body).digest() + b"\0"


def mutated(seed: int) -> bytes:
    """One to four things done to a good file: to its bytes, or to one section with all lengths mended."""
    rng = random.Random(seed)  # noqa: S311  # repeatable, not secret
    name = _BASES[seed % len(_BASES)]
    if seed % 5 == 0:
        data = bytearray(file(name))
        for _ in range(rng.randint(1, 4)):
            _edit(data, rng, file(_BASES[(seed + 1) % len(_BASES)]))
        return bytes(data)
    parts = list(sections(name))
    for _ in range(rng.randint(1, 3)):
        number = rng.randrange(len(parts) - (rng.random() < 0.9))  # the source seldom
        part = bytearray(parts[number])
        _edit(part, rng, sections(_BASES[(seed + 1) % len(_BASES)])[number])
        parts[number] = bytes(part)
    return sealed_again(name, parts)


def _edit(data: bytearray, rng: random.Random, other: bytes) -> None:
    at = rng.randrange(len(data) + 1)
    match rng.randrange(8):
        case 0 | 1 if data:  # a bit
            data[at % len(data)] ^= 1 << rng.randrange(8)
        case 2 if data:  # a byte, often of a length
            data[at % len(data)] = rng.choice((0, 1, 2, 127, 128, 254, 255, (data[at % len(data)] + 1) % 256))
        case 3:
            del data[at:]
        case 4:
            del data[at : at + rng.randint(1, 9)]
        case 5:
            data[at:at] = rng.choice(_WORDS)
        case 6:  # a piece of another file
            start = rng.randrange(len(other) + 1)
            data[at : at + rng.randint(0, 40)] = other[start : start + rng.randint(0, 40)]
        case _:
            word = rng.choice(_WORDS)
            data[at : at + len(word)] = word


def main() -> None:
    """Write the corpus."""
    CORPUS.mkdir(parents=True, exist_ok=True)
    for seed in range(KEPT):
        (CORPUS / f"mutant-{seed:02}.o3c").write_bytes(mutated(seed))


if __name__ == "__main__":
    main()
