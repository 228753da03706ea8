"""pad_dims: a static length that Triton has no tile of is a named dimension with more lanes."""

from __future__ import annotations

from dataclasses import replace

from tests.passes.becomes import becomes, stays
from tests.schedule.written import Writing
from tilelang.codegen.triton.passes.pad_dims import Padded, pad_dims
from tilelang.ir import Dim, Expr, KernelIR, Type, map_children
from tilelang.ir.traversal import map_body, map_index, map_stmt
from tilelang.ir.verify import verify
from tilelang.language import build

WHOLE = slice(None)


def product(summed: int, columns: int) -> KernelIR:
    """y[m, :] = x[m, :] @ w[:, :], `summed` products for each of the columns."""
    k = Writing()
    k.input("x", 64, summed)
    k.input("w", summed, columns)
    k.output("y", 64, columns)
    with k.tile("m", 0, 64):
        rows = k.let("rows", k.load("x", "m", WHOLE))
        sums = k.let("sums", build.dot(rows, k.load("w", WHOLE, WHOLE), None, (1, 0)))
        k.store("y", "m", WHOLE, value=sums)
    return k.ir()


def padded(ir: KernelIR) -> KernelIR:
    return pad_dims(ir).ir


def sized(ir: KernelIR, sizes: dict[str, int]) -> KernelIR:
    """The kernel whose named dimensions are numbers again."""

    def dim(d: Dim) -> Dim:
        return sizes.get(d, d) if isinstance(d, str) else d

    def visit(expr: Expr) -> Expr:
        made = map_children(expr, visit)
        return replace(made, type=Type(tuple(map(dim, made.type.shape)), made.type.dtype))

    return replace(
        ir,
        body=map_body(ir.body, lambda s: (map_stmt(s, visit, lambda i: map_index(i, visit)),)),
    )


def test_lengths_that_are_no_power_of_two_have_a_name():
    ir = product(200, 9)
    found = pad_dims(ir)
    assert found.dims == {"full9": Padded(9, 16), "full200": Padded(200, 256)}
    assert found.named(9) == "full9" and found.named(8) == 8
    lines = str(found.ir).partition("\n\n")[2].splitlines()
    assert lines == [
        "for m in tile(64):",
        "    rows: float32[m, full200] = x[m, 0:200]",
        "    sums: float32[m, full9] = dot(rows, w[0:200, 0:9], contract=(1, 0))",
        "    y[m, 0:9] = sums",
    ]


def test_only_names_change():
    ir = product(200, 9)
    found = pad_dims(ir)
    assert verify(sized(found.ir, {name: d.size for name, d in found.dims.items()})) == ir


def test_a_product_sums_over_at_least_sixteen():
    assert pad_dims(product(8, 32)).dims == {"full8": Padded(8, 16)}
    assert pad_dims(product(1, 32)).dims == {}  # it is no sum


def test_powers_of_two_stay():
    stays(product(64, 32), padded)
    becomes(
        product(64, 32),
        padded,
        before="""
        for m in tile(64):
            rows: float32[m, 64] = x[m, 0:64]
            sums: float32[m, 32] = dot(rows, w[0:64, 0:32], contract=(1, 0))
            y[m, 0:32] = sums
        """,
        after="""
        for m in tile(64):
            rows: float32[m, 64] = x[m, 0:64]
            sums: float32[m, 32] = dot(rows, w[0:64, 0:32], contract=(1, 0))
            y[m, 0:32] = sums
        """,
    )
