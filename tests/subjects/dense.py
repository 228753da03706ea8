"""The kernels of examples/dense."""

from __future__ import annotations

import functools

from examples.dense import long_sum, matmul, softmax
from tests import baselines
from tests.subjects.subject import Arrays, Subject

try:  # spelled in torch
    from examples.dense import batched_matmul, flash_attention, layer_norm, vector_add
except ImportError:
    HAS_TORCH = False
else:
    HAS_TORCH = True


def _matmul_with_bias(seed: int) -> Arrays:
    return *_MATMUL(seed), matmul.make_bias(seed, 200)


_MATMUL = functools.partial(matmul.make_inputs, m=50, k=136, n=200)
SUBJECTS: tuple[Subject, ...] = (
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
    SUBJECTS += (
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
