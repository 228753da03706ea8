"""Names: new ones, which nothing of the author has."""

from __future__ import annotations

from collections.abc import Callable, Container
from itertools import count

from .kernel import KernelIR
from .traversal import statements
from .types import Assign, Loop


def first_free(wish: str, busy: Callable[[str], bool]) -> str:
    """The wished name, or the first one with a number that is not busy."""
    if not busy(wish):
        return wish
    return next(name for n in count(1) if not busy(name := f"{wish}_{n}"))


def fresh(wish: str, taken: Container[str]) -> str:
    """The wished name, or the first one with a number that is not taken."""
    return first_free(wish, taken.__contains__)


def take(wish: str, taken: set[str]) -> str:
    """The same, which is taken from then on."""
    name = fresh(wish, taken)
    taken.add(name)
    return name


def names_in(ir: KernelIR) -> set[str]:
    """Every name of a kernel: tensors, axes, values and what loops carry."""
    found = {t.name for t in ir.tensors} | {a.name for a in ir.axes}
    for stmt in statements(ir.body):
        match stmt:
            case Assign(name):
                found.add(name)
            case Loop():
                found |= {n for c in stmt.carries for n in (c.name, c.out)}
            case _:
                pass
    return found


def stem(name: str) -> str:
    """What a name was made from by a number: `acc` of `acc_2`."""
    first, _, number = name.rpartition("_")
    return first if first and number.isdigit() else name


def unique(ir: KernelIR, name: str, suffix: str) -> str:
    """`name_suffix`, or a variant that no tensor of the author's has."""
    taken = {t.name for t in ir.tensors} | {ir.name}

    def busy(stem: str) -> bool:
        wish = f"{stem}_{suffix}"
        return wish in taken or wish.removesuffix("_ref") in taken - {name}

    return f"{first_free(name, busy)}_{suffix}"
