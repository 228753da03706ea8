"""Kernels and hand-made generated modules for the tests of the compiler's worker."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any

import pytest

import tilelang as tile
import tilelang.language as hl
from tests.compile_cache import CUDA, TPU, shared
from tilelang.aot import Compiled, CudaCompiled, compile_lowered
from tilelang.codegen.source import Source
from tilelang.runtime.lowering import Lowered

needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="the TPU compiler is not installed: pip install 'raggedtile[tpu]'",
)

MODULE = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def double_kernel(x_ref, y_ref):
    # written.py:{first}: value = x[tm, :]
    value = x_ref[...]

    # written.py:{second}: y[tm, :] = value * 2
    {body}


def double(x):
    return pl.pallas_call(
        double_kernel,
        grid=(4,),
        in_specs=[pl.BlockSpec({block}, lambda n: (n, 0))],
        out_specs=pl.BlockSpec({block}, lambda n: (n, 0)),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
    )(x)
"""


@tile.kernel
def double(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    for tm in hl.tile(x.shape[0]):
        value = x[tm, :]
        y[tm, :] = value * 2
    return y


def compiled(
    kernel: tile.Kernel, *arguments: Any, timeout: float = 120, **options: Any
) -> Compiled | CudaCompiled:
    """`kernel.compile`, in one process for all tests, which keeps what it answers."""
    lowered = kernel.lower(*arguments, **options)
    asked = CUDA if str(lowered.target).startswith("cuda:") else TPU
    return compile_lowered(lowered, timeout=timeout, worker=shared(asked))


def lowered(rows: int = 512, dtype: str = "float32", target: str = "tpu:v5e") -> Lowered:
    """`double`, ready to be compiled."""
    return double.lower(tile.spec((rows, 128), dtype), target=target)


def first_line() -> int:
    """The line of `value = x[tm, :]` in this file."""
    return double.__wrapped__.__code__.co_firstlineno + 4


def by_hand(body: str, dtype: str, block: str = "(128, 128)", rows: int = 512) -> Lowered:
    """`double` with another module in the place of the generated one."""
    first = first_line()
    text = MODULE.format(first=first, second=first + 1, body=body, block=block)
    return replace(lowered(rows, dtype), source=Source(text, "double"))
