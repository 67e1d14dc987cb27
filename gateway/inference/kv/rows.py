"""One sequence's part of a forward."""

from __future__ import annotations

from collections.abc import Sequence as Values
from dataclasses import dataclass

from gateway.inference.bundle.tokenizer import Token
from gateway.inference.kv.block_pool import Appended, Sequence


@dataclass(frozen=True, slots=True)
class Row:
    """Tokens whose places the pool has just appended to a sequence."""

    sequence: Sequence
    tokens: Values[Token]
    appended: Appended
