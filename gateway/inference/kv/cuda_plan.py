"""What a forward on CUDA is fed with, and which captured graph may serve it. Pure: no device, no runtime.

A captured graph has fixed shapes and addresses. Steps of one token a row are padded to the next bucket of
rows and replayed; everything else, prefill above all, is never captured.
"""

from __future__ import annotations

from collections.abc import Sequence as Values
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.core.errors import InferenceError
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.kv.block_pool import Appended, Sequence
from gateway.inference.kv.rows import Row

BUCKETS = (1, 2, 4, 8)  # rows; the graph's number is its bucket
EAGER = "-1"  # the runtime's own word for: neither capture nor replay
WARM_UP_RUNS = 2  # before the runtime captures

Feeds = dict[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes that all forwards of a session share."""

    block: int
    table_pages: int  # of the longest sequence
    probe_page: int  # belongs to nobody: padding writes there
    frequencies: NDArray[np.float64]  # rotary, half a head

    @property
    def most_slots(self) -> int:
        """Of one sequence."""
        return self.block * self.table_pages


def bucket_of(rows: Values[Row]) -> int | None:
    """The captured graph that serves these rows; None where they must run without one."""
    if any(len(row.tokens) != 1 for row in rows):
        return None
    return next((bucket for bucket in BUCKETS if bucket >= len(rows)), None)


def graph_id(bucket: int | None) -> str:
    """The runtime's `gpu_graph_id`."""
    return EAGER if bucket is None else str(bucket)


def pack(rows: Values[Row], layout: Layout, bucket: int | None) -> Feeds:
    """Every input but the pools; with a bucket padded to its rows, so that shapes never change.

    Raises `InferenceError` for a sequence longer than the table.
    """
    longest = max(len(row.sequence.pages) for row in rows)
    if longest > layout.table_pages:
        message = f"a sequence of {longest} pages does not fit the table of {layout.table_pages}"
        raise InferenceError(message)
    padding = [] if bucket is None else [_idle(layout)] * (bucket - len(rows))
    every = [*rows, *padding]
    counts = np.array([len(row.tokens) for row in every])
    ends = np.array([row.sequence.end for row in every])
    positions = np.concatenate([np.arange(end - count, end) for end, count in zip(ends, counts, strict=True)])
    angles = positions[:, None] * layout.frequencies
    table = np.full((len(every), layout.table_pages), layout.probe_page, dtype=np.int32)
    for line, row in zip(table, every, strict=True):
        line[: len(row.sequence.pages)] = row.sequence.pages
    cumulative = np.concatenate([[0], np.cumsum(counts)])
    firsts = np.array([row.sequence.first for row in every])
    tokens = [token for row in every for token in row.tokens]
    return {
        "tokens": np.array([token.id for token in tokens], dtype=np.int64),
        "fractions": np.array([token.fraction for token in tokens], dtype=np.float16),
        "cos": np.cos(angles).astype(np.float16),
        "sin": np.sin(angles).astype(np.float16),
        "last_tokens": (cumulative[1:] - 1).astype(np.int64),
        "cumulative_lengths": cumulative.astype(np.int32),
        "past_lengths": (ends - firsts - counts).astype(np.int32),
        "block_table": table,
        "slots": np.array([slot for row in every for slot in row.appended.slots], dtype=np.int32),
        "bounds": bounds(layout, bucket, int(counts.max())),
    }


def bounds(layout: Layout, bucket: int | None, most_tokens: int) -> NDArray[np.int32]:
    """Most new tokens of a row, most slots of a row, and no lower bound; they hold for every replay."""
    return np.array([1 if bucket is not None else most_tokens, layout.most_slots, 0], dtype=np.int32)


def _idle(layout: Layout) -> Row:
    """A row nobody reads, in a page nobody reads."""
    slot = layout.probe_page * layout.block
    return Row(Sequence([layout.probe_page], 0, 1), [Token(0, 0.0)], Appended((slot,), ()))
