"""source(kernel, facts) -> str: a derived gradient as a module in the language."""

from __future__ import annotations

from dataclasses import replace

from ..analysis.facts import Facts
from ..ir import KernelIR
from .language_text import module
from .reverse import derive


def source(kernel: KernelIR, facts: Facts) -> str:
    """The forward kernel, where it saves something, and every launch of the backward program."""
    arguments = tuple(p for p in kernel.params if p.tensor is not None)
    made = derive(kernel, facts, frozenset(p.tensor for p in arguments if p.tensor is not None))
    name = f"{kernel.name}_saving"
    saving = [replace(made.forward, name=name, params=arguments)] if made.saved else []
    return module([*saving, *(launch.kernel for launch in made.launches)])
