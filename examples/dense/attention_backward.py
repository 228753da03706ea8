"""The gradients of causal attention with heads and a batch: dq, dk and dv.

The mathematics is that of examples/jagged/jagged_attention_backward.py.  Here every sequence has
the same length, so that all bounds are known when the kernel is compiled, but for the causal ones:
the keys of a tile of queries end where the tile ends, and the queries of a tile of keys begin where
the tile begins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def attention_backward_q(q, k, v, lse, delta, grad):
    """dq of causal attention.

    q, k, v, grad  [B, H, T, D] in float32 or bfloat16; grad is the gradient of the output
    lse, delta     [B, H, T] in float32: log of the sum of exp(scores), and sum of grad * output

    Returns [B, H, T, D] in q's dtype.
    """
    B, H, T, D = q.shape
    dq = hl.empty(q.shape, dtype=q.dtype)
    for b, h in hl.grid([B, H]):
        for tq in hl.tile(T):
            acc = hl.zeros([tq, D], dtype=hl.float32)
            for tk in hl.tile(0, tq.end):
                scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D**-0.5
                p = hl.exp(scores - lse[b, h, tq][:, None])
                p = hl.where(tk.index[None, :] <= tq.index[:, None], p, 0.0)
                dp = hl.dot(grad[b, h, tq, :], v[b, h, tk, :].T)
                ds = p * (dp - delta[b, h, tq][:, None]) * D**-0.5
                acc = hl.dot(ds.to(k.dtype), k[b, h, tk, :], acc=acc)
            dq[b, h, tq, :] = acc.to(dq.dtype)
    return dq


@tile.kernel
def attention_backward_kv(q, k, v, lse, delta, grad):
    """dk and dv of causal attention; arguments as for attention_backward_q."""
    B, H, T, D = q.shape
    dk = hl.empty(k.shape, dtype=k.dtype)
    dv = hl.empty(v.shape, dtype=v.dtype)
    for b, h in hl.grid([B, H]):
        for tk in hl.tile(T):
            sum_k = hl.zeros([tk, D], dtype=hl.float32)
            sum_v = hl.zeros([tk, D], dtype=hl.float32)
            for tq in hl.tile(tk.begin, T):
                g = grad[b, h, tq, :]
                scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D**-0.5
                p = hl.exp(scores - lse[b, h, tq][:, None])
                p = hl.where(tk.index[None, :] <= tq.index[:, None], p, 0.0)
                sum_v = hl.dot(p.to(v.dtype).T, g, acc=sum_v)
                dp = hl.dot(g, v[b, h, tk, :].T)
                ds = p * (dp - delta[b, h, tq][:, None]) * D**-0.5
                sum_k = hl.dot(ds.to(q.dtype).T, q[b, h, tq, :], acc=sum_k)
            dk[b, h, tk, :] = sum_k.to(dk.dtype)
            dv[b, h, tk, :] = sum_v.to(dv.dtype)
    return dk, dv


def softmax(q: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Causal weights and the log of their denominators in float64."""
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    scores = np.where(np.tri(q.shape[-2], dtype=bool), scores, -math.inf)
    peak = scores.max(-1, keepdims=True, initial=-math.inf)
    total = np.exp(scores - peak).sum(-1, keepdims=True)
    return np.exp(scores - peak) / total, (peak + np.log(total))[..., 0]


def gradients(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, grad: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """dq, dk and dv in float64, from the derivative of softmax: dp p - p (p . dp)."""
    p, _ = softmax(q, k)
    q, k, v, grad = (a.astype(np.float64) for a in (q, k, v, grad))
    dp = grad @ v.swapaxes(-1, -2)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) / math.sqrt(q.shape[-1])
    return ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ grad


def make_inputs(
    seed: int = 0, batch: int = 1, heads: int = 2, length: int = 100, width: int = 32
) -> tuple:
    """q, k, v [batch, heads, length, width], lse and delta [batch, heads, length], grad as q."""
    rng = np.random.default_rng(seed)
    q, k, v, grad = rng.standard_normal((4, batch, heads, length, width), np.float32)
    p, lse = softmax(q, k)
    delta = (p @ v.astype(np.float64) * grad).sum(-1)
    return q, k, v, lse.astype(np.float32), delta.astype(np.float32), grad


def case(batch: int, heads: int, length: int, width: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    q = tile.spec((batch, heads, length, width), dtype)
    row = tile.spec((batch, heads, length), "float32")
    return q, q, q, row, row, q


SIZES = ((2, 4, 1024, 128), (1, 3, 1000, 64), (4, 16, 4096, 128))  # aligned, unaligned, production
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def cases() -> Iterator[tuple[tile.Kernel, tuple]]:
    """Every kernel with its arguments, for compile checks."""
    for kernel in (attention_backward_q, attention_backward_kv):
        yield from ((kernel, each) for each in CASES)


def main() -> None:
    """Runs the kernels from torch and from JAX."""
    arguments = make_inputs()
    q, k, v, _, _, grad = arguments
    dq, dk, dv = gradients(q, k, v, grad)
    compare("attention_backward_q", attention_backward_q, arguments, dq)
    compare("attention_backward_kv", attention_backward_kv, arguments, (dk, dv))


if __name__ == "__main__":
    main()
