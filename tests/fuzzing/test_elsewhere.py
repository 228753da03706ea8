"""Random kernels for more rows, on devices and after passes: what is right, and a bug in each."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from tests import partitions
from tests.fuzzing.compose import compose
from tests.fuzzing.elsewhere import try_bucket, try_mesh, try_passes, try_symbols
from tests.fuzzing.gradients import try_gradient, wide
from tests.fuzzing.program import (
    Axis,
    Let,
    Load,
    Loop,
    Number,
    Pick,
    Program,
    Reduce,
    Ref,
    Store,
    Tensor,
    Update,
)
from tests.fuzzing.text import lengths_by_shapes, source
from tests.fuzzing.trial import OK
from tests.planted.passes import _turned_stay
from tilelang.passes import turn_late
from tilelang.runtime import buckets, execution, symbolic
from tilelang.transforms import local, partition

# y[g] = the sum of x[offsets[g] : offsets[g + 1]]
SUMS = Program(
    axes=(Axis("g", "grid", 4), Axis("tm", "tile", 12, "offsets", "g")),
    tensors=(
        Tensor("offsets", (5,), "int32", "offsets", limit=12),
        Tensor("x", (12,), "float32", "input"),
        Tensor("y", (4,), "float32", "output", 0.0),
    ),
    body=(
        Loop("g", (
            Let("acc", (), Number(0.0)),
            Loop("tm", (
                Update("acc", "sum", Reduce("sum", "tm", Load("x", (Pick("tm"),)))),
            )),
            Store("y", (Pick("g"),), Ref("acc")),
        )),
    ),
)  # fmt: skip
SEEDS = range(4)


def test_lengths_are_said_by_shapes():
    assert "max_extent=x.shape[0])" in source(SUMS, lengths_by_shapes(SUMS))


def test_a_right_kernel_passes():
    assert try_bucket(SUMS, SEEDS) == try_symbols(SUMS, SEEDS) == try_mesh(SUMS, SEEDS) == OK
    assert try_passes(SUMS, SEEDS) == OK


def test_what_is_padded_wrongly_is_seen(monkeypatch):
    """The program for more rows gets other values than these."""

    def wrong(run, *shapes):
        return fitted(lambda *a: run(*(-x if x.dtype == np.float32 else x for x in a)), *shapes)

    fitted = buckets.fitted
    monkeypatch.setattr(execution, "fitted", wrong)
    assert try_bucket(SUMS, SEEDS).kind == "wrong"


def test_what_a_program_for_any_number_of_rows_does_wrongly_is_seen(monkeypatch):
    """The rows of a call lie behind those that it is padded with."""

    def behind(value, found):
        made = padded(value, found)
        missing = 0 if made is value else made.shape[0] - value.shape[0]
        return jnp.roll(made, missing, 0)

    padded = symbolic._padded
    monkeypatch.setattr(symbolic, "_padded", behind)
    assert try_symbols(SUMS, SEEDS).kind == "wrong"


def test_what_is_split_wrongly_is_seen(monkeypatch):
    """Each device takes the offsets of all rows for those of its own."""

    def unclipped(ir, facts):
        return [replace(f, clipped=frozenset()) for f in partition.factors(ir, facts)]

    monkeypatch.setattr(partitions, "factors", unclipped)
    monkeypatch.setattr(local._OwnRange, "limit", lambda self, bound, op, most: bound)
    assert "['tm'] in 2" in try_mesh(SUMS, SEEDS).detail


def without(body, name):
    """The statements but for what is stored there."""
    kept = [s for s in body if getattr(s, "tensor", "") != name]
    return tuple(replace(s, body=without(s.body, name)) if isinstance(s, Loop) else s for s in kept)


def test_what_a_pass_breaks_is_seen(monkeypatch):
    drawn = compose(2205, sized=False).program
    tensors = tuple(t for t in drawn.tensors if t.name != "z1")  # which goes by the tiles
    program = wide(replace(drawn, tensors=tensors, body=without(drawn.body, "z1")))
    monkeypatch.setattr(turn_late, "rewrite_body", _turned_stay)
    assert "turn_late, " in try_gradient(program, [2205000]).detail
