"""The kernels of the examples as tests see them: how to call one, and what it must give.

Tests, goldens and the fuzzer all run over SUBJECTS, so that a new example is one entry here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

import tilelang as tile
from examples.dense import long_sum, matmul, softmax
from examples.jagged import gdpa_dense_kv, grouped_gemm, jagged_attention, jagged_mean, jagged_sum
from tests import baselines
from tests.numerics import as_dtype

try:  # spelled in torch
    from examples.dense import batched_matmul, flash_attention, layer_norm, vector_add
    from examples.jagged import jagged_dense_bmm
except ImportError:
    HAS_TORCH = False
else:
    HAS_TORCH = True

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Ragged:
    """How offsets cut the arguments.

    Arguments are (*arrays, offsets, *static).  `rows` says along which dimension an array has the
    rows that are cut (argument -> dimension), `groups` which arrays have one entry per group, and
    `out` along which dimension the result has rows; None if it has one entry per group.
    """

    rows: Mapping[int, int]
    groups: tuple[int, ...]
    out: int | None


@dataclass(frozen=True)
class Subject:
    """A kernel with what it must give.

    make      small arguments in float32 without offsets and statics: make(seed, rows, groups) for
              ragged kernels, make(seed) for dense ones
    cases     shapes for compile checks, as the example lists them
    blocks    block sizes so small that the small arguments have several tiles, partial ones too
    dtypes    what the kernel is tested in
    """

    name: str
    kernel: tile.Kernel
    oracle: Callable[..., np.ndarray]
    baseline: Callable[..., jax.Array]
    make: Callable[..., Arrays]
    cases: tuple[tuple[Any, ...], ...]
    blocks: Mapping[str, int]
    ragged: Ragged | None = None
    static: tuple[Any, ...] = ()
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    jitted: Callable[..., jax.Array] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        places = tuple(range(self._tensors, self._tensors + len(self.static)))
        object.__setattr__(self, "jitted", jax.jit(self.baseline, static_argnums=places))

    @property
    def _tensors(self) -> int:
        """How many arguments are tensors: those that the cases do not pass as static values."""
        return len(self.cases[0]) - len(self.static)

    @property
    def small(self) -> tile.Config:
        """The config with small blocks."""
        return tile.Config(self.blocks)

    def arrays(self, dtype: str, *, seed: int = 0, rows: int = 0, groups: int = 0) -> Arrays:
        """Small arguments in a dtype, without offsets and statics."""
        made = self.make(seed) if self.ragged is None else self.make(seed, rows, groups)
        return tuple(as_dtype(a, dtype) for a in made)

    def expected(self, *arguments: Any) -> tuple[np.ndarray, np.ndarray]:
        """In float64, and as XLA computes it; the arguments are complete."""
        with np.errstate(all="ignore"):
            exact = self.oracle(*arguments)
        return exact, np.asarray(self.jitted(*arguments))

    def __str__(self) -> str:
        return self.name


def _jagged(make: Callable[..., Arrays], **sizes: Any) -> Callable[[int, int, int], Arrays]:
    """An example's make_inputs without its offsets; `rows` may have another name."""
    rows_name = sizes.pop("rows_name", "rows")

    def arrays(seed: int, rows: int, groups: int) -> Arrays:
        return make(seed, (0,) * (groups + 1), **{rows_name: rows}, **sizes)[:-1]

    return arrays


def _with_bias(seed: int, rows: int, groups: int) -> Arrays:
    x, w = _jagged(jagged_dense_bmm.make_inputs, d=136, n=200)(seed, rows, groups)
    return x, w, jagged_dense_bmm.make_bias(seed, groups, 200)


def _matmul_with_bias(seed: int) -> Arrays:
    return *_MATMUL(seed), matmul.make_bias(seed, 200)


_MATMUL = functools.partial(matmul.make_inputs, m=50, k=136, n=200)
_ATTENTION: dict[str, Any] = {
    "kernel": jagged_attention.jagged_attention,
    "oracle": jagged_attention.oracle,
    "baseline": baselines.jagged_attention,
    "make": _jagged(jagged_attention.make_inputs, rows_name="length"),
    "blocks": {"tq": 16, "tk": 32},
    "ragged": Ragged({0: 1, 1: 1, 2: 1}, (), 1),
}
_GDPA: dict[str, Any] = {
    "make": _jagged(gdpa_dense_kv.make_inputs, rows_name="length"),
    "cases": gdpa_dense_kv.CASES,
    "blocks": {"tq": 16, "ts": 16},
    "ragged": Ragged({0: 1}, (1, 2), 1),
}


def _attention(name: str, causal: bool) -> Subject:
    cases = tuple((*case[:-1], causal) for case in jagged_attention.CASES)
    return Subject(name, cases=cases, static=(causal,), **_ATTENTION)


JAGGED: tuple[Subject, ...] = (
    Subject(
        name="grouped_gemm",
        kernel=grouped_gemm.grouped_gemm,
        oracle=grouped_gemm.oracle,
        baseline=baselines.grouped_gemm,
        make=_jagged(grouped_gemm.make_inputs, k=136, n=200),
        cases=grouped_gemm.CASES,
        blocks={"tm": 16, "tn": 128, "tk": 128},
        ragged=Ragged({0: 0}, (1,), 0),
    ),
    _attention("jagged_attention", False),
    _attention("jagged_attention_causal", True),
    Subject(
        name="gdpa_dense_kv",
        kernel=gdpa_dense_kv.gelu_attention,
        oracle=gdpa_dense_kv.oracle,
        baseline=baselines.gdpa(jax.nn.gelu),
        **_GDPA,
    ),
    Subject(
        name="gdpa_dense_kv_silu",
        kernel=gdpa_dense_kv.silu_attention,
        oracle=functools.partial(gdpa_dense_kv.oracle, activation=gdpa_dense_kv.silu),
        baseline=baselines.gdpa(jax.nn.silu),
        **_GDPA,
    ),
    Subject(
        name="jagged_sum",
        kernel=jagged_sum.jagged_sum,
        oracle=jagged_sum.oracle,
        baseline=baselines.jagged_sum,
        make=_jagged(jagged_sum.make_inputs, features=200),
        cases=jagged_sum.CASES,
        blocks={"tf": 128, "tm": 16},
        ragged=Ragged({0: 0}, (), None),
        dtypes=("float32", "bfloat16", "int32"),
    ),
    Subject(
        name="jagged_mean",
        kernel=jagged_mean.jagged_mean,
        oracle=jagged_mean.oracle,
        baseline=baselines.jagged_mean,
        make=_jagged(jagged_mean.make_inputs, features=200),
        cases=jagged_mean.CASES,
        blocks={"tf": 128, "tm": 16},
        ragged=Ragged({0: 0}, (), None),
    ),
)

DENSE: tuple[Subject, ...] = (
    Subject(
        name="softmax",
        kernel=softmax.softmax,
        oracle=softmax.oracle,
        baseline=baselines.softmax,
        make=functools.partial(softmax.make_inputs, rows=50, columns=200),
        cases=softmax.CASES,
        blocks={"tm": 16},
    ),
    Subject(
        name="matmul",
        kernel=matmul.matmul,
        oracle=matmul.oracle,
        baseline=baselines.matmul,
        make=_MATMUL,
        cases=matmul.CASES,
        blocks={"tm": 16, "tn": 128, "tk": 128},
    ),
    Subject(
        name="matmul_bias_relu",
        kernel=matmul.matmul_bias_relu,
        oracle=functools.partial(matmul.oracle_leaky, slope=0),
        baseline=baselines.matmul_bias(0),
        make=_matmul_with_bias,
        cases=matmul.BIAS_CASES,
        blocks={"tm": 16, "tn": 128, "tk": 128},
    ),
    Subject(
        name="matmul_bias_leaky_relu",
        kernel=matmul.matmul_bias_leaky_relu,
        oracle=matmul.oracle_leaky,
        baseline=baselines.matmul_bias(0.1),
        make=_matmul_with_bias,
        cases=matmul.BIAS_CASES,
        blocks={"tm": 16, "tn": 128, "tk": 128},
    ),
    Subject(
        name="long_sum",
        kernel=long_sum.long_sum,
        oracle=long_sum.oracle,
        baseline=baselines.long_sum,
        make=functools.partial(long_sum.make_inputs, rows=20, columns=3000),
        cases=long_sum.CASES,
        blocks={"tm": 16, "tn": 1024},
    ),
)

if HAS_TORCH:
    JAGGED += (
        Subject(
            name="jagged_dense_bmm",
            kernel=jagged_dense_bmm.jagged_dense_bmm,
            oracle=jagged_dense_bmm.oracle,
            baseline=baselines.grouped_gemm,
            make=_jagged(jagged_dense_bmm.make_inputs, d=136, n=200),
            cases=jagged_dense_bmm.CASES,
            blocks={"tm": 16, "tn": 128, "tk": 128},
            ragged=Ragged({0: 0}, (1,), 0),
        ),
        Subject(
            name="jagged_dense_bmm_bias",
            kernel=jagged_dense_bmm.jagged_dense_bmm_bias,
            oracle=jagged_dense_bmm.oracle_bias,
            baseline=baselines.grouped_gemm_bias,
            make=_with_bias,
            cases=jagged_dense_bmm.BIAS_CASES,
            blocks={"tm": 16, "tn": 128, "tk": 128},
            ragged=Ragged({0: 0}, (1, 2), 0),
        ),
    )
    DENSE += (
        Subject(
            name="vector_add",
            kernel=vector_add.vector_add,
            oracle=vector_add.oracle,
            baseline=lambda x, y: x + y,
            make=functools.partial(vector_add.make_inputs, length=3000),
            cases=vector_add.CASES,
            blocks={"ti": 1024},
            dtypes=("float32", "bfloat16", "int32"),
        ),
        Subject(
            name="batched_matmul",
            kernel=batched_matmul.batched_matmul,
            oracle=batched_matmul.oracle,
            baseline=baselines.batched_matmul,
            make=functools.partial(batched_matmul.make_inputs, batch=5, m=50, k=136, n=200),
            cases=batched_matmul.CASES,
            blocks={"tb": 2, "tm": 16, "tn": 128, "tk": 128},
        ),
        Subject(
            name="layer_norm",
            kernel=layer_norm.layer_norm,
            oracle=layer_norm.oracle,
            baseline=baselines.layer_norm,
            make=functools.partial(layer_norm.make_inputs, rows=50, columns=200),
            cases=layer_norm.CASES,
            blocks={"tm": 16},
        ),
        Subject(
            name="layer_norm_long",
            kernel=layer_norm.layer_norm_long,
            oracle=layer_norm.oracle,
            baseline=baselines.layer_norm,
            make=functools.partial(layer_norm.make_inputs, rows=50, columns=200),
            cases=layer_norm.CASES,
            blocks={"tm": 16, "tn": 128},
        ),
        *(
            Subject(
                name=name,
                kernel=flash_attention.flash_attention,
                oracle=flash_attention.oracle,
                baseline=baselines.flash_attention,
                make=functools.partial(flash_attention.make_inputs, length=90),
                cases=tuple((*case[:-1], causal) for case in flash_attention.CASES),
                blocks={"tq": 16, "tk": 32},
                static=(causal,),
            )
            for name, causal in (("flash_attention", False), ("flash_attention_causal", True))
        ),
    )

SUBJECTS = (*JAGGED, *DENSE)
