"""Names: what everything is called in the generated module, decided once per launch."""

from __future__ import annotations

import keyword
from dataclasses import dataclass, field

from ...schedule.plan import Launch, Plan

RESERVED = frozenset({"jax", "jnp", "pl", "pltpu", "interpret", "step", "at"})


@dataclass
class Names:
    """Printed names: of axes, table columns, scratch, and the locals of each scope.

    `taken` grows as names are given out; locals of one section may repeat those of another.
    """

    taken: set[str]
    axes: dict[str, str] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    scratch: dict[str, str] = field(default_factory=dict)
    step: str = "n"
    steps: str = "steps"

    def fresh(self, wish: str) -> str:
        """The wished name, or the first free one with a number."""
        name, number = wish, 0
        while name in self.taken or keyword.iskeyword(name):
            number += 1
            name = f"{wish}_{number}"
        self.taken.add(name)
        return name


def names_of(plan: Plan, launch: Launch) -> Names:
    """Gives out the launch's names: arrays and windows keep theirs, then axes, then the rest."""
    taken = set(RESERVED) | {t.name for t in plan.ir.tensors} | {a.name for a in plan.arrays}
    taken |= {w.ref for w in launch.windows} | {launch.name, plan.ir.name}
    names = Names(taken)
    for axis in launch.axes:
        names.axes[axis.name] = names.fresh(axis.name)
    for kept in launch.scratch:
        names.scratch[kept.name] = names.fresh(f"{_stem(kept.name)}_ref")
    for column in launch.table.columns if launch.table else ():
        names.columns[column.axis] = names.fresh(f"{names.axes[column.axis]}_of")
    names.step = names.fresh("n")
    names.steps = names.fresh("steps")
    return names


def _stem(name: str) -> str:
    stem, _, number = name.rpartition("_")
    return stem if stem and number.isdigit() else name
