"""undefined(text) -> names that a generated module reads and that nothing in it defines.

Such a name is an error only where that line runs: on a device that is not here, or never in a test.
"""

from __future__ import annotations

import builtins
import dis
from collections.abc import Iterator
from types import CodeType

GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME")
STORED = ("STORE_NAME", "STORE_GLOBAL")


def undefined(text: str) -> frozenset[str]:
    """What would be a NameError; the text is compiled, and not run."""
    module = compile(text, "generated", "exec")
    defined = {i.argval for i in dis.get_instructions(module) if i.opname in STORED}
    read = {i.argval for code in _codes(module) for i in dis.get_instructions(code)
            if i.opname in GLOBAL}  # fmt: skip
    return frozenset(read - defined - vars(builtins).keys() - {"__name__", "__file__"})


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _codes(part)
