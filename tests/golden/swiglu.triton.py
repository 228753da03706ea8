"""swiglu for cuda:sm90, blocks tm=8, tn=512."""

import torch
import triton
import triton.language as tl


@triton.jit
def _silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, y_ptr):
    pid = tl.program_id(0)
    # swiglu.py:22: for tm, tn in hl.tile(gate.shape):
    # tm is parallel: each tm writes its own rows of y
    tm_start = pid // 22 * 8
    tm_at = tm_start + tl.arange(0, 8)
    # tn is parallel: each tn writes its own columns of y
    tn_start = pid % 22 * 512
    tn_at = tn_start + tl.arange(0, 512)
    tn_in = tn_at < 11008
    # swiglu.py:23: value = jax.nn.silu(gate[tm, tn].astype(jnp.float32)) * up[tm, tn].astype(jnp...
    gate_tile = tl.load(
        gate_ptr + tm_at[:, None] * 11008 + tn_at[None, :],
        mask=tn_in[None, :],
        other=0.0,
    )
    up_tile = tl.load(
        up_ptr + tm_at[:, None] * 11008 + tn_at[None, :],
        mask=tn_in[None, :],
        other=0.0,
    )
    value = _silu(gate_tile.to(tl.float32)) * up_tile.to(tl.float32)
    # swiglu.py:24: y[tm, tn] = value.astype(y.dtype)
    tl.store(
        y_ptr + tm_at[:, None] * 11008 + tn_at[None, :],
        value.to(tl.bfloat16),
        mask=tn_in[None, :],
    )


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """y = silu(gate) * up, computed in float32: gate, up and y [M, N] of one dtype."""
    y = torch.empty((16384, 11008), dtype=torch.bfloat16, device=gate.device)
    swiglu_kernel[(45056,)](gate, up, y, num_warps=8, num_stages=1)
    return y
