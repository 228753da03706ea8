"""Arguments to parameters, and what is said of those that do not fit."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.errors import CallError
from tilelang.runtime.signature import bind, signature


def gemm(x, w, offsets, scale=1.0, *, causal=False): ...


SIGNATURE = signature(gemm)


def test_binding():
    assert bind(SIGNATURE, (1, 2, 3), {}) == (1, 2, 3, 1.0, False)
    assert bind(SIGNATURE, (1,), {"offsets": 3, "w": 2}) == (1, 2, 3, 1.0, False)
    assert bind(SIGNATURE, (1, 2, 3, 4), {"causal": True}) == (1, 2, 3, 4, True)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((1, 2), {}, "gemm takes 5 arguments (x, w, offsets, scale, causal): no value for offsets"),
        (
            (),
            {},
            "gemm takes 5 arguments (x, w, offsets, scale, causal): no value for x, w and offsets",
        ),
        (
            (1, 2, 3, 4, 5),
            {},
            "gemm takes 5 arguments (x, w, offsets, scale, causal) but 5 were given by position",
        ),
        ((1, 2, 3), {"x": 4}, "gemm got two values for x"),
        (
            (1, 2, 3),
            {"casual": True},
            "gemm has no parameter named 'casual'\n"
            "  hint: did you mean causal? its parameters are x, w, offsets, scale and causal",
        ),
        *(
            (
                (1, 2, 3),
                {name: 16},
                f"gemm has no parameter named '{name}'\n"
                "  hint: config=tile.Config(...) says blocks and what else a device wants; "
                "its parameters are x, w, offsets, scale and causal",
            )
            for name in ("block_size", "BLOCK_M", "num_warps", "tile_k")
        ),
        (  # of what takes none, as `reference` and `facts` do
            (1, 2, 3),
            {"config": None},
            "config is not taken here, where gemm is not planned\n"
            "  hint: its parameters are x, w, offsets, scale and causal",
        ),
        (
            (1, 2, 3),
            {"confg": None},
            "gemm has no parameter named 'confg'\n"
            "  hint: did you mean config? its parameters are x, w, offsets, scale and causal",
        ),
    ],
)
def test_calls_that_do_not_fit(args, kwargs, message):
    with pytest.raises(CallError) as caught:
        bind(SIGNATURE, args, kwargs)
    assert str(caught.value) == message
    assert isinstance(caught.value, TypeError)


def test_a_kernel_without_parameters():
    def nothing(): ...

    with pytest.raises(CallError, match=r"^nothing takes 0 arguments but 1 was given$"):
        bind(signature(nothing), (1,), {})


def test_reserved_names():
    def wrong(x, config): ...

    with pytest.raises(CallError) as caught:
        signature(wrong)
    assert caught.value.what == (
        "kernel wrong has a parameter named 'config', which tilelang reserves"
    )
    assert caught.value.hint == "rename it: config= and target= choose how a kernel is compiled"
    assert caught.value.loc.caret() == "    def wrong(x, config): ...\n                 ^^^^^^"


def test_parameters_must_be_a_fixed_list():
    def wrong(x, *rest): ...

    with pytest.raises(CallError) as caught:
        signature(wrong)
    what = "kernel wrong takes *rest: its parameters must be a fixed list"
    assert caught.value.what == what
    assert caught.value.loc.caret() == "    def wrong(x, *rest): ...\n                  ^^^^"


@tile.kernel
def scaled(x, *, scale=2.0):
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t] = x[t] * scale
    return y


def test_what_only_a_keyword_gives_has_a_default():
    """Also where all that may be given by position is given."""
    x = np.ones(5, np.float32)
    assert (scaled(x) == 2).all() and (scaled(x, scale=3.0) == 3).all()
