"""transposed_grouped_gemm for cuda:sm90, blocks tk=128, tm=64, tn=256."""

import torch
import triton
import triton.language as tl


@triton.jit
def transposed_grouped_gemm_kernel(x_ptr, dy_ptr, offsets_ptr, dw_ptr):
    pid = tl.program_id(0)
    tile = pid % 256
    band = tile // 64 * 8
    place = tile % 64
    # transposed_grouped_gemm.py:41: for g in hl.grid(G):
    # g is parallel: each g writes its own rows of dw
    g = pid // 256
    # transposed_grouped_gemm.py:42: for tk, tn in hl.tile([K, N]):
    # tk is parallel: each tk writes its own slices of dw
    tk_start = (band + place % 8) * 128
    tk_at = tk_start + tl.arange(0, 128)
    # tn is parallel: each tn writes its own slices of dw
    tn_start = place // 8 * 256
    tn_at = tn_start + tl.arange(0, 256)
    # transposed_grouped_gemm.py:43: acc = hl.zeros([tk, tn], dtype=hl.float32)
    acc = tl.zeros([128, 256], tl.float32)
    # transposed_grouped_gemm.py:44: for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=M):
    offsets_value = tl.load(offsets_ptr + g)
    tm_begin = tl.maximum(offsets_value, 0)
    offsets_value_1 = tl.load(offsets_ptr + g + 1)
    tm_end = tl.minimum(offsets_value_1, 16384)
    tm_whole = tm_begin + (tl.maximum(tm_end, tm_begin) - tm_begin) // 64 * 64
    # tm is ordered: carries acc, a sum
    # whole tiles: no mask along tm
    for tm_start in tl.range(tm_begin, tm_whole, 64, num_stages=3):
        tm_at = tm_start + tl.arange(0, 64)
        # transposed_grouped_gemm.py:45: acc = hl.dot(x[tm, tk].T, dy[tm, tn], acc=acc)
        x_tile = tl.load(x_ptr + tm_at[:, None] * 4096 + tk_at[None, :])
        dy_tile = tl.load(dy_ptr + tm_at[:, None] * 2048 + tn_at[None, :])
        acc = tl.dot(x_tile.T, dy_tile, acc)
    # transposed_grouped_gemm.py:44: for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=M):
    # the other tiles, masked along tm
    for tm_start in tl.range(tm_whole, tm_end, 64, num_stages=3):
        tm_at = tm_start + tl.arange(0, 64)
        tm_in = tm_at < tm_end
        # transposed_grouped_gemm.py:45: acc = hl.dot(x[tm, tk].T, dy[tm, tn], acc=acc)
        x_tile = tl.load(
            x_ptr + tm_at[:, None] * 4096 + tk_at[None, :],
            mask=tm_in[:, None],
            other=0.0,
        )
        dy_tile = tl.load(
            dy_ptr + tm_at[:, None] * 2048 + tn_at[None, :],
            mask=tm_in[:, None],
            other=0.0,
        )
        acc = tl.dot(x_tile.T, dy_tile, acc)
    # transposed_grouped_gemm.py:46: dw[g, tk, tn] = acc.to(dw.dtype)
    tl.store(dw_ptr + g * 8388608 + tk_at[:, None] * 2048 + tn_at[None, :], acc.to(tl.bfloat16))


def transposed_grouped_gemm(
    x: torch.Tensor,
    dy: torch.Tensor,
    offsets: torch.Tensor,
) -> torch.Tensor:
    """dw[g] = x[rows of g].T @ dy[rows of g]."""
    dw = torch.empty((64, 4096, 2048), dtype=torch.bfloat16, device=x.device)
    transposed_grouped_gemm_kernel[(16384,)](x, dy, offsets, dw, num_warps=8, num_stages=3)
    return dw
