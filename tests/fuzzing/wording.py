"""foreign(said, program) -> names in a message that its author did not write.

Blocks of a config are called after loops, the second one of a name t_1: those are known.
"""

from __future__ import annotations

import re

from tests.fuzzing.program import Program
from tests.fuzzing.text import source

MADE = re.compile(r"\b[A-Za-z]\w*_(?:\d+|in|out|new|ref|row|kernel)\b|[%?]\w+")
NUMBERED = re.compile(r"_\d+$")


def foreign(said: str, program: Program) -> frozenset[str]:
    """Names that look like those of the compiler, and that are not in the kernel's text."""
    loops, text = {a.loop for a in program.axes}, source(program)
    own = (name for name in MADE.findall(said) if not re.search(rf"\b{re.escape(name)}\b", text))
    return frozenset(name for name in own if NUMBERED.sub("", name) not in loops)
