"""function(title, parameters, flat) -> Callable: a function that was written for one kind of call.

A later call of a kernel may cost little more than what it launches.  So what it does is one flat
function: what it looks at, what it makes, what it launches, with nothing decided and nothing looped
over.  Names of ours begin with an underscore, and those of the author never do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..codegen.source import Source


@dataclass(frozen=True)
class Flat:
    """A function's lines, with the author's names for the arguments.

    unless  conditions: where one of them holds, the lines are not for that call
    lines   what it does
    names   what the text names
    """

    unless: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    names: Mapping[str, Any] = field(default_factory=dict)

    def after(self, unless: Sequence[str], names: Mapping[str, Any]) -> Flat:
        """The same for fewer calls."""
        return Flat((*unless, *self.unless), self.lines, {**self.names, **names})


def joined(*parts: Flat) -> Flat:
    """One after the other."""
    names = {name: value for part in parts for name, value in part.names.items()}
    unless = tuple(test for part in parts for test in part.unless)
    return Flat(unless, tuple(line for part in parts for line in part.lines), names)


def local(name: str) -> str:
    """A parameter as it is called in written functions; no two are called alike."""
    return f"arg{name}" if name.startswith(("_", "arg")) else name


def listed(parameters: Sequence[str]) -> str:
    """A tuple of them."""
    return f"({', '.join(parameters)}{',' * (len(parameters) == 1)})"


def function(title: str, parameters: Sequence[str], flat: Flat) -> Callable[..., Any]:
    """The function; where its lines are not for a call, it gives `_otherwise` the arguments."""
    head = [f"def {title}({', '.join(parameters)}):"]
    if flat.unless:
        tests = [f"        {'or ' * (n > 0)}{test}" for n, test in enumerate(flat.unless)]
        given = listed(parameters)
        head += ["    if (", *tests, "    ):", f"        return _otherwise({given})"]
    text = "\n".join([*head, *(f"    {line}" for line in flat.lines), ""])
    module = {"__name__": __name__, **flat.names}
    exec(Source(text, title).compiled(), module)
    return module[title]
