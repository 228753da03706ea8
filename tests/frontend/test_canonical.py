"""Every kernel of `canonical` gets the IR in its docstring (`--update-golden` writes it anew)."""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path

import pytest

from tilelang.frontend import parse

from . import canonical

PATH = Path(canonical.__file__)
HELPERS = {"gated", "clipped"}
KERNELS = {
    name: fn
    for name, fn in vars(canonical).items()
    if inspect.isfunction(fn) and fn.__module__ == canonical.__name__ and name not in HELPERS
}


def _dump(fn) -> str:
    given = {name: canonical.ARGUMENTS[name] for name in inspect.signature(fn).parameters}
    return str(parse(fn, given)).partition("\n")[2]  # without the header, which has values


def _docstring(text: str) -> list[str]:
    lines = [f"    {line}".rstrip() for line in text.rstrip().splitlines()]
    return ['    """', *lines, '    """']


def _update() -> None:
    """Writes what the kernels get now as their docstrings, last one first."""
    source = PATH.read_text(encoding="utf-8")
    lines = source.splitlines()
    for node in reversed(ast.parse(source).body):
        if isinstance(node, ast.FunctionDef) and node.name in KERNELS:
            first = node.body[0]
            start = first.lineno - 1
            stop = first.end_lineno if ast.get_docstring(node) is not None else start
            lines[start:stop] = _docstring(_dump(KERNELS[node.name]))
    PATH.write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_update(update_golden):
    if update_golden:
        _update()
    assert all(fn.__doc__ or update_golden for fn in KERNELS.values())


@pytest.mark.parametrize("name", KERNELS)
def test_ir(name, update_golden):
    if update_golden:
        pytest.skip("the expected IR is being written")
    expected = textwrap.dedent(KERNELS[name].__doc__).strip("\n")
    assert _dump(KERNELS[name]).rstrip() == expected
