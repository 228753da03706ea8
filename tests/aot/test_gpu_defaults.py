"""Defaults of kernels that no example is like, by Triton's compiler: nothing spills."""

from __future__ import annotations

import pytest

import tilelang as tile
import tilelang.language as hl
from tests.compile_cache import CUDA, shared
from tests.frameworks import needs_triton
from tests.passes.becomes import again
from tests.tiers import HALF, share
from tilelang.aot import compile_lowered
from tilelang.codegen.triton.plan import defaults


@tile.kernel
def chunks(q, k, v):
    """Linear attention by chunks of 64 rows, whose state is multiplied in float32."""
    H, T, D = q.shape
    out = hl.empty([H, T, D], dtype=q.dtype)
    for h in hl.grid(H):
        state = hl.zeros([D, D], dtype=hl.float32)
        for t in hl.tile(T, block_size=64):
            s = hl.dot(q[h, t, :], k[h, t, :].T)
            s = hl.where(t.index[:, None] >= t.index[None, :], s, 0.0)
            y = hl.dot(q[h, t, :].to(hl.float32), state)
            y = hl.dot(s.to(v.dtype), v[h, t, :], acc=y)
            out[h, t, :] = y.to(out.dtype)
            state = hl.dot(k[h, t, :].T, v[h, t, :], acc=state)
    return out


@tile.kernel
def ranks(expert, E: hl.constexpr):
    """How many tokens before each go to the same expert: a tile is compared with itself."""
    (T,) = expert.shape
    rank = hl.empty([T], dtype=hl.int32)
    for e in hl.grid(E):
        n = hl.zeros([], dtype=hl.int32)
        for t in hl.tile(T):
            hit = (expert[t] == e).to(hl.int32)
            before = hl.where(t.index[None, :] < t.index[:, None], hit[None, :], 0).sum(1)
            hl.store(rank, [t], n + before, mask=hit > 0)
            n = n + hit.sum(0)
    return rank


def rows(dtype):
    return tuple(tile.spec((16, 4096, 64), dtype) for _ in range(3))


SAMPLES = [
    (kernel, args, arch)
    for kernel, args in (
        (chunks, rows("bfloat16")), (chunks, rows("float32")),
        (ranks, (tile.spec((8192,), "int32"), 16)),
    )
    for arch in (80, 90, 89, 100)
]  # fmt: skip


def lowered(kernel, args, arch):
    return again(kernel).lower(*args, target=f"cuda:sm{arch}")


@needs_triton
@pytest.mark.parametrize(
    "sample",
    share(SAMPLES, of=4, rest=HALF, ids=lambda s: f"{s[0].__name__}-{s[1][0].dtype}-{s[2]}"),
)
def test_nothing_spills(sample):
    made = compile_lowered(lowered(*sample), worker=shared(CUDA))
    assert [p.stack for p in made.programs] == [0]


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_products_of_float32_beside_narrow_ones_are_those_of_float32(arch):
    """Of one by one number, as products of bfloat16 were thought to be, 5,232 bytes spilled."""
    made = lowered(chunks, rows("bfloat16"), arch)
    assert 'state, input_precision="tf32x3"' in made.source.text


def test_a_tile_beside_itself_is_as_short_as_pairs_of_it_allow(monkeypatch):
    args = SAMPLES[-1][1]
    assert dict(lowered(ranks, args, 90).config.blocks) == {"t": 64}
    monkeypatch.setattr(defaults, "PAIRED", 512)  # 4,752 bytes of stack
    assert dict(lowered(ranks, args, 90).config.blocks) == {"t": 512}
