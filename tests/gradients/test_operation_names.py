"""Names of torch's operations: what a kernel means, in whichever process and order it is made."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FunctionType

import pytest
import torch

import tilelang as tile
import tilelang.language as hl
from tilelang.runtime import torch_ops
from tilelang.runtime.written_down import origin, text

ROOT = Path(__file__).resolve().parent.parent.parent
X = torch.arange(6.0)
FACTOR = 1.0


def by_closure(factor):
    @tile.kernel
    def scale(x):
        y = hl.empty(x.shape, dtype=x.dtype)
        for t in hl.tile(x.shape[0]):
            y[t] = x[t] * factor
        return y

    return scale


def by_function(factor):
    times = [None, None, lambda v: v + v, lambda v: v + v + v][factor]

    def inner(v):
        return times(v)

    @tile.kernel
    def scale(x):
        y = hl.empty(x.shape, dtype=x.dtype)
        for t in hl.tile(x.shape[0]):
            y[t] = inner(x[t])
        return y

    return scale


@dataclass
class Settings:
    factors: dict


def by_object(factor):
    settings = Settings({"one": [1.0, factor]})

    @tile.kernel
    def scale(x):
        y = hl.empty(x.shape, dtype=x.dtype)
        for t in hl.tile(x.shape[0]):
            y[t] = x[t] * settings.factors["one"][1]
        return y

    return scale


def times_factor(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t] = x[t] * FACTOR
    return y


def by_global(factor):
    names = {**globals(), "FACTOR": factor}
    return tile.kernel(FunctionType(times_factor.__code__, names, "times_factor"))


@tile.kernel
def scale(x, factor):
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t] = x[t] * factor
    return y


def by_argument(factor):
    return partial(scale, factor=float(factor))  # of an integer an operation is told at each call


class Scale:
    def __init__(self, factor):
        self.factor = factor

    @tile.kernel
    def scaled(self, x):
        y = hl.empty(x.shape, dtype=x.dtype)
        for t in hl.tile(x.shape[0]):
            y[t] = x[t] * self.factor
        return y


def by_method(factor):
    return Scale(factor).scaled


FAMILIES = {
    made.__name__: made
    for made in (by_closure, by_function, by_object, by_global, by_argument, by_method)
}


def base(name):
    return torch_ops._NAME.fullmatch(name)["name"]


def named(call, *given):
    """The operation that a call is to torch, without its number, and how often there is one."""
    graph = exported(call, *given).graph
    (name,) = (str(n.target) for n in graph.nodes if "raggedtile" in str(n.target))
    return base(name.split(".")[1])


class Called(torch.nn.Module):
    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, *given):
        return self.call(*given)


def exported(call, *given):
    call(*given)
    return torch.export.export(Called(call), given)


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_of_one_factory_are_told_apart_in_any_order(family):
    """A name by order of definition called the other kernel in another process."""
    made = FAMILIES[family]
    two, three = named(made(2), X), named(made(3), X)
    assert two != three
    assert (named(made(3), X), named(made(2), X)) == (three, two)


def options(kernel=by_closure):
    """Kernels that differ in no word of their texts."""
    plain = kernel(2)
    fn = plain._fn
    yield plain, (X,)
    yield tile.kernel(fn, config=tile.Config(block_sizes=[8])), (X,)
    yield tile.kernel(fn, checks=False), (X,)
    yield plain.batched("x"), (X[None],)
    for factor in (2, 3):
        differentiated = tile.kernel(fn)
        differentiated.vjp(lambda saved, dy, factor=factor: {"x": dy * factor})
        yield differentiated, (X,)


def test_kernels_of_one_text_are_told_apart():
    names = [named(*(kernel, *given)) for kernel, given in options()]
    assert len({*names}) == len(names) == 6
    assert names == [named(kernel, *given) for kernel, given in options()]


def test_a_backward_that_is_registered_late_has_operations_of_its_own():
    kernel = by_closure(2)
    before = named(kernel, X)
    kernel.vjp(lambda saved, dy: {"x": dy})
    assert named(kernel, X) != before


def test_what_does_not_change_a_kernel_does_not_change_its_name():
    def first():
        @tile.kernel
        def scale(x):
            """Twice."""
            y = hl.empty(x.shape, dtype=x.dtype)
            for t in hl.tile(x.shape[0]):
                y[t] = x[t] * 2  # the double
            return y

        return scale

    def second():
        @tile.kernel(checks=None)
        def scale(x):
            y = hl.empty(x.shape, dtype=x.dtype)
            for t in hl.tile(x.shape[0]):
                y[t] = (x[t]
                        * 2)  # fmt: skip
            return y

        return scale

    one, two = first(), second()
    two._fn.__qualname__ = one._fn.__qualname__
    two._fn.__module__ = "__main__"
    assert named(one, X) == named(two, X)
    assert named(one, torch.ones(40)) == named(one, X)


def test_an_object_that_is_changed_has_another_name():
    settings = Scale(2)
    before = named(settings.scaled, X)
    settings.factor = 3
    after = named(settings.scaled, X)
    settings.factor = 2
    assert named(settings.scaled, X) == before != after


def test_numbers_of_a_name_are_one_kernel():
    """One that was defined twice where the program was saved, and is once where it runs."""
    kernel = by_closure(5)
    name = named(kernel, X)
    operations = getattr(torch.ops, torch_ops.NAMESPACE)
    assert torch.equal(getattr(operations, f"{name}_77")(X), X * 5)
    missing = name[:-12] + "0" * 12
    with pytest.raises(tile.errors.CallError) as error:
        getattr(operations, missing)
    assert str(error.value) == (
        f"no kernel here is the operation raggedtile::{missing} of a saved program: scale has "
        "another text here, other options, or reads other values\n"
        "  hint: define scale as it was when the program was saved, with what it reads, and call "
        "it once before the program is loaded"
    )
    assert not hasattr(operations, "no_such_thing")


def test_what_a_backward_holds_is_part_of_it():
    def backward(held):
        return lambda saved, dy: {"x": held}

    assert origin(backward(2)) == origin(backward(2)) != origin(backward(3))
    assert origin(backward(by_closure(2))) == origin(backward(by_closure(2)))
    assert origin(backward(by_closure(2))) != origin(backward(by_closure(3)))
    assert origin(backward(Scale(2))) == origin(backward(Scale(2)))  # in this process
    assert origin(partial(backward, 2)) != origin(partial(backward, 3))

    def itself(saved, dy):
        return itself

    assert "itself" in origin(itself)


def test_texts_are_the_same_everywhere():
    assert text({"b", "a"}) == "{'a', 'b'}"
    assert text((frozenset, ("b", "a"))) == "builtins.frozenset[\"'a'\", \"'b'\"]"
    assert text(torch) == "torch"
    assert text(torch.float32) == "torch.float32"
    assert " at 0x" not in text((Scale(2), by_closure, len, torch.relu, hl.zeros, object()))


def saved(folder):
    for name, made in FAMILIES.items():
        for factor in (2, 3, 4)[: 3 if name == "by_closure" else 2]:
            torch.export.save(exported(made(factor), X), folder / f"{name}{factor}.pt2")


LOADED = """
import sys, torch
from pathlib import Path
from tests.gradients.test_operation_names import FAMILIES, X
folder = Path(sys.argv[1])
for made in reversed(FAMILIES.values()):
    made(3)(X), made(2)(X)
for name in FAMILIES:
    for factor in (2, 3):
        program = torch.export.load(folder / f"{name}{factor}.pt2").module()
        assert torch.equal(program(X), X * factor), (name, factor)
print("all right")
torch.export.load(folder / "by_closure4.pt2")
"""


@pytest.mark.slow
def test_another_process_calls_the_same_kernels(tmp_path):
    """They are defined in another order there; one that is not there is an error that says why."""
    saved(tmp_path)
    command = [sys.executable, "-c", LOADED, str(tmp_path)]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert run.stdout == "all right\n", run.stderr
    assert run.returncode == 1
    assert "scale has another text here, other options, or reads other values" in run.stderr
