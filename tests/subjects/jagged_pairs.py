"""Kernels of examples/jagged with two tensors of offsets, two results, or segments by number."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from examples.jagged import (
    gdpa_jagged_kv,
    jagged_dense_add,
    jagged_to_padded,
    padded_to_jagged,
    segment_reduction,
    segment_sum,
)
from tests.baselines import groups_of, product
from tests.ragged import second_rows
from tests.subjects.subject import Arrays, Ragged, Subject, jagged

Array = jax.Array


# ---------------------------------------------------------------- the same in XLA


def gdpa(q: Array, k: Array, v: Array, q_offsets: Array, kv_offsets: Array) -> Array:
    group, inside = groups_of(q_offsets, q.shape[1])
    other, owned = groups_of(kv_offsets, k.shape[1])
    seen = (group[:, None] == other[None, :]) & inside[:, None] & owned[None, :]
    scores = product("hqd,hkd->hqk", q, k) * q.shape[-1] ** -0.5
    weights = jnp.where(seen, jax.nn.gelu(scores), 0)
    return product("hqk,hkd->hqd", weights.astype(v.dtype), v).astype(v.dtype)


def dense_add(x: Array, dense: Array, offsets: Array) -> Array:
    _, inside = groups_of(offsets, len(x))
    return jnp.where(inside[:, None], x + to_jagged(dense, offsets, len(x)), 0)


def to_padded(x: Array, offsets: Array, longest: int) -> Array:
    place = offsets[:-1, None] + jnp.arange(longest)
    inside = place < offsets[1:, None]
    rows = jnp.pad(x, ((0, 1), (0, 0)))  # there may be none
    return jnp.where(inside[..., None], rows[place.clip(0, len(x))], 0)


def to_jagged(d: Array, offsets: Array, rows: int) -> Array:
    group, inside = groups_of(offsets, rows)
    place = jnp.arange(rows) - offsets[group]
    inside &= place < d.shape[1]
    return jnp.where(inside[:, None], d[group, place.clip(0, d.shape[1] - 1)], 0)


def reduction(x: Array, offsets: Array) -> tuple[Array, Array]:
    group, inside = groups_of(offsets, len(x))
    rows, count = x.astype(jnp.float32), len(offsets) - 1
    sums = jax.ops.segment_sum(jnp.where(inside[:, None], rows, 0), group, count)
    peaks = jax.ops.segment_max(jnp.where(inside[:, None], rows, -jnp.inf), group, count)
    filled = (jnp.diff(offsets) > 0)[:, None]
    return sums.astype(x.dtype), jnp.where(filled, peaks, 0).astype(x.dtype)


def sums_by_number(x: Array, ids: Array, segments: int) -> Array:
    return jax.ops.segment_sum(x.astype(jnp.float32), ids, segments)


# ---------------------------------------------------------------- arguments


def _queries_and_keys(seed: int, rows: int, groups: int) -> Arrays:
    empty: Any = (0,) * (groups + 1)
    keys = second_rows(rows)
    return gdpa_jagged_kv.make_inputs(seed, empty, empty, queries=rows, keys=keys)[:3]


def _boxes(**sizes: int) -> Any:
    def arrays(seed: int, rows: int, groups: int) -> Arrays:
        return padded_to_jagged.make_inputs(seed, (0,) * (groups + 1), **sizes)[:1]

    return arrays


def _segments(count: int, **sizes: int) -> Any:
    def arrays(seed: int) -> tuple[np.ndarray, ...]:
        return segment_sum.make_inputs(seed, segments=count, **sizes)[:2]

    return arrays


# ---------------------------------------------------------------- subjects

SUBJECTS: tuple[Subject, ...] = (
    Subject(
        name="gdpa_jagged_kv",
        kernel=gdpa_jagged_kv.gdpa_jagged_kv,
        oracle=gdpa_jagged_kv.oracle,
        baseline=gdpa,
        make=_queries_and_keys,
        cases=gdpa_jagged_kv.CASES,
        blocks={"tq": 16, "tk": 32},
        ragged=Ragged({0: 1, 1: 1, 2: 1}, (), 1, second=(1, 2)),
        within=("h",),
    ),
    Subject(
        name="jagged_dense_add",
        kernel=jagged_dense_add.jagged_dense_add,
        oracle=jagged_dense_add.oracle,
        baseline=dense_add,
        make=jagged(jagged_dense_add.make_inputs, longest=30, features=200),
        cases=jagged_dense_add.CASES,
        blocks={"tm": 16},
        ragged=Ragged({0: 0}, (1,), 0),
    ),
    Subject(
        name="jagged_to_padded",
        kernel=jagged_to_padded.jagged_to_padded,
        oracle=jagged_to_padded.oracle,
        baseline=to_padded,
        make=jagged(jagged_to_padded.make_inputs, features=200),
        cases=jagged_to_padded.CASES,
        blocks={"t": 16},
        groups={"b": 2},
        ragged=Ragged({0: 0}, (), None),
        static=(45,),
    ),
    Subject(
        name="padded_to_jagged",
        kernel=padded_to_jagged.padded_to_jagged,
        oracle=padded_to_jagged.oracle,
        baseline=to_jagged,
        make=_boxes(longest=45, features=200),
        cases=padded_to_jagged.CASES,
        blocks={"t": 16},
        groups={"b": 2},
        ragged=Ragged({}, (0,), 0, total=150),
        static=(150,),
    ),
    Subject(
        name="segment_reduction",
        kernel=segment_reduction.segment_reduction,
        oracle=segment_reduction.oracle,
        baseline=reduction,
        make=jagged(segment_reduction.make_inputs, features=200),
        cases=segment_reduction.CASES,
        blocks={"tf": 128, "tm": 16},
        ragged=Ragged({0: 0}, (), (None, None)),
        results=("", ""),
    ),
    Subject(
        name="segment_sum",
        kernel=segment_sum.segment_sum,
        oracle=segment_sum.oracle,
        baseline=sums_by_number,
        make=_segments(7, rows=90, features=200),
        cases=segment_sum.CASES,
        blocks={"tm": 16},
        static=(7,),
        results=("float32",),
    ),
)
