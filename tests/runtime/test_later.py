"""Later calls: written functions, found by a key, that must not be taken for other calls."""

from __future__ import annotations

import contextlib
import linecache
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

import tilelang as tile
import tilelang.language as hl
from examples.jagged.grouped_gemm import grouped_gemm, make_inputs
from tests.planted.later import PLANTED
from tests.runtime.entered import entered
from tilelang.reads import MISSING, Global, Member
from tilelang.runtime import entries, later, tensors, torch_ops
from tilelang.runtime.written import Flat, function, listed, local


class Array:
    """Has what is read of JAX's arrays, of which a process has one device."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, where: str) -> None:
        self.aval, self.platform = SimpleNamespace(shape=shape, dtype=dtype), lambda: where


Array.__module__ = "jax"
X = np.zeros((4, 2), np.float32)
T = torch.from_numpy(X)
J = Array((4, 2), X.dtype, "cpu")
# Each field of each home -> a value, and another one that differs in that field alone.
CHANGES: dict[tuple[str, str], tuple[Any, Any]] = {
    ("numpy", "{0}.shape"): (X, X.reshape(2, 4)),
    ("numpy", "{0}.dtype"): (X, X.astype(np.int32)),
    ("torch", "{0}.shape"): (T, T.reshape(2, 4)),
    ("torch", "{0}.dtype"): (T, T.to(torch.float16)),
    ("torch", "{0}.device"): (T, T.to("meta")),
    ("jax", "{0}.aval.shape"): (J, Array((2, 4), X.dtype, "cpu")),
    ("jax", "{0}.aval.dtype"): (J, Array((4, 2), np.dtype(np.int32), "cpu")),
    ("jax", "{0}.platform()"): (J, Array((4, 2), X.dtype, "gpu")),
    ("traced", "{0}.shape"): (X, X.reshape(2, 4)),
    ("traced", "{0}.dtype"): (X, X.astype(np.int32)),
    ("shape", "_shape({0})"): (tile.spec((4, 2), "float32"), tile.spec((4, 2), "int32")),
}


def test_every_field_has_a_change():
    every = {(home, field) for home, fields in tensors.FIELDS.items() for field in fields}
    assert every == set(CHANGES)


def keys(kind: type) -> list[Callable[..., Any]]:
    """What finds calls with a value of that type: of an entry, and of arguments alone."""
    entry = entries.entry_for("it", ["x"], (kind,), lambda: "", *[lambda *_: None] * 2)
    return [lambda x: entry.key((x,), None, None), entries.key_of((kind,))]


@pytest.mark.parametrize("change", CHANGES, ids=" ".join)
def test_a_field_that_changes_is_another_key(change, monkeypatch):
    one, other = CHANGES[change]
    home, _ = change
    if home == "traced":
        monkeypatch.setattr(entries, "home_of", lambda _: home)
        entries.key_of.cache_clear()
    for key in keys(type(one)):
        assert key(one) == key(one)
        assert key(one) != key(other)
    entries.key_of.cache_clear()


@pytest.mark.parametrize("change", CHANGES, ids=" ".join)
def test_a_field_that_changes_finds_no_later_call(change, monkeypatch):
    one, other = CHANGES[change]
    monkeypatch.setattr(entries, "home_of", lambda _: change[0])
    asked: list[Any] = []
    full = lambda values, *_: asked.append(values[0])  # noqa: E731
    entry = entries.entry_for("it", ["x"], (type(one),), lambda: "", full, full)
    entry.later[entry.key((one,), None, None)] = lambda x: "later"
    assert entry.call((one,), None, None) == "later"
    entry.call((other,), None, None)
    assert asked == [other]


def called(kernel: Any, *values: Any, **how: Any) -> bool:
    """Whether a call went in full, even if it was refused there."""

    def call() -> None:
        with contextlib.suppress(Exception):
            kernel(*values, **how)

    return any(name.endswith("Kernel._in_full") for name in entered(call))


def warm() -> tuple[Any, tuple[Any, ...]]:
    """A kernel of its own, and torch tensors with which it was called."""
    kernel = tile.kernel(grouped_gemm.__wrapped__)
    given = tuple(torch.from_numpy(np.array(a)) for a in make_inputs())
    kernel(*given)
    return kernel, given


def test_the_second_call_is_a_later_one():
    kernel = tile.kernel(grouped_gemm.__wrapped__)
    given = tuple(torch.from_numpy(np.array(a)) for a in make_inputs())
    assert called(kernel, *given)
    assert not called(kernel, *given)


def test_what_was_chosen_is_part_of_what_is_found(tmp_path):
    kernel, given = warm()
    assert not called(kernel, *given)
    assert called(kernel, *given, config=tile.Config(blocks={"tm": 8}))
    assert called(kernel, *given, target="cpu")
    lock = tmp_path / "tilelang.lock"
    lock.write_text('{"format": 1, "about": "", "entries": []}')
    try:
        tile.use(lock)
        assert called(kernel, *given)
    finally:
        tile.use(None)
    kernel(*given)
    assert not called(kernel, *given)


def test_types_that_differ_are_told_apart():
    kernel, (x, w, offsets) = warm()
    plain = kernel(x, w, offsets)
    weight = torch.nn.Parameter(w, requires_grad=False)
    assert called(kernel, x, weight, offsets)
    assert torch.equal(kernel(x, weight, offsets), plain)
    with pytest.raises(tile.TileError, match="masked"):
        numpy = [np.asarray(t) for t in (x, w, offsets)]
        for _ in range(3):
            kernel(*numpy)
        kernel(np.ma.masked_array(numpy[0], numpy[0] > 0), *numpy[1:])


def test_calls_of_different_types_by_turns_are_found():
    kernel, torches = warm()
    arrays = tuple(map(jnp.asarray, make_inputs()))
    for _ in range(3):
        kernel(*arrays)
        kernel(*torches)
    for _ in range(3):
        assert not called(kernel, *arrays)
        assert not called(kernel, *torches)


def in_mode(call: Callable[[], Any]) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        call()


def in_transform(call: Callable[[], Any]) -> None:
    torch.func.vmap(lambda _: (call(), torch.zeros(()))[1])(torch.zeros(2))


def in_forward(call: Callable[[], Any]) -> None:
    with forward_ad.dual_level():
        call()


def in_trace(call: Callable[[], Any]) -> None:
    torch.jit.trace(lambda x: (call(), x + 1)[1], torch.zeros(2))


STATES = {
    "_tracing()": in_trace,
    "_modes()": in_mode,
    "_transforms()": in_transform,
    "_forward._current_level >= 0": in_forward,
}


def test_every_state_of_torch_has_a_case():
    assert set(STATES) == set(torch_ops.STATE)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("state", STATES)
def test_what_torch_does_is_asked_in_every_call(state):
    kernel, given = warm()
    full: list[bool] = []
    STATES[state](lambda: full.append(called(kernel, *given)))
    assert full[:1] == [True]
    assert not called(kernel, *given)


def test_a_gradient_is_asked_for_in_every_call():
    kernel, (x, w, offsets) = warm()
    wanted = w.clone().requires_grad_()
    assert kernel(x, wanted, offsets).requires_grad
    with torch.no_grad():
        assert not called(kernel, x, wanted, offsets)
    assert not called(kernel, x, w, offsets)


FACTOR: Any = 2.0


def by_factor(x: Any) -> Any:
    y = hl.empty(x.shape, x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t] = x[t] * FACTOR
    return y


@pytest.mark.parametrize("again", [2.0, float("2.00"), 3.0, 2, np.array(2.0)], ids=repr)
def test_what_was_read_is_read_again(monkeypatch, again):
    times, x = tile.kernel(by_factor), np.ones(16, np.float32)
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    for _ in range(3):
        assert times(x)[0] == 2.0
    assert not called(times, x)
    monkeypatch.setitem(globals(), "FACTOR", again)
    assert called(times, x) == (type(again) is not float or again != 2.0)
    assert times(x)[0] == again
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    assert times(x)[0] == 2.0


def test_a_function_whose_code_changes_is_read_again():
    def first(x: Any) -> Any:
        y = hl.empty(x.shape, x.dtype)
        for t in hl.tile(x.shape[0]):
            y[t] = x[t] + 1
        return y

    def second(x: Any) -> Any:
        y = hl.empty(x.shape, x.dtype)
        for t in hl.tile(x.shape[0]):
            y[t] = x[t] + 5
        return y

    kernel, x = tile.kernel(first), np.zeros(16, np.float32)
    for _ in range(3):
        assert kernel(x)[0] == 1
    first.__code__ = second.__code__
    assert called(kernel, x)


def here() -> None: ...


@pytest.mark.parametrize("step", [Global(0, "FACTOR"), Global(0, "len"), Member(0, "__code__")])
def test_a_step_is_written_as_it_is_taken(step):
    text = later._written(step)
    assert text is not None
    assert eval(text, {"_kernel": here, "_missing": MISSING}) is step.take([here])


def test_names_of_authors_are_never_ours():
    """Parameters called like what a written function names, and like builtins."""

    @tile.kernel
    def named(_values, _call, type, arg_x, argarg_x, _x_, _type, _launch):
        y = hl.empty(_values.shape, _values.dtype)
        for t in hl.tile(_values.shape[0]):
            y[t] = _values[t] * type + arg_x[t] - argarg_x[t] + _x_[t] * _type + _call * _launch
        return y

    a, b, c, d = (np.full(8, n, np.float32) for n in (1, 10, 100, 1000))
    for _ in range(4):
        assert named(a, 3.0, 2.0, b, c, d, 4.0, 5.0)[0] == 2 + 10 - 100 + 4000 + 15
    names = ["_values", "arg_values", "argarg_values", "x", "args"]
    assert len({local(n) for n in names}) == len(names)
    assert not any(local(n).startswith("_") for n in names)


def test_written_functions_can_be_read():
    kernel, _ = warm()
    (entry,) = kernel._entries.values()
    for made in (entry.key, entry.call, *entry.later.values()):
        code = made.__code__
        assert linecache.getline(code.co_filename, 1) == f"def {code.co_name}({_given(made)}):\n"


def _given(made: Callable[..., Any]) -> str:
    return ", ".join(made.__code__.co_varnames[: made.__code__.co_argcount])


def test_a_function_that_is_not_for_a_call_gives_it_away():
    flat = Flat(("x > 3",), ("return x",), {"_otherwise": lambda given: ("no", given)})
    made = function("it", ["x"], flat.after(("_off",), {"_off": False}))
    assert [made(1), made(4)] == [1, ("no", (4,))]
    assert [listed(n) for n in ([], ["x"], ["x", "y"])] == ["()", "(x,)", "(x, y)"]


@pytest.mark.parametrize("bug", PLANTED, ids=str)
def test_a_planted_bug_is_noticed(bug, monkeypatch):
    monkeypatch.setattr(bug.owner, bug.name, bug.value)
    entries.key_of.cache_clear()
    with pytest.raises((Exception, pytest.fail.Exception)):
        globals()[bug.test](*bug.given(monkeypatch))
    entries.key_of.cache_clear()


def test_jax_arrays_are_found_by_what_they_are():
    kernel = tile.kernel(grouped_gemm.__wrapped__)
    x, w, offsets = map(jnp.asarray, make_inputs())
    for _ in range(3):
        kernel(x, w, offsets)
    assert not called(kernel, x, w, offsets)
    assert called(kernel, x.astype(jnp.bfloat16), w.astype(jnp.bfloat16), offsets)
