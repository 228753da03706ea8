"""flat_sums: what adds up products of a batch of one is carried in two dimensions."""

from __future__ import annotations

from tests.passes.becomes import becomes, stays
from tests.schedule.written import Writing, add, full, mul
from tilelang.codegen.triton.passes.flat_sums import flat_sums
from tilelang.codegen.triton.passes.matrix_products import matrix_products
from tilelang.ir import Dim, Expr, KernelIR
from tilelang.language import build

SHAPE = ("b", "m", "n")
LANES = {"b": 1, "m": 16, "n": 32, "k": 64}


def width(dim: Dim) -> int:
    return dim if isinstance(dim, int) else LANES[dim]


def summed(
    start: float | None = 0.0, scaled: bool = False, read: bool = False, turned: bool = False
) -> KernelIR:
    """y[b, m, n] = the sum over k of x[b, m, k] w[b, k, n]"""
    k = Writing()
    k.input("x", 8, 64, 128, dtype="bfloat16")
    k.input("w", 8, 128, 64, dtype="bfloat16")
    k.input("y0", 8, 64, 64)
    k.output("y", 8, 64, 64)
    k.output("z", 8, 64, 64)
    with k.tile("b", 0, 8), k.tile("m", 0, 64), k.tile("n", 0, 64):
        init: Expr = k.load("y0", *SHAPE) if start is None else full(SHAPE, start)
        first = k.let("first", init, "acc")
        with k.tile("k", 0, 128):
            acc = k.carried("acc", first)
            left, right = k.load("x", "b", "m", "k"), k.load("w", "b", "k", "n")
            product = build.dot(left, right, None, (2, 1), ((0,), (0,)))
            own = mul(acc, 0.5) if scaled else acc
            k.becomes(acc, add(product, own) if turned else add(own, product))
            if read:
                k.store("z", *SHAPE, value=acc)
        k.store("y", *SHAPE, value=k.after("acc", acc))
    return matrix_products(k.ir(), width)


PRODUCT = (
    "multiply(reshape(x[b, m, k], [m, k], merged=True), reshape(w[b, k, n], [k, n], merged=True)"
)


def test_a_batch_of_one_is_carried_as_a_matrix():
    for turned, sum_ in (
        (False, f"acc_in + reshape({PRODUCT}), [b, m, n], merged=True)"),
        (True, f"reshape({PRODUCT}), [b, m, n], merged=True) + acc_in"),
    ):
        becomes(
            summed(1.0, turned=turned),
            flat_sums,
            f"""
            for b in tile(8):
                for m in tile(64):
                    for n in tile(64):
                        first: float32[b, m, n] = full([b, m, n], float32, value=1.0)
                        for k in tile(128) carrying acc_in = first:
                            acc_new: float32[b, m, n] = {sum_}
                            next acc_in = acc_new
                        after acc_out = acc_in
                        y[b, m, n] = acc_out
            """,
            f"""
            for b in tile(8):
                for m in tile(64):
                    for n in tile(64):
                        first: float32[b, m, n] = full([b, m, n], float32, value=1.0)
                        for k in tile(128) carrying acc_in = full([m, n], float32, value=1.0):
                            acc_new: float32[m, n] = {PRODUCT}, acc_in)
                            next acc_in = acc_new
                        after acc_flat = acc_in
                        acc_out: float32[b, m, n] = reshape(acc_flat, [b, m, n], merged=True)
                        y[b, m, n] = acc_out
            """,
        )


def test_a_sum_that_is_read_or_scaled_or_begins_with_what_memory_holds_stays():
    stays(summed(scaled=True), flat_sums)
    stays(summed(read=True), flat_sums)
    stays(summed(start=None), flat_sums)
