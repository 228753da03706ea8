"""Kernels that ship with JAX, and XLA, as calls whose time is predicted as ours is.

Each function below is sent to the worker as text, so it imports what it needs itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tilelang.aot.compile import TOPOLOGIES
from tilelang.aot.process import Gone
from tilelang.autotune.model import Compiler, ProgramRun, remembered, runs_of
from tilelang.codegen.pallas.chips import CHIPS

HEAD = "import jax\nimport jax.numpy as jnp\nimport numpy as np\n\n\n"


@dataclass(frozen=True)
class Expert:
    """A call of one of the functions below.

    call      traced for a TPU with the arguments, then with `options` by name
    operands  (shape, dtype) of each argument
    values    of the integers that steer it, by position
    """

    name: str
    call: Callable[..., Any]
    operands: tuple[tuple[tuple[int, ...], str], ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[int, np.ndarray] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """A module with the call as `main`."""
        entry = (
            f"def main(*args):\n    return {self.call.__name__}(*args, **{dict(self.options)})\n"
        )
        return f"{HEAD}{inspect.getsource(self.call)}\n\n{entry}"


@dataclass(frozen=True)
class Answer:
    """What is known of an expert's time: a run, or why there is none."""

    run: ProgramRun | None
    notes: Mapping[str, int]
    error: str = ""


def question(expert: Expert, chip: str) -> dict[str, Any]:
    """What a worker is asked about a call."""
    return {
        "text": expert.text,
        "entry": "main",
        "operands": [[list(shape), dtype] for shape, dtype in expert.operands],
        "topology": TOPOLOGIES[chip],
        "serialize": False,
        "generation": chip,
        "sets": [
            {str(at): [list(a.shape), a.reshape(-1).tolist()] for at, a in expert.values.items()}
        ],
    }


def predicted(
    expert: Expert, asked: dict[str, Any], timeout: float, compiler: Callable[[], Compiler]
) -> Answer:
    """The time of a call, of `question`, kept on disk; what the compiler refuses is kept too."""

    def answered() -> dict[str, Any]:
        using = compiler()
        return using.worker.ask(using.asking(asked), timeout)

    try:
        answer = remembered(asked, answered, None, timeout)
    except Gone as ended:
        why = f"no answer in {timeout:.0f} s" if ended.code is None else f"it ended ({ended.code})"
        return Answer(None, {}, f"the compiler gave none: {why}")
    if "error" in answer:
        return Answer(None, {}, answer["error"].splitlines()[0])
    moved = sum(prod(shape) * np.dtype(_numpy(dtype)).itemsize for shape, dtype in expert.operands)
    run = runs_of(answer, CHIPS[asked["generation"]], moved)[0]
    notes: dict[str, int] = {"a loop of XLA": answer["loops"]} if answer["loops"] else {}
    for kernel in run.kernels:
        notes |= kernel.notes
    return Answer(run, notes)


def _numpy(dtype: str) -> str:
    return "int16" if dtype == "bfloat16" else dtype


# ------------------------------------------------------------------ calls


def xla_matmul(x, w):
    """XLA's own product."""
    return jnp.dot(x, w, preferred_element_type=jnp.float32).astype(x.dtype)


def xla_softmax(x):
    """XLA's own softmax of rows."""
    return jax.nn.softmax(x.astype(jnp.float32), axis=-1).astype(x.dtype)


def xla_layer_norm(x, weight, bias):
    """XLA's own layer norm of rows."""
    rows = x.astype(jnp.float32)
    mean = rows.mean(-1, keepdims=True)
    centred = rows - mean
    scale = jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    return (centred * scale * weight + bias).astype(x.dtype)


def xla_cross_entropy(logits, labels):
    """XLA's own cross entropy."""
    rows = logits.astype(jnp.float32)
    picked = jnp.take_along_axis(rows, labels[:, None], axis=1)[:, 0]
    return jax.nn.logsumexp(rows, axis=1) - picked


def megablox(x, w, offsets, tiling):
    """JAX's grouped product."""
    from jax.experimental.pallas.ops.tpu.megablox.gmm import gmm

    sizes = offsets[1:] - offsets[:-1]
    return gmm(x, w, sizes, preferred_element_type=x.dtype, tiling=tiling)


def jax_flash(q, k, v, causal, block):
    """JAX's flash attention."""
    from jax.experimental.pallas.ops.tpu import flash_attention as flash

    sizes = flash.BlockSizes(block_q=block, block_k_major=block, block_k=block, block_b=1)
    return flash.flash_attention(
        q, k, v, causal=causal, sm_scale=q.shape[-1] ** -0.5, block_sizes=sizes
    )


def splash(q, k, v, offsets, causal, block, compute):
    """JAX's splash attention; sequences, if there are any, by segments that are data."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    q, k, v = (a.reshape(a.shape[-3:]) for a in (q, k, v))
    heads, length, _ = q.shape
    shape = (length, length)
    mask = masks.CausalMask(shape) if causal else masks.FullMask(shape)
    sizes = kernel.BlockSizes(block_q=block, block_kv=block, block_kv_compute=compute)
    call = kernel.make_splash_mha_single_device(
        masks.MultiHeadMask([mask] * heads), block_sizes=sizes
    )
    segments = None
    if len(offsets) > 2:
        number = jnp.searchsorted(offsets, jnp.arange(length), side="right").astype(jnp.int32)
        segments = kernel.SegmentIds(number, number)
    return call(q, k, v, segment_ids=segments)


def splash_known(q, k, v, causal, block, compute, ends):
    """JAX's splash attention with the lengths of the sequences compiled in."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    heads, length, _ = q.shape
    number = np.searchsorted(np.array(ends), np.arange(length), side="right")
    allowed = number[:, None] == number[None, :]
    if causal:
        allowed &= np.arange(length)[None, :] <= np.arange(length)[:, None]
    sizes = kernel.BlockSizes(block_q=block, block_kv=block, block_kv_compute=compute)
    mask = masks.MultiHeadMask([masks.NumpyMask(allowed)] * heads)
    return kernel.make_splash_mha_single_device(mask, block_sizes=sizes)(q, k, v)


def jax_flash_backward(q, k, v, g, block):
    """The gradients of JAX's flash attention, its forward pass left out by XLA where it can."""
    from jax.experimental.pallas.ops.tpu import flash_attention as flash

    sizes = flash.BlockSizes(
        block_q=block,
        block_k_major=block,
        block_k=block,
        block_b=1,
        block_q_major_dkv=block,
        block_k_major_dkv=block,
        block_k_dkv=block,
        block_q_dkv=block,
        block_k_major_dq=block,
        block_k_dq=block,
        block_q_dq=block,
    )

    def call(q, k, v):
        return flash.flash_attention(
            q, k, v, causal=True, sm_scale=q.shape[-1] ** -0.5, block_sizes=sizes
        )

    return jax.vjp(call, q, k, v)[1](g)


def jax_paged(q, k_pages, v_pages, table, lengths, pages):
    """JAX's paged attention: one query for each sequence."""
    from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention

    return paged_attention(q, k_pages, v_pages, lengths, table, pages_per_compute_block=pages)


def jax_ragged_paged(q, pages, lengths, table, offsets, count, block, queries):
    """JAX's ragged paged attention."""
    from jax.experimental.pallas.ops.tpu.ragged_paged_attention import kernel

    return kernel.ragged_paged_attention(
        q,
        pages,
        lengths,
        table,
        offsets,
        count,
        sm_scale=q.shape[-1] ** -0.5,
        num_kv_pages_per_block=block,
        num_queries_per_block=queries,
        vmem_limit_bytes=64 << 20,
    )


def gathered_megablox(x, w, token, slot, gate, offsets, tiling):
    """A mixture of experts: rows gathered by XLA, JAX's grouped product, combined by XLA."""
    from jax.experimental.pallas.ops.tpu.megablox.gmm import gmm

    rows = jnp.take(x, token, axis=0)
    z = gmm(rows, w, offsets[1:] - offsets[:-1], preferred_element_type=x.dtype, tiling=tiling)
    picked = jnp.take(z, slot.reshape(-1), axis=0).reshape(*slot.shape, -1)
    weighted = picked.astype(jnp.float32) * gate[:, :, None].astype(jnp.float32)
    return weighted.sum(1).astype(x.dtype)
