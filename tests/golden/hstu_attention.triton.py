"""hstu_attention for cuda:sm90, blocks tk=32, tq=64."""

import torch
import triton
import triton.language as tl


@triton.jit
def _silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def hstu_attention_kernel(q_ptr, k_ptr, v_ptr, offsets_ptr, out_ptr):
    groups = tl.arange(0, 256)
    at128 = tl.arange(0, 128)
    pid = tl.program_id(0)
    # hstu_attention.py:40: out = jnp.zeros([H, T, width], dtype=v.dtype)
    first = tl.load(offsets_ptr)
    last_1 = tl.load(offsets_ptr + 256)
    # row is parallel: each row writes its own slices of out
    for row_start in tl.range(pid * 16, 65536, 327680):
        row_at = row_start + tl.arange(0, 16)
        outside = (row_start < first) | (row_start + 16 > last_1)
        ranges = tl.where(outside, 256, 0)
        # group is ordered: carries seen, a maximum
        seen = tl.zeros([16], tl.int32)
        for group_start in tl.range(0, ranges, 32):
            group_at = group_start + tl.arange(0, 32)
            offsets_tile_2 = tl.load(offsets_ptr + group_at)
            offsets_tile_3 = tl.load(offsets_ptr + group_at + 1)
            seen = tl.maximum(
                seen,
                tl.max(
                    (
                        (offsets_tile_2[None, :] <= row_at[:, None])
                        & (row_at[:, None] < offsets_tile_3[None, :])
                    ).to(tl.int32),
                    axis=1,
                ),
            )
        outers = tl.where(outside, 16, 0)
        columns = tl.where(outside, 128, 0)
        # outer is parallel: each outer writes its own rows of out
        for outer in tl.range(0, outers):
            # column is parallel: each column writes its own slices of out
            for column_start in tl.range(0, columns, 64):
                column_at = column_start + tl.arange(0, 64)
                tl.store(
                    out_ptr + outer * 8388608 + row_at[:, None] * 128 + column_at[None, :],
                    tl.zeros([16, 64], tl.bfloat16),
                    mask=(seen == 0)[:, None],
                )
    # hstu_attention.py:42: begin, end = offsets[b], offsets[b + 1]
    offsets_tile = tl.load(offsets_ptr + groups)
    offsets_tile_1 = tl.load(offsets_ptr + groups + 1)
    tq_begins = tl.maximum(offsets_tile, 0)
    tq_ends = tl.minimum(offsets_tile_1, 65536)
    tile_counts = (tl.maximum(tq_ends, tq_begins) - tq_begins + 63) // 64
    tile_ends = tl.cumsum(tile_counts, axis=0)
    item_count = tl.sum(tile_counts, axis=0)
    for step in tl.range(pid, item_count * 16, 20480):
        h = step // item_count
        item = step % item_count
        before = tile_ends <= item
        b = tl.sum(before.to(tl.int32), axis=0)
        tq_id = item - tl.sum(tl.where(before, tile_counts, 0), axis=0)
        # hstu_attention.py:41: for h, b in hl.grid([H, offsets.shape[0] - 1]):
        # h is parallel: each h writes its own rows of out
        # b is parallel: out slices of different b are disjoint because offsets is sorted
        # hstu_attention.py:42: begin, end = offsets[b], offsets[b + 1]
        begin = tl.load(offsets_ptr + b)
        end = tl.load(offsets_ptr + b + 1)
        # hstu_attention.py:43: for tq in hl.tile(begin, end, max_extent=longest):
        # tq is parallel: each tq writes its own slices of out
        tq_begin = tl.maximum(begin, 0)
        tq_end = tl.minimum(end, 65536)
        tq_start = tq_begin + tq_id * 64
        tq_at = tq_start + tl.arange(0, 64)
        tq_in = tq_at < tq_end
        # hstu_attention.py:44: acc = jnp.zeros([tq, width], dtype=jnp.float32)
        acc = tl.zeros([64, 128], tl.float32)
        # hstu_attention.py:45: last = min(end, tq.end) if causal else end
        last = tl.minimum(end, tl.minimum(tq_start + 64, tq_end))
        # hstu_attention.py:46: for tk in hl.tile(begin, last, max_extent=longest):
        tk_whole = (
            tq_begin + (tl.maximum(tl.minimum(last, tq_start + 1), tq_begin) - tq_begin) // 32 * 32
        )
        # tk is ordered: carries acc, a sum
        # whole tiles: no mask along tk
        for tk_start in tl.range(tq_begin, tk_whole, 32, num_stages=3):
            tk_at = tk_start + tl.arange(0, 32)
            # hstu_attention.py:47: scores = jnp.dot(q[h, tq, :], k[h, tk, :].T, preferred_elemen...
            q_tile = tl.load(
                q_ptr + h * 8388608 + tq_at[:, None] * 128 + at128[None, :],
                mask=tq_in[:, None],
                other=0.0,
            )
            k_tile = tl.load(k_ptr + h * 8388608 + tk_at[:, None] * 128 + at128[None, :])
            scores = tl.dot(q_tile, k_tile.T)
            # hstu_attention.py:48: weights = jax.nn.silu(scores * D**-0.5) / longest
            weights = _silu(scores * 0.08838834764831845) / 4096.0
            # hstu_attention.py:51: acc += jnp.dot(
            v_tile = tl.load(v_ptr + h * 8388608 + tk_at[:, None] * 128 + at128[None, :])
            acc = tl.dot(weights.to(tl.bfloat16), v_tile, acc)
        # hstu_attention.py:46: for tk in hl.tile(begin, last, max_extent=longest):
        # the other tiles, masked along tk
        for tk_start in tl.range(tk_whole, last, 32, num_stages=3):
            tk_at = tk_start + tl.arange(0, 32)
            tk_in = tk_at < last
            # hstu_attention.py:47: scores = jnp.dot(q[h, tq, :], k[h, tk, :].T, preferred_elemen...
            q_tile = tl.load(
                q_ptr + h * 8388608 + tq_at[:, None] * 128 + at128[None, :],
                mask=tq_in[:, None],
                other=0.0,
            )
            k_tile = tl.load(
                k_ptr + h * 8388608 + tk_at[:, None] * 128 + at128[None, :],
                mask=tk_in[:, None],
                other=0.0,
            )
            scores = tl.dot(q_tile, k_tile.T)
            # hstu_attention.py:48: weights = jax.nn.silu(scores * D**-0.5) / longest
            weights = _silu(scores * 0.08838834764831845) / 4096.0
            # hstu_attention.py:50: weights = jnp.where(tk.index[None, :] <= tq.index[:, None], w...
            weights_1 = tl.where((tk_at[None, :] <= tq_at[:, None]) & tk_in, weights, 0.0)
            # hstu_attention.py:51: acc += jnp.dot(
            v_tile = tl.load(
                v_ptr + h * 8388608 + tk_at[:, None] * 128 + at128[None, :],
                mask=tk_in[:, None],
                other=0.0,
            )
            acc = tl.dot(weights_1.to(tl.bfloat16), v_tile, acc)
        # hstu_attention.py:54: out[h, tq, :] = acc.astype(out.dtype)
        tl.store(
            out_ptr + h * 8388608 + tq_at[:, None] * 128 + at128[None, :],
            acc.to(tl.bfloat16),
            mask=tq_in[:, None],
        )


def hstu_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    offsets: torch.Tensor,
) -> torch.Tensor:
    """out[:, r] = sum of silu(q[:, r] k[:, s] / sqrt(D)) v[:, s] / longest over s in r's se..."""
    out = torch.empty((16, 65536, 128), dtype=torch.bfloat16, device=q.device)
    hstu_attention_kernel[(20480,)](q, k, v, offsets, out, num_warps=4, num_stages=3)
    return out
