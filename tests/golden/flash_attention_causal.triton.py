"""flash_attention for cuda:sm90, blocks tk=64, tq=128."""

import torch
import triton
import triton.language as tl


@triton.jit
def _nan_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def flash_attention_kernel(q_ptr, k_ptr, v_ptr, out_ptr):
    at128 = tl.arange(0, 128)
    pid = tl.program_id(0)
    tile = pid % 512
    band = tile // 256 * 8
    place = tile % 256
    # flash_attention.py:35: for b, h in hl.grid([B, H]):
    # b is parallel: each b writes its own rows of out
    b = pid // 512
    # h is parallel: each h writes its own slices of out
    h = band + place % 8
    # flash_attention.py:36: for tq in hl.tile(T):
    # tq is parallel: each tq writes its own slices of out
    tq_start = place // 8 * 128
    tq_at = tq_start + tl.arange(0, 128)
    # flash_attention.py:37: m = torch.full([tq], -math.inf, dtype=torch.float32)
    m = tl.full([128], float("-inf"), tl.float32)
    # flash_attention.py:38: total = torch.zeros([tq], dtype=torch.float32)
    total = tl.zeros([128], tl.float32)
    # flash_attention.py:39: acc = torch.zeros([tq, D], dtype=torch.float32)
    acc = tl.zeros([128, 128], tl.float32)
    # flash_attention.py:40: for tk in hl.tile(0, tq.end if causal else S, max_extent=S):
    tk_end = tq_start + 128
    # flash_attention.py:42: scores = hl.dot(q[b, h, tq, :], keys.transpose(0, 1)) * scale
    # q, up to the array's end
    q_boxes = tl.make_tensor_descriptor(
        q_ptr, [8, 16, 4096, 128], [8388608, 524288, 128, 1], [1, 1, 128, 128]
    )
    q_tile = tl.reshape(q_boxes.load([b, h, tq_start, 0]), [128, 128])
    # flash_attention.py:41: keys = k[b, h, tk, :]
    # k, up to the array's end
    k_boxes = tl.make_tensor_descriptor(
        k_ptr, [8, 16, 4096, 128], [8388608, 524288, 128, 1], [1, 1, 64, 128]
    )
    # flash_attention.py:50: acc = torch.addmm(acc * alpha[:, None], p.to(v.dtype), v[b, h, tk, :])
    # v, up to the array's end
    v_boxes = tl.make_tensor_descriptor(
        v_ptr, [8, 16, 4096, 128], [8388608, 524288, 128, 1], [1, 1, 64, 128]
    )
    # flash_attention.py:40: for tk in hl.tile(0, tq.end if causal else S, max_extent=S):
    tk_whole = (tq_start + 1) // 64 * 64
    # tk is ordered: carries total, acc, m
    # whole tiles: no mask along tk
    for tk_start in tl.range(0, tk_whole, 64, num_stages=2):
        # flash_attention.py:41: keys = k[b, h, tk, :]
        keys = tl.reshape(k_boxes.load([b, h, tk_start, 0]), [64, 128])
        # flash_attention.py:42: scores = hl.dot(q[b, h, tq, :], keys.transpose(0, 1)) * scale
        scores = tl.dot(q_tile, keys.T)
        # flash_attention.py:46: m_new = torch.maximum(m, torch.amax(scores, -1))
        m_new = tl.maximum(
            m,
            tl.reduce(scores, axis=1, combine_fn=_nan_max) * 0.12751743082459868,
            propagate_nan=tl.PropagateNan.ALL,
        )
        # flash_attention.py:47: alpha = torch.exp(m - m_new)
        alpha = tl.exp2(m - m_new)
        # flash_attention.py:48: p = torch.exp(scores - m_new[:, None])
        p = tl.exp2(scores * 0.12751743082459868 - m_new[:, None])
        # flash_attention.py:49: total = total * alpha + torch.sum(p, -1)
        total = total * alpha + tl.sum(p, axis=1)
        # flash_attention.py:50: acc = torch.addmm(acc * alpha[:, None], p.to(v.dtype), v[b, h, t...
        v_tile = tl.reshape(v_boxes.load([b, h, tk_start, 0]), [64, 128])
        acc = tl.dot(p.to(tl.bfloat16), v_tile, acc * alpha[:, None])
        m = m_new
    # flash_attention.py:40: for tk in hl.tile(0, tq.end if causal else S, max_extent=S):
    # the other tiles, masked along tk
    for tk_start in tl.range(tk_whole, tk_end, 64, num_stages=2):
        tk_at = tk_start + tl.arange(0, 64)
        # flash_attention.py:41: keys = k[b, h, tk, :]
        keys = tl.reshape(k_boxes.load([b, h, tk_start, 0]), [64, 128])
        # flash_attention.py:42: scores = hl.dot(q[b, h, tq, :], keys.transpose(0, 1)) * scale
        scores = tl.dot(q_tile, keys.T)
        # flash_attention.py:44: seen = tq.index[:, None] >= tk.index[None, :]
        seen = tq_at[:, None] >= tk_at[None, :]
        # flash_attention.py:45: scores = torch.where(seen, scores, -math.inf)
        scores_1 = tl.where(seen, scores, float("-inf"))
        # flash_attention.py:46: m_new = torch.maximum(m, torch.amax(scores, -1))
        m_new = tl.maximum(
            m,
            tl.reduce(scores_1, axis=1, combine_fn=_nan_max) * 0.12751743082459868,
            propagate_nan=tl.PropagateNan.ALL,
        )
        # flash_attention.py:47: alpha = torch.exp(m - m_new)
        alpha = tl.exp2(m - m_new)
        # flash_attention.py:48: p = torch.exp(scores - m_new[:, None])
        p = tl.exp2(scores_1 * 0.12751743082459868 - m_new[:, None])
        # flash_attention.py:49: total = total * alpha + torch.sum(p, -1)
        total = total * alpha + tl.sum(p, axis=1)
        # flash_attention.py:50: acc = torch.addmm(acc * alpha[:, None], p.to(v.dtype), v[b, h, t...
        v_tile = tl.reshape(v_boxes.load([b, h, tk_start, 0]), [64, 128])
        acc = tl.dot(p.to(tl.bfloat16), v_tile, acc * alpha[:, None])
        m = m_new
    # flash_attention.py:52: out[b, h, tq, :] = (acc / total[:, None]).to(out.dtype)
    tl.store(
        out_ptr + b * 8388608 + h * 524288 + tq_at[:, None] * 128 + at128[None, :],
        (acc / total[:, None]).to(tl.bfloat16),
    )


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Memory that Triton writes descriptors to."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy that begins at a multiple of 16 bytes, as arrays of descriptors do."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def flash_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """out = softmax(q k^T / sqrt(D)) v; with `causal`, query i sees keys 0 to i."""
    q = _aligned(q)
    k = _aligned(k)
    v = _aligned(v)
    triton.set_allocator(_scratch)
    out = torch.empty((8, 16, 4096, 128), dtype=torch.bfloat16, device=q.device)
    flash_attention_kernel[(4096,)](q, k, v, out, num_warps=8, num_stages=2)
    return out
