"""One sequence's part of a forward."""

from __future__ import annotations

from collections.abc import Sequence as Values
from dataclasses import dataclass

from gateway.inference.block_pool import Appended, Sequence
from gateway.inference.tokenizer import Token


@dataclass(frozen=True, slots=True)
class Row:
    """Tokens whose places the pool has just appended to a sequence."""

    sequence: Sequence
    tokens: Values[Token]
    appended: Appended
