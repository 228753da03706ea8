"""The kernels of examples/jagged of which every group is a range of rows."""

from __future__ import annotations

import functools
from typing import Any

import jax

from examples.jagged import gdpa_dense_kv, grouped_gemm, jagged_attention, jagged_mean, jagged_sum
from tests import baselines
from tests.subjects.subject import Arrays, Ragged, Subject, jagged

try:  # spelled in torch
    from examples.jagged import jagged_dense_bmm
except ImportError:
    HAS_TORCH = False
else:
    HAS_TORCH = True


def _with_bias(seed: int, rows: int, groups: int) -> Arrays:
    x, w = jagged(jagged_dense_bmm.make_inputs, d=136, n=200)(seed, rows, groups)
    return x, w, jagged_dense_bmm.make_bias(seed, groups, 200)


_ATTENTION: dict[str, Any] = {
    "kernel": jagged_attention.jagged_attention,
    "oracle": jagged_attention.oracle,
    "baseline": baselines.jagged_attention,
    "make": jagged(jagged_attention.make_inputs, rows_name="length"),
    "blocks": {"tq": 16, "tk": 32},
    "ragged": Ragged({0: 1, 1: 1, 2: 1}, (), 1),
    "within": ("h",),
}
_GDPA: dict[str, Any] = {
    "make": jagged(gdpa_dense_kv.make_inputs, rows_name="length"),
    "cases": gdpa_dense_kv.CASES,
    "blocks": {"tq": 16, "ts": 16},
    "ragged": Ragged({0: 1}, (1, 2), 1),
    "within": ("h",),
}


def _attention(name: str, causal: bool) -> Subject:
    cases = tuple((*case[:-1], causal) for case in jagged_attention.CASES)
    return Subject(name, cases=cases, static=(causal,), **_ATTENTION)


SUBJECTS: tuple[Subject, ...] = (
    Subject(
        name="grouped_gemm",
        kernel=grouped_gemm.grouped_gemm,
        oracle=grouped_gemm.oracle,
        baseline=baselines.grouped_gemm,
        make=jagged(grouped_gemm.make_inputs, k=136, n=200),
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
        make=jagged(jagged_sum.make_inputs, features=200),
        cases=jagged_sum.CASES,
        blocks={"tf": 128, "tm": 16},
        groups={"g": 2},
        ragged=Ragged({0: 0}, (), None),
        dtypes=("float32", "bfloat16", "int32"),
    ),
    Subject(
        name="jagged_mean",
        kernel=jagged_mean.jagged_mean,
        oracle=jagged_mean.oracle,
        baseline=baselines.jagged_mean,
        make=jagged(jagged_mean.make_inputs, features=200),
        cases=jagged_mean.CASES,
        blocks={"tf": 128, "tm": 16},
        groups={"g": 2},
        ragged=Ragged({0: 0}, (), None),
    ),
)

if HAS_TORCH:
    SUBJECTS += (
        Subject(
            name="jagged_dense_bmm",
            kernel=jagged_dense_bmm.jagged_dense_bmm,
            oracle=jagged_dense_bmm.oracle,
            baseline=baselines.grouped_gemm,
            make=jagged(jagged_dense_bmm.make_inputs, d=136, n=200),
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
