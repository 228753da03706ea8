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
from tilelang.codegen.triton.plan import defaults, groups, hopper, shapes


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


@tile.kernel
def scaled_blocks(x, w, scale):
    """Weights of 8 bits, of which each block of 128 x 128 has a scale: products are no sums yet."""
    T, K = x.shape
    N = w.shape[1]
    y = hl.empty([T, N], dtype=x.dtype)
    for t, n in hl.tile([T, N], block_size=[None, 128]):
        acc = hl.zeros([t, n], dtype=hl.float32)
        for k in hl.tile(K, block_size=128):
            acc = acc + hl.dot(x[t, k], w[k, n].to(x.dtype)) * scale[k.id, n.id]
        y[t, n] = acc.to(y.dtype)
    return y


@tile.kernel
def norm_gradient(x, dy, gamma, offsets, eps: hl.constexpr = 1e-5):
    """Of a layer norm whose weights are a group's: rows once, several values of each at a time."""
    T, D = x.shape
    G = offsets.shape[0] - 1
    dx = hl.zeros([T, D], dtype=x.dtype)
    dgamma = hl.zeros([G, D], dtype=hl.float32)
    for g in hl.grid(G):
        total = hl.zeros([D], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=T):
            v, d = x[t, :].float(), dy[t, :].float()
            c = v - v.mean(-1, keepdim=True)
            rstd = hl.rsqrt((c * c).mean(-1, keepdim=True) + eps)
            xhat, wd = c * rstd, d * gamma[g, :].float()[None, :]
            a, b = (wd * xhat).mean(-1, keepdim=True), wd.mean(-1, keepdim=True)
            dx[t, :] = ((wd - xhat * a - b) * rstd).to(dx.dtype)
            total = total + (d * xhat).sum(0)
        dgamma[g, :] = total
    return dx, dgamma


@tile.kernel
def token_losses(x, w, label, offsets):
    """Cross entropy of what a last layer gives, whose scores no memory has."""
    loss = hl.zeros([x.shape[0]], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            m = hl.full([t], float("-inf"), dtype=hl.float32)
            total = hit = hl.zeros([t], dtype=hl.float32)
            for v in hl.tile(w.shape[0]):
                scores = hl.zeros([t, v], dtype=hl.float32)
                for k in hl.tile(x.shape[1]):
                    scores = hl.dot(x[t, k], w[v, k].T, acc=scores)
                new = hl.maximum(m, scores.amax(1))
                total = total * hl.exp(m - new) + hl.exp(scores - new[:, None]).sum(1)
                hit += hl.where(v.index[None, :] == label[t][:, None], scores, 0.0).sum(1)
                m = new
            loss[t] = hl.log(total) + m - hit
    return loss


@tile.kernel
def with_residual(x, w, residual, ids, offsets):
    """A product of groups, to which rows are added that memory names."""
    y = hl.zeros([x.shape[0], w.shape[1]], dtype=x.dtype)
    for g in hl.grid(w.shape[0]):
        for t, n in hl.tile([offsets[g], 0], [offsets[g + 1], w.shape[1]]):
            acc = hl.zeros([t, n], dtype=hl.float32)
            for k in hl.tile(x.shape[1]):
                acc = hl.dot(x[t, k], w[g, n, k].T, acc=acc)
            y[t, n] = (acc + residual[ids[t], n]).to(y.dtype)
    return y


def blocks(dtype):
    return (
        tile.spec((8192, 2048), "bfloat16"), tile.spec((2048, 1024), dtype),
        tile.spec((16, 8), "float32"),
    )  # fmt: skip


def rows(dtype):
    return tuple(tile.spec((16, 4096, 64), dtype) for _ in range(3))


def tokens():
    ids = tile.spec((16384,), "int32")
    x, w = tile.spec((16384, 2048), "bfloat16"), tile.spec((32768, 2048), "bfloat16")
    return x, w, ids, tile.spec((33,), "int32")


def residuals():
    x, w = tile.spec((16384, 2048), "bfloat16"), tile.spec((32, 2048, 2048), "bfloat16")
    rest = tile.spec((4096, 2048), "bfloat16")
    return x, w, rest, tile.spec((16384,), "int32"), tile.spec((33,), "int32")


def norms(columns):
    wide = tile.spec((65536, columns), "bfloat16")
    return wide, wide, tile.spec((256, columns), "bfloat16"), tile.spec((257,), "int32")


SAMPLES = [(token_losses, tokens(), 90), (with_residual, residuals(), 90)]
SAMPLES += [(scaled_blocks, blocks("float8_e4m3fn"), arch) for arch in (90, 89, 100)]
SAMPLES += [
    (kernel, args, arch)
    for kernel, args in (
        (chunks, rows("bfloat16")), (chunks, rows("float32")),
        (norm_gradient, norms(1024)), (ranks, (tile.spec((8192,), "int32"), 16)),
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
    args = (tile.spec((8192,), "int32"), 16)
    assert dict(lowered(ranks, args, 90).config.blocks) == {"t": 64}
    monkeypatch.setattr(defaults, "PAIRED", 512)  # 4,752 bytes of stack
    assert dict(lowered(ranks, args, 90).config.blocks) == {"t": 512}


def test_several_values_of_whole_rows_share_the_registers_of_a_thread(monkeypatch):
    """On 2 warps, which is enough for sums of rows, the gradient of a norm spilled 1,160 bytes."""
    assert lowered(norm_gradient, norms(1024), 90).config.warps == 8
    monkeypatch.setattr(groups, "rows_alive", lambda *rows: 1)
    assert lowered(norm_gradient, norms(1024), 90).config.warps == 2


CROWDED = {token_losses: (tokens(), "v"), with_residual: (residuals(), "n")}


@pytest.mark.parametrize("kernel", CROWDED, ids=str)
def test_results_with_more_beside_them_are_no_wider_than_128(kernel, monkeypatch):
    """Of 256 columns 128 bytes spilled, and 24."""
    args, columns = CROWDED[kernel]
    assert dict(lowered(kernel, args, 90).config.blocks)[columns] == 128
    monkeypatch.setattr(shapes, "_crowded", lambda kernel, dot: False)
    assert dict(lowered(kernel, args, 90).config.blocks)[columns] == 256


def warps(kernel, dtype):
    return lowered(kernel, blocks(dtype), 90).config.warps


def test_products_beside_their_sums_are_shared_by_8_warps(monkeypatch):
    """On 4, which are quicker for sums of products of 8 bits, 240 bytes spilled."""
    assert [warps(scaled_blocks, one) for one in ("float8_e4m3fn", "bfloat16")] == [8, 8]
    for module in (defaults, hopper, shapes):
        monkeypatch.setattr(module, "beside_sums", lambda kernel: False)
    assert warps(scaled_blocks, "float8_e4m3fn") == 4


@tile.kernel
def scaled_rows(x, w, scale):
    """Columns that nobody fixed: 256 of them beside their sums are more than registers hold."""
    T, K = x.shape
    y = hl.empty([T, w.shape[1]], dtype=x.dtype)
    for t, n in hl.tile([T, w.shape[1]]):
        acc = hl.zeros([t, n], dtype=hl.float32)
        for k in hl.tile(K, block_size=128):
            acc += hl.dot(x[t, k], w[k, n]) * scale[k.id, 0]
        y[t, n] = acc.to(y.dtype)
    return y


def test_bytes_that_warps_turn_beside_their_sums_are_shared_by_8_warps(monkeypatch):
    """Groups of what is summed have scales of their own: on 4 warps 296 bytes spilled."""
    given = tile.spec((8192, 2048), "int8"), tile.spec((2048, 1024), "int8"), blocks("int8")[2]
    config = lowered(scaled_rows, given, 90).config
    assert (dict(config.blocks), config.warps) == ({"t": 256, "n": 64}, 8)
    monkeypatch.setattr(hopper, "beside_sums", lambda kernel: False)
    assert lowered(scaled_rows, given, 90).config.warps == 4


def test_products_beside_their_sums_are_no_wider_than_128(monkeypatch):
    given = blocks("bfloat16")
    assert dict(lowered(scaled_rows, given, 90).config.blocks) == {"t": 128, "n": 128}
    monkeypatch.setattr(shapes, "beside_sums", lambda kernel: False)
    assert dict(lowered(scaled_rows, given, 90).config.blocks)["n"] == 256
