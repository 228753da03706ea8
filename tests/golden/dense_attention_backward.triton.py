"""attention_backward for cuda:sm90, blocks tk=64, tk_1=64, tq=256, tq_1=64, tq_2=64."""

import torch
import triton
import triton.language as tl


@triton.jit
def attention_backward_1_kernel(out_ptr, grad_ptr, delta_ptr):
    at128 = tl.arange(0, 128)
    pid = tl.program_id(0)
    tile = pid % 256
    band = tile // 128 * 8
    place = tile % 128
    # attention_backward.py:69: for b, h in hl.grid([B, H]):
    # b is parallel: each b writes its own rows of delta
    b = pid // 256
    # h is parallel: each h writes its own slices of delta
    h = band + place % 8
    # attention_backward.py:70: for tq in hl.tile(T):
    # tq is parallel: each tq writes its own slices of delta
    tq_start = place // 8 * 256
    tq_at = tq_start + tl.arange(0, 256)
    # attention_backward.py:71: products = grad[b, h, tq, :].to(hl.float32) * out[b, h, tq, :].to...
    grad_tile = tl.load(grad_ptr + b * 8388608 + h * 524288 + tq_at[:, None] * 128 + at128[None, :])
    out_tile = tl.load(out_ptr + b * 8388608 + h * 524288 + tq_at[:, None] * 128 + at128[None, :])
    products = grad_tile.to(tl.float32) * out_tile.to(tl.float32)
    # attention_backward.py:72: delta[b, h, tq] = products.sum(-1)
    tl.store(delta_ptr + b * 65536 + h * 4096 + tq_at, tl.sum(products, axis=1))


@triton.jit
def attention_backward_2_kernel(q_ptr, k_ptr, v_ptr, lse_ptr, grad_ptr, delta_ptr, dq_ptr):
    at128 = tl.arange(0, 128)
    pid = tl.program_id(0)
    tile = pid % 1024
    band = tile // 512 * 8
    place = tile % 512
    # attention_backward.py:73: for b, h in hl.grid([B, H]):
    # b is parallel: each b writes its own rows of dq
    b_1 = pid // 1024
    # h is parallel: each h writes its own slices of dq
    h_1 = band + place % 8
    # attention_backward.py:74: for tq in hl.tile(T):
    # tq is parallel: each tq writes its own slices of dq
    tq_1_start = place // 8 * 64
    tq_1_at = tq_1_start + tl.arange(0, 64)
    # attention_backward.py:75: acc = hl.zeros([tq, D], dtype=hl.float32)
    acc = tl.zeros([64, 128], tl.float32)
    # attention_backward.py:76: for tk in hl.tile(0, tq.end):
    tk_end = tq_1_start + 64
    # attention_backward.py:77: scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D**-0.5
    # q, up to the array's end
    q_boxes = tl.make_tensor_descriptor(
        q_ptr, [4, 16, 4096, 128], [8388608, 524288, 128, 1], [1, 1, 64, 128]
    )
    q_tile = tl.reshape(q_boxes.load([b_1, h_1, tq_1_start, 0]), [64, 128])
    # attention_backward.py:78: p = hl.exp(scores - lse[b, h, tq][:, None])
    lse_tile = tl.load(lse_ptr + b_1 * 65536 + h_1 * 4096 + tq_1_at)
    # attention_backward.py:80: dp = hl.dot(grad[b, h, tq, :], v[b, h, tk, :].T)
    # grad, up to the array's end
    grad_boxes = tl.make_tensor_descriptor(
        grad_ptr, [4, 16, 4096, 128], [8388608, 524288, 128, 1], [1, 1, 64, 128]
    )
    grad_tile = tl.reshape(grad_boxes.load([b_1, h_1, tq_1_start, 0]), [64, 128])
    # attention_backward.py:81: ds = p * (dp - delta[b, h, tq][:, None]) * D**-0.5
    delta_tile = tl.load(delta_ptr + b_1 * 65536 + h_1 * 4096 + tq_1_at)
    # attention_backward.py:77: scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D**-0.5
    # k, up to the array's end
    k_boxes = tl.make_tensor_descriptor(
        k_ptr, [4, 16, 4096, 128], [8388608, 524288, 128, 1], [1, 1, 64, 128]
    )
    # attention_backward.py:80: dp = hl.dot(grad[b, h, tq, :], v[b, h, tk, :].T)
    # v, up to the array's end
    v_boxes = tl.make_tensor_descriptor(
        v_ptr, [4, 16, 4096, 128], [8388608, 524288, 128, 1], [1, 1, 64, 128]
    )
    # attention_backward.py:76: for tk in hl.tile(0, tq.end):
    # tk is ordered: carries acc, a sum
    for tk_start in tl.range(0, tk_end, 64, num_stages=2):
        tk_at = tk_start + tl.arange(0, 64)
        # attention_backward.py:77: scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D**-0.5
        k_tile = tl.reshape(k_boxes.load([b_1, h_1, tk_start, 0]), [64, 128])
        scores = tl.dot(q_tile, k_tile.T) * 0.08838834764831845
        # attention_backward.py:78: p = hl.exp(scores - lse[b, h, tq][:, None])
        p = tl.exp(scores - lse_tile[:, None])
        # attention_backward.py:79: p = hl.where(tk.index[None, :] <= tq.index[:, None], p, 0.0)
        p_1 = tl.where(tk_at[None, :] <= tq_1_at[:, None], p, 0.0)
        # attention_backward.py:80: dp = hl.dot(grad[b, h, tq, :], v[b, h, tk, :].T)
        v_tile = tl.reshape(v_boxes.load([b_1, h_1, tk_start, 0]), [64, 128])
        dp = tl.dot(grad_tile, v_tile.T)
        # attention_backward.py:81: ds = p * (dp - delta[b, h, tq][:, None]) * D**-0.5
        ds = p_1 * (dp - delta_tile[:, None]) * 0.08838834764831845
        # attention_backward.py:82: acc = hl.dot(ds.to(k.dtype), k[b, h, tk, :], acc=acc)
        acc = tl.dot(ds.to(tl.bfloat16), k_tile, acc)
    # attention_backward.py:83: dq[b, h, tq, :] = acc.to(dq.dtype)
    tl.store(
        dq_ptr + b_1 * 8388608 + h_1 * 524288 + tq_1_at[:, None] * 128 + at128[None, :],
        acc.to(tl.bfloat16),
    )


@triton.jit
def attention_backward_3_kernel(q_ptr, k_ptr, v_ptr, lse_ptr, grad_ptr, delta_ptr, dk_ptr, dv_ptr):
    at128 = tl.arange(0, 128)
    pid = tl.program_id(0)
    tile = pid % 1024
    band = tile // 512 * 8
    place = tile % 512
    # attention_backward.py:84: for b, h in hl.grid([B, H]):
    # b is parallel: each b writes its own rows of dk and dv
    b_2 = pid // 1024
    # h is parallel: each h writes its own slices of dk and dv
    h_2 = band + place % 8
    # attention_backward.py:85: for tk in hl.tile(T):
    # tk is parallel: each tk writes its own slices of dk and dv
    tk_1_start = place // 8 * 64
    tk_1_at = tk_1_start + tl.arange(0, 64)
    # attention_backward.py:86: sum_k = hl.zeros([tk, D], dtype=hl.float32)
    sum_k = tl.zeros([64, 128], tl.float32)
    # attention_backward.py:87: sum_v = hl.zeros([tk, D], dtype=hl.float32)
    sum_v = tl.zeros([64, 128], tl.float32)
    # attention_backward.py:90: scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D**-0.5
    # k, up to the array's end
    k_boxes = tl.make_tensor_descriptor(
        k_ptr, [4, 16, 4096, 128], [8388608, 524288, 128, 1], [1, 1, 64, 128]
    )
    k_tile = tl.reshape(k_boxes.load([b_2, h_2, tk_1_start, 0]), [64, 128])
    # attention_backward.py:94: dp = hl.dot(g, v[b, h, tk, :].T)
    # v, up to the array's end
    v_boxes = tl.make_tensor_descriptor(
        v_ptr, [4, 16, 4096, 128], [8388608, 524288, 128, 1], [1, 1, 64, 128]
    )
    v_tile = tl.reshape(v_boxes.load([b_2, h_2, tk_1_start, 0]), [64, 128])
    # attention_backward.py:89: g = grad[b, h, tq, :]
    # grad, up to the array's end
    grad_boxes = tl.make_tensor_descriptor(
        grad_ptr, [4, 16, 4096, 128], [8388608, 524288, 128, 1], [1, 1, 64, 128]
    )
    # attention_backward.py:90: scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D**-0.5
    # q, up to the array's end
    q_boxes = tl.make_tensor_descriptor(
        q_ptr, [4, 16, 4096, 128], [8388608, 524288, 128, 1], [1, 1, 64, 128]
    )
    # attention_backward.py:88: for tq in hl.tile(tk.begin, T):
    # tq is ordered: carries sum_v, sum_k, sums
    for tq_2_start in tl.range(tk_1_start, 4096, 64, num_stages=2):
        tq_2_at = tq_2_start + tl.arange(0, 64)
        # attention_backward.py:89: g = grad[b, h, tq, :]
        g = tl.reshape(grad_boxes.load([b_2, h_2, tq_2_start, 0]), [64, 128])
        # attention_backward.py:90: scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D**-0.5
        q_tile = tl.reshape(q_boxes.load([b_2, h_2, tq_2_start, 0]), [64, 128])
        scores = tl.dot(q_tile, k_tile.T) * 0.08838834764831845
        # attention_backward.py:91: p = hl.exp(scores - lse[b, h, tq][:, None])
        lse_tile = tl.load(lse_ptr + b_2 * 65536 + h_2 * 4096 + tq_2_at)
        p = tl.exp(scores - lse_tile[:, None])
        # attention_backward.py:92: p = hl.where(tk.index[None, :] <= tq.index[:, None], p, 0.0)
        p_1 = tl.where(tk_1_at[None, :] <= tq_2_at[:, None], p, 0.0)
        # attention_backward.py:93: sum_v = hl.dot(p.to(v.dtype).T, g, acc=sum_v)
        sum_v = tl.dot(p_1.to(tl.bfloat16).T, g, sum_v)
        # attention_backward.py:94: dp = hl.dot(g, v[b, h, tk, :].T)
        dp = tl.dot(g, v_tile.T)
        # attention_backward.py:95: ds = p * (dp - delta[b, h, tq][:, None]) * D**-0.5
        delta_tile = tl.load(delta_ptr + b_2 * 65536 + h_2 * 4096 + tq_2_at)
        ds = p_1 * (dp - delta_tile[:, None]) * 0.08838834764831845
        # attention_backward.py:96: sum_k = hl.dot(ds.to(q.dtype).T, q[b, h, tq, :], acc=sum_k)
        sum_k = tl.dot(ds.to(tl.bfloat16).T, q_tile, sum_k)
    # attention_backward.py:97: dk[b, h, tk, :] = sum_k.to(dk.dtype)
    tl.store(
        dk_ptr + b_2 * 8388608 + h_2 * 524288 + tk_1_at[:, None] * 128 + at128[None, :],
        sum_k.to(tl.bfloat16),
    )
    # attention_backward.py:98: dv[b, h, tk, :] = sum_v.to(dv.dtype)
    tl.store(
        dv_ptr + b_2 * 8388608 + h_2 * 524288 + tk_1_at[:, None] * 128 + at128[None, :],
        sum_v.to(tl.bfloat16),
    )


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Memory that Triton writes descriptors to."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy that begins at a multiple of 16 bytes, as arrays of descriptors do."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def attention_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    grad: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of causal attention."""
    q = _aligned(q)
    k = _aligned(k)
    v = _aligned(v)
    grad = _aligned(grad)
    triton.set_allocator(_scratch)
    delta = torch.empty((4, 16, 4096), dtype=torch.float32, device=q.device)
    dq = torch.empty((4, 16, 4096, 128), dtype=torch.bfloat16, device=q.device)
    dk = torch.empty((4, 16, 4096, 128), dtype=torch.bfloat16, device=q.device)
    dv = torch.empty((4, 16, 4096, 128), dtype=torch.bfloat16, device=q.device)
    attention_backward_1_kernel[(1024,)](out, grad, delta, num_warps=4, num_stages=2)
    attention_backward_2_kernel[(4096,)](q, k, v, lse, grad, delta, dq, num_warps=4, num_stages=2)
    attention_backward_3_kernel[(4096,)](
        q,
        k,
        v,
        lse,
        grad,
        delta,
        dk,
        dv,
        num_warps=4,
        num_stages=2,
    )
    return (dq, dk, dv)
