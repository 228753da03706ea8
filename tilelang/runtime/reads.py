"""reads(code) -> Reads: the names outside of itself that a code object looks up.

    def f(v): return scale * cfg.BLOCK + g(v)      globals ("cfg", "BLOCK") ("g",) ("scale",)

Nested functions and comprehensions are part of it.  A path stops where an attribute is computed.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import CodeType

Path = tuple[str, ...]

GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME")
FREE = ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")


@dataclass(frozen=True)
class Reads:
    """Attribute paths that start at a global name, and at a free variable."""

    globals: tuple[Path, ...]
    free: tuple[Path, ...]


@cache
def reads(code: CodeType) -> Reads:
    """What the code and the code objects nested in it look up, sorted."""
    return Reads(
        tuple(sorted({p for c in _nested(code) for p in _paths(c, GLOBAL)})),
        tuple(sorted({p for c in _nested(code) for p in _paths(c, FREE)})),
    )


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _paths(code: CodeType, roots: tuple[str, ...]) -> Iterator[Path]:
    path: Path = ()
    for instruction in dis.get_instructions(code):
        if path and instruction.opname in ATTRIBUTE:
            path = (*path, instruction.argval)
            continue
        if path:
            yield path
        path = (instruction.argval,) if instruction.opname in roots else ()
    if path:
        yield path
