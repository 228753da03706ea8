"""wide_operands: what TPUs compute of 32-bit numbers alone is computed of those."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.derivatives import parsed
from tests.passes.becomes import again, becomes, stays
from tilelang.codegen.pallas.passes.wide_operands import wide_operands

OFFSETS = np.array([0, 3, 3, 40, 49], np.int32)
RANGES = list(itertools.pairwise(OFFSETS))
RNG = np.random.default_rng(0)


@tile.kernel
def bests(x, offsets):
    """Where the largest number of a row is, how many are NaN, and whether all are finite."""
    T = x.shape[0]
    at, odd = (hl.full([T], -1, dtype=hl.int32) for _ in range(2))
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            at[t] = x[t, :].argmax(1)
            odd[t] = hl.isnan(x[t, :]).to(hl.int32).sum(1)
    return at, odd


@tile.kernel
def unsigned(n, offsets):
    """The sum, the least and the largest of each group."""
    G, D = offsets.shape[0] - 1, n.shape[1]
    total, least, most = (hl.zeros([G, D], dtype=hl.uint32) for _ in range(3))
    for g in hl.grid(G):
        sums, high = (hl.zeros([D], dtype=hl.uint32) for _ in range(2))
        low = hl.full([D], 4294967295, dtype=hl.uint32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            sums = sums + n[t, :].sum(0)
            low = hl.minimum(low, n[t, :].amin(0))
            high = hl.maximum(high, n[t, :].amax(0))
        total[g, :] = sums
        least[g, :] = low
        most[g, :] = high
    return total, least, most


@tile.kernel
def some_and_all(flags, offsets):
    G, D = offsets.shape[0] - 1, flags.shape[1]
    some, every = (hl.zeros([G, D], dtype=hl.int32) for _ in range(2))
    for g in hl.grid(G):
        a, b = hl.zeros([D], dtype=hl.int32), hl.full([D], 1, dtype=hl.int32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            a = hl.maximum(a, flags[t, :].any(0).to(hl.int32))
            b = hl.minimum(b, flags[t, :].all(0).to(hl.int32))
        some[g, :] = a
        every[g, :] = b
    return some, every


@tile.kernel
def narrow(x, k, s):
    """Arithmetic, a comparison and a choice of narrow numbers and blocks."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    n = hl.zeros(k.shape, dtype=k.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :] = hl.where(x[t, :] > s[0] * 0.1, x[t, :] * (s[0] - 1), x[t, :])
        n[t, :] = k[t, :] + 100
    return y, n


@tile.kernel
def bits(b, n, f):
    """Of bools a choice is logic; numbers in scalar memory stand apart from their conversions."""
    some = hl.zeros(b.shape, dtype=hl.bool_)
    both = hl.zeros([n.shape[0]], dtype=f.dtype)
    for g in hl.grid(n.shape[0]):
        both[g] = ((n[0] & n[g]).to(hl.bfloat16)).to(f.dtype)
    for t in hl.tile(b.shape[0]):
        some[t, :] = hl.where(b[t, :], n[0] > 1, b[t, :])
    return some, both


@tile.kernel
def signs(x):
    y = hl.zeros(x.shape, dtype=hl.int8)
    for t in hl.tile(x.shape[0]):
        y[t, :] = (x[t, :] > 0).to(hl.int8)
    return y


@tile.kernel
def wide(x, n):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :] = hl.where(n[t, :] > 0, hl.exp(x[t, :]), x[t, :].sum(1)[:, None])
    return y


def test_narrow_operands_are_wide() -> None:
    given = tile.spec((16, 8), "bfloat16"), tile.spec((16, 8), "int8"), tile.spec((2,), "bfloat16")
    ir, _ = parsed(narrow, given)
    becomes(
        ir,
        wide_operands,
        """
        for t in tile(16):
            y[t, 0:8] = where(x[t, 0:8] > s[0] * 0.1, x[t, 0:8] * (s[0] - 1.0), x[t, 0:8])
            n[t, 0:8] = k[t, 0:8] + 100
        """,
        """
        for t in tile(16):
            y[t, 0:8] = where(cast(x[t, 0:8], float32) > cast(cast(cast(s[0], float32) * 0.10009765625, bfloat16), float32), x[t, 0:8] * cast(cast(s[0], float32) - 1.0, bfloat16), x[t, 0:8])
            n[t, 0:8] = cast(cast(k[t, 0:8], int32) + 100, int8)
        """,
    )


def test_bools_and_numbers_between_conversions() -> None:
    given = tile.spec((16, 8), "bool"), tile.spec((2,), "uint8"), tile.spec((1,), "float8_e5m2")
    ir, _ = parsed(bits, given)
    becomes(
        ir,
        wide_operands,
        """
        for g in grid(2):
            both[g] = cast(cast(bitwise_and(n[0], n[g]), bfloat16), float8_e5m2)

        for t in tile(16):
            some[t, 0:8] = where(b[t, 0:8], n[0] > 1, b[t, 0:8])
        """,
        """
        for g in grid(2):
            both[g] = cast(maximum(cast(cast(maximum(cast(cast(cast(bitwise_and(shift_right(shift_left(cast(n[0], int32), 8), 8), shift_right(shift_left(cast(n[g], int32), 8), 8)), uint8), int32), float32), -3.4028234663852886e+38), bfloat16), float32), -3.4028234663852886e+38), float8_e5m2)

        for t in tile(16):
            some[t, 0:8] = where(b[t, 0:8], cast(shift_right(shift_left(cast(n[0], int32), 8), 8) > 1, int32), cast(b[t, 0:8], int32)) != 0
        """,
    )


def test_masks_are_numbers_of_32_bits_before_they_are_bytes() -> None:
    """Of two conversions in a row Mosaic makes one, which v4 does not have."""
    becomes(
        parsed(signs, (tile.spec((16, 8), "float32"),))[0],
        wide_operands,
        """
        for t in tile(16):
            y[t, 0:8] = cast(x[t, 0:8] > 0.0, int8)
        """,
        """
        for t in tile(16):
            y[t, 0:8] = cast(where(x[t, 0:8] > 0.0, 1, 0), int8)
        """,
    )


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32"])
def test_what_is_wide_stays(dtype) -> None:
    ir, _ = parsed(wide, (tile.spec((16, 8), "float32"), tile.spec((16, 8), dtype)))
    stays(ir, wide_operands)


def rows():
    x = RNG.integers(-9, 9, (49, 20)).astype(ml_dtypes.bfloat16)
    x[:, 7] = x.max(1)
    return x


def counted(numbers):
    found = [numbers[b:e].astype(np.int64) for b, e in RANGES]
    sums = [part.sum(0) % 2**32 for part in found]
    least = [part.min(0, initial=2**32 - 1) for part in found]
    return sums, least, [part.max(0, initial=0) for part in found]


NUMBERS = RNG.integers(0, 2**32, (49, 20), dtype=np.uint32)
FLAGS = RNG.random((49, 20)) < 0.4
FLAGS[0:3, 4] = True
X = rows()
CASES = {
    "bests": (bests, X, (X.argmax(1), np.zeros(49))),
    "unsigned": (unsigned, NUMBERS, counted(NUMBERS)),
    "some and all": (
        some_and_all,
        FLAGS,
        ([FLAGS[b:e].any(0) for b, e in RANGES], [FLAGS[b:e].all(0) for b, e in RANGES]),
    ),
}


@pytest.mark.parametrize("target", ["cpu", "tpu:v5e"])
@pytest.mark.parametrize("name", CASES)
def test_they_are_what_they_were(name, target) -> None:
    kernel, array, right = CASES[name]
    config = tile.Config({"t": 8}) if target == "cpu" else None
    made = kernel(array, OFFSETS, config=config, target=target)
    for one, other in zip(made, right, strict=True):
        np.testing.assert_array_equal(one, other)


@tile.kernel
def wrapped(k, w):
    """Single rows of narrow integers, which JAX would sum up as wide ones."""
    y = hl.zeros(w.shape, dtype=hl.int32)
    for g in hl.grid(w.shape[0]):
        y[g, :] = (w[g, :] + k[g, :]).to(hl.int32)
    return y


@pytest.mark.parametrize("target", ["cpu", "tpu:v5e"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_numbers_are_what_they_were(dtype, target) -> None:
    """Those that have the highest bit, too."""
    n = np.array([np.iinfo(dtype).max, np.iinfo(dtype).min, 3, 1], dtype)
    b, f = RNG.random((16, 8)) < 0.5, np.zeros(1, ml_dtypes.float8_e5m2)
    some, both = again(bits)(b, n, f, target=target)
    np.testing.assert_array_equal(some, np.where(b, n[0] > 1, b))
    right = (n[0] & n).astype(ml_dtypes.bfloat16).astype(f.dtype)
    np.testing.assert_array_equal(both, right)


@tile.kernel
def powers(x):
    """2 to the power of rows, and to that of each number by itself."""
    y = hl.empty([2, *x.shape], dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[0, t, :] = hl.exp2(x[t, :])
        y[1, t, :] = 2.0 ** x[t, :]
    return y


@pytest.mark.parametrize("target", ["cpu", "tpu:v5e"])
def test_powers_of_two_are_exact_in_16_bits(target) -> None:
    """Where exponents are computed in 16 bits, 2 ** 88 is 0.78 of it."""
    whole = np.arange(-96, 96, dtype=np.float32).reshape(12, 16).astype(ml_dtypes.bfloat16)
    found = np.asarray(again(powers)(whole, target=target)).astype(np.float32)
    right = np.exp2(whole.astype(np.float32))
    np.testing.assert_array_equal(found, [right, right])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("target", ["cpu", "tpu:v5e"])
def test_sums_of_narrow_integers_wrap(dtype, target) -> None:
    most = np.full((3, 20), np.iinfo(dtype).max, dtype)
    found = again(wrapped)(most, np.ones_like(most), target=target)
    np.testing.assert_array_equal(found, (most + np.ones_like(most)).astype(np.int32))
    assert (np.asarray(found) == np.iinfo(dtype).min).all()


@needs_libtpu
@pytest.mark.parametrize("name", CASES)
def test_they_compile(name) -> None:
    kernel, array, _ = CASES[name]
    compiled(kernel, array, OFFSETS, target="tpu:v5e")
