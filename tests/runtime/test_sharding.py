"""What is split over a mesh, and the rule by which XLA splits it: no devices are needed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import tilelang as tile
import tilelang.language as hl
from examples.dense.flash_attention import flash_attention
from examples.jagged.grouped_gemm import grouped_gemm
from examples.jagged.grouped_query_attention import grouped_query_attention
from tests.derivatives import derived, parsed
from tests.transforms.test_stages import running_sum, shares
from tilelang.analysis import analyze
from tilelang.errors import CallError
from tilelang.runtime import auto_axes
from tilelang.runtime.sharding import settled, split_of
from tilelang.transforms.whole import splittable

GEMM = (np.zeros((8, 6), np.float32), np.zeros((2, 6, 4), np.float32), np.int32([0, 3, 8]))
SIZES = {"a": 2, "b": 2, "c": 3}


def split(given, made=()):
    """The loops that are split, and over what."""
    ir, facts = parsed(grouped_gemm, GEMM)
    found = settled(ir, facts, dict(given), dict(made), SIZES)
    (whole,) = found.stages
    return {"+".join(sorted(factor.axes)): names for factor, names in whole.axes}


ROWS, COLUMNS = ("x", (("a",), ())), ("w", ((), (), ("b",)))


def test_what_fits_together_is_done():
    assert split([ROWS, COLUMNS]) == {"tm": ("a",), "tn": ("b",)}
    assert split([("x", (("a", "b"), ()))]) == {"tm": ("a", "b")}


def test_the_first_of_what_contradicts_is_done():
    assert split([ROWS, ("w", ((), (), ("a",)))]) == {"tm": ("a",)}
    assert split([("x", ((), ("a",))), ("w", ((), ("b",), ()))]) == {"tk": ("a",)}
    assert split([("x", ((), ("c",))), ("w", ((), ("b",), ()))]) == {"tk": ("c",)}


def test_what_is_not_even_is_whole():
    assert split([("x", (("c",), ()))]) == {}


def test_results_split_what_arguments_leave():
    assert split([COLUMNS], [("y", (("a",), ()))]) == {"tn": ("b",), "tm": ("a",)}
    assert split([COLUMNS], [("y", (("b",), ()))]) == {"tn": ("b",)}


def test_what_no_loop_runs_along_is_refused():
    with pytest.raises(CallError) as caught:
        split([("offsets", (("a",),))])
    assert str(caught.value) == (
        "dimension 0 of offsets is sharded over mesh axis 'a', which kernel grouped_gemm cannot be "
        "split over: offsets are needed as a whole\n"
        f'  File "{grouped_gemm.__wrapped__.__code__.co_filename}", line 37\n'
        "    for g in hl.grid(G):\n"
        "    ^^^^^^^^^^^^^^^^^^^\n"
        "  hint: replicate it, jax.lax.with_sharding_constraint(offsets, NamedSharding(mesh, "
        "PartitionSpec())), "
        "or call the kernel inside "
        "jax.shard_map, which gives it one shard at a time"
    )


@tile.kernel
def added(x, ids):
    y = hl.zeros([4, x.shape[1]], dtype=hl.float32)
    for t, n in hl.tile(x.shape):
        hl.atomic_add(y, [ids[t], n], x[t, n])
    return y


def test_the_argument_of_a_derived_kernel_is_named_as_the_author_named_it():
    """No program has d_y: what it is the gradient of can be replicated, and it is, too, then."""
    _, made = derived(added, (np.zeros((8, 6), np.float32), np.zeros(8, np.int32)))
    (launch,) = made.launches
    with pytest.raises(CallError) as caught:
        settled(launch.kernel, analyze(launch.kernel), {"d_y": (("a",), ())}, {}, SIZES)
    assert str(caught.value).startswith(
        "dimension 0 of d_y is sharded over mesh axis 'a', which kernel added_d_x cannot be split "
        "over: no loop of the kernel runs along it alone\n"
    )
    assert caught.value.hint == (
        "replicate y, of which it is the gradient, jax.lax.with_sharding_constraint(y, "
        "NamedSharding(mesh, PartitionSpec())), shard dimension 1 instead, or call the kernel "
        "inside jax.shard_map, which gives it one shard at a time"
    )


@tile.kernel
def largest(x):
    y = hl.empty([x.shape[0]], dtype=hl.int32)
    for t in hl.tile(x.shape[0]):
        y[t] = x[t, :].argmax(1)
    return y


@tile.kernel
def backwards_doubled(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :] = x[x.shape[0] - 1 - t.index, :] * 2
    return y


WHOLE = "it is taken whole, by `:`", "loop over it, hl.tile(...), "
ALONE = "no loop of the kernel runs along it alone", ""


@pytest.mark.parametrize(
    ("kernel", "dim", "why", "loop"), [(largest, 1, *WHOLE), (backwards_doubled, 0, *ALONE)]
)
def test_why_a_dimension_of_no_loop_is_not_split(kernel, dim, why, loop):
    """What needs whole rows has to be written as a loop; rows in another order are of none."""
    ir, facts = parsed(kernel, (np.zeros((8, 6), np.float32),))
    with pytest.raises(CallError) as caught:
        settled(ir, facts, {"x": tuple(("a",) if n == dim else () for n in (0, 1))}, {}, SIZES)
    assert caught.value.what == (
        f"dimension {dim} of x is sharded over mesh axis 'a', which kernel {ir.name} cannot be "
        f"split over: {why}"
    )
    instead = "shard dimension 0 instead, " if kernel is largest else ""
    assert caught.value.hint == (
        "replicate it, jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec())), "
        f"{loop}{instead}or call the kernel inside jax.shard_map, which gives it one shard at a "
        "time"
    )


@tile.kernel
def numbered(x):
    """Tiles of 16 rows, which are told apart by what they begin at."""
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0], block_size=16):
        y[t, :] = x[t, :] * t.begin
    return y


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (12, "16 positions stay together, as tiles do, and it has 12"),
        (24, "16 positions stay together, as tiles do, and it has 24"),
        (48, "16 of its 48 positions stay together, and 3 is no multiple of the mesh's size"),
        (64, ""),
    ],
)
def test_rows_of_tiles_that_are_told_apart(rows, why):
    ir, facts = parsed(numbered, (np.zeros((rows, 6), np.float32),))
    asked = {"x": (("a",), ())}
    if not why:
        assert split_of(ir, facts, asked, SIZES).stages[0].axes
        return
    with pytest.raises(CallError, match=why):
        split_of(ir, facts, asked, SIZES)


def test_replicating_needs_no_mesh_around_the_program():
    mesh = jax.make_mesh((1,), ("a",), axis_types=(AxisType.Auto,))
    x = jnp.arange(12.0).reshape(4, 3)
    with pytest.raises(CallError) as caught:
        split([("offsets", (("a",),))])
    hint = caught.value.hint.split(", ", 1)[1].split(", or call")[0]
    known = {"offsets": x, "mesh": mesh, "NamedSharding": NamedSharding, "jax": jax}
    assert (eval(hint, known | {"PartitionSpec": PartitionSpec}) == x).all()


def rule(kernel, arguments, operands):
    ir, facts = parsed(kernel, arguments)
    return auto_axes.rule_of(ir, splittable(ir, facts), operands, ir.returns)


def test_the_rule_of_a_grouped_product():
    """Rows and columns go from arguments to results; groups and the contraction are summed."""
    found = rule(grouped_gemm, GEMM, ("x", "w", "offsets"))
    x, w, offsets = found.operand_mappings
    (y,) = found.result_mappings
    assert (x[0], w[2]) == (y[0], y[1])
    assert x[1] == w[1] and set(found.reduction_factors) == {w[0], x[1]}
    assert offsets[0] not in {*x, *w, *y}


def test_dimensions_that_are_not_split_have_names_of_their_own():
    """Else XLA would shard the widths of values because those of keys are.

    Values have their columns apart; scores, of which there are more than keys, no parts of widths.
    """
    heads = (np.zeros((2, 2, 32, 16), np.float32),) * 3
    found = rule(flash_attention, heads, ("q", "k", "v"))
    q, k, v = found.operand_mappings
    (out,) = found.result_mappings
    assert q[2] == out[2] and q[:2] == k[:2] == v[:2] == out[:2]
    assert k[2] == v[2] != q[2] and {*found.reduction_factors} == {k[2]}  # in stages
    assert len({q[3], k[3], v[3], out[3]}) == 3 and v[3] == out[3]


def test_what_has_no_stages_has_a_name_of_its_own():
    """What iterations meet of a sum is no sum of parts."""
    rows = np.zeros((8, 4), np.float32)
    found = rule(tile.kernel(running_sum), (rows, GEMM[2]), ("x", "offsets"))
    (x, _), (y,) = found.operand_mappings, found.result_mappings
    assert x[1] == y[1] and x[0] != y[0]


def doubled(x, offsets):
    y = hl.zeros_like(x)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t] = 2.0 * x[t]
    return y


def test_stages_agree_on_what_is_sharded():
    """The weights are read by both stages, and rows along them by one."""
    rows = np.zeros((8,), np.float32)
    ir, facts = parsed(tile.kernel(shares), (rows, rows, GEMM[2]))
    found = settled(ir, facts, {"x": (("a",),), "w": ((),), "offsets": ((),)}, {}, SIZES)
    assert [stage.ir.returns for stage in found.stages] == [("all_total",), ("y",)]
    assert found.specs == {
        "x": (("a",),), "w": (("a",),), "offsets": ((),), "all_total": ((),), "y": (("a",),),
    }  # fmt: skip


def shares_of_some(x, w, offsets, groups):
    """How many groups there are is a number on the device, read as an array of one."""
    y = hl.zeros_like(x)
    for g in hl.grid(groups[()], max_extent=offsets.shape[0] - 1):
        total = 0.0
        for t in hl.tile(offsets[g], offsets[g + 1]):
            total += w[t].sum()
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t] = x[t] * w[t] / total
    return y


def test_stages_read_numbers():
    """Random gradient 7900516: the array of one is a view, of which nothing was known."""
    rows = np.zeros((8,), np.float32)
    ir, facts = parsed(tile.kernel(shares_of_some), (rows, rows, GEMM[2], np.array(2, np.int32)))
    given = {"x": (("a",),), "w": ((),), "offsets": ((),), "groups": ()}
    found = settled(ir, facts, given, {}, SIZES)
    assert [stage.ir.returns for stage in found.stages] == [("all_total",), ("y",)]
    assert any(t.role == "view" for stage in found.stages for t in stage.ir.tensors)


def lengths(x, offsets):
    """The root of each group's sum of squares: its stages have its loops, too."""
    y = hl.zeros([offsets.shape[0] - 1], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        total = 0.0
        for t in hl.tile(offsets[g], offsets[g + 1]):
            total += (x[t] * x[t]).sum()
        y[g] = total**0.5
    return y


CONFIG = tile.Config({"t": 4})
STAGED = {("all_total",): None, ("y",): None}


@pytest.mark.parametrize(("function", "wanted"), [(lengths, STAGED), (doubled, {("y",): CONFIG})])
def test_a_config_is_of_the_loops_of_the_author(monkeypatch, function, wanted):
    """On one device of a mesh, which asks for all that several do."""
    used, kept = {}, tile.Kernel._kept

    def recorded(self, parsed, config, target):
        used[parsed.ir.returns] = config
        return kept(self, parsed, config, target)

    monkeypatch.setattr(tile.Kernel, "_kept", recorded)
    kernel = tile.kernel(function, config=CONFIG)
    x, offsets = np.arange(8, dtype=np.float32), GEMM[2]
    mesh = jax.make_mesh((1,), ("a",), axis_types=(AxisType.Explicit,))
    rows = jax.device_put(x, jax.NamedSharding(mesh, PartitionSpec("a")))
    with jax.set_mesh(mesh):
        found = jax.jit(kernel)(rows, offsets)
    np.testing.assert_allclose(found, kernel.reference(x, offsets), rtol=1e-6)
    assert used == wanted


def shares_of_columns(x, scale):
    """Every number by its column's maximum, times a number, which is read by a view."""
    y = hl.zeros_like(x)
    for c in hl.tile(x.shape[1]):
        most = hl.full([c], -1e30, dtype=hl.float32)
        for t in hl.tile(x.shape[0]):
            most = hl.maximum(most, x[t, c].amax(0))
        for t in hl.tile(x.shape[0]):
            y[t, c] = x[t, c] / most * scale[()]
    return y


def test_stages_have_views():
    """Which have no sharding of their own: it is that of what they are views of."""
    ir, facts = parsed(tile.kernel(shares_of_columns), (GEMM[0], np.array(2, np.float32)))
    assert any(t.role == "view" for t in ir.tensors)
    found = settled(ir, facts, {"x": (("a",), ()), "scale": ()}, {}, SIZES)
    assert len(found.stages) == 2
    assert found.specs["x"] == found.specs["y"] == (("a",), ())


def test_the_rule_of_heads_that_share_keys():
    """A shard of keys is one of the heads that share them, and no head alone is a shard."""
    q, k = np.zeros((8, 40, 16), np.float32), np.zeros((4, 40, 16), np.float32)
    found = rule(grouped_query_attention, (q, k, k, GEMM[2]), ("q", "k", "v", "offsets"))
    q, k, v, _ = found.operand_mappings
    (out,) = found.result_mappings
    assert k[0] == v[0] and q[0] == out[0] == (k[0], *found.need_replication_factors)
    assert list(found.factor_sizes.values()) == [2]


def test_gradients_of_what_shards_share_are_added_up():
    """In shard_map: w is one array for all, and its gradient too."""
    mesh = jax.make_mesh((1,), ("d",), axis_types=(AxisType.Auto,))
    rows, kernel = PartitionSpec("d"), tile.kernel(grouped_gemm._fn)
    x = np.random.default_rng(0).standard_normal((8, 6), np.float32)
    w = np.random.default_rng(1).standard_normal((2, 6, 4), np.float32)

    def loss(x, w, offsets):
        return (kernel(x, w, offsets) ** 2).sum()

    def gradients(x, w, offsets):
        return jax.grad(loss, (0, 1))(x, w, offsets)

    specs = {"in_specs": (rows, PartitionSpec(), PartitionSpec())}
    inside = jax.shard_map(gradients, mesh=mesh, **specs, out_specs=(rows, PartitionSpec()))
    found = jax.jit(inside)(x, w, jnp.asarray(GEMM[2]))
    for one, other in zip(found, jax.jit(gradients)(x, w, GEMM[2]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
