"""Compiling with libtpu: what comes back, and how refusals and deaths of the compiler read.

Evidence: libtpu, ahead of time; no TPU is used, and nothing is run.
"""

from __future__ import annotations

import dataclasses
import importlib.util

import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import by_hand, double, first_line, lowered, needs_libtpu
from tilelang.aot import Worker, compile_lowered


@pytest.fixture(scope="module")
def worker():
    with Worker() as started:
        yield started


@needs_libtpu
def test_a_good_kernel(worker):
    found = compile_lowered(lowered(), worker=worker)
    assert found.target.name == "tpu:v5e"
    assert found.copies == () and found.warnings == () and found.schedule is None
    assert found.memory.temporaries == 0 < found.memory.code < 10**6
    assert found.memory.vmem == lowered().plan.launches[0].memory.vmem
    assert 0 < found.seconds < 60
    assert found.source == lowered().source.text
    assert len(found.serialize()) > 1000
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.seconds = 0


@needs_libtpu
@pytest.mark.parametrize("target", ["tpu:v4", "tpu:v5p", "tpu:v6e", "tpu:7x"])
def test_every_generation(worker, target):
    assert compile_lowered(lowered(target=target), worker=worker).target.name == target


@tile.kernel
def counted(x, ids):
    """As many ones as there are ids, of which nothing is read."""
    y = hl.zeros([x.shape[0]], dtype=hl.float32)
    for t in hl.tile(ids.shape[0]):
        hl.atomic_add(y, [0], (1.0 + hl.zeros([t], dtype=hl.float32)).sum())
    return y


@needs_libtpu
def test_arguments_of_which_nothing_is_read(worker):
    """XLA drops them, and with them what they say of the device."""
    given = tile.spec((8, 128), "float32"), tile.spec((40,), "int32")
    found = compile_lowered(counted.lower(*given, target="tpu:v5e"), worker=worker)
    assert found.memory.code and found.target.name == "tpu:v5e"


@tile.kernel
def recut(x, before: hl.constexpr):
    """Matrices of 128 rows as such of 96, before the loop or in it."""
    y = hl.empty([x.shape[0], 96, 128], dtype=x.dtype)
    v = x.reshape(x.shape[0], 96, 128)
    for i in hl.grid(x.shape[0]):
        y[i, :, :] = v[i, :, :] if before else x[i, :, :].reshape(96, 128)
    return y


@needs_libtpu
def test_the_words_for_shapes_that_registers_cannot_follow_help(worker):
    given = tile.spec((2, 128, 96), "float32")
    with pytest.raises(tile.CompileError, match=r"before the loops, as in v = x.reshape"):
        compile_lowered(recut.lower(given, False, target="tpu:v5e"), worker=worker)
    assert compile_lowered(recut.lower(given, True, target="tpu:v5e"), worker=worker).memory.code


@needs_libtpu
def test_bundles_are_counted_when_asked_for():
    found = double.compile(tile.spec((512, 128), "float32"), target="tpu:v6e", schedule=True)
    assert found.schedule is not None
    assert [k.ours for k in found.schedule.kernels] == [True]
    assert 20 < found.schedule.bundles < 2000
    assert found.schedule.around == 0


@needs_libtpu
def test_copies_around_the_kernel(worker):
    module = by_hand("y_ref[...] = value * 2", "float32")
    text = module.source.text.replace(")(x)", ")(jnp.pad(x, ((0, 0), (0, 128)))[:, 64:192])")
    padded = dataclasses.replace(module, source=dataclasses.replace(module.source, text=text))
    assert compile_lowered(module, worker=worker).copies == ()
    assert compile_lowered(padded, worker=worker).copies != ()


SAME = "y_ref[...] = value + value"
REFUSED = [
    (SAME, "int8", "8-bit integers can be stored", 1),
    ("y_ref[...] = value % value", "bfloat16", "the chip has no remf in bfloat16", None),
    ("y_ref[...] = jnp.cumsum(value, 0)", "float32", "cumsum does not exist inside", None),
    ("y_ref[...] = jnp.dot(value, value)", "bfloat16", "a product must be summed in 32 bits", 1),
    (
        "y_ref[...] = x_ref[pl.ds(pl.program_id(0) * 3, 128), :]",
        "bfloat16",
        "a slice begins or ends inside of a register tile",
        1,
    ),
]


@needs_libtpu
@pytest.mark.parametrize(("body", "dtype", "what", "line"), REFUSED)
def test_refusals_in_plain_words(worker, body, dtype, what, line):
    with pytest.raises(tile.CompileError) as caught:
        compile_lowered(by_hand(body, dtype), worker=worker)
    error = caught.value
    assert error.what.startswith(f"double for tpu:v5e does not compile: {what}")
    assert error.hint and error.raw
    assert error.loc is not None and error.loc.filename == __file__.replace(
        "test_compile", "written"
    )
    if line is not None:
        assert error.loc.line == first_line() + line


@needs_libtpu
def test_blocks_that_are_too_large_or_ragged(worker):
    with pytest.raises(tile.CompileError, match=r"do not fit into vector memory: [\d,]+ bytes"):
        compile_lowered(by_hand(SAME, "float32", "(131072, 128)", 4 * 131072), worker=worker)
    with pytest.raises(tile.CompileError, match="does not fill whole register tiles"):
        compile_lowered(by_hand(SAME, "float32", "(4, 128)"), worker=worker)


@needs_libtpu
def test_a_compiler_that_aborts():
    iota = "y_ref[...] = jax.lax.broadcasted_iota(jnp.int16, (128, 128), 0)"
    with Worker() as own:
        with pytest.raises(tile.CompileError) as caught:
            compile_lowered(by_hand(iota, "int16"), worker=own)
        assert not own.alive
    assert str(caught.value).splitlines()[0] == (
        "double for tpu:v5e does not compile: the compiler aborted its process (SIGABRT): "
        "the chip has no Add of 8- or 16-bit integers"
    )
    assert "kVectorAddS16" in caught.value.raw


def test_no_libtpu(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "libtpu" else find(name)
    )
    with pytest.raises(tile.CompileError) as caught:
        double.compile(tile.spec((512, 128), "float32"), target="tpu:v6e")
    assert str(caught.value) == (
        "compiling for tpu:v6e needs libtpu, which is not installed\n"
        "  hint: pip install 'raggedtile[tpu]'"
    )


def test_targets_that_are_no_tpu():
    with pytest.raises(tile.CallError, match="cpu has no ahead-of-time compiler"):
        double.compile(tile.spec((512, 128), "float32"), target="cpu")
