"""gdpa_dense_kv for cuda:sm90, blocks tq=64, ts=64."""

import torch
import triton
import triton.language as tl


@triton.jit
def _silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def gdpa_dense_kv_kernel(q_ptr, k_ptr, v_ptr, offsets_ptr, out_ptr):
    groups = tl.arange(0, 64)
    at128 = tl.arange(0, 128)
    pid = tl.program_id(0)
    # gdpa_dense_kv.py:44: out = jnp.zeros([H, T, D], dtype=q.dtype)
    first = tl.load(offsets_ptr)
    last = tl.load(offsets_ptr + 64)
    # row is parallel: each row writes its own slices of out
    for row_start in tl.range(pid * 16, 16384, 4224):
        row_at = row_start + tl.arange(0, 16)
        outside = (row_start < first) | (row_start + 16 > last)
        ranges = tl.where(outside, 64, 0)
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
    # gdpa_dense_kv.py:46: for tq in hl.tile(offsets[b], offsets[b + 1], max_extent=T):
    offsets_tile = tl.load(offsets_ptr + groups)
    offsets_tile_1 = tl.load(offsets_ptr + groups + 1)
    tq_begins = tl.maximum(offsets_tile, 0)
    tq_ends = tl.minimum(offsets_tile_1, 16384)
    tile_counts = (tl.maximum(tq_ends, tq_begins) - tq_begins + 63) // 64
    tile_ends = tl.cumsum(tile_counts, axis=0)
    item_count = tl.sum(tile_counts, axis=0)
    # gdpa_dense_kv.py:50: scores = jnp.dot(q[h, tq, :], keys.T, preferred_element_type=jnp.float32)
    # q, up to the array's end
    q_boxes = tl.make_tensor_descriptor(q_ptr, [8, 16384, 128], [2097152, 128, 1], [1, 64, 128])
    # gdpa_dense_kv.py:49: keys = k[b, h, ts, :]
    # k, up to the array's end
    k_boxes = tl.make_tensor_descriptor(
        k_ptr, [64, 8, 512, 128], [524288, 65536, 128, 1], [1, 1, 64, 128]
    )
    # gdpa_dense_kv.py:52: acc += jnp.dot(weights, v[b, h, ts, :], preferred_element_type=jnp.flo...
    # v, up to the array's end
    v_boxes = tl.make_tensor_descriptor(
        v_ptr, [64, 8, 512, 128], [524288, 65536, 128, 1], [1, 1, 64, 128]
    )
    for step in tl.range(pid, item_count * 8, 264):
        h = step // item_count
        item = step % item_count
        before = tile_ends <= item
        b = tl.sum(before.to(tl.int32), axis=0)
        tq_id = item - tl.sum(tl.where(before, tile_counts, 0), axis=0)
        # gdpa_dense_kv.py:45: for h, b in hl.grid([H, B]):
        # h is parallel: each h writes its own rows of out
        # b is parallel: out slices of different b are disjoint because offsets is sorted
        # gdpa_dense_kv.py:46: for tq in hl.tile(offsets[b], offsets[b + 1], max_extent=T):
        # tq is parallel: each tq writes its own slices of out
        offsets_value = tl.load(offsets_ptr + b)
        tq_begin = tl.maximum(offsets_value, 0)
        offsets_value_1 = tl.load(offsets_ptr + b + 1)
        tq_end = tl.minimum(offsets_value_1, 16384)
        tq_start = tq_begin + tq_id * 64
        tq_at = tq_start + tl.arange(0, 64)
        tq_in = tq_at < tq_end
        # gdpa_dense_kv.py:47: acc = jnp.zeros([tq, D], dtype=jnp.float32)
        acc = tl.zeros([64, 128], tl.float32)
        # gdpa_dense_kv.py:50: scores = jnp.dot(q[h, tq, :], keys.T, preferred_element_type=jnp.f...
        q_tile = tl.reshape(q_boxes.load([h, tq_start, 0]), [64, 128])
        # gdpa_dense_kv.py:48: for ts in hl.tile(S):
        # ts is ordered: carries acc, a sum
        for ts_start in tl.range(0, 512, 64, num_stages=3):
            # gdpa_dense_kv.py:49: keys = k[b, h, ts, :]
            keys = tl.reshape(k_boxes.load([b, h, ts_start, 0]), [64, 128])
            # gdpa_dense_kv.py:50: scores = jnp.dot(q[h, tq, :], keys.T, preferred_element_type=j...
            scores = tl.dot(q_tile, keys.T)
            # gdpa_dense_kv.py:51: weights = activation(scores * D**-0.5).astype(v.dtype)
            weights = _silu(scores * 0.08838834764831845).to(tl.bfloat16)
            # gdpa_dense_kv.py:52: acc += jnp.dot(weights, v[b, h, ts, :], preferred_element_type...
            v_tile = tl.reshape(v_boxes.load([b, h, ts_start, 0]), [64, 128])
            acc = tl.dot(weights, v_tile, acc)
        # gdpa_dense_kv.py:53: out[h, tq, :] = acc.astype(out.dtype)
        tl.store(
            out_ptr + h * 2097152 + tq_at[:, None] * 128 + at128[None, :],
            acc.to(tl.bfloat16),
            mask=tq_in[:, None],
        )


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Memory that Triton writes descriptors to."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy that begins at a multiple of 16 bytes, as arrays of descriptors do."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def gdpa_dense_kv(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    offsets: torch.Tensor,
) -> torch.Tensor:
    """out[:, r] = activation(q[:, r] k[b]^T / sqrt(D)) v[b] for r in group b, else zero."""
    q = _aligned(q)
    k = _aligned(k)
    v = _aligned(v)
    triton.set_allocator(_scratch)
    out = torch.empty((8, 16384, 128), dtype=torch.bfloat16, device=q.device)
    gdpa_dense_kv_kernel[(264,)](q, k, v, offsets, out, num_warps=4, num_stages=3)
    return out
