"""Which adapter serves a bundle."""

from __future__ import annotations

import onnxruntime

from gateway.inference.bundle.files import BUNDLE_FILE, BundleError
from gateway.inference.bundle.manifest import Bundle
from gateway.inference.bundle.target import check_target
from gateway.inference.kv.backend import KvBackend
from gateway.inference.kv.concat_past import ConcatPast
from gateway.inference.kv.dense_gqa import DenseGqa
from gateway.inference.kv.ort_session import Provider, providers_for
from gateway.inference.kv.paged_cuda import PagedAttentionCuda
from gateway.inference.kv.paged_graph import PagedGraph
from gateway.inference.serving.job import PREFILL_CHUNK


def make_backend(bundle: Bundle, *, provider: Provider, pages: int, cold_pages: int = 0) -> KvBackend:
    """The model of a bundle with room for `pages` pages; raises `InferenceError` where it cannot run."""
    check_target(bundle, providers_for(provider)[0], onnxruntime.__version__)
    manifest = bundle.manifest
    model, architecture, block = bundle.model_path, manifest.architecture, manifest.block
    match manifest.backend:
        case "paged_graph":
            return PagedGraph(
                model,
                architecture,
                pages=pages,
                block=block,
                provider=provider,
                bundle=bundle.digest,
                cold_pages=cold_pages,
            )
        case "paged_attention":
            return PagedAttentionCuda(
                model,
                architecture,
                pages=pages,
                block=block,
                provider=provider,
                longest=manifest.window.length + max(PREFILL_CHUNK, bundle.tokens_per_cycle),
                bundle=bundle.digest,
                cold_pages=cold_pages,
            )
        case "dense_gqa" | "concat_past":
            kind = DenseGqa if manifest.backend == "dense_gqa" else ConcatPast
            longest = manifest.window.length + bundle.tokens_per_cycle
            made = kind(model, architecture, pages=pages, block=block, provider=provider, longest=longest)
            if made.kv != manifest.quantization.kv:
                problem = (
                    f"its keys and values are {made.kv} and {BUNDLE_FILE} says {manifest.quantization.kv}, "
                    f'by which its memory is calculated: set `"kv": "{made.kv}"` in `quantization`'
                )
                raise BundleError(bundle.directory, problem)
            return made
