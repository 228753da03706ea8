"""A mixture of experts: every token is computed by the experts that it was routed to.

Routing has given each token `top` experts, and a gate, a weight, for each of them.  A pair of a
token and one of its experts is a slot, and slots are sorted by expert: expert e owns the slots from
offsets[e] to offsets[e + 1], and token[s] says whose slot s is.

    tokens          0     1     2     3                experts of token 2: 0 and 3
    slots           0 1 2 3 4 5 6 7                    slot[2] = 1, 6
    token[s]        0 2 0 1 3 1 2 3
    offsets         0   2     5 5     8                expert 2 has nothing to do
                    e 0  e 1     e 3

    z[s] = x[token[s]] @ w[e]                          gather, and multiply with the slot's expert
    y[t] = sum of gate[t, k] * z[slot[t, k]] over k    gather again, and combine

Nothing is added to a row that another slot writes: the last step reads, for each token, the rows
that belong to it.  Slots past the last offset belong to no expert.  Their rows of `z` are zero, so
that a router that must drop a pair points there.

How to read the kernel: it is spelled in torch, and has two loop nests, each of which becomes one
pipeline.  `x[token[ts], td]` are the rows of a tile of slots, wherever they lie: their copies are
all on their way before the first one is waited for.  `z` is float32, so that a row of it can be
copied alone, and is rounded once, in the sum.
"""

from __future__ import annotations

import numpy as np
import torch

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def moe(x, w, token, slot, gate, offsets):
    """y[t] = sum of gate[t, k] * x[t] @ w[expert of slot[t, k]] over k.

    x        [tokens, width]
    w        [experts, width, N]
    token    [slots] integers: the token of each slot
    slot     [tokens, top] integers: the slots of each token
    gate     [tokens, top]
    offsets  [experts + 1] integers, not decreasing: where the slots of each expert begin
    """
    T, D = x.shape
    E, _, N = w.shape
    S, K = token.shape[0], slot.shape[1]
    z = torch.zeros([S, N], dtype=torch.float32)
    for e in hl.grid(E):
        for ts, tn in hl.tile([offsets[e], 0], [offsets[e + 1], N], max_extent=[S, N]):
            acc = torch.zeros([ts, tn], dtype=torch.float32)
            for td in hl.tile(D):
                acc = torch.addmm(acc, x[token[ts], td], w[e, td, tn])
            z[ts, tn] = acc
    y = torch.empty([T, N], dtype=x.dtype)
    for tt, tn in hl.tile([T, N]):
        acc = torch.zeros([tt, tn], dtype=torch.float32)
        for k in hl.static_range(K):
            acc = acc + gate[tt, k].to(torch.float32)[:, None] * z[slot[tt, k], tn]
        y[tt, tn] = acc.to(y.dtype)
    return y


def oracle(
    x: np.ndarray,
    w: np.ndarray,
    token: np.ndarray,
    slot: np.ndarray,
    gate: np.ndarray,
    offsets: np.ndarray,
) -> np.ndarray:
    """The same in float64, slot by slot; `slot` and `token` say the same thing."""
    x, w, gate = (a.astype(np.float64) for a in (x, w, gate))
    expert = np.searchsorted(offsets, np.arange(len(token)), side="right") - 1
    y = np.zeros((len(x), w.shape[2]))
    for t, own in enumerate(slot):
        for k, s in enumerate(own):
            if offsets[0] <= s < offsets[-1]:
                y[t] += gate[t, k] * (x[t] @ w[expert[s]])
    return y


def make_inputs(
    seed: int = 0, tokens: int = 40, experts: int = 5, top: int = 2, width: int = 64, n: int = 96
) -> tuple[np.ndarray, ...]:
    """x, w, token, slot, gate, offsets: of a random routing in which one of 5 is never chosen."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((tokens, width), np.float32)
    w = rng.standard_normal((experts, width, n), np.float32) * np.float32(width**-0.5)
    scores = rng.standard_normal((tokens, experts))
    scores[:, 2::5] = -np.inf
    chosen = np.argsort(-scores, axis=1)[:, :top]  # [tokens, top]
    gate = rng.random((tokens, top), np.float32)
    order = np.argsort(chosen.reshape(-1), kind="stable")  # slot -> pair of token and choice
    slot = np.argsort(order).reshape(tokens, top).astype(np.int32)
    sizes = np.bincount(chosen.reshape(-1), minlength=experts)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return x, w, (order // top).astype(np.int32), slot, gate / gate.sum(1, keepdims=True), offsets


def case(tokens: int, width: int, n: int, experts: int, top: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    return (
        tile.spec((tokens, width), dtype),
        tile.spec((experts, width, n), dtype),
        tile.spec((tokens * top,), "int32"),
        tile.spec((tokens, top), "int32"),
        tile.spec((tokens, top), dtype),
        tile.spec((experts + 1,), "int32"),
    )


SIZES = (
    (512, 256, 512, 8, 2),  # aligned
    (500, 200, 300, 7, 3),  # unaligned
    (4096, 2048, 1024, 64, 4),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("moe", moe, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
