"""Source: the text of a generated module, and the callable behind it."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import linecache
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, ModuleType


@dataclass(frozen=True)
class Source:
    """A generated module: its text and the name of its host function."""

    text: str
    entry: str

    @property
    def digest(self) -> str:
        """A hash of the text; the same plan gives the same digest on every machine."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @property
    def filename(self) -> str:
        """What tracebacks call the module; `linecache` and pdb find its lines."""
        return f"<tilelang {self.entry}-{self.digest}>"

    def load(self) -> Callable[..., object]:
        """The host function, from a module of its own: a fresh kernel function per source.

        JAX 0.11.0-0.11.2 freeze the grid of a kernel function that serves several grids, so
        sources are never loaded into a shared module.
        """
        return getattr(_module(self), self.entry)

    def compiled(self) -> CodeType:
        """Its code; debuggers and tracebacks show its lines."""
        lines = self.text.splitlines(keepends=True)
        linecache.cache[self.filename] = (len(self.text), None, lines, self.filename)
        return compile(self.text, self.filename, "exec")

    def __str__(self) -> str:
        return self.text


@functools.lru_cache(maxsize=512)
def _module(source: Source) -> ModuleType:
    name = f"tilelang_generated_{source.entry}_{source.digest}"
    spec = importlib.util.spec_from_loader(name, loader=None, origin=source.filename)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    exec(source.compiled(), module.__dict__)
    sys.modules[name] = module
    return module
