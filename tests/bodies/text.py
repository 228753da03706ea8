"""text(body) -> str: a kernel around a body, in the words of a user; arguments(body) are its own.

x [M, N]  blocks   v [M]  columns   w [N]  rows   u [G, N]  a row of each group   s [G]  numbers
k [M, H]  sides    h [M, H, N]  heads
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.bodies.draw import PLACES, Body, Value, kind
from tests.numerics import as_dtype

HEAD = """import tilelang as tile
import tilelang.language as hl


@tile.kernel
def kernel({arguments}):
    G, M, N{heads} = offsets.shape[0] - 1, {rows}, {columns}{of_heads}
    y = {output}
    for g in hl.grid(G):
"""
INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "logical_and": "&", "logical_or": "|", "logical_xor": "^",
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
    "shift_left": "<<", "shift_right": ">>",
}  # fmt: skip
REDUCED = ("sum", "mean", "any", "all", "argmax", "argmin", "amax", "amin")
START = {"add": 0, "maximum": 0, "minimum": 9, "bitwise_xor": 3}
STARTS = {"logical_or": False, "logical_and": True, "logical_xor": False}
SHAPES = {
    "number": "[G]", "row": "[G, N]", "column": "[M]", "block": "[M, N]", "side": "[M, H]",
    "heads": "[M, H, N]",
}  # fmt: skip
OVER_TILES = {
    "add": "sum", "maximum": "amax", "minimum": "amin", "logical_or": "any", "logical_and": "all",
}  # fmt: skip
IN_TILES = ("s_{}[g]", "w_{}[:]", "v_{}[t]", "x_{}[t, :]", "k_{}[t, :]", "h_{}[t, :, :]")
# Frame -> how a number, a row, a column, a block, a side and heads are read.
READS = {
    "tile": IN_TILES,
    "grid": ("s_{}[g]", "u_{}[g, :]", "", ""),
    "fold": ("s_{}[g]", "u_{}[g, :]", "v_{}[t]", "x_{}[t, :]"),
    "inner": ("s_{}[g]", "w_{}[d]", "v_{}[t]", "x_{}[t, d]"),
    "steps": ("v_{}[i]", "x_{}[i, :]", "", ""),
    "update": IN_TILES,
    "gather": ("s_{}[g]", "w_{}[:]", "v_{}[t]", "x_{}[ids[t], :]"),
    "scatter": IN_TILES,
    "heads": IN_TILES,
    "weigh": IN_TILES,
}
PLACE = {place: number for number, place in enumerate(PLACES)}
# Place of a result -> dimensions that operands of other places lack.
LACKS = {
    "block": {"row": "[None, :]", "column": "[:, None]"},
    "side": {"column": "[:, None]"},
    "heads": {
        "row": "[None, None, :]", "column": "[:, None, None]", "block": "[:, None, :]",
        "side": "[:, :, None]",
    },
}  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """Of arrays: rows, columns, groups, heads."""

    rows: int = 64
    columns: int = 128
    groups: int = 4
    heads: int = 3


def text(body: Body, sizes: Sizes) -> str:
    """A module with one kernel, `kernel`."""
    names = arguments(body, sizes)
    shape = SHAPES[body.value.place]
    if body.frame == "weigh":
        shape = shape.replace("M", "G")
    of_heads = body.frame in ("heads", "weigh")
    made = f"hl.zeros({shape}, dtype=hl.{_name(body.dtype)})"
    head = HEAD.format(
        arguments=", ".join(names), rows=sizes.rows, columns=sizes.columns, output=made,
        heads=", H" if of_heads else "", of_heads=f", {sizes.heads}" if of_heads else "",
    )  # fmt: skip
    return head + "".join(f"        {line}\n" for line in _lines(body)) + "    return y\n"


def _name(dtype: str) -> str:
    return "bool_" if dtype == "bool" else dtype


def _lines(body: Body) -> list[str]:
    value, place = said(body.value, body), body.value.place
    if body.value.dtype != body.dtype:
        value = f"({value}).to(hl.{_name(body.dtype)})"
    at = SHAPES[place][1:-1].replace("G", "g").replace("M", "t").replace("N", ":").replace("H", ":")
    fixed = f", block_size={body.fixed}" if body.fixed else ""
    tiles = f"for t in hl.tile(offsets[g], offsets[g + 1], max_extent=M{fixed}):"
    match body.frame:
        case "grid":
            return [f"y[{at}] = {value}"]
        case "tile" | "gather" | "heads":
            return [tiles, f"    y[{at}] = {value}"]
        case "scatter":
            if body.combine:
                return [tiles, f"    hl.atomic_{body.combine}(y, [ids[t], slice(None)], {value})"]
            return [tiles, f"    y[ids[t], :] = {value}"]
        case "update":
            at = at.replace(":", "slice(None)")
            return [tiles, f"    hl.atomic_{body.combine}(y, [{at}], {value})"]
        case "steps":
            loop = "for i in hl.grid(offsets[g], offsets[g + 1]):"
            return [*_carried(body, loop, value), f"y[{at}] = acc"]
        case "fold":
            return [*_carried(body, tiles, value), f"y[{at}] = acc"]
        case "weigh":
            value = f"({value}).{OVER_TILES[body.combine]}(0).to(hl.{_name(body.dtype)})"
            return [*_carried(body, tiles, value), f"y[{at.replace('t', 'g')}] = acc"]
        case "inner":
            inner = [*_carried(body, "for d in hl.tile(N):", value), f"y[{at}] = acc"]
            return [tiles, *(f"    {line}" for line in inner)]


def _carried(body: Body, loop: str, value: str) -> list[str]:
    start = STARTS.get(body.combine, START.get(body.combine))
    shape = {
        "number": "[]", "row": "[N]", "column": "[t]", "block": "[N]", "side": "[H]",
        "heads": "[H, N]",
    }[body.value.place]  # fmt: skip
    new = _infix(body.combine, "acc", value)
    return [
        f"acc = hl.full({shape}, {start}, dtype=hl.{_name(body.dtype)})", loop, f"    acc = {new}",
    ]  # fmt: skip


def _infix(op: str, a: str, b: str) -> str:
    return f"({a} {INFIX[op]} {b})" if op in INFIX else f"hl.{op}({a}, {b})"


def said(value: Value, body: Body) -> str:
    """The text of a value."""
    args = [said(a, body) for a in value.args]
    match value.op:
        case "read":
            return READS[body.frame][PLACE[value.place]].format(value.dtype)
        case "cast":
            return f"({args[0]}).to(hl.{_name(value.dtype)})"
        case "turned" if value.place == "heads":
            return f"({args[0]}).permute(2, 0, 1).permute(1, 2, 0)"
        case "turned":
            return f"({args[0]}).T.T"
        case "parted":
            at = "t, H, " if value.place == "heads" else "t, "
            return f"({args[0]}).reshape({at}4, N // 4).reshape({at}N)"
        case "flat":
            return f"({args[0]}).reshape(t, H * N).reshape(t, H, N)"
        case "joined":
            return f"hl.cat([({args[0]})[:, 1:], ({args[1]})[:, :1]], 1)"
        case "softmax":
            return f"hl.softmax({args[0]}, -1)"
        case "einsum":
            return f'hl.einsum("{value.summed}", {args[0]}, {args[1]})'
        case "lifted":
            op = "logical_or" if value.dtype == "bool" else "add"
            return _infix(op, f"({args[0]})[None]", args[1])
        case "logical_not" | "bitwise_not":
            return f"~({args[0]})"
        case "where":
            return f"hl.where({', '.join(_met(value, args))})"
        case "max" | "min":
            return f"({args[0]}).a{value.op}({value.axis})"
        case op if op in REDUCED:
            return f"({args[0]}).{op}({value.axis})"
        case "shift_left" | "shift_right":
            a, b = _met(value, args)
            return _infix(value.op, a, f"({b} & 7)")
        case op if len(args) == 2:
            return _infix(op, *_met(value, args))
        case op:
            return f"hl.{op}({args[0]})"


def _met(value: Value, args: list[str]) -> list[str]:
    """Operands with the dimensions that they lack."""
    lacks = LACKS.get(value.place, {})
    return [
        f"({a}){lacks[v.place]}" if v.place in lacks else a
        for v, a in zip(value.args, args, strict=True)
    ]


def arguments(body: Body, sizes: Sizes, seed: int = 0) -> dict[str, np.ndarray]:
    """Small numbers of every array that the body reads, and uneven groups."""
    rng = np.random.default_rng(seed)
    m, n, g = sizes.rows, sizes.columns, sizes.groups
    shapes = {"x": (m, n), "v": (m,), "w": (n,), "u": (g, n), "s": (g,)}
    shapes |= {"k": (m, sizes.heads), "h": (m, sizes.heads, n)}
    ends = np.sort(rng.integers(0, m + 1, g)).astype(np.int32)
    found = {"offsets": np.concatenate([[0], ends]).astype(np.int32)}
    if body.frame in ("gather", "scatter"):
        found["ids"] = rng.integers(0, m, m).astype(np.int32)
    for part in body.value.parts():
        if part.op == "read":
            name = said(part, body).partition("[")[0]
            found.setdefault(name, _numbers(rng, shapes[name[0]], part.dtype))
    return found


def _numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if kind(dtype) == "bool":
        return rng.random(shape) < 0.5
    if kind(dtype) == "int":
        low = 1 if dtype.startswith("u") else -5
        drawn = rng.integers(low, 6, shape)
        if dtype in ("int8", "uint8", "int16"):  # those that have the highest bit, too
            far = rng.choice([np.iinfo(dtype).min, np.iinfo(dtype).max], shape)
            drawn = np.where(rng.random(shape) < 0.1, far, drawn)
        return np.where(drawn == 0, 1, drawn).astype(dtype)
    return as_dtype(rng.integers(1, 9, shape).astype(np.float32) / 4, dtype)
