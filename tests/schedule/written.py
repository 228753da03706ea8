"""Kernels written in IR in the order of their statements, planned and run on the CPU."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractDevice, AbstractMesh

from tilelang.analysis import analyze
from tilelang.codegen.pallas.emit import emit
from tilelang.codegen.pallas.plan.search import plan
from tilelang.codegen.pallas.plan.types import Plan
from tilelang.codegen.pallas.target import Target
from tilelang.codegen.source import Source
from tilelang.errors import Loc
from tilelang.ir import (
    Along,
    Apply,
    Assign,
    At,
    Axis,
    Carry,
    Const,
    Expr,
    Gather,
    GridIndex,
    Index,
    KernelIR,
    Load,
    Loop,
    Scalar,
    Span,
    Stmt,
    Store,
    Tensor,
    TileIndex,
    TileScalar,
    Type,
    Var,
)
from tilelang.language import build
from tilelang.reference import evaluate
from tilelang.schedule.config import Config
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refusal

INT = Type((), "int32")
Given = Expr | int | str | slice


class Writing:
    """A kernel that is being written: `with k.tile("tm", 0, 64): k.store("y", "tm", value=...)`."""

    def __init__(self, name: str = "written") -> None:
        self.name = name
        self._tensors: dict[str, Tensor] = {}
        self._axes: list[Axis] = []
        self._bodies: list[list[Stmt]] = [[]]
        self._carries: list[list[Carry]] = []
        self._line = 1

    # ------------------------------------------------------------ declarations

    def loc(self, text: str) -> Loc:
        self._line += 1
        return Loc("kernel.py", self._line, 4, 4 + len(text), "    " + text)

    def input(self, name: str, *shape: int, dtype: str = "float32", mutated: bool = False) -> None:
        loc = self.loc(f"def {self.name}(..., {name}, ...):")
        self._tensors[name] = Tensor(name, shape, dtype, "input", loc, mutated=mutated)

    def offsets(self, name: str, groups: int) -> tuple[Expr, Expr]:
        """Declares int32 offsets; the range of group `g`."""
        self.input(name, groups + 1, dtype="int32")
        g = GridIndex("g")
        return self.load(name, g), self.load(name, build.binary("add", g, 1, None))

    def output(
        self, name: str, *shape: int, dtype: str = "float32", fill: Scalar | None = 0
    ) -> None:
        loc = self.loc(f"{name} = hl.full({list(shape)}, {fill})")
        self._tensors[name] = Tensor(name, shape, dtype, "output", loc, fill=fill)

    # ------------------------------------------------------------ loops

    @contextlib.contextmanager
    def grid(
        self, name: str, begin: Expr | int, end: Expr | int, most: int | None = None
    ) -> Iterator[GridIndex]:
        with self._loop("grid", name, begin, end, most, None):
            yield GridIndex(name)

    @contextlib.contextmanager
    def tile(
        self,
        name: str,
        begin: Expr | int,
        end: Expr | int,
        most: int | None = None,
        block: int | None = None,
    ) -> Iterator[None]:
        with self._loop("tile", name, begin, end, most, block or name):
            yield None

    @contextlib.contextmanager
    def _loop(
        self,
        kind: str,
        name: str,
        begin: Expr | int,
        end: Expr | int,
        most: int | None,
        block: int | str | None,
    ) -> Iterator[None]:
        loc = self.loc(f"for {name} in hl.{kind}(...):")
        axis = Axis(name, kind, _number(begin), _number(end), most, block, loc, name)  # type: ignore[arg-type]
        self._axes.append(axis)
        self._bodies.append([])
        self._carries.append([])
        yield
        body, carries = self._bodies.pop(), self._carries.pop()
        self._bodies[-1].append(Loop(name, tuple(body), tuple(carries), loc))

    # ------------------------------------------------------------ statements

    def let(self, name: str, value: Expr, user: str | None = None) -> Var:
        self._bodies[-1].append(
            Assign(name, value, self.loc(f"{user or name} = ..."), user or name)
        )
        return Var(name, value.type)

    def carried(self, name: str, init: Expr, user: str | None = None) -> Var:
        """A value that the innermost loop changes; `becomes` says to what."""
        entry = Carry(f"{name}_in", init, init, f"{name}_out", user or name, self.loc(name))
        self._carries[-1].append(entry)
        return Var(entry.name, init.type)

    def becomes(self, value: Var, following: Expr) -> None:
        """The value of the next iteration; an assignment of its own, as the frontend makes it."""
        found = self._carries[-1]
        user = next(c.user for c in found if c.name == value.name)
        following = self.let(value.name.removesuffix("_in") + "_new", following, user)
        for place, entry in enumerate(found):
            if entry.name == value.name:
                found[place] = Carry(
                    entry.name, entry.init, following, entry.out, entry.user, entry.loc
                )

    @staticmethod
    def after(name: str, like: Expr) -> Var:
        """What a carried value is after its loop."""
        return Var(f"{name}_out", like.type)

    def store(
        self, tensor: str, *index: Given | Index, value: Expr, mask: Expr | None = None
    ) -> None:
        entries = tuple(
            _entry(i, d) for i, d in zip(index, self._tensors[tensor].shape, strict=True)
        )
        loc = self.loc(f"{tensor}[{', '.join(map(_text, index))}] = ...")
        value = build.cast(value, self._tensors[tensor].dtype, None)
        self._bodies[-1].append(Store(tensor, entries, value, loc, mask))

    def load(self, tensor: str, *index: Given | Index, mask: Expr | None = None) -> Load:
        own = self._tensors[tensor]
        entries = tuple(_entry(i, d) for i, d in zip(index, own.shape, strict=True))
        shape = tuple(d for e in entries for d in _dims(e))
        dtype = "int32" if own.dtype == "int64" else own.dtype
        return Load(tensor, entries, Type(shape, dtype), mask)

    def ir(self, *returns: str) -> KernelIR:
        names = returns or tuple(t.name for t in self._tensors.values() if t.role == "output")
        tensors = tuple(self._tensors.values())
        structure = "single" if len(names) == 1 else "tuple" if names else "none"
        return KernelIR(
            self.name, (), tensors, tuple(self._axes), tuple(self._bodies[0]), names,
            structure, self.loc(f"def {self.name}"), "A kernel.",
        )  # fmt: skip


def _number(value: Expr | int) -> Expr:
    return Const(value, INT) if isinstance(value, int) else value


def _entry(given: Given | Index, size: int) -> Index:
    match given:
        case str():
            return Along(given)
        case slice():
            return Span(given.start or 0, size if given.stop is None else given.stop)
        case At() | Along() | Span() | Gather():
            return given
        case _:
            return At(_number(given))  # type: ignore[arg-type]


def _text(given: object) -> str:
    return given if isinstance(given, str) else ":" if isinstance(given, slice) else "i"


def _dims(entry: Index) -> tuple[int | str, ...]:
    match entry:
        case Along(axis):
            return (axis,)
        case Span(start, stop):
            return (stop - start,)
        case Gather(expr):
            return expr.type.shape
        case _:
            return ()


# ---------------------------------------------------------------- values


def positions(axis: str) -> TileIndex:
    """tile.index"""
    return TileIndex(axis, Type((axis,), "int32"))


def edge(axis: str, what: str) -> TileScalar:
    """tile.begin, tile.end, ..."""
    return TileScalar(axis, what)  # type: ignore[arg-type]


def full(shape: tuple[int | str, ...], value: Scalar, dtype: str = "float32") -> Expr:
    return Apply("full", (), Type(shape, dtype), (("value", value),))


def add(a: Expr | Scalar, b: Expr | Scalar) -> Expr:
    return build.binary("add", a, b, None)


def mul(a: Expr | Scalar, b: Expr | Scalar) -> Expr:
    return build.binary("mul", a, b, None)


def total(value: Expr, axis: int) -> Expr:
    return build.reduce("sum", value, axis, False, None)


# ---------------------------------------------------------------- running


def planned(ir: KernelIR, config: Config | None = None, target: str = "cpu") -> Plan:
    planned = plan(Problem(ir, analyze(ir)), config or Config(), Target.of(target))
    if isinstance(planned, Refusal):
        raise planned.error
    return planned


def printed(ir: KernelIR, config: Config | None = None, target: str = "cpu") -> Source:
    return emit(planned(ir, config, target))


def run(
    ir: KernelIR, arrays: Mapping[str, np.ndarray], config: Config | None = None
) -> dict[str, np.ndarray]:
    """What the generated source computes on the CPU, by tensor name."""
    function = _compiled(ir, config)
    given = [jnp.asarray(arrays[t.name]) for t in ir.tensors if t.role == "input"]
    with _as_tpu():
        results = function(*given, interpret=True)
    results = results if isinstance(results, tuple) else (results,)
    names = [*ir.returns, *(t.name for t in ir.tensors if t.mutated)]
    return {n: np.asarray(r) for n, r in zip(names, results, strict=True)}


@functools.lru_cache(maxsize=64)
def _compiled(ir: KernelIR, config: Config | None):
    return jax.jit(printed(ir, config).load(), static_argnames="interpret")


def _as_tpu():
    """Pipelines ask which TPU they are traced for, even under the interpreter."""
    device = AbstractDevice(device_kind="TPU v5 lite", num_cores=1, platform="tpu")
    return jax.sharding.use_abstract_mesh(AbstractMesh((), (), abstract_device=device))


def expected(
    ir: KernelIR, arrays: Mapping[str, np.ndarray], config: Config | None = None
) -> dict[str, np.ndarray]:
    """What the reference evaluates, with the config's blocks."""
    given = {n: a.copy() for n, a in arrays.items()}
    with np.errstate(all="ignore"):
        return evaluate(ir, given, blocks=dict(config.blocks) if config else {})
