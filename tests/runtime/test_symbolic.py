"""Numbers of rows that are symbols of `jax.export`: one program for all that they may be."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.jagged.grouped_gemm import grouped_gemm
from examples.jagged.jagged_attention_backward import attention_with_lse
from tests.xla import assert_same
from tilelang.errors import CallError
from tilelang.runtime import symbolic

RNG = np.random.default_rng(0)
W = RNG.standard_normal((3, 8, 4), np.float32)
OFFSETS = jax.ShapeDtypeStruct((4,), jnp.int32)
gemm = tile.kernel(grouped_gemm.__wrapped__, rows="bucket")
attention = tile.kernel(attention_with_lse.__wrapped__, rows="bucket")


def symbol(*constraints, name="rows"):
    (size,) = jax.export.symbolic_shape(name, constraints=constraints)
    return size


def spec(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def exported(run, *arguments):
    return jax.export.export(jax.jit(run), platforms=["cpu", "tpu"])(*arguments)


def cuts(rows):
    return np.int32([1, rows // 3, rows // 3, rows - 1])


@pytest.mark.parametrize("gradient", [False, True])
def test_one_program_serves_every_number_of_rows(gradient):
    """The same as a program for the number; rows in no group are zero."""

    def of(kernel):
        def run(x, w, offsets):
            if not gradient:
                return kernel(x, w, offsets)
            return jax.grad(lambda x: (kernel(x, w, offsets) ** 2).sum())(x)

        return run

    made = exported(of(gemm), spec(symbol("rows <= 200"), 8), W, OFFSETS)
    assert made.mlir_module().count("tpu_custom_call") == 1 + gradient
    for rows in (4, 60, 200):
        x = RNG.standard_normal((rows, 8), np.float32)
        x[0] = np.nan  # in no group
        found, wanted = made.call(x, W, cuts(rows)), of(grouped_gemm)(x, W, jnp.asarray(cuts(rows)))
        assert found.shape == wanted.shape
        assert_same(found, wanted)


def test_several_results_and_computed_lengths():
    q = spec(2, 2 * symbol("rows <= 40") + 1, 8)
    made = exported(lambda *a: attention(*a), q, q, q, OFFSETS)
    x = RNG.standard_normal((2, 61, 8), np.float32)
    for found, wanted in zip(made.call(x, x, x, cuts(61)), attention(x, x, x, cuts(61))):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


@tile.kernel(rows="bucket")
def counted(x, offsets):
    """Divides by how many rows there are."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :] = x[t, :] / x.shape[0]
    return y


@tile.kernel(rows="bucket")
def doubled(x, offsets):
    """Its result has two rows for each of the argument's."""
    y = hl.zeros([2 * x.shape[0], x.shape[1]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :] = x[t, :]
    return y


REFUSED = {
    "no policy": (
        lambda n: (grouped_gemm, spec(n, 8), W, OFFSETS),
        "x has the symbolic shape (rows, 8)\n"
        "  hint: kernels are compiled for shapes that are known: mark the sizes as static; rows "
        'may be symbols that have a bound, with @tile.kernel(rows="bucket")',
    ),
    "no bound": (
        lambda n: (gemm, spec(symbol(), 8), W, OFFSETS),
        "x has rows rows, and nothing says how many these may be\n"
        '  hint: jax.export.symbolic_shape(..., constraints=["rows <= 65536"])',
    ),
    "no rows": (
        lambda n: (gemm, spec(60, n), spec(3, n, 4), OFFSETS),
        "dimension 1 of x is the symbol rows, and kernel grouped_gemm reads it by other means than "
        "moved tiles, or tiles over ranges read from tensors\n  hint: give it a number",
    ),
    "computed with": (
        lambda n: (counted, spec(n, 8), OFFSETS),
        "kernel counted computes with how many rows there are, and they are symbols\n"
        "  hint: give them a number, or pass it as a tensor",
    ),
    "more rows": (
        lambda n: (doubled, spec(n, 8), OFFSETS),
        "kernel doubled makes a result of 128 rows, which are no argument's\n"
        "  hint: give the symbols numbers",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_refused(why):
    make, words = REFUSED[why]
    kernel, *arguments = make(symbol("rows <= 60"))
    with pytest.raises(CallError) as caught:
        exported(lambda *a: kernel(*a), *arguments)
    assert str(caught.value) == words


def test_a_planted_bug_is_caught(monkeypatch):
    """Programs for the least number of rows instead of the most."""
    monkeypatch.setattr(symbolic, "bucket", lambda rows: rows // 2)
    with pytest.raises(Exception):  # noqa: B017 - what JAX says of a cut that is too long
        test_one_program_serves_every_number_of_rows(gradient=False)


def weights(x, offsets):
    y = hl.zeros([offsets.shape[0] - 1], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            hl.atomic_add(y, [g], hl.exp(x[t]).sum(0))
    return y


def past_the_end() -> bool:
    """Offsets past the rows of a call end where these do, and not with the rows of the program."""
    served = tile.kernel(weights, rows="bucket")
    made = exported(served, spec(symbol("rows <= 200")), OFFSETS)
    x, offsets = RNG.standard_normal(70, np.float32), np.int32([0, 5, 20, 90])
    wanted = jax.jit(tile.kernel(weights))(x, jnp.asarray(offsets))
    return np.allclose(made.call(x, offsets), wanted, rtol=1e-6)


def test_offsets_past_the_end():
    assert past_the_end()


def test_a_planted_bug_about_offsets_past_the_end(monkeypatch):
    monkeypatch.setattr(symbolic, "ends", lambda ir: {})
    assert not past_the_end()


@tile.kernel(rows="bucket")
def boxes(x, offsets, L: hl.constexpr):
    y = hl.zeros([offsets.shape[0] - 1, L, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g + 1] - offsets[g], max_extent=L):
            y[g, t, :] = x[offsets[g] + t.index, :]
    return y


def test_a_symbol_as_a_number_is_refused():
    rows = symbol("rows <= 200")
    with pytest.raises(CallError) as caught:
        exported(lambda x, offsets: boxes(x, offsets, x.shape[0]), spec(rows, 8), OFFSETS)
    assert str(caught.value) == (
        "L is the symbol rows, and kernels are made for numbers\n"
        '  hint: pass an array of that many rows, whose shape the kernel reads, with rows="bucket"'
    )
