"""Method: a kernel that was looked up on an object of the class that it was written in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

# Methods of a kernel that take the kernel's arguments.
CALLED_WITH_ARGUMENTS = frozenset(
    ("lower", "source", "print_source", "explain", "compile", "default_config", "reference")
)


@dataclass(frozen=True, eq=False)
class Method:
    """The kernel with the object as its first argument, as a bound method of Python is."""

    kernel: Callable[..., Any]
    instance: object

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the kernel with the object before the arguments."""
        return self.kernel(self.instance, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in ("kernel", "instance"):  # while copy or Dynamo makes an empty one
            raise AttributeError(name)
        found = getattr(self.kernel, name)
        return partial(found, self.instance) if name in CALLED_WITH_ARGUMENTS else found


def is_method(fn: Callable[..., Any]) -> bool:
    """Whether a function was written in a class body: a kernel that a class only holds is not."""
    scope, _, _ = fn.__qualname__.rpartition(".")
    return bool(scope) and not scope.endswith("<locals>")
