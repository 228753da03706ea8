"""Physical layouts: vectors are rows or columns, transposed only where a row meets a column."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.schedule.written import Writing, add, expected, full, mul, positions, printed, run, total
from tilelang.ir import Expr, KernelIR
from tilelang.language import build, shapes
from tilelang.schedule.config import Config

WHOLE = slice(None)
CONFIG = Config({"tm": 16})


def column(x: Expr) -> Expr:
    return shapes.expand_dims(x, 1, None)


def row(x: Expr) -> Expr:
    return shapes.expand_dims(x, 0, None)


def rowwise(make: Callable[[Writing], Expr]) -> KernelIR:
    """y[tm, :] = make(...) over x[48, 64], per-row a[48] and per-column b[64]"""
    k = Writing("rowwise")
    k.input("x", 48, 64)
    k.input("a", 48)
    k.input("b", 64)
    k.input("t", 64, 48)
    k.output("y", 48, 64, fill=None)
    with k.tile("tm", 0, 48):
        k.store("y", "tm", WHOLE, value=make(k))
    return k.ir()


def x(k: Writing) -> Expr:
    return k.load("x", "tm", WHOLE)


def _rows(k: Writing) -> Expr:
    return total(x(k), 1)


# name -> (the value, transposes in the source)
VALUES: dict[str, tuple[Callable[[Writing], Expr], int]] = {
    "reduced rows": (lambda k: build.binary("sub", x(k), column(_rows(k)), None), 0),
    "reduced columns": (lambda k: build.binary("sub", x(k), row(total(x(k), 0)), None), 0),
    "vector along rows": (lambda k: add(x(k), column(k.load("a", "tm"))), 1),
    "vector along columns": (lambda k: add(x(k), row(k.load("b", WHOLE))), 0),
    "positions": (
        lambda k: mul(x(k), column(build.cast(positions("tm"), "float32", None))),
        0,
    ),
    "columns meet columns": (lambda k: add(x(k), column(mul(_rows(k), _rows(k)))), 0),
    "a row meets a column": (
        lambda k: add(x(k), column(mul(_rows(k), k.load("a", "tm")))),
        1,
    ),
    "one column": (
        lambda k: add(x(k), column(shapes.squeeze(k.load("x", "tm", slice(3, 4)), 1, None))),
        0,
    ),
    "a transposed operand": (
        lambda k: build.dot(
            shapes.transpose(k.load("t", WHOLE, "tm"), (1, 0), None),
            full((64, 64), 0.5),
            None,
            (1, 0),
        ),
        0,
    ),
    "a transposed value": (
        lambda k: shapes.transpose(k.load("t", WHOLE, "tm"), (1, 0), None),
        1,
    ),
    "a number of vectors": (lambda k: mul(x(k), total(_rows(k), 0)), 0),
    "broadcast rows": (
        lambda k: shapes.broadcast(column(_rows(k)), ("tm", 64), None),
        0,
    ),
    "argmax": (
        lambda k: add(
            x(k),
            column(build.cast(build.reduce("argmax", x(k), 1, False, None), "float32", None)),
        ),
        0,
    ),
    "keepdim": (
        lambda k: build.binary("sub", x(k), build.reduce("max", x(k), 1, True, None), None),
        0,
    ),
}


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"x": (48, 64), "a": (48,), "b": (64,), "t": (64, 48)}
    return {n: rng.standard_normal(s, np.float32) for n, s in shapes.items()}


@pytest.mark.parametrize("name", VALUES)
def test_values_and_transposes(name: str, arrays: dict[str, np.ndarray]) -> None:
    make, transposes = VALUES[name]
    ir = rowwise(make)
    text = printed(ir, CONFIG).text
    assert text.count(".T") + text.count("jnp.transpose") == transposes
    np.testing.assert_allclose(
        run(ir, arrays, CONFIG)["y"], expected(ir, arrays, CONFIG)["y"], rtol=1e-4, atol=1e-4
    )


def stored(make: Callable[[Writing], Expr], dtype: str = "float32") -> KernelIR:
    """v[tm] = make(...)"""
    k = Writing("stored")
    k.input("x", 48, 64)
    k.input("a", 48)
    k.output("v", 48, dtype=dtype, fill=None)
    with k.tile("tm", 0, 48):
        k.store("v", "tm", value=make(k))
    return k.ir()


@pytest.mark.parametrize(
    ("make", "transposes"),
    [
        (lambda k: mul(k.load("a", "tm"), 2.0), 0),
        (_rows, 1),
        (lambda k: build.cast(positions("tm"), "float32", None), 0),
        (lambda k: full(("tm",), 3.0), 0),
        (lambda k: build.dot(x(k), full((64,), 2.0), None, (1, 0)), 1),
    ],
)
def test_a_vector_in_memory_is_a_row(make, transposes: int, arrays) -> None:
    ir = stored(make)
    text = printed(ir, CONFIG).text
    assert text.count(".T") == transposes
    given = {n: arrays[n] for n in "xa"}
    np.testing.assert_allclose(
        run(ir, given, CONFIG)["v"], expected(ir, given, CONFIG)["v"], rtol=1e-4, atol=1e-4
    )


def test_carries_take_the_layout_of_what_is_added_to_them() -> None:
    k = Writing("carried")
    k.input("x", 48, 256)
    k.output("rows", 48, fill=None)
    k.output("columns", 48, 256, fill=None)
    with k.tile("tm", 0, 48):
        with k.tile("tn", 0, 256):
            x = k.let("value", k.load("x", "tm", "tn"))
            acc = k.carried("acc", full(("tm",), 0.0))
            k.becomes(acc, add(acc, total(x, 1)))
            k.store("columns", "tm", "tn", value=x)
        k.store("rows", "tm", value=k.after("acc", acc))
    ir, config = k.ir(), Config({"tm": 16, "tn": 128})
    text = printed(ir, config).text
    assert "pltpu.VMEM((16, 128), jnp.float32)" in text
    assert text.count(".T") == 1
    x = np.random.default_rng(0).standard_normal((48, 256), np.float32)
    np.testing.assert_allclose(run(ir, {"x": x}, config)["rows"], x.sum(1), rtol=1e-4, atol=1e-4)
