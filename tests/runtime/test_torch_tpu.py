"""Kernels as operations of TorchTPU: what its `jax_op` is given, and what that exports."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.jagged.grouped_gemm import grouped_gemm
from examples.jagged.jagged_attention_backward import attention_with_lse
from tilelang.errors import CallError
from tilelang.runtime.torch_tpu import function_of

PACKAGE = "torch_tpu._internal.pallas"
SHAPES = [((60, 8), jnp.float32), ((3, 8, 4), jnp.float32), ((4,), jnp.int32)]


@tile.kernel
def scaled(x, by: float, *, twice=False):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :] = x[t, :] * (2 * by if twice else by)
    return y


def exported(name, fn, /, **options):
    """As TorchTPU 0.2 traces a function: for the TPU alone, on a host that may have none."""
    given = [jax.ShapeDtypeStruct(*shape) for shape in SHAPES]
    made = jax.export.export(
        jax.jit(fn),
        platforms=["tpu"],
        disabled_checks=[jax.export.DisabledSafetyCheck.custom_call("ALL")],
    )(*given)
    return SimpleNamespace(name=name, signature=inspect.signature(fn), made=made, options=options)


def test_the_exported_program_has_mosaic_calls(monkeypatch):
    monkeypatch.setitem(sys.modules, PACKAGE, SimpleNamespace(jax_op=exported))
    found = tile.tpu_op("my::gemm", grouped_gemm, donate_argnums=(0,))
    assert (found.name, found.options) == ("my::gemm", {"donate_argnums": (0,)})
    assert found.made.mlir_module().count("tpu_custom_call") == 1
    assert [a.shape for a in found.made.out_avals] == [(60, 4)]


def test_every_parameter_has_a_type():
    """An operation of TorchTPU takes arrays and numbers, and says which are which."""
    array, tensors = jax.Array, dict.fromkeys(("q", "k", "v", "offsets"), jax.Array)
    found = inspect.signature(function_of(attention_with_lse, results=2), eval_str=True)
    assert {p.name: p.annotation for p in found.parameters.values()} == tensors
    assert found.return_annotation == tuple[array, array]
    found = inspect.signature(function_of(scaled), eval_str=True)
    assert str(found.parameters["twice"]) == "twice: bool = False"
    assert found.parameters["twice"].kind is inspect.Parameter.KEYWORD_ONLY
    assert [p.annotation for p in found.parameters.values()] == [array, float, bool]
    assert found.return_annotation is array
    x = np.ones((4, 8), np.float32)
    np.testing.assert_array_equal(function_of(scaled)(x, 1.5, twice=True), 3 * x)


def test_without_torch_tpu(monkeypatch):
    monkeypatch.setitem(sys.modules, PACKAGE, None)
    with pytest.raises(CallError) as caught:
        tile.tpu_op("my::gemm", grouped_gemm)
    assert str(caught.value) == (
        "tpu_op needs TorchTPU, which is not installed\n"
        "  hint: pip install 'raggedtile[torch-tpu]', on Python 3.12 or later"
    )


@pytest.mark.skipif(
    importlib.util.find_spec("torch_tpu") is None,
    reason="torch_tpu is not installed; its wheels are for Python 3.12 and later",
)
def test_the_real_package_takes_the_signatures():
    from torch_tpu._internal.pallas import pallas

    for kernel, results in ((grouped_gemm, 1), (attention_with_lse, 2), (scaled, 1)):
        signature = inspect.signature(function_of(kernel, results), eval_str=True)
        pallas._verify_signature(signature)
    assert {"donate_argnums", "mesh"} <= set(inspect.signature(pallas.jax_op).parameters)
