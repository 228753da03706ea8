"""A matrix product with a long inner dimension, cut into parts that are summed at the end.

    x [M, K]  =  | part 0 | part 1 | part 2 | part 3 |      partial[s] = x[:, part s] @ w[part s, :]

Where M and N are small there are few tiles of the result, and one long loop over K would leave most
of a device idle.  The parts are parallel: each has a partial sum of its own, in float32.  A second
loop nest, that is, a second launch, adds them in a fixed order, so that the result is the same in
every run (partial sums that are added as they come are not).

How to read the kernel: `ts` is a part, a tile of K with a fixed length, and `tk` are tiles within
it.  The last part may be shorter.
"""

from __future__ import annotations

import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def split_k_matmul(x, w, splits: hl.constexpr = 4):
    """x [M, K] times w [K, N] as the sum of at most `splits` products; [M, N] in x's dtype."""
    M, K = x.shape
    N = w.shape[1]
    length = max(-(-K // splits), 1)
    partial = hl.empty([-(-K // length), M, N], dtype=hl.float32)
    y = hl.empty([M, N], dtype=x.dtype)
    for ts in hl.tile(K, block_size=length):
        for tm, tn in hl.tile([M, N]):
            acc = hl.zeros([tm, tn], dtype=hl.float32)
            for tk in hl.tile(ts.begin, ts.end):
                acc = hl.dot(x[tm, tk], w[tk, tn], acc=acc)
            partial[ts.id, tm, tn] = acc
    for tm, tn in hl.tile([M, N]):
        y[tm, tn] = partial[:, tm, tn].sum(0).to(y.dtype)
    return y


def oracle(x: np.ndarray, w: np.ndarray, splits: int = 4) -> np.ndarray:
    """The same in float64, at once."""
    return x.astype(np.float64) @ w.astype(np.float64)


def make_inputs(seed: int = 0, m: int = 50, k: int = 800, n: int = 96) -> tuple:
    """x [m, k], w [k, n]."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((k, n), np.float32) * np.float32(k**-0.5)
    return rng.standard_normal((m, k), np.float32), w


def case(m: int, k: int, n: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    return tile.spec((m, k), dtype), tile.spec((k, n), dtype)


SIZES = ((256, 4096, 256), (100, 1200, 200), (256, 65536, 512))  # aligned, unaligned, production
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("split_k_matmul", split_k_matmul, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
