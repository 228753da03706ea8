"""Kernels as users call them: from every framework, with every kind of argument, and wrongly."""

from __future__ import annotations

import functools
import inspect
import subprocess
import sys
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import tilelang as tile
import tilelang.language as hl
from tilelang import api
from tilelang.runtime import lowering

ROOT = Path(__file__).resolve().parent.parent
ROWS, COLUMNS, GROUPS = 64, 128, 4
X = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
OFFSETS = np.array([0, 5, 5, 40, 60], np.int32)


def numbered(x, offsets):
    """y[r] = x[r] * (g + 1) for rows of group g; other rows are zero."""
    M, K = x.shape
    y = hl.zeros([M, K], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for tm, tk in hl.tile([offsets[g], 0], [offsets[g + 1], K], max_extent=[M, K]):
            y[tm, tk] = x[tm, tk] * (g + 1)
    return y


def scaled(x, factor=2.0):
    y = hl.empty(x.shape, dtype=x.dtype)
    for tm, tk in hl.tile([x.shape[0], x.shape[1]]):
        y[tm, tk] = x[tm, tk] * factor
    return y


def applied(x, fn):
    y = hl.empty(x.shape, dtype=x.dtype)
    for tm, tk in hl.tile([x.shape[0], x.shape[1]]):
        y[tm, tk] = fn(x[tm, tk])
    return y


def increment(x):
    for tm, tk in hl.tile([x.shape[0], x.shape[1]]):
        x[tm, tk] = x[tm, tk] + 1.0


def expected(x=X, offsets=OFFSETS):
    y = np.zeros_like(x)
    for g in range(len(offsets) - 1):
        y[offsets[g] : offsets[g + 1]] = x[offsets[g] : offsets[g + 1]] * (g + 1)
    return y


def same(result, x=X, offsets=OFFSETS):
    np.testing.assert_allclose(np.asarray(result), expected(x, offsets), rtol=1e-6)


@pytest.fixture(scope="module")
def kernel():
    return tile.kernel(numbered)


# ---------------------------------------------------------------- calling


def test_numpy(kernel):
    y = kernel(X, OFFSETS)
    assert type(y) is np.ndarray
    same(y)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_torch(kernel, dtype):
    y = kernel(torch.from_numpy(X), torch.from_numpy(OFFSETS).to(dtype))
    assert type(y) is torch.Tensor
    same(y)


def scanned(kernel, x, offsets):
    return jax.lax.scan(lambda c, _: (kernel(x, offsets), None), x, None, length=2)[0]


JAX = {
    "eager": lambda kernel: kernel,
    "jit": jax.jit,
    "inside jit": lambda kernel: jax.jit(lambda x, o: kernel(x + 0, o) + 0),
    "scan": lambda kernel: lambda x, o: scanned(kernel, x, o),
    "offsets known": lambda kernel: lambda x, o: jax.jit(lambda x: kernel(x, o))(x),
}


@pytest.mark.parametrize("place", JAX)
def test_jax(kernel, place):
    y = JAX[place](kernel)(jnp.asarray(X), jnp.asarray(OFFSETS))
    assert isinstance(y, jax.Array)
    same(y)


def test_vmap(kernel):
    xs, offsets = jnp.stack([X, 2 * X]), jnp.asarray(OFFSETS)
    ys = jax.vmap(kernel, (0, None))(xs, offsets)
    same(ys[1], 2 * X)


def test_eval_shape(kernel):
    shape = jax.eval_shape(kernel, X, OFFSETS)
    assert (shape.shape, shape.dtype) == (X.shape, jnp.float32)


def test_zero_rows():
    empty = np.zeros((0, COLUMNS), np.float32)
    kernel = tile.kernel(numbered)
    assert kernel(empty, np.zeros(5, np.int32)).shape == (0, COLUMNS)
    assert kernel(torch.from_numpy(empty), torch.zeros(5, dtype=torch.int64)).shape == (0, COLUMNS)
    assert kernel(jnp.asarray(empty), jnp.zeros(5, jnp.int32)).shape == (0, COLUMNS)


def test_zero_groups():
    same(tile.kernel(numbered)(X, np.zeros(1, np.int32)), offsets=[0])


def test_stores_to_an_argument():
    kernel = tile.kernel(increment)
    x = torch.from_numpy(X.copy())
    assert kernel(x) is None
    np.testing.assert_allclose(x.numpy(), X + 1)
    y = X.copy()
    assert kernel(y) is None
    np.testing.assert_allclose(y, X + 1)
    np.testing.assert_allclose(kernel.reference(X), X + 1)


# ---------------------------------------------------------------- specialisation


def test_other_offsets_compile_nothing():
    kernel = tile.kernel(numbered)
    rng = np.random.default_rng(1)
    for _ in range(5):
        offsets = np.sort(rng.integers(0, ROWS + 1, GROUPS + 1)).astype(np.int32)
        same(kernel(X, offsets), offsets=offsets)
    stats = kernel.stats()
    assert (stats.calls, stats.specialisations, stats.compiles) == (5, 1, 1)


def test_one_compilation_serves_every_framework():
    kernel = tile.kernel(numbered)
    kernel(X, OFFSETS)
    kernel(torch.from_numpy(X), torch.from_numpy(OFFSETS))
    kernel(jnp.asarray(X), jnp.asarray(OFFSETS))
    jax.jit(lambda x, o: kernel(x, o))(X, OFFSETS)
    kernel.source(tile.spec(X.shape, "float32"), tile.spec(OFFSETS.shape, "int32"))
    assert kernel.stats().compiles == 1


def test_a_second_call_only_looks_and_launches(monkeypatch):
    kernel = tile.kernel(numbered)
    for x, offsets in [(X, OFFSETS), (torch.from_numpy(X), torch.from_numpy(OFFSETS))]:
        kernel(x, offsets)

    def never(*args, **kwargs):
        raise AssertionError("a repeated call must not come here")

    for name in ("bind", "given_of", "frontend", "lowering", "execution"):
        monkeypatch.setattr(api, name, never)
    monkeypatch.setattr(inspect, "signature", never)
    for x, offsets in [(X, OFFSETS), (torch.from_numpy(X), torch.from_numpy(OFFSETS))]:
        same(kernel(x, offsets))


def test_static_arguments_are_keys_by_value():
    kernel = tile.kernel(scaled)
    for factor, compiles in [(2.0, 1), (3.0, 2), (2.0, 2), (2, 3), (np.float64(3.0), 4)]:
        np.testing.assert_allclose(kernel(X, factor), X * factor, rtol=1e-6)
        assert kernel.stats().compiles == compiles


def multiply_by(factor):
    return lambda v: v * factor


def test_closures_are_keys_by_content():
    kernel = tile.kernel(applied)
    for factor, compiles in [(2.0, 1), (2.0, 1), (3.0, 2), (2.0, 2)]:
        np.testing.assert_allclose(kernel(X, multiply_by(factor)), X * factor, rtol=1e-6)
        assert kernel.stats().compiles == compiles


def test_a_captured_value_that_changes():
    factor = 2.0

    @tile.kernel
    def captured(x):
        y = hl.empty(x.shape, dtype=x.dtype)
        for tm, tk in hl.tile([x.shape[0], x.shape[1]]):
            y[tm, tk] = x[tm, tk] * factor
        return y

    np.testing.assert_allclose(captured(X), X * 2, rtol=1e-6)
    factor = 5.0
    np.testing.assert_allclose(captured(X), X * 5, rtol=1e-6)
    factor = 2.0
    np.testing.assert_allclose(captured(X), X * 2, rtol=1e-6)
    assert captured.stats().compiles == 2


def test_keywords_and_defaults():
    kernel = tile.kernel(scaled)
    np.testing.assert_allclose(kernel(X), X * 2, rtol=1e-6)
    np.testing.assert_allclose(kernel(x=X, factor=2.0), X * 2, rtol=1e-6)
    assert kernel.stats().compiles == 1


def test_config_of_decorator_and_call():
    kernel = tile.kernel(config=tile.Config({"tm": 16, "tk": 128}))(numbered)
    assert kernel.lower(X, OFFSETS).config == tile.Config({"tm": 16, "tk": 128})
    other = tile.Config({"tm": 32, "tk": 128})
    assert kernel.lower(X, OFFSETS, config=other).config == other
    same(kernel(X, OFFSETS))
    same(kernel(X, OFFSETS, config=other))
    assert kernel.stats().compiles == 2


def test_threads_compile_once():
    kernel, results = tile.kernel(numbered), []
    threads = [
        threading.Thread(target=lambda: results.append(kernel(X, OFFSETS))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert kernel.stats().compiles == 1


# ---------------------------------------------------------------- looking inside

SHAPES = {
    "spec": lambda a: tile.spec(a.shape, a.dtype),
    "jax": lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype),
    "meta": lambda a: torch.from_numpy(a).to("meta"),
    "data": lambda a: a,
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_source_from_shapes(kernel, shape):
    text = kernel.source(shape(X), shape(OFFSETS))
    assert "def numbered(x: jax.Array, offsets: jax.Array" in text
    assert text == kernel.source(X, OFFSETS)
    compile(text, "source", "exec")


def test_print_source(kernel, capsys):
    kernel.print_source(X, OFFSETS)
    assert capsys.readouterr().out == kernel.source(X, OFFSETS) + "\n"


def test_lowered(kernel):
    lowered = kernel.lower(X, OFFSETS, target="tpu:v6e")
    assert lowered.target == tile.Target.of("tpu:v6e")
    assert lowered.axes["tm"].kind == "parallel"
    assert "offsets is sorted" in lowered.axes["g"].why
    assert lowered.source.text == kernel.source(X, OFFSETS, target="tpu:v6e")
    assert lowered.config == kernel.default_config(X, OFFSETS, target="tpu:v6e")
    assert [t.name for t in lowered.ir.tensors] == ["x", "offsets", "y"]


def test_explain(kernel):
    config = tile.Config({"tm": 16, "tk": 128})
    text = kernel.explain(X, OFFSETS, config=config)
    lowered = kernel.lower(X, OFFSETS, config=config)
    assert text.startswith(
        "kernel numbered(x: float32[64, 128], offsets: int32[5])\n"
        f"target cpu, {config}\n\n"
        "axes\n"
        "  g   parallel  "
    )
    for fact in lowered.axes.values():
        assert fact.why in text
    assert all(line.strip() in text for line in str(lowered.plan).splitlines())
    assert text.endswith(
        "waste\n"
        "  tm: 96 positions computed for 60 useful ones (6 tiles of 16, 38% padding)\n"
        "  tk: 128 positions computed for 128 useful ones (1 tile of 128, 0% padding)"
    )
    assert "waste\n  tm" not in kernel.explain(
        tile.spec(X.shape, "float32"), tile.spec(OFFSETS.shape, "int32"), config=config
    )


def test_reference(kernel):
    same(kernel.reference(X, OFFSETS))
    for seed, block in [(0, 8), (1, 16), (2, 128)]:
        same(kernel.reference(X, OFFSETS, seed=seed, blocks={"tm": block, "tk": 32}))
    same(kernel.reference(torch.from_numpy(X), torch.from_numpy(OFFSETS).long()))
    same(kernel.reference(jnp.asarray(X), jnp.asarray(OFFSETS)))


def test_what_a_kernel_is_called(kernel):
    assert kernel.__name__ == "numbered"
    assert kernel.__doc__ == numbered.__doc__
    assert repr(kernel).startswith("<kernel numbered(x, offsets), ")
    assert inspect.unwrap(kernel) is numbered


def test_source_needs_no_framework(tmp_path):
    text = "import tilelang.language as hl\n\n\n" + inspect.getsource(scaled)
    (tmp_path / "scaling.py").write_text(text)
    code = (
        "import sys, scaling, tilelang as tile\n"
        "text = tile.kernel(scaling.scaled).source(tile.spec((8, 128), 'float32'))\n"
        "print('def scaled' in text, {'jax', 'torch', 'triton'} & set(sys.modules))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": f"{ROOT}:{tmp_path}"},
        check=False,
    )
    assert run.stdout == "True set()\n", run.stderr


# ---------------------------------------------------------------- checks


def test_checks():
    bad = np.array([0, 5, 4, 40, 60], np.int32)
    kernel = tile.kernel(numbered)
    for x, offsets in [
        (X, bad),
        (torch.from_numpy(X), torch.from_numpy(bad)),
        (jnp.asarray(X), jnp.asarray(bad)),
    ]:
        with pytest.raises(tile.RaggedValueError) as caught:
            kernel(x, offsets)
        assert str(caught.value).startswith(
            "offsets[2] = 4 is less than offsets[1] = 5: "
            "ranges [offsets[g], offsets[g + 1]) must not decrease\n"
            f'  File "{__file__}", line '
        )
        assert "for tm, tk in hl.tile([offsets[g], 0]" in str(caught.value)
    with pytest.raises(tile.RaggedValueError):
        kernel.reference(X, bad)


def test_no_checks():
    bad = np.array([0, 5, 4, 40, 60], np.int32)
    valid = tile.kernel(checks=False)(numbered)(X, bad)
    np.testing.assert_allclose(valid[40:60], X[40:60] * 4, rtol=1e-6)
    traced = jax.jit(lambda x, o: tile.kernel(numbered)(x, o))(X, bad)
    np.testing.assert_allclose(traced[40:60], X[40:60] * 4, rtol=1e-6)


# ---------------------------------------------------------------- wrong calls

SPEC = tile.spec((ROWS, COLUMNS), "float32")
WRONG = {
    "too few": (
        lambda k: k(X),
        "numbered takes 2 arguments (x, offsets): no value for offsets",
    ),
    "too many": (
        lambda k: k(X, OFFSETS, 3),
        "numbered takes 2 arguments (x, offsets) but 3 were given",
    ),
    "unknown keyword": (
        lambda k: k(X, offset=OFFSETS),
        "numbered has no parameter named 'offset'\n"
        "  hint: did you mean offsets? its parameters are x and offsets",
    ),
    "given twice": (lambda k: k(X, OFFSETS, x=X), "numbered got two values for x"),
    "shapes alone": (
        lambda k: k(SPEC, OFFSETS),
        "x is a shape without data, and calling numbered needs the data\n"
        "  hint: numbered.source, .lower and .explain take shapes",
    ),
    "torch and JAX": (
        lambda k: k(torch.from_numpy(X), jnp.asarray(OFFSETS)),
        "x is a torch tensor and offsets is a JAX array: numbered takes one or the other\n"
        "  hint: NumPy arrays go with both",
    ),
    "float64": (
        lambda k: k(X.astype(np.float64), OFFSETS),
        "x is float64, which no kernel computes in\n  hint: pass x.astype(np.float32)",
    ),
    "float64 torch": (
        lambda k: k(torch.from_numpy(X).double(), torch.from_numpy(OFFSETS)),
        "x is float64, which no kernel computes in\n  hint: pass x.float()",
    ),
    "complex": (
        lambda k: k(X.astype(np.complex64), OFFSETS),
        "x has dtype complex64, which no kernel takes\n"
        "  hint: keep the real and the imaginary part in two float32 tensors",
    ),
    "a list": (
        lambda k: k([1.0, 2.0], OFFSETS),
        "x is a list, which is neither a tensor nor a value that cannot change\n"
        "  hint: pass a tuple, or an array if the kernel loads from it",
    ),
    "a dict": (
        lambda k: k({"a": 1}, OFFSETS),
        "x is a dict, which is neither a tensor nor a value that cannot change\n"
        "  hint: pass its values one by one, or a tuple",
    ),
    "a list in a tuple": (
        lambda k: k(X, (1, [2])),
        "offsets is a list, which is neither a tensor nor a value that cannot change\n"
        "  hint: pass a tuple, or an array if the kernel loads from it",
    ),
    "offsets that do not fit": (
        lambda k: k(X, OFFSETS.astype(np.int64) + 2**31),
        "offsets[0] = 2147483648 does not fit in int32\n  hint: kernels compute indices in 32 bits",
    ),
    "a config that is none": (
        lambda k: k(X, OFFSETS, config={"tm": 16}),
        "config={'tm': 16} is not a config\n"
        '  hint: write tile.Config({"tm": 128}, ...) or Config.from_json(text)',
    ),
    "an unknown target": (
        lambda k: k(X, OFFSETS, target="tpu:v9"),
        "unknown target 'tpu:v9'\n  hint: use one of 'cpu', 'tpu:v4', 'tpu:v5e', 'tpu:v5p', "
        "'tpu:v6e', 'tpu:7x', 'cuda:sm80', 'cuda:sm89', 'cuda:sm90', 'cuda:sm100'",
    ),
    "the reference of shapes": (
        lambda k: k.reference(SPEC, OFFSETS),
        "x is a shape without data: the reference needs the data",
    ),
    "compiled code on the CPU": (
        lambda k: tile.kernel(interpret=False)(numbered)(X, OFFSETS),
        "numbered was made with interpret=False, and it would run on the CPU\n"
        "  hint: leave interpret out: the CPU interprets, the TPU runs compiled code",
    ),
    "no function": (
        lambda k: tile.kernel(3),
        "3 is not a Python function\n  hint: decorate a function: @tile.kernel above a def; "
        "options have names: @tile.kernel(config=...)",
    ),
    "a kernel again": (
        lambda k: tile.kernel(k),
        "numbered is a kernel already\n"
        "  hint: tile.kernel(numbered.__wrapped__, ...) makes another one, with other options",
    ),
    "another decorator below": (
        lambda k: tile.kernel(staticmethod(numbered)),
        "numbered is wrapped by another decorator\n"
        "  hint: @tile.kernel goes directly above the def, others above it",
    ),
    "a wrapper of a function": (
        lambda k: tile.kernel(functools.wraps(numbered)(lambda *args: numbered(*args))),
        "numbered is wrapped by another decorator\n"
        "  hint: @tile.kernel goes directly above the def, others above it",
    ),
    "a lambda": (lambda k: tile.kernel(lambda x: x), "a lambda is no kernel\n  hint: write a def"),
    "checks that are no flag": (
        lambda k: tile.kernel(checks="no")(numbered),
        "checks='no' is neither True nor False",
    ),
    "recompiles that are no number": (
        lambda k: tile.kernel(max_recompiles="few")(numbered),
        "max_recompiles='few' is no number of times\n  hint: give 0 or more",
    ),
    "a block of no loop in the reference": (
        lambda k: k.reference(X, OFFSETS, blocks={"tq": 8}),
        "reference has a block for 'tq', but no loop of numbered has that name\n"
        "  hint: loops: g, tk, tm",
    ),
    "a block of nothing in the reference": (
        lambda k: k.reference(X, OFFSETS, blocks={"tm": 0}),
        "the block of tm is 0\n  hint: it is an int, 1 or more",
    ),
    "a vjp that is no function": (
        lambda k: k.vjp(3),
        "3 is no function\n"
        "  hint: decorate one: @my_kernel.vjp above def backward(saved, *cotangents)",
    ),
    "a spec of float64": (
        lambda k: k.source(tile.spec((4, 4), "float64"), OFFSETS),
        'spec is float64, which no kernel computes in\n  hint: write "float32"',
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_calls(kernel, case):
    call, message = WRONG[case]
    with pytest.raises(tile.TileError) as caught:
        call(kernel)
    assert str(caught.value) == message


OTHERS = {
    "grad": "jax.grad(loss) and loss.backward() go through a kernel; k.grad_source(...) prints it",
    "jit": "a kernel k is called in what JAX and torch transform: jax.jit, torch.compile, vmap",
    "tune": "tile.tune(k, [arguments, ...]) finds a config and keeps it",
    "config": "k(..., config=tile.Config({...})) takes one; k.lower(...).config is what was chosen",
    "run": "k(...) compiles what it has not met, and runs it; it chooses its own grid",
    "ptx": "k.source(...) is what is printed, k.compile(..., target=...) what compilers make of it",
    "cuda": "a kernel runs where its arguments are",
    "explian": "did you mean explain?",
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_a_kernel_has_not(kernel, name):
    with pytest.raises(AttributeError) as caught:
        getattr(kernel, name)
    assert str(caught.value) == f"a kernel has no attribute {name!r}; {OTHERS[name]}"
    assert not hasattr(kernel, name)


DEVICE = "config=tile.Config(...) says blocks and what else a device wants"
OPTIONS = {
    "block_size": DEVICE,
    "num_warps": DEVICE,
    "autotune_effort": OTHERS["tune"],
    "configs": OTHERS["tune"],
    "static_shapes": 'rows="bucket" lets calls with some more or fewer rows share one program',
    "taget": "did you mean target?",
    "debug": "its options are config, target, interpret, checks, rows, max_recompiles",
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_other_decorators(name):
    with pytest.raises(tile.CallError) as caught:
        tile.kernel(**{name: 16})
    assert str(caught.value) == f"tile.kernel has no option {name!r}\n  hint: {OPTIONS[name]}"


def test_a_kernel_with_a_grid(kernel):
    with pytest.raises(tile.CallError) as caught:
        kernel[(1, 2)](X, OFFSETS)
    name, names = kernel.signature.kernel, ", ".join(kernel.signature.names)
    assert caught.value.what == f"kernel {name} takes no grid"
    assert caught.value.hint == f"call it: {name}({names}); it chooses its own grid"


@pytest.mark.parametrize("before", [None, X.copy()], ids=["at first", "after a right call"])
def test_a_store_to_a_jax_array(before):
    kernel = tile.kernel(increment)
    if before is not None:
        kernel(before)
    with pytest.raises(tile.CallError) as caught:
        kernel(jnp.asarray(X))
    assert caught.value.what == "x is stored to, and JAX arrays cannot be changed"
    assert "x[tm, tk] = x[tm, tk] + 1.0\n" in str(caught.value)
    assert caught.value.hint == "store to a new output, hl.empty_like(x), and return it"


@pytest.mark.parametrize("x", [X[0], X[None]], ids=["rank 1", "rank 3"])
def test_a_tensor_of_another_rank(kernel, x):
    with pytest.raises(tile.TileError) as caught:
        kernel(x, OFFSETS)
    assert "M, K = x.shape" in str(caught.value)


def test_a_wrong_call_leaves_the_kernel_usable(kernel):
    with pytest.raises(tile.CallError):
        kernel(X)
    same(kernel(X, OFFSETS))


def test_a_failure_inside_of_the_compiler(monkeypatch):
    def broken(*args):
        raise KeyError("tm")

    monkeypatch.setattr(lowering.pallas_search, "plan", broken)
    with pytest.raises(tile.TileError) as caught:
        tile.kernel(numbered).source(X, OFFSETS, config=tile.Config({"tm": 16, "tk": 128}))
    assert caught.value.what == "kernel numbered cannot be compiled: KeyError inside of tilelang"
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.loc.filename == __file__
