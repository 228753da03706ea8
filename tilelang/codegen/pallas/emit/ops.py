"""Ops: a table from primitive op to the JAX expression that means the same inside a kernel."""

from __future__ import annotations

from collections.abc import Callable

from tilelang.codegen.writer import OPERATORS, Atom, Call, Group, Keyword, Node, Prefix, infix

DTYPES = {"bool": "jnp.bool_"}


def dtype(name: str) -> Atom:
    """The jax.numpy name of a dtype."""
    return Atom(DTYPES.get(name, f"jnp.{name}"))


INT32 = 2**31 - 1


def number(value: bool | int | float, kind: str) -> Atom:
    """A literal: weakly typed, so that it takes the dtype of what it meets."""
    if isinstance(value, bool) or kind == "bool":
        return Atom(str(bool(value)))
    if kind.startswith(("int", "uint")):
        wide = value > INT32  # JAX takes numbers for int32
        return Atom(f"jnp.{kind}({int(value)})" if wide else str(int(value)))
    value = float(value)
    if value != value:
        return Atom("jnp.nan")
    if value in (float("inf"), float("-inf")):
        return Atom("jnp.inf" if value > 0 else "-jnp.inf")
    return Atom(repr(value))


def _fn(name: str) -> Callable[..., Node]:
    return lambda *args: Call(name, args)


# Functions that are called what the op is called.
SAME = {
    "jnp": (
        "abs", "exp", "exp2", "log", "log1p", "log2", "sqrt", "sin", "cos", "tanh", "floor", "ceil",
        "round", "trunc", "sign", "isnan", "isfinite", "minimum", "maximum", "where",
    ),
    "jax.lax": ("rsqrt", "erf"),
    "jax.nn": ("sigmoid", "silu", "softplus"),
}  # fmt: skip
# op -> nodes of the operands -> node
ELEMENTWISE: dict[str, Callable[..., Node]] = {
    **{op: _fn(f"{module}.{op}") for module, names in SAME.items() for op in names},
    **OPERATORS,
    # no vector unit has them: they are a comparison
    "unsigned_maximum": lambda a, b: Call("jnp.where", (infix(">", a, b), a, b)),
    "unsigned_minimum": lambda a, b: Call("jnp.where", (infix("<", a, b), a, b)),
    "detach": lambda a: a,
    "logical_not": lambda a: Prefix("~", a, 7),
    "relu": lambda a: Call("jnp.maximum", (a, Atom("0"))),
    "gelu_tanh": _fn("jax.nn.gelu"),
    # jax.nn.gelu(approximate=False) uses erfc, which the TPU compiler does not have
    "gelu_erf": lambda a: infix(
        "*",
        infix("*", Atom("0.5"), a),
        infix("+", Atom("1.0"), Call("jax.lax.erf", (infix("*", a, Atom("0.7071067811865476")),))),
    ),
}
REDUCE = {op: f"jnp.{op}" for op in ("sum", "max", "min", "argmax", "argmin", "any", "all")}


def cast(value: Node, name: str, rank: int) -> Node:
    """A conversion; numbers of rank 0 may be Python integers, which have no methods."""
    if rank == 0:
        return Call(dtype(name).text, (value,))
    return Call("astype", (dtype(name),), of=value)


def reduce(op: str, value: Node, axis: int, keepdim: bool) -> Node:
    keep = (Keyword("keepdims", Atom("True")),) if keepdim else ()
    return Call(REDUCE[op], (value, Keyword("axis", Atom(str(axis))), *keep))


def dot(
    a: Node, b: Node, contract: tuple[int, int], batch: tuple[tuple, tuple], ranks: tuple[int, int],
    out: str,
) -> Node:  # fmt: skip
    """A product with a 32-bit accumulator; a plain matrix product is printed as one."""
    accumulator = Keyword("preferred_element_type", dtype(out))
    if contract == (1, 0) and ranks == (2, 2) and not batch[0]:
        return Call("jnp.dot", (a, b, accumulator))
    numbers = f"((({contract[0]},), ({contract[1]},)), ({_tuple(batch[0])}, {_tuple(batch[1])}))"
    return Call("jax.lax.dot_general", (a, b, Atom(numbers), accumulator))


def narrow(value: Node, axis: int, start: int, stop: int) -> Node:
    bounds = (Atom(str(start)), Atom(str(stop)), Keyword("axis", Atom(str(axis))))
    return Call("jax.lax.slice_in_dim", (value, *bounds))


def _tuple(items: tuple) -> str:
    inner = ", ".join(map(str, items))
    return f"({inner},)" if len(items) == 1 else f"({inner})"


def shape(extents: tuple[int, ...]) -> Group:
    return Group(tuple(Atom(str(e)) for e in extents))


def full(extents: tuple[int, ...], value: Node, name: str, zero: bool = False) -> Node:
    """A constant array."""
    if zero:
        return Call("jnp.zeros", (shape(extents), dtype(name)))
    return Call("jnp.full", (shape(extents), value, dtype(name)))


def iota(extents: tuple[int, ...], axis: int) -> Node:
    return Call("jax.lax.broadcasted_iota", (Atom("jnp.int32"), shape(extents), Atom(str(axis))))
