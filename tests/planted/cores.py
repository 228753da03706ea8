"""Whether dimensions that may be split over cores share no block of a result.

Running on one core cannot show this: steps in order give the right result.  So it is read off the
text, without what the compiler knows: a dimension is safe if every index map of a result has the
dimension's own index as one of its entries, so that two steps at different places of it never
write to the same block.  A table lookup of the index is not enough.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator


def unsafe_splits(text: str) -> list[str]:
    """The parallel dimensions of a module that share a block of a result."""
    return [
        f"line {call.lineno}: {name} is parallel, but all its steps share a block of a result"
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call)
        for name in _shared(call)
    ]


def _shared(call: ast.Call) -> Iterator[str]:
    """The parallel dimensions of one pipeline that some result does not tell apart."""
    given = {k.arg: k.value for k in call.keywords if k.arg}
    kinds = list(_semantics(given))
    for index_map in _index_maps(given.get("out_specs")):
        names = [a.arg for a in index_map.args.args]
        assert isinstance(index_map.body, ast.Tuple), ast.unparse(index_map)
        told = {e.id for e in index_map.body.elts if isinstance(e, ast.Name)}
        for name, kind in zip(names, kinds, strict=False):  # prefetched scalars follow
            if kind.endswith(("PARALLEL", "'parallel'")) and name not in told:
                yield name


def _semantics(given: dict[str, ast.expr]) -> Iterator[str]:
    """The kinds of the dimensions, in order, wherever they are written."""
    for place in ("dimension_semantics", "compiler_params"):
        value = given.get(place)
        if isinstance(value, ast.Call):
            value = {k.arg: k.value for k in value.keywords}.get("dimension_semantics")
        if isinstance(value, ast.Tuple):
            yield from map(ast.unparse, value.elts)
            return


def _index_maps(specs: ast.expr | None) -> Iterator[ast.Lambda]:
    """The index maps of the results."""
    if specs is not None:
        yield from (node for node in ast.walk(specs) if isinstance(node, ast.Lambda))
