"""python -m tests.runtime.mesh [auto | TOPOLOGY [auto]] NAME...: kernels on four fake devices.

Run in a process of its own, because JAX makes its devices once.  A line of JSON for each way to
shard has the largest error against one device, the collectives of the compiled program, and how the
result is sharded; or the refusal.  Mesh axes are explicit; "auto" makes them Auto.  With a topology
of TPUs, as v5e:2x2, programs for its chips are compiled, and not run.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from functools import partial

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["TPU_SKIP_MDS_QUERY"] = "1"
os.environ["TPU_ACCELERATOR_TYPE"] = "v5litepod-4"
os.environ["TPU_WORKER_HOSTNAMES"] = "localhost"
os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # tests beside this one compile, too

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import tilelang as tile
import tilelang.language as hl
from examples.dense.matmul import matmul
from examples.jagged.grouped_gemm import grouped_gemm
from examples.jagged.grouped_query_attention import grouped_query_attention
from examples.jagged.jagged_dense_add import jagged_dense_add
from examples.jagged.jagged_layer_norm import jagged_layer_norm
from examples.jagged.jagged_mean import jagged_mean
from examples.jagged.jagged_softmax import jagged_softmax
from examples.jagged.jagged_sum import jagged_sum
from examples.jagged.varlen_attention import varlen_attention
from tests import xla
from tests.transforms.test_partition import heads_of_columns, rows_of_sequences
from tests.transforms.test_stages import running_sum, softmax_in_pieces
from tests.transforms.test_tile_sums import products
from tests.transforms.wholes import (
    whole_argmax,
    whole_norm,
    whole_product,
    whole_softmax,
    whole_sums,
)

try:  # spelled in torch
    from examples.dense.batched_matmul import batched_matmul
    from examples.dense.flash_attention import flash_attention
except ImportError:
    batched_matmul = flash_attention = None

EXPLICIT = AxisType.Explicit
RNG = np.random.default_rng(0)
OFFSETS = np.array([0, 37, 37, 60, 96], np.int32)
NAMES = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
COLLECTIVE = re.compile(rf" ({NAMES})(?:-start)?\(")


def normal(*shape):
    return RNG.standard_normal(shape, np.float32)


X, W = normal(100, 32), normal(4, 32, 32)
GEMM = (X, W, OFFSETS)
HEADS = tuple(normal(2, 4, 64, 32) for _ in range(3))
SHARED = (normal(8, 96, 32), normal(4, 96, 32), normal(4, 96, 32), OFFSETS)
# Groups without rows, groups on several devices, and a device without rows.
HOSTILE = np.array([0, 0, 37, 37, 37, 60, 61, 61], np.int32)
BOXES = (X, normal(7, 20, 32), HOSTILE)
SEQUENCES = (normal(96, 4, 32), normal(96, 2, 32), normal(96, 2, 32), HOSTILE)
VARLEN = (normal(96, 8, 32), normal(96, 2, 32), normal(96, 2, 32), OFFSETS)
ONE, TWO = {"d": 4}, {"a": 2, "b": 2}


@tile.kernel
def beside_its_argument(x):
    """Twice the rows, turned, and the argument itself, as it came and turned."""
    y = hl.zeros_like(x)
    for t in hl.tile(x.shape[0]):
        y[t, :] = x[t, :] * 2
    return y.T, x, x.T


def gradients(x, w, offsets):
    """Of both factors, and of a loss that is no sum of rows alone."""
    return jax.grad(lambda x, w: (grouped_gemm(x, w, offsets) ** 2).sum(), (0, 1))(x, w)


def gradients_of_heads(q, k, v, offsets):
    """Of queries, and of keys and values that several of their heads share."""

    def loss(q, k, v):
        return (grouped_query_attention(q, k, v, offsets) ** 2).sum()

    return jax.grad(loss, (0, 1, 2))(q, k, v)


def gradients_of_sequences(q, k, v, offsets):
    """Of rows of queries, and of whole keys and values."""

    def loss(q, k, v):
        return (varlen_attention(q, k, v, offsets) ** 2).sum()

    return jax.grad(loss, (0, 1, 2))(q, k, v)


def gradients_of_boxes(x, dense, offsets):
    return jax.grad(lambda x, d: (jagged_dense_add(x, d, offsets) ** 2).sum(), (0, 1))(x, dense)


def gradients_of_groups(x, offsets):
    return jax.grad(lambda x: (jagged_softmax(x, offsets) ** 2).sum())(x)


def gradients_of_columns(x, w):
    """Of columns that the kernel sees as heads, and of what two of them share."""
    kernel = tile.kernel(heads_of_columns)

    return jax.grad(lambda x, w: (kernel(x, w) ** 2).sum(), (0, 1))(x, w)


def gradients_of_a_product(x, w, offsets):
    return jax.grad(lambda x, w: (whole_product(x, w, offsets) ** 2).sum(), (0, 1))(x, w)


def gradients_of_a_norm(x, scale):
    return jax.grad(lambda x, s: (whole_norm(x, s) ** 2).sum(), (0, 1))(x, scale)


# name -> kernel, arguments, mesh, how each is sharded
CASES = {
    "columns": (grouped_gemm, GEMM, ONE, (P(), P(None, None, "d"), P())),
    "rows": (grouped_gemm, GEMM, ONE, (P("d"), P(), P())),
    "groups": (grouped_gemm, GEMM, ONE, (P(), P("d"), P())),
    "contraction": (grouped_gemm, GEMM, ONE, (P(None, "d"), P(), P())),
    "rows and columns": (grouped_gemm, GEMM, TWO, (P("a"), P(None, None, "b"), P())),
    "rows and groups": (grouped_gemm, GEMM, TWO, (P("a"), P("b"), P())),
    "groups and contraction": (grouped_gemm, GEMM, TWO, (P(), P("a", "b"), P())),
    "rows over two axes": (grouped_gemm, GEMM, TWO, (P(("a", "b")), P(), P())),
    "bfloat16 contraction": (
        grouped_gemm,
        (X.astype(jnp.bfloat16), W.astype(jnp.bfloat16), OFFSETS),
        ONE,
        (P(None, "d"), P(None, "d"), P()),
    ),
    "heads": (flash_attention, HEADS, ONE, (P(None, "d"),) * 3),
    "sequences and queries": (flash_attention, HEADS, TWO, (P("a", None, "b"), P(), P("a"))),
    "results of groups": (jagged_sum, (X, OFFSETS), ONE, (P(None, "d"), P())),
    "heads that share keys": (grouped_query_attention, SHARED, ONE, (P("d"), P("d"), P("d"), P())),
    "keys that heads share": (varlen_attention, VARLEN, TWO, (P(), P(None, "a"), P(), P())),
    "heads of one key": (varlen_attention, VARLEN, ONE, (P(None, "d"), P(), P(), P())),
    "queries of sequences": (varlen_attention, SEQUENCES, ONE, (P("d"), P(), P(), P())),
    "keys of sequences": (varlen_attention, SEQUENCES, ONE, (P(), P("d"), P(), P())),
    "rows of boxes": (jagged_dense_add, BOXES, ONE, (P("d"), P(), P())),
    "rows of groups": (jagged_softmax, (X, OFFSETS), ONE, (P("d"), P())),
    "gradients of rows of groups": (gradients_of_groups, (X, OFFSETS), ONE, (P("d"), P())),
    "a norm of groups": (jagged_layer_norm, (X, X[0], X[1], OFFSETS), ONE, (P("d"), *(P(),) * 3)),
    "features and rows of groups": (jagged_softmax, (X, OFFSETS), TWO, (P("a", "b"), P())),
    "columns of heads": (
        tile.kernel(heads_of_columns),
        (normal(8, 32), normal(4, 4)),
        ONE,
        (P(None, "d"), P()),
    ),
    "gradients of columns of heads": (
        gradients_of_columns,
        (normal(8, 32), normal(4, 4)),
        TWO,
        (P("b", "a"), P()),
    ),
    "sequences in one array": (
        tile.kernel(rows_of_sequences),
        (normal(4, 25, 6), normal(7, 6), HOSTILE),
        ONE,
        (P("d"), P(), P()),
    ),
    "pieces of groups": (
        tile.kernel(softmax_in_pieces),
        (normal(8, 12, 32), HOSTILE),
        ONE,
        (P("d"), P()),
    ),
    "columns of three heads": (
        tile.kernel(heads_of_columns),
        (normal(8, 24), normal(3, 4)),
        ONE,
        (P(None, "d"), P()),
    ),
    "states": (tile.kernel(running_sum), (X, OFFSETS), ONE, (P("d"), P())),
    "gradients of sequences": (gradients_of_sequences, SEQUENCES, ONE, (P("d"), P(), P(), P())),
    "gradients of boxes": (gradients_of_boxes, BOXES, ONE, (P("d"), P(), P())),
    "a sum of rows": (jagged_sum, (X, OFFSETS), ONE, (P("d"), P())),
    "sums of tiles": (tile.kernel(products), (X, X[:, :8], OFFSETS), ONE, (P("d"), P("d"), P())),
    "a mean of rows": (jagged_mean, (X, OFFSETS), ONE, (P("d"), P())),
    "whole contraction": (whole_product, GEMM, ONE, (P(None, "d"), P(None, "d"), P())),
    "whole columns": (whole_product, GEMM, ONE, (P(), P(None, None, "d"), P())),
    "whole columns and rows": (whole_product, GEMM, TWO, (P("a", "b"), P(), P())),
    "whole sums": (whole_sums, (X, OFFSETS), ONE, (P(None, "d"), P())),
    "whole norms": (whole_norm, (X, X[0]), ONE, (P(None, "d"), P("d"))),
    "whole softmax": (whole_softmax, (X,), ONE, (P(None, "d"),)),
    "whole argmax": (whole_argmax, (X,), ONE, (P(None, "d"),)),
    "gradients of whole products": (
        gradients_of_a_product,
        GEMM,
        ONE,
        (P(None, "d"), P(None, "d"), P()),
    ),
    "gradients of whole norms": (gradients_of_a_norm, (X, X[0]), ONE, (P(None, "d"), P("d"))),
    "keys": (flash_attention, HEADS, ONE, (P(), P(None, None, "d"), P())),
    "an argument that is returned": (beside_its_argument, (X,), ONE, (P("d"),)),
    "nothing": (grouped_gemm, GEMM, ONE, (P(), P(), P())),
    "offsets": (grouped_gemm, (X, normal(4, 32, 32), OFFSETS), {"d": 1}, (P(), P(), P("d"))),
    "twice": (grouped_gemm, GEMM, TWO, (P("a"), P(None, None, "a"), P())),
    "elements of a batch": (
        jax.vmap(grouped_gemm, (0, None, None)),
        (normal(4, 100, 32), W, OFFSETS),
        TWO,
        (P("a"), P(), P()),
    ),
    "gradients of rows": (gradients, GEMM, ONE, (P("d"), P(), P())),
    "gradients of columns": (gradients, GEMM, ONE, (P(), P(None, None, "d"), P())),
    "gradients of groups": (gradients, GEMM, ONE, (P(), P("d"), P())),
    "gradients of heads that share keys": (
        gradients_of_heads,
        SHARED,
        ONE,
        (P("d"), P("d"), P("d"), P()),
    ),
    "dense": (matmul, (normal(64, 48), normal(48, 40)), TWO, (P("a", "b"), P())),
    "batches": (batched_matmul, (normal(4, 8, 16), normal(4, 16, 8)), ONE, (P("d"), P())),
}


def outcome(kernel, arguments, axes, specs, kind=EXPLICIT) -> dict:
    mesh = jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(kind,) * len(axes))
    want = jax.tree.leaves(kernel(*map(jnp.asarray, arguments)))
    with jax.set_mesh(mesh):
        given = [
            jax.device_put(a, NamedSharding(mesh, spec))
            for a, spec in zip(arguments, specs, strict=True)
        ]
        try:
            compiled = jax.jit(kernel).lower(*given).compile()
        except tile.CallError as error:
            return {"refused": str(error)}
        result, eager = compiled(*given), kernel(*given)
    unset = jax.jit(kernel)(*given)  # the arguments know their mesh, where no caller set one
    found = list(map(np.asarray, jax.tree.leaves(result)))
    for other in (eager, unset):
        assert all(map(np.array_equal, map(np.asarray, jax.tree.leaves(other)), found))
    return {"error": max(map(distance, found, want)), **read(compiled)}


def distance(found, want) -> float:
    """The largest error, of the largest element."""
    found, want = np.asarray(found, np.float64), np.asarray(want, np.float64)
    return float(np.abs(found - want).max() / np.abs(want).max())


def compiled_for_tpu(topology, kernel, arguments, axes, specs, kind=EXPLICIT) -> dict:
    """What libtpu makes of it for all chips; further ones than the axes split do the same."""
    chips = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    sizes, names = (*axes.values(), -1), (*axes, "further")
    mesh = Mesh(np.array(chips).reshape(sizes), names, axis_types=(kind,) * len(names))
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        given = [
            jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, spec))
            for a, spec in zip(arguments, specs, strict=True)
        ]
        try:
            compiled = jax.jit(kernel).lower(*given).compile()
        except tile.CallError as error:
            return {"refused": str(error)}
    calls = str(compiled.as_text()).count('custom_call_target="tpu_custom_call"')
    return {"kernels": calls, **read(compiled)}


def read(compiled) -> dict:
    """The collectives of a compiled program, and how its result is sharded."""
    found = Counter(COLLECTIVE.findall(str(compiled.as_text())))
    out = ", ".join(spec(s, a.ndim) for s, a in zip(*map(jax.tree.leaves, made(compiled))))
    return {"collectives": dict(found), "out": out}


def made(compiled) -> tuple:
    return compiled.output_shardings, compiled.out_info


def spec(sharding, rank) -> str:
    """What it is split over, each dimension named: P() and P(None) are the same."""
    entries = tuple(sharding.spec)
    return str(P(*entries, *(None,) * (rank - len(entries))))


if __name__ == "__main__":
    names = sys.argv[1:]
    topology = names.pop(0) if names and ":" in names[0] else ""
    kind = AxisType.Auto if names[:1] == ["auto"] else EXPLICIT
    names = names[1:] if kind == AxisType.Auto else names
    if not topology:  # a TPU's compiler would obey, too
        xla.compile_cheaply()
    ask = partial(partial(compiled_for_tpu, topology) if topology else outcome, kind=kind)
    for name in names or CASES:
        if CASES[name][0] is None:
            continue
        print(json.dumps({"name": name, **ask(*CASES[name])}), flush=True)
