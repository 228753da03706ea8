"""backward_q for cuda:sm90, blocks tk=64, tq=64."""

import torch
import triton
import triton.language as tl


@triton.jit
def backward_q_kernel(q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, grad_ptr, offsets_ptr, dq_ptr):
    groups = tl.arange(0, 32)
    at128 = tl.arange(0, 128)
    pid = tl.program_id(0)
    # jagged_attention_backward.py:63: dq = hl.zeros(q.shape, dtype=q.dtype)
    first = tl.load(offsets_ptr)
    last = tl.load(offsets_ptr + 32)
    # row is parallel: each row writes its own slices of dq
    for row_start in tl.range(pid * 16, 16384, 73728):
        row_at = row_start + tl.arange(0, 16)
        outside = (row_start < first) | (row_start + 16 > last)
        ranges = tl.where(outside, 32, 0)
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
        # outer is parallel: each outer writes its own rows of dq
        for outer in tl.range(0, outers):
            # column is parallel: each column writes its own slices of dq
            for column_start in tl.range(0, columns, 64):
                column_at = column_start + tl.arange(0, 64)
                tl.store(
                    dq_ptr + outer * 2097152 + row_at[:, None] * 128 + column_at[None, :],
                    tl.zeros([16, 64], tl.bfloat16),
                    mask=(seen == 0)[:, None],
                )
    # jagged_attention_backward.py:65: for tq in hl.tile(offsets[b], offsets[b + 1]):
    offsets_tile = tl.load(offsets_ptr + groups)
    offsets_tile_1 = tl.load(offsets_ptr + groups + 1)
    tq_begins = tl.maximum(offsets_tile, 0)
    tq_ends = tl.minimum(offsets_tile_1, 16384)
    tile_counts = (tl.maximum(tq_ends, tq_begins) - tq_begins + 63) // 64
    tile_ends = tl.cumsum(tile_counts, axis=0)
    item_count = tl.sum(tile_counts, axis=0)
    # jagged_attention_backward.py:66: g = grad[h, tq, :]
    # grad, up to the array's end
    grad_boxes = tl.make_tensor_descriptor(
        grad_ptr, [16, 16384, 128], [2097152, 128, 1], [1, 64, 128]
    )
    # jagged_attention_backward.py:70: scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * D**-0.5
    # q, up to the array's end
    q_boxes = tl.make_tensor_descriptor(q_ptr, [16, 16384, 128], [2097152, 128, 1], [1, 64, 128])
    for step in tl.range(pid, item_count * 16, 4608):
        h = step // item_count
        item = step % item_count
        before = tile_ends <= item
        b = tl.sum(before.to(tl.int32), axis=0)
        tq_id = item - tl.sum(tl.where(before, tile_counts, 0), axis=0)
        # jagged_attention_backward.py:64: for h, b in hl.grid([q.shape[0], offsets.shape[0] - 1]):
        # h is parallel: each h writes its own rows of dq
        # b is parallel: dq slices of different b are disjoint because offsets is sorted
        # jagged_attention_backward.py:65: for tq in hl.tile(offsets[b], offsets[b + 1]):
        # tq is parallel: each tq writes its own slices of dq
        offsets_value = tl.load(offsets_ptr + b)
        tq_begin = tl.maximum(offsets_value, 0)
        offsets_value_1 = tl.load(offsets_ptr + b + 1)
        tq_end = tl.minimum(offsets_value_1, 16384)
        tq_start = tq_begin + tq_id * 64
        tq_at = tq_start + tl.arange(0, 64)
        tq_in = tq_at < tq_end
        # jagged_attention_backward.py:66: g = grad[h, tq, :]
        g = tl.reshape(grad_boxes.load([h, tq_start, 0]), [64, 128])
        # jagged_attention_backward.py:67: delta = (g.to(hl.float32) * out[h, tq, :].to(hl.float3...
        out_tile = tl.load(
            out_ptr + h * 2097152 + tq_at[:, None] * 128 + at128[None, :],
            mask=tq_in[:, None],
            other=0.0,
        )
        delta = tl.sum(g.to(tl.float32) * out_tile.to(tl.float32), axis=1)
        # jagged_attention_backward.py:68: acc = hl.zeros([tq, D], dtype=hl.float32)
        acc = tl.zeros([64, 128], tl.float32)
        # jagged_attention_backward.py:70: scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * D**-0.5
        q_tile = tl.reshape(q_boxes.load([h, tq_start, 0]), [64, 128])
        # jagged_attention_backward.py:71: p = hl.exp(scores - lse[h, tq][:, None])
        lse_tile = tl.load(lse_ptr + h * 16384 + tq_at, mask=tq_in, other=0.0)
        # jagged_attention_backward.py:70: scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * D**-0.5
        # k, up to the end of tk
        k_boxes = tl.make_tensor_descriptor(
            k_ptr, [16, tl.maximum(tq_end, 1), 128], [2097152, 128, 1], [1, 64, 128]
        )
        # jagged_attention_backward.py:72: dp = hl.dot(g, v[h, tk, :].T)
        # v, up to the end of tk
        v_boxes = tl.make_tensor_descriptor(
            v_ptr, [16, tl.maximum(tq_end, 1), 128], [2097152, 128, 1], [1, 64, 128]
        )
        # jagged_attention_backward.py:69: for tk in hl.tile(offsets[b], offsets[b + 1]):
        tk_whole = tq_begin + (tl.maximum(tq_end, tq_begin) - tq_begin) // 64 * 64
        # tk is ordered: carries acc, a sum
        # whole tiles: no mask along tk
        for tk_start in tl.range(tq_begin, tk_whole, 64, num_stages=2):
            # jagged_attention_backward.py:70: scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * D**-0.5
            k_tile = tl.reshape(k_boxes.load([h, tk_start, 0]), [64, 128])
            scores = tl.dot(q_tile, k_tile.T) * 0.08838834764831845
            # jagged_attention_backward.py:71: p = hl.exp(scores - lse[h, tq][:, None])
            p = tl.exp(scores - lse_tile[:, None])
            # jagged_attention_backward.py:72: dp = hl.dot(g, v[h, tk, :].T)
            v_tile = tl.reshape(v_boxes.load([h, tk_start, 0]), [64, 128])
            dp = tl.dot(g, v_tile.T)
            # jagged_attention_backward.py:73: ds = p * (dp - delta[:, None]) * D**-0.5
            ds = p * (dp - delta[:, None]) * 0.08838834764831845
            # jagged_attention_backward.py:74: acc = hl.dot(ds.to(k.dtype), k[h, tk, :], acc=acc)
            acc = tl.dot(ds.to(tl.bfloat16), k_tile, acc)
        # jagged_attention_backward.py:69: for tk in hl.tile(offsets[b], offsets[b + 1]):
        # the other tiles, masked along tk
        for tk_start in tl.range(tk_whole, tq_end, 64, num_stages=2):
            tk_at = tk_start + tl.arange(0, 64)
            tk_in = tk_at < tq_end
            # jagged_attention_backward.py:70: scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * D**-0.5
            k_tile = tl.reshape(k_boxes.load([h, tk_start, 0]), [64, 128])
            scores = tl.dot(q_tile, k_tile.T) * 0.08838834764831845
            # jagged_attention_backward.py:71: p = hl.exp(scores - lse[h, tq][:, None])
            p = tl.exp(scores - lse_tile[:, None])
            # jagged_attention_backward.py:72: dp = hl.dot(g, v[h, tk, :].T)
            v_tile = tl.reshape(v_boxes.load([h, tk_start, 0]), [64, 128])
            dp = tl.dot(g, v_tile.T)
            # jagged_attention_backward.py:73: ds = p * (dp - delta[:, None]) * D**-0.5
            ds = tl.where(tk_in, p * (dp - delta[:, None]) * 0.08838834764831845, 0.0)
            # jagged_attention_backward.py:74: acc = hl.dot(ds.to(k.dtype), k[h, tk, :], acc=acc)
            acc = tl.dot(ds.to(tl.bfloat16), k_tile, acc)
        # jagged_attention_backward.py:75: dq[h, tq, :] = acc.to(dq.dtype)
        tl.store(
            dq_ptr + h * 2097152 + tq_at[:, None] * 128 + at128[None, :],
            acc.to(tl.bfloat16),
            mask=tq_in[:, None],
        )


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Memory that Triton writes descriptors to."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy that begins at a multiple of 16 bytes, as arrays of descriptors do."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def backward_q(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    grad: torch.Tensor,
    offsets: torch.Tensor,
) -> torch.Tensor:
    """dq [H, T, D] in q's dtype; rows in no sequence are zero."""
    q = _aligned(q)
    k = _aligned(k)
    v = _aligned(v)
    grad = _aligned(grad)
    triton.set_allocator(_scratch)
    dq = torch.empty((16, 16384, 128), dtype=torch.bfloat16, device=q.device)
    backward_q_kernel[(4608,)](q, k, v, out, lse, grad, offsets, dq, num_warps=4, num_stages=2)
    return dq
