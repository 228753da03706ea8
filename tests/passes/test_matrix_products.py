"""matrix_products: every product is one of two matrices, added to its accumulator."""

from __future__ import annotations

from tests.passes.becomes import becomes
from tests.schedule.written import Writing, add, full
from tilelang.codegen.triton.passes.matrix_products import matrix_products
from tilelang.ir import Dim, KernelIR
from tilelang.language import build

WHOLE = slice(None)
LANES = {"m": 16, "n": 32, "k": 64, "b": 1, "c": 4}


def width(dim: Dim) -> int:
    return dim if isinstance(dim, int) else LANES[dim]


def multiplied(ir: KernelIR) -> KernelIR:
    return matrix_products(ir, width)


def summed() -> KernelIR:
    """y[m, n] = the sum over k of x[m, k] w[k, n]"""
    k = Writing()
    k.input("x", 64, 128, dtype="bfloat16")
    k.input("w", 128, 64, dtype="bfloat16")
    k.output("y", 64, 64)
    with k.tile("m", 0, 64), k.tile("n", 0, 64):
        with k.tile("k", 0, 128):
            acc = k.carried("acc", full(("m", "n"), 0.0))
            product = build.dot(k.load("x", "m", "k"), k.load("w", "k", "n"), None, (1, 0))
            k.becomes(acc, add(acc, product))
        k.store("y", "m", "n", value=k.after("acc", acc))
    return k.ir()


def whole(length: int, transposed: bool = False, dtype: str = "bfloat16") -> KernelIR:
    """The same in one product over all of `length`."""
    k = Writing()
    k.input("x", 64, length, dtype=dtype)
    k.input("w", *((64, length) if transposed else (length, 64)), dtype=dtype)
    k.output("y", 64, 64, dtype="float32" if dtype == "bfloat16" else "int32")
    with k.tile("m", 0, 64), k.tile("n", 0, 64):
        right = k.load("w", *(("n", WHOLE) if transposed else (WHOLE, "n")))
        product = build.dot(k.load("x", "m", WHOLE), right, None, (1, int(transposed)))
        k.store("y", "m", "n", value=product)
    return k.ir()


def batched(batch: str) -> KernelIR:
    """y[b, m, :] = x[b, m, :] @ w[b, :, :]"""
    k = Writing()
    k.input("x", 8, 64, 32)
    k.input("w", 8, 32, 16)
    k.output("y", 8, 64, 16)
    with k.tile(batch, 0, 8), k.tile("m", 0, 64):
        left, right = k.load("x", batch, "m", WHOLE), k.load("w", batch, WHOLE, WHOLE)
        product = build.dot(left, right, None, (2, 1), ((0,), (0,)))
        k.store("y", batch, "m", WHOLE, value=product)
    return k.ir()


def test_what_is_added_is_the_accumulator():
    becomes(
        summed(),
        multiplied,
        """
        for m in tile(64):
            for n in tile(64):
                for k in tile(128) carrying acc_in = full([m, n], float32, value=0.0):
                    acc_new: float32[m, n] = acc_in + dot(x[m, k], w[k, n], contract=(1, 0))
                    next acc_in = acc_new
                after acc_out = acc_in
                y[m, n] = acc_out
        """,
        """
        for m in tile(64):
            for n in tile(64):
                for k in tile(128) carrying acc_in = full([m, n], float32, value=0.0):
                    acc_new: float32[m, n] = multiply(x[m, k], w[k, n], acc_in)
                    next acc_in = acc_new
                after acc_out = acc_in
                y[m, n] = acc_out
        """,
    )


def test_rows_of_the_right_side_are_those_that_are_summed():
    becomes(
        whole(64, transposed=True),
        multiplied,
        """
        for m in tile(64):
            for n in tile(64):
                y[m, n] = dot(x[m, 0:64], w[n, 0:64], contract=(1, 1))
        """,
        """
        for m in tile(64):
            for n in tile(64):
                y[m, n] = multiply(x[m, 0:64], transpose(w[n, 0:64], perm=(1, 0)))
        """,
    )


def test_integers_are_summed_as_integers():
    becomes(
        whole(64, dtype="int8"),
        multiplied,
        """
        for m in tile(64):
            for n in tile(64):
                y[m, n] = dot(x[m, 0:64], w[0:64, n], contract=(1, 0))
        """,
        """
        for m in tile(64):
            for n in tile(64):
                y[m, n] = multiply(x[m, 0:64], w[0:64, n])
        """,
    )


def test_a_sum_of_one_product_is_a_product():
    becomes(
        whole(1, transposed=True),
        multiplied,
        """
        for m in tile(64):
            for n in tile(64):
                y[m, n] = dot(x[m, 0:1], w[n, 0:1], contract=(1, 1))
        """,
        """
        for m in tile(64):
            for n in tile(64):
                y[m, n] = cast(x[m, 0:1], float32) * cast(reshape(w[n, 0:1], [1, n], merged=True), float32)
        """,
    )


def test_a_batch_of_one_is_no_batch():
    becomes(
        batched("b"),
        multiplied,
        """
        for b in tile(8):
            for m in tile(64):
                y[b, m, 0:16] = dot(x[b, m, 0:32], w[b, 0:32, 0:16], contract=(2, 1), batch=((0,), (0,)))
        """,
        """
        for b in tile(8):
            for m in tile(64):
                y[b, m, 0:16] = reshape(multiply(reshape(x[b, m, 0:32], [m, 32], merged=True), reshape(w[b, 0:32, 0:16], [32, 16], merged=True)), [b, m, 16], merged=True)
        """,
    )


def test_a_batch_of_several_stays_one():
    becomes(
        batched("c"),
        multiplied,
        """
        for c in tile(8):
            for m in tile(64):
                y[c, m, 0:16] = dot(x[c, m, 0:32], w[c, 0:32, 0:16], contract=(2, 1), batch=((0,), (0,)))
        """,
        """
        for c in tile(8):
            for m in tile(64):
                y[c, m, 0:16] = multiply(x[c, m, 0:32], w[c, 0:32, 0:16])
        """,
    )
