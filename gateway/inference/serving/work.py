"""What a job asks of whoever runs it, and what it has decoded so far.

A job never touches the model: it yields tokens and is sent the logits after the last of them, so that whoever
runs it decides when, and together with whom.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gateway.core.spans import Spans
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.decoding.decode import DecodedOutput, Distribution
from gateway.inference.decoding.guided import Awaited
from gateway.inference.kv.backend import CacheId
from gateway.inference.messages import Answer

Logits = NDArray[np.float32]  # [vocabulary]


class Want(NamedTuple):
    """Tokens to append now, and to which cache."""

    cache: CacheId
    tokens: list[Token]
    prefill: bool


class Rows(NamedTuple):
    """Several at once, each to a cache of its own and of equally many tokens; logits `[rows, vocabulary]`.

    Where memory lacks, `PoolExhaustedError` comes instead.
    """

    wants: tuple[Want, ...]


class Hold(NamedTuple):
    """Send the same logits again once guidance is there, or its time is over."""

    awaited: Awaited


Work = Generator[Want | Rows | Hold, Logits, Answer]


@dataclass(slots=True)
class Row:
    """Outputs of one cycle that are decoded, and the logits that each is decoded from."""

    cache: CacheId
    start: int  # position of the first output's token
    reach: list[Spans | None]  # by output: what one decision may change it to
    logits: list[Logits]
    read: list[Distribution] = field(default_factory=list)
    decoded: list[DecodedOutput] = field(default_factory=list)
