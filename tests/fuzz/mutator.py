"""A seeded mutator of module files: every seed gives the same file for ever.

`python -m tests.fuzz.mutator` writes the corpus that the tests read.
"""

from __future__ import annotations

import random
from pathlib import Path

ROOT = Path(__file__).parents[2]
_LIMIT = ROOT / "docs" / "examples" / "lower-level-limit.json"
SOURCES = (ROOT / "constraints" / "buffer-tank.json", _LIMIT)
CORPUS = Path(__file__).parent / "corpus" / "modules"
COUNT = 100

_WORDS = (
    b"NaN", b"Infinity", b"-0", b"1e308", b"1e-308", b"0.1", b"null", b"true", b"[]", b"{}", b'""',
    b"9" * 600,
    b'"level"', b'"prev(level)"', b'"level / level"', b'"1 / 0"', b'"a" ' * 50, b"(" * 300, b"\\u0000",
    b"\\ud800", "\u2028é".encode(), b"\xff\xfe", b'"ramp(1, 0)"', b'"hold"', b'"revision": 99', b"\x00",
    b" implies ", b" and not ", b"level <= ", b"-" * 40, b"/*", b'"min_on": "-1 s"', b'"range": ["5", "1"]',
)  # fmt: skip


def mutated(seed: int) -> bytes:
    """A module file with one to six things done to it."""
    rng = random.Random(seed)  # noqa: S311  # repeatable, not secret
    data = bytearray(SOURCES[seed % len(SOURCES)].read_bytes())
    for _ in range(rng.randint(1, 6)):
        at, to = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        match rng.randrange(8):
            case 0:
                data[at : at + rng.randint(1, 8)] = b""
            case 1:
                data[at:at] = rng.choice(_WORDS)
            case 2 if data:
                data[at % len(data)] ^= 1 << rng.randrange(8)
            case 3:
                data[at:at] = data[at : min(to, at + 200)]
            case 4:
                data = data[: max(to, 1)]
            case 5:
                _swap_numbers(data, rng)
            case 6:
                _swap_words(data, rng)
            case _:
                data[at : at + rng.randint(1, 20)] = rng.choice(_WORDS)
    return bytes(data)


def _swap_numbers(data: bytearray, rng: random.Random) -> None:
    digits = [i for i, byte in enumerate(data) if 0x30 <= byte <= 0x39]
    for i in rng.sample(digits, min(3, len(digits))):
        data[i] = 0x30 + rng.randrange(10)


def _swap_words(data: bytearray, rng: random.Random) -> None:
    old, new = rng.sample(
        [b"level", b"inflow", b"pump", b"heater", b"critical", b"standard", b"<=", b">="], 2
    )
    data[:] = data.replace(old, new, rng.randint(1, 4))


def main() -> None:
    """Write the corpus."""
    CORPUS.mkdir(parents=True, exist_ok=True)
    for seed in range(COUNT):
        (CORPUS / f"mutant-{seed:03}.json").write_bytes(mutated(seed))


if __name__ == "__main__":
    main()
