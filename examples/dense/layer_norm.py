"""Layer normalisation of every row, twice: with whole rows at once, and in passes over them.

    out = (x - mean) / sqrt(variance + eps) * weight + bias

`layer_norm` computes with whole rows.  `layer_norm_long` walks over their columns three times, for
the mean, for the variance about that mean, and to write the result, so that what it computes with
is never longer than a tile.  The variance is summed from squares of differences (the two-pass
algorithm) and not as E[x^2] - E[x]^2, which loses every digit when the mean is large.

Several loops in a row inside of one loop, as in the second kernel, are nothing special: a value
that the first one carries is an ordinary value after it.
"""

from __future__ import annotations

import numpy as np
import torch

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def layer_norm(x, weight, bias, eps: hl.constexpr = 1e-5):
    """out[i] = (x[i] - mean) * rsqrt(variance + eps) * weight + bias, over each whole row."""
    out = torch.empty_like(x)
    for tm in hl.tile(x.shape[0]):
        rows = x[tm, :].to(torch.float32)
        centred = rows - torch.mean(rows, dim=-1, keepdim=True)
        variance = torch.mean(centred * centred, dim=-1, keepdim=True)
        normal = centred * torch.rsqrt(variance + eps)
        out[tm, :] = (normal * weight[:] + bias[:]).to(out.dtype)
    return out


@tile.kernel
def layer_norm_long(x, weight, bias, eps: hl.constexpr = 1e-5):
    """The same for long rows: three passes over tiles of columns."""
    M, N = x.shape
    out = torch.empty_like(x)
    for tm in hl.tile(M):
        total = torch.zeros([tm], dtype=torch.float32)
        for tn in hl.tile(N):
            total += torch.sum(x[tm, tn].float(), dim=-1)
        mean = (total / N)[:, None]

        squares = torch.zeros([tm], dtype=torch.float32)
        for tn in hl.tile(N):
            centred = x[tm, tn].float() - mean
            squares += torch.sum(centred * centred, dim=-1)
        scale = torch.rsqrt(squares / N + eps)[:, None]

        for tn in hl.tile(N):
            normal = (x[tm, tn].float() - mean) * scale
            out[tm, tn] = (normal * weight[tn] + bias[tn]).to(out.dtype)
    return out


def oracle(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    """The same in float64."""
    x, weight, bias = (a.astype(np.float64) for a in (x, weight, bias))
    deviation = np.sqrt(x.var(axis=-1, keepdims=True) + eps)
    return (x - x.mean(axis=-1, keepdims=True)) / deviation * weight + bias


def make_inputs(
    seed: int = 0, rows: int = 200, columns: int = 300
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x [rows, columns], with a mean that is not zero; weight and bias [columns]."""
    rng = np.random.default_rng(seed)
    weight, bias = rng.standard_normal((2, columns), np.float32)
    return rng.standard_normal((rows, columns), np.float32) + np.float32(3), weight, bias


def case(rows: int, columns: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    weight = tile.spec((columns,), dtype)
    return tile.spec((rows, columns), dtype), weight, weight


SIZES = (
    (1024, 1024),  # aligned
    (1000, 300),  # unaligned
    (16384, 4096),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs both kernels from torch and from JAX."""
    arguments = make_inputs()
    compare("layer_norm", layer_norm, arguments, oracle(*arguments))
    compare("layer_norm_long", layer_norm_long, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
