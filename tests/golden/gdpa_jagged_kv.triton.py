"""gdpa_jagged_kv for cuda:sm90, blocks tk=64, tq=64."""

import torch
import triton
import triton.language as tl


@triton.jit
def _tanh(x):
    e = tl.exp(-2.0 * tl.abs(x))
    large = (1.0 - e) / (1.0 + e)
    small = x * (1.0 - x * x / 3.0)
    return tl.where(tl.abs(x) < 0.04, small, tl.where(x < 0, -large, large))


@triton.jit
def _gelu_tanh(x):
    return 0.5 * x * (1.0 + _tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


@triton.jit
def gdpa_jagged_kv_kernel(q_ptr, k_ptr, v_ptr, q_offsets_ptr, kv_offsets_ptr, out_ptr):
    groups = tl.arange(0, 128)
    at128 = tl.arange(0, 128)
    pid = tl.program_id(0)
    # gdpa_jagged_kv.py:44: out = jnp.zeros([H, Q, width], dtype=v.dtype)
    first = tl.load(q_offsets_ptr)
    last = tl.load(q_offsets_ptr + 128)
    # row is parallel: each row writes its own slices of out
    for row_start in tl.range(pid * 16, 16384, 49152):
        row_at = row_start + tl.arange(0, 16)
        outside = (row_start < first) | (row_start + 16 > last)
        ranges = tl.where(outside, 128, 0)
        # group is ordered: carries seen, a maximum
        seen = tl.zeros([16], tl.int32)
        for group_start in tl.range(0, ranges, 32):
            group_at = group_start + tl.arange(0, 32)
            q_offsets_tile_2 = tl.load(q_offsets_ptr + group_at)
            q_offsets_tile_3 = tl.load(q_offsets_ptr + group_at + 1)
            seen = tl.maximum(
                seen,
                tl.max(
                    (
                        (q_offsets_tile_2[None, :] <= row_at[:, None])
                        & (row_at[:, None] < q_offsets_tile_3[None, :])
                    ).to(tl.int32),
                    axis=1,
                ),
            )
        outers = tl.where(outside, 8, 0)
        columns = tl.where(outside, 128, 0)
        # outer is parallel: each outer writes its own rows of out
        for outer in tl.range(0, outers):
            # column is parallel: each column writes its own slices of out
            for column_start in tl.range(0, columns, 64):
                column_at = column_start + tl.arange(0, 64)
                tl.store(
                    out_ptr + outer * 2097152 + row_at[:, None] * 128 + column_at[None, :],
                    tl.zeros([16, 64], tl.bfloat16),
                    mask=(seen == 0)[:, None],
                )
    # gdpa_jagged_kv.py:46: for tq in hl.tile(q_offsets[b], q_offsets[b + 1]):
    q_offsets_tile = tl.load(q_offsets_ptr + groups)
    q_offsets_tile_1 = tl.load(q_offsets_ptr + groups + 1)
    tq_begins = tl.maximum(q_offsets_tile, 0)
    tq_ends = tl.minimum(q_offsets_tile_1, 16384)
    tile_counts = (tl.maximum(tq_ends, tq_begins) - tq_begins + 63) // 64
    tile_ends = tl.cumsum(tile_counts, axis=0)
    item_count = tl.sum(tile_counts, axis=0)
    for step in tl.range(pid, item_count * 8, 3072):
        h = step // item_count
        item = step % item_count
        before = tile_ends <= item
        b = tl.sum(before.to(tl.int32), axis=0)
        tq_id = item - tl.sum(tl.where(before, tile_counts, 0), axis=0)
        # gdpa_jagged_kv.py:45: for h, b in hl.grid([H, q_offsets.shape[0] - 1]):
        # h is parallel: each h writes its own rows of out
        # b is parallel: out slices of different b are disjoint because q_offsets is sorted
        # gdpa_jagged_kv.py:46: for tq in hl.tile(q_offsets[b], q_offsets[b + 1]):
        # tq is parallel: each tq writes its own slices of out
        q_offsets_value = tl.load(q_offsets_ptr + b)
        tq_begin = tl.maximum(q_offsets_value, 0)
        q_offsets_value_1 = tl.load(q_offsets_ptr + b + 1)
        tq_end = tl.minimum(q_offsets_value_1, 16384)
        tq_start = tq_begin + tq_id * 64
        tq_at = tq_start + tl.arange(0, 64)
        tq_in = tq_at < tq_end
        # gdpa_jagged_kv.py:47: acc = jnp.zeros([tq, width], dtype=jnp.float32)
        acc = tl.zeros([64, 128], tl.float32)
        # gdpa_jagged_kv.py:48: for tk in hl.tile(kv_offsets[b], kv_offsets[b + 1]):
        kv_offsets_value = tl.load(kv_offsets_ptr + b)
        tk_begin = tl.maximum(kv_offsets_value, 0)
        kv_offsets_value_1 = tl.load(kv_offsets_ptr + b + 1)
        tk_end = tl.minimum(kv_offsets_value_1, 65536)
        tk_whole = tk_begin + (tl.maximum(tk_end, tk_begin) - tk_begin) // 64 * 64
        # tk is ordered: carries acc, a sum
        # whole tiles: no mask along tk
        for tk_start in tl.range(tk_begin, tk_whole, 64, num_stages=3):
            tk_at = tk_start + tl.arange(0, 64)
            # gdpa_jagged_kv.py:49: scores = jnp.dot(q[h, tq, :], k[h, tk, :].T, preferred_elemen...
            q_tile = tl.load(
                q_ptr + h * 2097152 + tq_at[:, None] * 128 + at128[None, :],
                mask=tq_in[:, None],
                other=0.0,
            )
            k_tile = tl.load(k_ptr + h * 8388608 + tk_at[:, None] * 128 + at128[None, :])
            scores = tl.dot(q_tile, k_tile.T)
            # gdpa_jagged_kv.py:50: weights = activation(scores * D**-0.5).astype(v.dtype)
            weights = _gelu_tanh(scores * 0.08838834764831845).to(tl.bfloat16)
            # gdpa_jagged_kv.py:51: acc += jnp.dot(weights, v[h, tk, :], preferred_element_type=j...
            v_tile = tl.load(v_ptr + h * 8388608 + tk_at[:, None] * 128 + at128[None, :])
            acc = tl.dot(weights, v_tile, acc)
        # gdpa_jagged_kv.py:48: for tk in hl.tile(kv_offsets[b], kv_offsets[b + 1]):
        # the other tiles, masked along tk
        for tk_start in tl.range(tk_whole, tk_end, 64, num_stages=3):
            tk_at = tk_start + tl.arange(0, 64)
            tk_in = tk_at < tk_end
            # gdpa_jagged_kv.py:49: scores = jnp.dot(q[h, tq, :], k[h, tk, :].T, preferred_elemen...
            q_tile = tl.load(
                q_ptr + h * 2097152 + tq_at[:, None] * 128 + at128[None, :],
                mask=tq_in[:, None],
                other=0.0,
            )
            k_tile = tl.load(
                k_ptr + h * 8388608 + tk_at[:, None] * 128 + at128[None, :],
                mask=tk_in[:, None],
                other=0.0,
            )
            scores = tl.dot(q_tile, k_tile.T)
            # gdpa_jagged_kv.py:50: weights = activation(scores * D**-0.5).astype(v.dtype)
            weights = tl.where(tk_in, _gelu_tanh(scores * 0.08838834764831845).to(tl.bfloat16), 0.0)
            # gdpa_jagged_kv.py:51: acc += jnp.dot(weights, v[h, tk, :], preferred_element_type=j...
            v_tile = tl.load(
                v_ptr + h * 8388608 + tk_at[:, None] * 128 + at128[None, :],
                mask=tk_in[:, None],
                other=0.0,
            )
            acc = tl.dot(weights, v_tile, acc)
        # gdpa_jagged_kv.py:52: out[h, tq, :] = acc.astype(out.dtype)
        tl.store(
            out_ptr + h * 2097152 + tq_at[:, None] * 128 + at128[None, :],
            acc.to(tl.bfloat16),
            mask=tq_in[:, None],
        )


def gdpa_jagged_kv(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_offsets: torch.Tensor,
    kv_offsets: torch.Tensor,
) -> torch.Tensor:
    """out[:, r] = sum of activation(q[:, r] k[:, s] / sqrt(D)) v[:, s] over keys s of r."""
    out = torch.empty((8, 16384, 128), dtype=torch.bfloat16, device=q.device)
    gdpa_jagged_kv_kernel[(3072,)](q, k, v, q_offsets, kv_offsets, out, num_warps=4, num_stages=3)
    return out
