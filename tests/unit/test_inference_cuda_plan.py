"""What can be shown of the CUDA path without a device: graph, plan, and both on a written-out operator."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from gateway.core.errors import InferenceError
from gateway.inference.bundle.manifest import Window
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.kv.block_pool import Appended, BlockPool, Sequence
from gateway.inference.kv.cuda_plan import BUCKETS, EAGER, Layout, bounds, bucket_of, graph_id, pack
from gateway.inference.kv.rows import Row
from gateway.inference.serving.backends import make_backend
from gateway.inference.training.graph_cuda import write_cuda_graph
from tests.unit.random_decoder import BLOCK, MINUTE, for_cuda, random_weights, recomputed, write_decoder

PAGES, WINDOW, SEED = 24, 40, 5
HALF = MINUTE.head_dim // 2
LAYOUT = Layout(
    block=BLOCK,
    table_pages=8,
    probe_page=PAGES - 1,
    frequencies=1000.0 ** (-np.arange(HALF, dtype=np.float64) / HALF),
)


def row(pages: list[int], end: int, count: int, first: int = 0) -> Row:
    slots = tuple(
        pages[(at - first) // BLOCK] * BLOCK + (at - first) % BLOCK for at in range(end - count, end)
    )
    return Row(Sequence(pages, first, end), [Token(at + 1, 0.5) for at in range(count)], Appended(slots, ()))


# --- the plan


@pytest.mark.parametrize(("rows", "bucket"), [(1, 1), (2, 2), (3, 4), (5, 8), (8, 8), (9, None)])
def test_steps_are_served_by_the_next_bucket_and_more_rows_by_none(rows: int, bucket: int | None) -> None:
    assert bucket_of([row([at], 3, 1) for at in range(rows)]) == bucket


def test_prefill_is_never_captured() -> None:
    assert bucket_of([row([0], 3, 2)]) is None
    assert bucket_of([row([0], 3, 1), row([1], 3, 2)]) is None
    assert graph_id(None) == EAGER == "-1"
    assert (
        len({graph_id(bucket) for bucket in BUCKETS} | {EAGER, "0"}) == len(BUCKETS) + 2
    )  # 0 is the runtime's


@pytest.mark.parametrize("bucket", BUCKETS)
def test_a_buckets_shapes_types_and_bounds_never_change(bucket: int) -> None:
    kinds = set()
    for rows in range(bucket // 2 + 1, bucket + 1):
        for end in (1, 17, 100):
            pages = list(range(-(-end // BLOCK)))
            feeds = pack([row(pages, end, 1)] * rows, LAYOUT, bucket)
            kinds.add(tuple((name, value.shape, value.dtype.str) for name, value in sorted(feeds.items())))
            assert feeds["bounds"].tolist() == [1, 128, 0]
            assert int(feeds["past_lengths"].max()) + 1 <= feeds["bounds"][1]
    assert len(kinds) == 1


def test_padding_reads_and_writes_only_the_page_of_nobody() -> None:
    feeds = pack([row([3, 5], 20, 1), row([7], 4, 1), row([9], 1, 1)], LAYOUT, 4)

    assert feeds["slots"].tolist() == [5 * BLOCK + 3, 7 * BLOCK + 3, 9 * BLOCK, 23 * BLOCK]
    assert feeds["block_table"][3].tolist() == [23] * 8
    assert feeds["block_table"][0].tolist() == [3, 5] + [23] * 6
    assert feeds["past_lengths"].tolist() == [19, 3, 0, 0]
    assert feeds["cumulative_lengths"].tolist() == [0, 1, 2, 3, 4]
    assert feeds["last_tokens"].tolist() == [0, 1, 2, 3]


def test_chunks_of_different_lengths_are_packed_without_padding() -> None:
    feeds = pack([row([3, 5], 20, 7), row([7], 52, 2, first=48)], LAYOUT, None)

    assert feeds["cumulative_lengths"].tolist() == [0, 7, 9]
    assert feeds["last_tokens"].tolist() == [6, 8]
    assert feeds["past_lengths"].tolist() == [13, 2]
    assert feeds["bounds"].tolist() == bounds(LAYOUT, None, 7).tolist() == [7, 128, 0]


def test_a_sequence_longer_than_the_table_is_refused() -> None:
    with pytest.raises(InferenceError, match="9 pages does not fit the table of 8"):
        pack([row(list(range(9)), 140, 1)], LAYOUT, 1)


# --- the graph


class PagedAttention(OpRun):
    """`com.microsoft.PagedAttention` as its schema describes it, for separate caches and a causal band."""

    op_domain = "com.microsoft"

    def _run(self, *inputs: NDArray[Any], **attributes: int) -> tuple[NDArray[Any], ...]:
        query, key, value, keys, values, cumulative, past, table = inputs[:8]
        slots, heads, window = inputs[10], attributes["num_heads"], attributes["local_window_size"]
        keys, values = keys.copy(), values.copy()
        _, block, _, size = keys.shape
        flat_keys, flat_values = keys.reshape(-1, heads, size), values.reshape(-1, heads, size)
        flat_keys[slots] = key.reshape(-1, heads, size)
        flat_values[slots] = value.reshape(-1, heads, size)
        mixed = np.zeros(query.shape, dtype=np.float64)
        for at, (begin, end) in enumerate(itertools.pairwise(cumulative)):
            length = int(past[at]) + int(end - begin)
            where = [int(table[at, place // block]) * block + place % block for place in range(length)]
            for number in range(begin, end):
                place = int(past[at]) + number - int(begin)
                seen = where[max(0, place - window + 1) if window > 0 else 0 : place + 1]
                asked = query[number].reshape(heads, size).astype(np.float64)
                scores = np.einsum("hd,khd->hk", asked, flat_keys[seen]) / np.sqrt(size)
                share = np.exp(scores - scores.max(axis=1, keepdims=True))
                share /= share.sum(axis=1, keepdims=True)
                mixed[number] = np.einsum("hk,khd->hd", share, flat_values[seen]).reshape(-1)
        return mixed.astype(query.dtype), keys, values


def written(path: Path, *, banded: bool) -> onnx.ModelProto:
    write_cuda_graph(path, MINUTE.shape(WINDOW), random_weights(MINUTE, SEED), banded=banded)
    return onnx.load(str(path))


def test_the_graph_is_valid_and_names_the_operators_inputs_in_its_schemas_order(tmp_path: Path) -> None:
    model = written(tmp_path / "model.onnx", banded=True)
    onnx.checker.check_model(model, full_check=False)
    schemas = onnxruntime.capi.onnxruntime_pybind11_state.get_all_operator_schema()
    (schema,) = (each for each in schemas if each.name == "PagedAttention")
    order = [each.name for each in schema.inputs]
    nodes = [node for node in model.graph.node if node.op_type == "PagedAttention"]
    expected = {
        "key_cache": "keys",
        "value_cache": "values",
        "cumulative_sequence_length": "cumulative_lengths",
        "past_seqlens": "past_lengths",
        "block_table": "block_table",
        "slot_mapping": "slots",
        "attention_metadata": "bounds",
    }

    assert len(nodes) == MINUTE.layers
    for node in nodes:
        given = dict(zip(order, node.input, strict=False))
        assert {
            name: given[name].rsplit("_", 1)[0] if "cache" in name else given[name] for name in expected
        } == expected
        assert {name for name, tensor in given.items() if not tensor}.isdisjoint(expected)
        assert {each.name for each in node.attribute} <= set(schema.attributes)


def test_every_operator_but_paged_attention_is_a_standard_one(tmp_path: Path) -> None:
    model = written(tmp_path / "model.onnx", banded=True)

    assert {node.op_type for node in model.graph.node if node.domain} == {"PagedAttention"}


@pytest.mark.parametrize("banded", [True, False], ids=["swa", "no band"])
def test_graph_and_plan_together_compute_what_one_banded_pass_computes(
    tmp_path: Path, *, banded: bool
) -> None:
    model = ReferenceEvaluator(written(tmp_path / "model.onnx", banded=banded), new_ops=[PagedAttention])
    names = [f"{kind}_{layer}" for layer in range(MINUTE.layers) for kind in ("keys", "values")]
    caches = {
        name: np.zeros((PAGES, BLOCK, MINUTE.heads, MINUTE.head_dim), dtype=np.float16) for name in names
    }
    dice = random.Random(2)  # noqa: S311 - test data
    pool, window = BlockPool(PAGES - 1, BLOCK), WINDOW if banded else 10_000
    dice.shuffle(pool._free)
    texts = [[Token(dice.randrange(1, 60), dice.random()) for _ in range(90)] for _ in range(3)]
    exact = [recomputed(MINUTE, random_weights(MINUTE, SEED), text, window) for text in texts]
    held = [Sequence() for _ in texts]
    worst = 0.0
    for count in (17, 40, 1, 1, 1, 12, 1, 1):
        rows = []
        for text, sequence in zip(texts, held, strict=True):
            if banded:
                pool.drop_before(sequence, sequence.end - WINDOW + 1)
            appended = pool.append(sequence, count)
            rows.append(Row(sequence, text[sequence.end - count : sequence.end], appended))
        feeds = pack(rows, LAYOUT, bucket_of(rows))
        logits, *new = (np.asarray(each) for each in model.run(None, {**feeds, **caches}))
        caches = dict(zip(names, new, strict=True))
        for answer, sequence, every in zip(logits, held, exact, strict=False):
            right = every[sequence.end - 1]
            worst = max(worst, float(np.linalg.norm(answer - right) / np.linalg.norm(right)))

    assert worst <= 5e-3  # the gate of float16
    assert not banded or all(sequence.first > 0 for sequence in held)


def test_a_bundle_for_cuda_loads_anywhere_and_says_what_to_use_where_it_cannot_run(tmp_path: Path) -> None:
    plain = write_decoder(
        tmp_path / "cpu", MINUTE, inputs=3, outputs=3, window=Window("swa", WINDOW), quantized=None
    )
    bundle = for_cuda(plain, tmp_path / "cuda", MINUTE)

    assert bundle.facts["backend"] == "paged_attention"
    with pytest.raises(InferenceError, match=r"runs on CUDA only: use a machine with a CUDA device"):
        make_backend(bundle, provider="cpu", pages=PAGES)
