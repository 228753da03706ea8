"""Functions and methods that are not in the language, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable

from .. import language
from ..errors import Loc, ParseError, nearest

_UNCOUNTED = "how many there are depends on data; use hl.where or a mask"
_BEFORE = "sort before the kernel is called"
_GREATEST = (
    "the greatest are v.amax(1), at = v.argmax(1) says where, and the next ones are those of "
    "hl.where(hl.arange(v.shape[1])[None, :] == at[:, None], -float('inf'), v)"
)
_ROWS = "load rows at computed positions: x[index, :]"
_LOOP = "write a for loop over hl.grid or hl.tile"
_HOST = "format shapes, dtypes and other host values"
_TRIANGLE = (
    "hl.dot(hl.where(t.index[:, None] >= t.index[None, :], 1.0, 0.0), v) sums a tile up to each "
    "row, and a carry adds the tiles before (docs/language.md)"
)
_RANDOM = "pass random numbers as an argument"
_PART = "loop with hl.tile(begin, end) and index with it, or with begin + hl.arange(length)"
_DRAWN = (
    "rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "randperm", "random",
    "normal", "uniform", "bernoulli", "multinomial", "categorical", "exponential", "gumbel",
)  # fmt: skip
_MASK = "compare positions: hl.where(t.index[:, None] >= u.index[None, :], v, 0)"
_COUNT = "hl.atomic_add(counts, [ids[t]], 1) counts into an output of zeros"
_MOVED = "load at other positions: x[t + 1, :], x[begin + end - 1 - t.index, :]"
_REPEATED = "v[:, None] adds a dimension of length 1, which is repeated where it is used"
_OTHERS = {
    "nonzero": _UNCOUNTED,
    "argwhere": _UNCOUNTED,
    "unique": _UNCOUNTED,
    "masked_select": _UNCOUNTED,
    "cumsum": _TRIANGLE,
    "associative_scan": _TRIANGLE,
    "cumprod": "carry a running product from tile to tile",
    "prod": "exp of a sum of logarithms, or a loop that carries the product",
    "sort": _BEFORE,
    "argsort": _BEFORE,
    "topk": _GREATEST,
    "sorted": _BEFORE,
    "median": _BEFORE,
    "searchsorted": "sum the places that are smaller: (table[:] < v[:, None]).sum(1)",
    "bucketize": "sum the borders that are smaller: (borders[:] < v[:, None]).sum(1)",
    "scatter": "store at computed positions: y[index] = value",
    "scatter_add": "hl.atomic_add(y, [index, u], value)",
    "index_add": "hl.atomic_add(y, [index, u], value)",
    "bincount": _COUNT,
    "histogram": _COUNT,
    "histc": _COUNT,
    "gather": _ROWS,
    "take": _ROWS,
    "take_along_axis": _ROWS,
    "take_along_dim": _ROWS,
    "index_select": _ROWS,
    "flip": _MOVED,
    "roll": _MOVED,
    "tril": _MASK,
    "triu": _MASK,
    "one_hot": "compare: hl.where(v[:, None] == hl.arange(n)[None, :], 1.0, 0.0)",
    "diag": "sum under a mask: hl.where(i[:, None] == j[None, :], v, 0).sum(1)",
    "diagonal": "sum under a mask: hl.where(i[:, None] == j[None, :], v, 0).sum(1)",
    "outer": "a[:, None] * b[None, :]",
    "cdist": "the root of squares of both less twice their product: hl.dot(a, b.T)",
    "repeat": _REPEATED,
    "tile": _REPEATED,
    "repeat_interleave": _REPEATED,
    **dict.fromkeys(_DRAWN, _RANDOM),
    "scaled_dot_product_attention": "write its loops, as examples/dense/flash_attention.py does",
    "dynamic_slice": _PART,
    "dynamic_index_in_dim": "x[i, :]",
    "dynamic_update_slice": _PART,
    "Linear": "pass its weight to the kernel as an argument: F.linear(x[t, :], w[:, :])",
    "dropout": "pass the mask, or random numbers, as an argument",
    "nan_to_num": "hl.where(hl.isnan(v), 0, v)",
    "numel": "lengths are those of tensors: x.numel() before the loops",
    "nelement": "lengths are those of tensors: x.numel() before the loops",
    "allclose": "compare outside of the kernel",
    "equal": "compare elements with ==",
    "isclose": "hl.abs(a - b) <= tolerance",
    "count_nonzero": "(v != 0).sum()",
    "program_id": "a loop's index says where it is: for i in hl.grid(n)",
    "range": "hl.static_range is unrolled; hl.grid and hl.tile are loops of the kernel",
    "cond": "write an if statement",
    "fori_loop": _LOOP,
    "while_loop": _LOOP,
    "scan": _LOOP,
    "vmap": "write a for loop over hl.grid",
    "map": "write a list comprehension",
    "filter": "write a list comprehension with an if",
    "reduce": "write a for loop",
    "set": "a value of the kernel cannot be compared while compiling",
    "str": _HOST,
    "repr": _HOST,
    "hash": "a value of the kernel is not known while compiling",
    "any": "combine conditions with |, or write value.any()",
    "all": "combine conditions with &, or write value.all()",
    "divmod": "write a // b and a % b",
}
_GENERAL = "functions written in Python are inlined; docs/language.md lists the operations"


def unknown_call(text: str, loc: Loc) -> ParseError:
    """The error for a function that is not in the language and cannot be inlined."""
    name = text.partition("(")[0].rpartition(".")[2]
    hint = _OTHERS.get(name) or in_language(name) or _GENERAL
    return ParseError(f"{text} is not in the language", loc, hint)


def instead_of(name: str, there: Iterable[str], dot: str = "") -> str:
    """What to write for a name that is none of those there: what does the same, or is alike."""
    return _OTHERS.get(name.rstrip("_")) or alike(name, there, dot)


def in_language(name: str, given: str = "") -> str:
    """Where a name is that was looked for elsewhere, and how it is called if it was of a tensor."""
    given = f"({given}, [index], value)" if given and name.startswith("atomic_") else ""
    there = name in language.__all__
    return f"hl.{name}{given}, with import tilelang.language as hl" if there else ""


def alike(name: str, there: Iterable[str], dot: str = "") -> str:
    """Which of those there may be meant."""
    close = nearest(name, there)
    return f"did you mean {dot}{close}?" if close else ""
