"""attention_with_lse for cuda:sm90, blocks tk=64, tq=128."""

import torch
import triton
import triton.language as tl


@triton.jit
def _nan_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def attention_with_lse_kernel(q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr):
    at128 = tl.arange(0, 128)
    pid = tl.program_id(0)
    tile = pid % 512
    band = tile // 256 * 8
    place = tile % 256
    # attention_backward.py:36: for b, h in hl.grid([B, H]):
    # b is parallel: each b writes its own rows of out and lse
    b = pid // 512
    # h is parallel: each h writes its own slices of out and lse
    h = band + place % 8
    # attention_backward.py:37: for tq in hl.tile(T):
    # tq is parallel: each tq writes its own slices of out and lse
    tq_start = place // 8 * 128
    tq_at = tq_start + tl.arange(0, 128)
    # attention_backward.py:38: m = hl.full([tq], -math.inf, dtype=hl.float32)
    m = tl.full([128], float("-inf"), tl.float32)
    # attention_backward.py:39: total = hl.zeros([tq], dtype=hl.float32)
    total = tl.zeros([128], tl.float32)
    # attention_backward.py:40: acc = hl.zeros([tq, D], dtype=hl.float32)
    acc = tl.zeros([128, 128], tl.float32)
    # attention_backward.py:41: for tk in hl.tile(0, tq.end):
    tk_end = tq_start + 128
    # attention_backward.py:42: scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D**-0.5
    # q, up to the array's end
    q_boxes = tl.make_tensor_descriptor(
        q_ptr, [4, 16, 4096, 128], [8388608, 524288, 128, 1], [1, 1, 128, 128]
    )
    q_tile = tl.reshape(q_boxes.load([b, h, tq_start, 0]), [128, 128])
    # k, up to the array's end
    k_boxes = tl.make_tensor_descriptor(
        k_ptr, [4, 16, 4096, 128], [8388608, 524288, 128, 1], [1, 1, 64, 128]
    )
    # attention_backward.py:48: acc = hl.dot(p.to(v.dtype), v[b, h, tk, :], acc=acc * alpha[:, No...
    # v, up to the array's end
    v_boxes = tl.make_tensor_descriptor(
        v_ptr, [4, 16, 4096, 128], [8388608, 524288, 128, 1], [1, 1, 64, 128]
    )
    # attention_backward.py:41: for tk in hl.tile(0, tq.end):
    tk_whole = (tq_start + 1) // 64 * 64
    # tk is ordered: carries total, acc, m
    # whole tiles: no mask along tk
    for tk_start in tl.range(0, tk_whole, 64, num_stages=2):
        # attention_backward.py:42: scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D**-0.5
        k_tile = tl.reshape(k_boxes.load([b, h, tk_start, 0]), [64, 128])
        scores = tl.dot(q_tile, k_tile.T)
        # attention_backward.py:44: m_new = hl.maximum(m, scores.amax(-1))
        m_new = tl.maximum(
            m,
            tl.reduce(scores, axis=1, combine_fn=_nan_max) * 0.08838834764831845,
            propagate_nan=tl.PropagateNan.ALL,
        )
        # attention_backward.py:45: alpha = hl.exp(m - m_new)
        alpha = tl.exp(m - m_new)
        # attention_backward.py:46: p = hl.exp(scores - m_new[:, None])
        p = tl.exp(scores * 0.08838834764831845 - m_new[:, None])
        # attention_backward.py:47: total = total * alpha + p.sum(-1)
        total = total * alpha + tl.sum(p, axis=1)
        # attention_backward.py:48: acc = hl.dot(p.to(v.dtype), v[b, h, tk, :], acc=acc * alpha[:...
        v_tile = tl.reshape(v_boxes.load([b, h, tk_start, 0]), [64, 128])
        acc = tl.dot(p.to(tl.bfloat16), v_tile, acc * alpha[:, None])
        m = m_new
    # attention_backward.py:41: for tk in hl.tile(0, tq.end):
    # the other tiles, masked along tk
    for tk_start in tl.range(tk_whole, tk_end, 64, num_stages=2):
        tk_at = tk_start + tl.arange(0, 64)
        # attention_backward.py:42: scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D**-0.5
        k_tile = tl.reshape(k_boxes.load([b, h, tk_start, 0]), [64, 128])
        scores = tl.dot(q_tile, k_tile.T)
        # attention_backward.py:43: scores = hl.where(tk.index[None, :] <= tq.index[:, None], sco...
        scores_1 = tl.where(tk_at[None, :] <= tq_at[:, None], scores, float("-inf"))
        # attention_backward.py:44: m_new = hl.maximum(m, scores.amax(-1))
        m_new = tl.maximum(
            m,
            tl.reduce(scores_1, axis=1, combine_fn=_nan_max) * 0.08838834764831845,
            propagate_nan=tl.PropagateNan.ALL,
        )
        # attention_backward.py:45: alpha = hl.exp(m - m_new)
        alpha = tl.exp(m - m_new)
        # attention_backward.py:46: p = hl.exp(scores - m_new[:, None])
        p = tl.exp(scores_1 * 0.08838834764831845 - m_new[:, None])
        # attention_backward.py:47: total = total * alpha + p.sum(-1)
        total = total * alpha + tl.sum(p, axis=1)
        # attention_backward.py:48: acc = hl.dot(p.to(v.dtype), v[b, h, tk, :], acc=acc * alpha[:...
        v_tile = tl.reshape(v_boxes.load([b, h, tk_start, 0]), [64, 128])
        acc = tl.dot(p.to(tl.bfloat16), v_tile, acc * alpha[:, None])
        m = m_new
    # attention_backward.py:50: out[b, h, tq, :] = (acc / total[:, None]).to(out.dtype)
    tl.store(
        out_ptr + b * 8388608 + h * 524288 + tq_at[:, None] * 128 + at128[None, :],
        (acc / total[:, None]).to(tl.bfloat16),
    )
    # attention_backward.py:51: lse[b, h, tq] = m + hl.log(total)
    tl.store(lse_ptr + b * 65536 + h * 4096 + tq_at, m + tl.log(total))


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Memory that Triton writes descriptors to."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy that begins at a multiple of 16 bytes, as arrays of descriptors do."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def attention_with_lse(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Causal attention: q, k, v [B, H, T, D]; out [B, H, T, D] in v's dtype, lse [B, H, T]."""
    q = _aligned(q)
    k = _aligned(k)
    v = _aligned(v)
    triton.set_allocator(_scratch)
    out = torch.empty((4, 16, 4096, 128), dtype=torch.bfloat16, device=q.device)
    lse = torch.empty((4, 16, 4096), dtype=torch.float32, device=q.device)
    attention_with_lse_kernel[(2048,)](q, k, v, out, lse, num_warps=8, num_stages=2)
    return (out, lse)
