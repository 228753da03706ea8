"""paged_attention for cuda:sm90, blocks tq=64."""

import torch
import triton
import triton.language as tl


@triton.jit
def _nan_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _floor_div(a, b):
    """The quotient, rounded down; Triton's // rounds towards zero."""
    quotient = a // b
    rest = a - quotient * b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1, quotient)


@triton.jit
def paged_attention_kernel(
    q_ptr,
    k_pages_ptr,
    v_pages_ptr,
    table_ptr,
    lengths_ptr,
    offsets_ptr,
    out_ptr,
):
    groups = tl.arange(0, 64)
    at128 = tl.arange(0, 128)
    pid = tl.program_id(0)
    # paged_attention.py:51: out = hl.zeros(q.shape, dtype=q.dtype)
    first = tl.load(offsets_ptr)
    last = tl.load(offsets_ptr + 64)
    # row is parallel: each row writes its own slices of out
    for row_start in tl.range(pid * 16, 4096, 65536):
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
        outers = tl.where(outside, 32, 0)
        columns = tl.where(outside, 128, 0)
        # outer is parallel: each outer writes its own rows of out
        for outer in tl.range(0, outers):
            # column is parallel: each column writes its own slices of out
            for column_start in tl.range(0, columns, 64):
                column_at = column_start + tl.arange(0, 64)
                tl.store(
                    out_ptr + outer * 524288 + row_at[:, None] * 128 + column_at[None, :],
                    tl.zeros([16, 64], tl.bfloat16),
                    mask=(seen == 0)[:, None],
                )
    # paged_attention.py:53: begin, end, length = offsets[b], offsets[b + 1], lengths[b]
    offsets_tile = tl.load(offsets_ptr + groups)
    offsets_tile_1 = tl.load(offsets_ptr + groups + 1)
    tq_begins = tl.maximum(offsets_tile, 0)
    tq_ends = tl.minimum(offsets_tile_1, 4096)
    tile_counts = (tl.maximum(tq_ends, tq_begins) - tq_begins + 63) // 64
    tile_ends = tl.cumsum(tile_counts, axis=0)
    item_count = tl.sum(tile_counts, axis=0)
    # paged_attention.py:64: scores = hl.dot(q[h, tq, :], k.T) * scale
    # q, up to the array's end
    q_boxes = tl.make_tensor_descriptor(q_ptr, [32, 4096, 128], [524288, 128, 1], [1, 64, 128])
    # paged_attention.py:62: k = k_pages[h // (H // KV), page, :, :]
    # k_pages, up to the array's end
    k_pages_boxes = tl.make_tensor_descriptor(
        k_pages_ptr, [8, 4096, 128, 128], [67108864, 16384, 128, 1], [1, 1, 128, 128]
    )
    # paged_attention.py:63: v = v_pages[h // (H // KV), page, :, :]
    # v_pages, up to the array's end
    v_pages_boxes = tl.make_tensor_descriptor(
        v_pages_ptr, [8, 4096, 128, 128], [67108864, 16384, 128, 1], [1, 1, 128, 128]
    )
    for step in tl.range(pid, item_count * 32, 4096):
        h = step // item_count
        item = step % item_count
        before = tile_ends <= item
        b = tl.sum(before.to(tl.int32), axis=0)
        tq_id = item - tl.sum(tl.where(before, tile_counts, 0), axis=0)
        # paged_attention.py:52: for h, b in hl.grid([H, B]):
        # h is parallel: each h writes its own rows of out
        # b is parallel: out slices of different b are disjoint because offsets is sorted
        # paged_attention.py:53: begin, end, length = offsets[b], offsets[b + 1], lengths[b]
        begin = tl.load(offsets_ptr + b)
        end = tl.load(offsets_ptr + b + 1)
        length = tl.load(lengths_ptr + b)
        # paged_attention.py:54: for tq in hl.tile(begin, end, max_extent=T):
        # tq is parallel: each tq writes its own slices of out
        tq_begin = tl.maximum(begin, 0)
        tq_end = tl.minimum(end, 4096)
        tq_start = tq_begin + tq_id * 64
        tq_at = tq_start + tl.arange(0, 64)
        tq_in = tq_at < tq_end
        # paged_attention.py:55: m = hl.full([tq], -math.inf, dtype=hl.float32)
        m = tl.full([64], float("-inf"), tl.float32)
        # paged_attention.py:56: total = hl.zeros([tq], dtype=hl.float32)
        total = tl.zeros([64], tl.float32)
        # paged_attention.py:57: acc = hl.zeros([tq, D], dtype=hl.float32)
        acc = tl.zeros([64, 128], tl.float32)
        # paged_attention.py:58: asks = tq.index - end + length
        asks = tq_at - end + length
        # paged_attention.py:59: for p in hl.grid(0, (length + P - 1) // P, max_extent=most):
        p_end = tl.minimum(_floor_div(length + 127, 128), 64)
        # paged_attention.py:64: scores = hl.dot(q[h, tq, :], k.T) * scale
        q_tile = tl.reshape(q_boxes.load([h, tq_start, 0]), [64, 128])
        # paged_attention.py:59: for p in hl.grid(0, (length + P - 1) // P, max_extent=most):
        # p is ordered: carries total, acc, m
        for p in tl.range(0, p_end, num_stages=1):
            # paged_attention.py:60: page = table[b, p]
            page = tl.load(table_ptr + b * 64 + p)
            # paged_attention.py:61: holds = p * P + hl.arange(P)
            holds = p * 128 + at128
            # paged_attention.py:62: k = k_pages[h // (H // KV), page, :, :]
            page_inside = tl.minimum(tl.maximum(page, 0), 4095)
            k = tl.reshape(k_pages_boxes.load([h // 4, page_inside, 0, 0]), [128, 128])
            # paged_attention.py:63: v = v_pages[h // (H // KV), page, :, :]
            v = tl.reshape(v_pages_boxes.load([h // 4, page_inside, 0, 0]), [128, 128])
            # paged_attention.py:64: scores = hl.dot(q[h, tq, :], k.T) * scale
            scores = tl.dot(q_tile, k.T) * 0.12751743082459868
            # paged_attention.py:65: scores = hl.where(holds[None, :] <= asks[:, None], scores, -...
            scores_1 = tl.where(holds[None, :] <= asks[:, None], scores, float("-inf"))
            # paged_attention.py:66: m_new = hl.maximum(m, scores.amax(-1))
            m_new = tl.maximum(
                m,
                tl.reduce(scores_1, axis=1, combine_fn=_nan_max),
                propagate_nan=tl.PropagateNan.ALL,
            )
            # paged_attention.py:67: alpha = hl.exp(m - m_new)
            alpha = tl.exp2(m - m_new)
            # paged_attention.py:68: weights = hl.exp(scores - m_new[:, None])
            weights = tl.exp2(scores_1 - m_new[:, None])
            # paged_attention.py:69: total = total * alpha + weights.sum(-1)
            total = total * alpha + tl.sum(weights, axis=1)
            # paged_attention.py:70: used = hl.where(holds[:, None] < length, v, 0)
            used = tl.where(holds[:, None] < length, v, 0.0)
            # paged_attention.py:71: acc = hl.dot(weights.to(v.dtype), used, acc=acc * alpha[:, N...
            acc = tl.dot(weights.to(tl.bfloat16), used, acc * alpha[:, None])
            m = m_new
        # paged_attention.py:73: out[h, tq, :] = (acc / total[:, None]).to(out.dtype)
        tl.store(
            out_ptr + h * 524288 + tq_at[:, None] * 128 + at128[None, :],
            (acc / total[:, None]).to(tl.bfloat16),
            mask=tq_in[:, None],
        )


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Memory that Triton writes descriptors to."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy that begins at a multiple of 16 bytes, as arrays of descriptors do."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def paged_attention(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    offsets: torch.Tensor,
) -> torch.Tensor:
    """Causal attention of the last positions of each sequence to all of its pages."""
    q = _aligned(q)
    k_pages = _aligned(k_pages)
    v_pages = _aligned(v_pages)
    triton.set_allocator(_scratch)
    out = torch.empty((32, 4096, 128), dtype=torch.bfloat16, device=q.device)
    paged_attention_kernel[(4096,)](
        q,
        k_pages,
        v_pages,
        table,
        lengths,
        offsets,
        out,
        num_warps=4,
        num_stages=1,
    )
    return out
