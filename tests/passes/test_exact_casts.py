"""exact_casts: what was widened and is narrowed again is what was read."""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.passes.becomes import becomes, floats, ir_of, stays
from tilelang.codegen.triton.passes.exact_casts import exact_casts
from tilelang.reference import evaluate

exact_casts_file = sys.modules[exact_casts.__module__]
X = floats(20, 8).astype(ml_dtypes.bfloat16)
W = floats(8, 16).astype(ml_dtypes.bfloat16)


@tile.kernel
def normed(x, w):
    """Rows are summed in float32, and multiplied as they are."""
    y = hl.zeros([x.shape[0], w.shape[1]], dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        v = x[t, :].to(hl.float32)
        size = (v * v).sum(1)
        y[t, :] = hl.dot(v.to(x.dtype), w[:, :]) * size[:, None]
    return y


@tile.kernel
def twice(x):
    y = hl.zeros(x.shape, dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        v = x[t, :].to(hl.float32)
        y[t, :] = v.to(x.dtype).to(hl.float32) * 2.0
    return y


@tile.kernel
def rounded(x):
    """Another dtype, and a value that was computed: both are rounded."""
    y = hl.zeros(x.shape, dtype=hl.float8_e5m2)
    z = hl.zeros(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        v = x[t, :].to(hl.float32)
        y[t, :] = v.to(hl.float8_e5m2)
        z[t, :] = (v * 2.0).to(x.dtype)
    return y, z


@tile.kernel
def changed(x):
    """What is stored to afterwards is no longer what was read."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        v = x[t, :].to(hl.float32)
        x[t, :] = (v * 2.0).to(x.dtype)
        y[t, :] = v.to(x.dtype)
    return y, x


def test_a_product_reads_what_was_read():
    becomes(
        ir_of(normed, X, W),
        exact_casts,
        """
        for t in tile(20):
            v: float32[t, 8] = cast(x[t, 0:8], float32)
            size: float32[t] = sum(v * v, axis=1)
            y[t, 0:16] = dot(cast(v, bfloat16), w[0:8, 0:16], contract=(1, 0)) * expand_dims(size, axis=1)
        """,
        """
        for t in tile(20):
            v: float32[t, 8] = cast(x[t, 0:8], float32)
            size: float32[t] = sum(v * v, axis=1)
            y[t, 0:16] = dot(x[t, 0:8], w[0:8, 0:16], contract=(1, 0)) * expand_dims(size, axis=1)
        """,
    )


def test_what_is_widened_again_has_a_name():
    becomes(
        ir_of(twice, X),
        exact_casts,
        """
        for t in tile(20):
            v: float32[t, 8] = cast(x[t, 0:8], float32)
            y[t, 0:8] = cast(cast(v, bfloat16), float32) * 2.0
        """,
        """
        for t in tile(20):
            v: float32[t, 8] = cast(x[t, 0:8], float32)
            y[t, 0:8] = v * 2.0
        """,
    )


def test_what_is_rounded_stays():
    stays(ir_of(rounded, X), exact_casts)


def right(kernel, *given):
    ir = ir_of(kernel, *given)
    names = [t.name for t in ir.tensors if t.role == "input"]
    wanted, found = (evaluate(one, dict(zip(names, (g.copy() for g in given), strict=True)))
                     for one in (ir, exact_casts(ir)))  # fmt: skip
    return all(np.array_equal(wanted[name], found[name]) for name in wanted)


@pytest.mark.parametrize("kernel", [normed, twice, rounded, changed], ids=lambda k: k.__name__)
def test_it_means_the_same(kernel):
    assert right(kernel, *((X, W) if kernel is normed else (X,)))


def test_planted_reads_of_what_is_stored_to(monkeypatch):
    monkeypatch.setattr(exact_casts_file, "_before", lambda value, *_: value.args[0])
    assert not right(changed, X)


def test_planted_casts_to_any_dtype(monkeypatch):
    def narrowed(expr, widened):
        inner = expr.args[0] if getattr(expr, "op", "") == "cast" else None
        return inner.name if getattr(inner, "name", None) in widened else None

    monkeypatch.setattr(exact_casts_file, "_narrowed", narrowed)
    with pytest.raises(AssertionError):
        stays(ir_of(rounded, X), exact_casts)
