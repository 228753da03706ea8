"""backward_kv for cuda:sm90, blocks tk=64, tq=64."""

import torch
import triton
import triton.language as tl


@triton.jit
def backward_kv_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    grad_ptr,
    offsets_ptr,
    dk_ptr,
    dv_ptr,
):
    groups = tl.arange(0, 32)
    at128 = tl.arange(0, 128)
    pid = tl.program_id(0)
    # jagged_attention_backward.py:86: for tk in hl.tile(offsets[b], offsets[b + 1]):
    offsets_tile = tl.load(offsets_ptr + groups)
    offsets_tile_1 = tl.load(offsets_ptr + groups + 1)
    tk_begins = tl.maximum(offsets_tile, 0)
    tk_ends = tl.minimum(offsets_tile_1, 16384)
    tile_counts = tl.maximum(tk_ends - tk_begins + 63, 0) // 64
    tile_ends = tl.cumsum(tile_counts, axis=0)
    item_count = tl.sum(tile_counts, axis=0)
    for step in tl.range(pid, item_count * 16, 4608):
        h = step // item_count
        item = step % item_count
        before = tile_ends <= item
        b = tl.sum(before.to(tl.int32), axis=0)
        tk_id = item - tl.sum(tl.where(before, tile_counts, 0), axis=0)
        # jagged_attention_backward.py:85: for h, b in hl.grid([q.shape[0], offsets.shape[0] - 1]):
        # h is parallel: each h writes its own rows of dk and dv
        # b is parallel: dk and dv slices of different b are disjoint because offsets is sorted
        # jagged_attention_backward.py:86: for tk in hl.tile(offsets[b], offsets[b + 1]):
        # tk is parallel: each tk writes its own slices of dk and dv
        offsets_value = tl.load(offsets_ptr + b)
        tk_begin = tl.maximum(offsets_value, 0)
        offsets_value_1 = tl.load(offsets_ptr + b + 1)
        tk_end = tl.minimum(offsets_value_1, 16384)
        tk_start = tk_begin + tk_id * 64
        tk_at = tk_start + tl.arange(0, 64)
        tk_in = tk_at < tk_end
        # jagged_attention_backward.py:87: sum_k = hl.zeros([tk, D], dtype=hl.float32)
        sum_k = tl.zeros([64, 128], tl.float32)
        # jagged_attention_backward.py:88: sum_v = hl.zeros([tk, D], dtype=hl.float32)
        sum_v = tl.zeros([64, 128], tl.float32)
        # jagged_attention_backward.py:89: for tq in hl.tile(offsets[b], offsets[b + 1]):
        tq_begin = tl.maximum(offsets_value, 0)
        tq_end = tl.minimum(offsets_value_1, 16384)
        # tq is ordered: carries sum_v, sum_k, sums
        for tq_start in tl.range(tq_begin, tq_end, 64, num_stages=1):
            tq_at = tq_start + tl.arange(0, 64)
            tq_in = tq_at < tq_end
            # jagged_attention_backward.py:90: g = grad[h, tq, :]
            g = tl.load(
                grad_ptr + h * 2097152 + tq_at[:, None] * 128 + at128[None, :],
                mask=tq_in[:, None],
                other=0.0,
            )
            # jagged_attention_backward.py:91: delta = (g.to(hl.float32) * out[h, tq, :].to(hl.fl...
            out_tile = tl.load(
                out_ptr + h * 2097152 + tq_at[:, None] * 128 + at128[None, :],
                mask=tq_in[:, None],
                other=0.0,
            )
            delta = tl.sum(g.to(tl.float32) * out_tile.to(tl.float32), axis=1)
            # jagged_attention_backward.py:92: scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * D**-0.5
            q_tile = tl.load(
                q_ptr + h * 2097152 + tq_at[:, None] * 128 + at128[None, :],
                mask=tq_in[:, None],
                other=0.0,
            )
            k_tile = tl.load(
                k_ptr + h * 2097152 + tk_at[:, None] * 128 + at128[None, :],
                mask=tk_in[:, None],
                other=0.0,
            )
            scores = tl.dot(q_tile, k_tile.T) * 0.08838834764831845
            # jagged_attention_backward.py:93: p = hl.exp(scores - lse[h, tq][:, None])
            lse_tile = tl.load(lse_ptr + h * 16384 + tq_at, mask=tq_in, other=0.0)
            p = tl.where(tq_in[:, None], tl.exp(scores - lse_tile[:, None]), 0.0)
            # jagged_attention_backward.py:94: sum_v = hl.dot(p.to(v.dtype).T, g, acc=sum_v)
            sum_v = tl.dot(p.to(tl.bfloat16).T, g, sum_v)
            # jagged_attention_backward.py:95: dp = hl.dot(g, v[h, tk, :].T)
            v_tile = tl.load(
                v_ptr + h * 2097152 + tk_at[:, None] * 128 + at128[None, :],
                mask=tk_in[:, None],
                other=0.0,
            )
            dp = tl.dot(g, v_tile.T)
            # jagged_attention_backward.py:96: ds = p * (dp - delta[:, None]) * D**-0.5
            ds = tl.where(tq_in[:, None], p * (dp - delta[:, None]) * 0.08838834764831845, 0.0)
            # jagged_attention_backward.py:97: sum_k = hl.dot(ds.to(q.dtype).T, q[h, tq, :], acc=...
            sum_k = tl.dot(ds.to(tl.bfloat16).T, q_tile, sum_k)
        # jagged_attention_backward.py:98: dk[h, tk, :] = sum_k.to(dk.dtype)
        tl.store(
            dk_ptr + h * 2097152 + tk_at[:, None] * 128 + at128[None, :],
            sum_k.to(tl.bfloat16),
            mask=tk_in[:, None],
        )
        # jagged_attention_backward.py:99: dv[h, tk, :] = sum_v.to(dv.dtype)
        tl.store(
            dv_ptr + h * 2097152 + tk_at[:, None] * 128 + at128[None, :],
            sum_v.to(tl.bfloat16),
            mask=tk_in[:, None],
        )


def backward_kv(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    grad: torch.Tensor,
    offsets: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """dk and dv [H, T, D] in the dtypes of k and v; rows in no sequence are zero."""
    dk = torch.zeros((16, 16384, 128), dtype=torch.bfloat16, device=q.device)
    dv = torch.zeros((16, 16384, 128), dtype=torch.bfloat16, device=q.device)
    backward_kv_kernel[(4608,)](q, k, v, out, lse, grad, offsets, dk, dv, num_warps=8, num_stages=1)
    return (dk, dv)
