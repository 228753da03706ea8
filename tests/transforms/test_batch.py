"""batched: the kernel of many elements is the kernel of one with one more axis around it."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.frameworks import NEEDS_TORCH, from_jax, to_torch, torch
from tests.passes.becomes import loops
from tests.subjects import SUBJECTS
from tests.tiers import HALF, share
from tests.transforms.batches import subsets, tensors, unlike
from tilelang.errors import CallError
from tilelang.ir.verify import verify
from tilelang.transforms.batch import batched

X = np.arange(24, dtype=np.float32).reshape(3, 8)


def parsed(fn, *shapes):
    specs = [tile.spec(shape, dtype) for shape, dtype in shapes]
    return tile.kernel(fn).lower(*specs).ir


def becomes(ir, names, text):
    assert loops(verify(batched(ir, names, 3))) == text


def scaled(x, w, offsets):
    """y[r] = x[r] * w[g] for the rows of group g."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(w.shape[0]):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            y[t] = x[t] * w[g]
    return y


SCALED = (((8,), "float32"), ((2,), "float32"), ((3,), "int32"))


def test_ranges_read_the_offsets_of_their_element():
    becomes(
        parsed(scaled, *SCALED),
        ["x", "offsets"],
        "for batch in grid(3):\n"
        "    for g in grid(2):\n"
        "        for t in tile(offsets[batch, g], offsets[batch, g + 1], max_extent=8):\n"
        "            y[batch, t] = x[batch, t] * w[g]\n",
    )


def test_shared_arguments_stay():
    becomes(
        parsed(scaled, *SCALED),
        ["w"],
        "for batch in grid(3):\n"
        "    for g in grid(2):\n"
        "        for t in tile(offsets[g], offsets[g + 1], max_extent=8):\n"
        "            y[batch, t] = x[t] * w[batch, g]\n",
    )


def test_a_batch_of_batches():
    ir = batched(parsed(scaled, *SCALED), ["x"], 4)
    becomes(
        ir,
        ["offsets"],
        "for batch_1 in grid(3):\n"
        "    for batch in grid(4):\n"
        "        for g in grid(2):\n"
        "            for t in tile(offsets[batch_1, g], offsets[batch_1, g + 1], max_extent=8):\n"
        "                y[batch_1, batch, t] = x[batch, t] * w[g]\n",
    )
    assert ir.tensor("y").shape == (4, 8)


def launched_twice(x, batch):
    """Two launches, the second of which reads a view of what the first wrote; a picked row."""
    n, m = x.shape
    sums = hl.zeros([n], dtype=hl.float32)
    y = hl.zeros([m, n], dtype=hl.float32)
    turned = x.permute(1, 0)
    for t in hl.tile(n):
        sums[t] = x[t, :].sum(1)
    whole = sums.reshape(1, n)
    for t in hl.tile(n):
        y[:, t] = turned[:, t] + whole[0, t][None, :] + x[batch[0], 0]
    return y, sums


def test_launches_views_and_names():
    ir = verify(batched(parsed(launched_twice, ((4, 8), "float32"), ((1,), "int32")), ["x"], 3))
    assert loops(ir) == (
        "for batch_1 in grid(3):\n"
        "    for t in tile(4):\n"
        "        sums[batch_1, t] = sum(x[batch_1, t, 0:8], axis=1)\n"
        "\n"
        "for batch_2 in grid(3):\n"
        "    for t_1 in tile(4):\n"
        "        y[batch_2, 0:8, t_1] = turned[batch_2, 0:8, t_1] + "
        "expand_dims(whole[batch_2, 0, t_1], axis=0) + x[batch_2, batch[0], 0]\n"
    )
    shapes = {t.name: (t.shape, t.view and t.view.arg) for t in ir.tensors}
    assert shapes["whole"] == ((3, 1, 4), (3, 1, 4)) and shapes["turned"] == ((3, 8, 4), (0, 2, 1))
    assert shapes["batch"] == ((1,), None)


def kept(x, keep):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        hl.store(y, [t], x[t], mask=keep[t] > 0)
    return y


def test_the_mask_of_stored_lanes():
    becomes(
        parsed(kept, ((8,), "float32"), ((8,), "int32")),
        ["keep"],
        "for batch in grid(3):\n"
        "    for t in tile(8):\n"
        "        y[batch, t] = x[t] where keep[batch, t] > 0\n",
    )


def picked(x, rows, which):
    y = hl.zeros([rows.shape[0], x.shape[1]], dtype=x.dtype)
    for t in hl.tile(rows.shape[0]):
        y[t, :] = x[rows[t], :] + x[rows[which[0]], :][None, :]
    return y


def test_a_picked_row():
    shapes = ((4, 8), "float32"), ((5,), "int32"), ((1,), "int32")
    becomes(
        parsed(picked, *shapes),
        ["x", "rows", "which"],
        "for batch in grid(3):\n"
        "    for t in tile(5):\n"
        "        x_rows: float32[t, 8] = x[batch, rows(rows[batch, t]), 0:8]\n"
        "        y[batch, t, 0:8] = x_rows + expand_dims("
        "x[batch, rows[batch, which[batch, 0]], 0:8], axis=0)\n",
    )


def incremented(x, w):
    for t in hl.tile(x.shape[0]):
        x[t] = x[t] + w[t]


def test_a_shared_argument_is_not_stored_to():
    kernel = tile.kernel(incremented)
    with pytest.raises(CallError) as caught:
        kernel.batched("w")(X[0].copy(), X)
    assert str(caught.value) == (
        "incremented stores to x, which all elements of the batch share\n"
        "  hint: store to a new output and return it, or give each element its x"
    )
    x = X.copy()
    kernel.batched("x", "w")(x, X)
    np.testing.assert_array_equal(x, X + X)


# ------------------------------------------------------------ every example


@pytest.mark.parametrize("subject", share(SUBJECTS, 4, 2, "thorough"))
def test_the_meaning_of_every_example(subject):
    """In NumPy, in any order of the parallel loops: what the kernel of one element gives."""

    def one(*arguments):
        return subject.kernel.reference(*arguments, *subject.static, blocks=subject.blocks)

    for names in subsets(subject):
        whole = functools.partial(
            subject.kernel.batched(*names).reference, seed=1, blocks=subject.blocks
        )
        found = unlike(subject, names, lambda *a, run=whole: run(*a, *subject.static), one, 2)
        assert found == []


@pytest.mark.parametrize("subject", share(SUBJECTS, 6, rest=HALF))
def test_every_example_is_one_launch(subject):
    """On a TPU and a GPU, with the config of one element, and elements run in any order."""
    names = tensors(subject)
    for target in ("tpu:v6e", "cuda:sm90"):
        one = subject.kernel.lower(*subject.cases[0], target=target)
        larger = [
            tile.spec((3, *spec.shape), spec.dtype) if name in names else spec
            for name, spec in zip(subject.kernel.signature.names, subject.cases[0])
        ]
        whole = subject.kernel.batched(*names).lower(*larger, target=target)
        groups = [axis.name for axis in one.ir.axes if axis.kind == "grid"]
        assert whole.config == one.config.without(groups)
        assert len(whole.plan.launches) == len(one.plan.launches)
        new = set(whole.axes) - set(one.axes)
        assert new and {whole.axes[axis].kind for axis in new} == {"parallel"}


def one_by_one(subject):
    def call(*arguments):
        return from_jax(subject.kernel, (*arguments, *subject.static), config=subject.small)

    return call


def vmapped(subject, names):
    def call(*arguments):
        return subject.kernel(*arguments, *subject.static, config=subject.small)

    dims = [0 if name in names else None for name in tensors(subject)]
    run = jax.jit(jax.vmap(call, dims))
    return lambda *arguments: from_jax(run, arguments)


@pytest.mark.parametrize("subject", share(SUBJECTS, 14, 5, HALF))
def test_vmap_of_every_example(subject):
    names = tensors(subject)
    assert unlike(subject, names, vmapped(subject, names), one_by_one(subject)) == []


@pytest.mark.slow
@pytest.mark.parametrize("subject", share(SUBJECTS, 4, rest="thorough"))
def test_vmap_of_some_arguments(subject):
    for names in subsets(subject)[1:]:
        assert unlike(subject, names, vmapped(subject, names), one_by_one(subject)) == []


@pytest.mark.skipif(torch is None, reason=NEEDS_TORCH)
@pytest.mark.parametrize("subject", share(SUBJECTS, 28, 9, rest="thorough"))
def test_torch_vmap_of_every_example(subject):
    names = tensors(subject)

    def call(*arguments):
        return subject.kernel(*arguments, *subject.static, config=subject.small)

    def whole(*arguments):
        results = torch.func.vmap(call)(*map(to_torch, arguments))
        return jax.tree.map(lambda r: r.numpy(), results)

    assert unlike(subject, names, whole, one_by_one(subject)) == []
