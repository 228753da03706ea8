"""Every kernel of `wrong` gets the message in its docstring, at its own line and column."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.errors import CallError, ParseError, TileError
from tilelang.frontend import parse
from tilelang.ir import TensorSpec

from . import wrong

NUMBER = re.compile(r"\bline \d+")
KERNELS = {
    name: fn
    for name, fn in vars(wrong).items()
    if inspect.isfunction(fn) and fn.__module__ == wrong.__name__ and fn.__doc__
}


def _error(fn) -> TileError:
    given = {name: wrong.ARGUMENTS[name] for name in inspect.signature(fn).parameters}
    with pytest.raises(TileError) as caught:
        parse(fn, given)
    return caught.value


def _shown(error: TileError) -> str:
    lines = [line for line in str(error).splitlines() if not line.startswith("  File ")]
    return NUMBER.sub("line N", f"{type(error).__name__}: " + "\n".join(lines))


@pytest.mark.parametrize("name", KERNELS)
def test_message(name):
    expected = inspect.cleandoc(KERNELS[name].__doc__)
    assert inspect.cleandoc(_shown(_error(KERNELS[name]))) == expected


@pytest.mark.parametrize("name", KERNELS)
def test_place(name):
    """The caret stands in this file, in the text of the line that the message quotes."""
    loc = _error(KERNELS[name]).loc
    lines = Path(wrong.__file__).read_text(encoding="utf-8").splitlines()
    assert loc is not None and loc.filename == wrong.__file__
    assert lines[loc.line - 1] == loc.text
    assert 0 <= loc.col < loc.end_col <= len(loc.text)


def test_there_are_many():
    assert len(KERNELS) > 140


def test_every_message_that_is_not_from_python_has_a_hint():
    """Those without one say everything: a name, a number, a count."""
    bare = {name for name, fn in KERNELS.items() if "hint:" not in fn.__doc__}
    assert bare == {
        "unknown_name",
        "failing_assert",
        "failing_assert_without_message",
        "raised",
        "division_by_zero",
        "wrong_number_of_bounds",
        "too_many_indices",
        "constant_index_out_of_range",
        "two_ellipses",
        "unknown_method",
        "not_a_function",
        "value_called",
        "loop_target_is_subscript",
        "static_range_of_nothing",
        "static_range_that_stands_still",
    }


def test_a_number_of_jax_for_a_constant():
    """What jax.jit traces as a 0-d array is no constant of a kernel."""
    with pytest.raises(CallError) as caught:
        parse(wrong.constexpr_tensor, {"x": TensorSpec((), "float32")})
    assert str(caught.value).endswith(
        "hint: a tensor is a parameter without hl.constexpr: x, read as x[()]; "
        "or pass a Python number, which jax.jit calls static"
    )


def test_checks_of_the_author_are_call_errors():
    error = _error(wrong.failing_assert)
    assert isinstance(error, CallError) and isinstance(error, TypeError)


def test_source_that_is_not_available():
    space: dict = {}
    exec("def kernel(x):\n    return x\n", space)
    with pytest.raises(ParseError, match="the source of kernel is not available"):
        parse(space["kernel"], {"x": TensorSpec((4,), "float32")})


def test_a_lambda_is_no_kernel():
    with pytest.raises(ParseError, match="a lambda is no kernel"):
        parse(lambda x: x, {"x": TensorSpec((4,), "float32")})


def test_a_class_in_a_kernel_of_a_function():
    """Its text is found, though the class loads a name that says where it stands."""

    def inner(x):
        class Own: ...

        return x

    with pytest.raises(ParseError, match="class is not in the language"):
        parse(inner, {"x": TensorSpec((4,), "float32")})


async def _async(x):
    return x


def test_an_async_function():
    with pytest.raises(ParseError, match="an async function is not in the language"):
        parse(_async, {"x": TensorSpec((4,), "float32")})


def test_an_unknown_dtype():
    with pytest.raises(ParseError, match="x is complex64, which no kernel computes with"):
        parse(wrong.returns_number, {"x": TensorSpec((4,), "complex64")})


def test_the_advice_for_topk_is_a_kernel():
    """As the hint of wrong.method_of_other_libraries says, twice."""

    @tile.kernel
    def two(x):
        y = hl.zeros([x.shape[0], 2], dtype=x.dtype)
        for t in hl.tile(x.shape[0]):
            v = x[t, :]
            y[t, 0], at = v.amax(1), v.argmax(1)
            rest = hl.where(hl.arange(v.shape[1])[None, :] == at[:, None], -float("inf"), v)
            y[t, 1] = rest.amax(1)
        return y

    x = np.random.default_rng(0).integers(0, 9, (20, 7)).astype(np.float32)
    np.testing.assert_array_equal(two(x), -np.sort(-x, 1)[:, :2])
