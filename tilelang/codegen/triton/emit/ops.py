"""Ops: a table from primitive op to the Triton expression that means the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilelang.codegen.writer import OPERATORS, Atom, Call, Group, Keyword, Node, infix
from tilelang.language.dtypes import is_float, is_float8

DTYPES = {"bool": "tl.int1", "float8_e4m3fn": "tl.float8e4nv", "float8_e5m2": "tl.float8e5"}
PROPAGATE = Keyword("propagate_nan", Atom("tl.PropagateNan.ALL"))


def dtype(name: str) -> Atom:
    """The name of a dtype."""
    return Atom(DTYPES.get(name, f"tl.{name}"))


def number(value: object, kind: str) -> Atom:
    """A literal."""
    assert isinstance(value, bool | int | float)
    if kind == "bool":
        return Atom(str(bool(value)))
    if not is_float(kind):
        return Atom(str(int(value)))
    value = float(value)
    if value != value:
        return Atom('float("nan")')
    if value in (float("inf"), float("-inf")):
        return Atom('float("inf")' if value > 0 else 'float("-inf")')
    return Atom(repr(value))


def _fn(name: str) -> Callable[..., Node]:
    return lambda *args: Call(name, args)


# Functions that are called what the op is called, and those of `functions`, behind "_".
NAMED = {
    "tl.": (
        "abs", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "erf", "sigmoid",
        "floor", "ceil", "where",
    ),
    "_": (
        "log1p", "tanh", "silu", "gelu_tanh", "gelu_erf", "softplus", "round", "trunc", "sign",
        "pow",
    ),
}  # fmt: skip
# op -> nodes of the operands -> node
ELEMENTWISE: dict[str, Callable[..., Node]] = {
    **OPERATORS,
    **{op: _fn(f"{where}{op}") for where, names in NAMED.items() for op in names},
    "quotient": OPERATORS["floordiv"],
    "remainder": OPERATORS["mod"],
    "floordiv": _fn("_floor_div"),
    "mod": _fn("_floor_mod"),
    "detach": lambda a: a,
    "logical_not": lambda a: infix("==", a, Atom("0")),
}

ROUNDING = ("floor", "ceil", "round", "trunc")  # integers are whole


def extreme(op: str, args: Sequence[Node], floats: bool) -> Node:
    """The smaller or larger of two values; NaN wins."""
    return Call(f"tl.{op}", (*args, *((PROPAGATE,) if floats else ())))


def reduce(op: str, value: Node, axis: int, keepdim: bool, floats: bool) -> Node:
    """A reduction along one dimension; Triton's own max and min of floats drop NaN."""
    place = Keyword("axis", Atom(str(axis)))
    keep = (Keyword("keep_dims", Atom("True")),) if keepdim else ()
    if op in ("max", "min") and floats:
        return Call("tl.reduce", (value, place, Keyword("combine_fn", Atom(f"_nan_{op}")), *keep))
    return Call(f"tl.{op}", (value, place, *keep))


def position(op: str, value: Node, lanes: Node, axis: int, keepdim: bool) -> Node:
    """Where the largest or smallest float is; Triton's own argmax and argmin pass over NaN."""
    return Call(f"_{op}", (value, lanes, Atom(str(axis)), Atom(str(keepdim))))


def shape(extents: Sequence[int]) -> Group:
    return Group(tuple(Atom(str(e)) for e in extents), "[]")


def full(extents: Sequence[int], value: Node, name: str) -> Node:
    """A constant tile; a scalar tensor where there are no dimensions.

    Triton has no numbers of 8-bit floats but 0: they are cast.
    """
    zero = value in (Atom("0"), Atom("0.0"), Atom("False"))
    if zero and extents:
        return Call("tl.zeros", (shape(extents), dtype(name)))
    if is_float8(name) and not zero:
        return Call("to", (dtype(name),), of=full(extents, value, "float32"))
    return Call("tl.full", (shape(extents), value, dtype(name)))


def product(a: Node, b: Node, acc: Node | None, operand: str, precision: str, summed: int) -> Node:
    """A product of two tiles that sums over `summed` lanes, or of as many as dimension 0 has."""
    more: list[Node] = [] if acc is None else [acc]
    if operand == "float32":
        more.append(Keyword("input_precision", Atom(f'"{precision}"')))
    if operand in ("int8", "uint8"):
        more.append(Keyword("out_dtype", Atom("tl.int32")))
    if operand.startswith("float8"):  # else sums of 8-bit products keep 13 bits on Hopper
        more.append(Keyword("max_num_imprecise_acc", Atom(str(min(summed, 128)))))
    return Call("tl.dot", (a, b, *more))
