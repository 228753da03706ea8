"""Names: what everything is called in the generated module, decided once per launch."""

from __future__ import annotations

import keyword
from dataclasses import dataclass, field, replace

from tilelang.codegen.pallas.plan.types import MODULE_NAMES, Launch, Parts, Plan, Table
from tilelang.ir.names import first_free, stem

WORDS = ("n", "steps", "step", "at", "before", "after", "live")
FLOW_WORDS = ("piece", "flow", "reach", "back")
BESIDE_WORDS = ("later", "begin_row", "end_row")
TABLE_WORDS = ("seen", "state", "outer_step")
PART_WORDS = ("part", "core", "inside", "row", "share", "first", "move")


@dataclass
class Names:
    """Printed names: of axes, columns, functions of rows, scratch, and the locals of each scope.

    `taken` grows as names are given out; locals of one section may repeat those of another.
    """

    taken: set[str]
    axes: dict[str, str] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    rows: dict[str, str] = field(default_factory=dict)
    scratch: dict[str, str] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)

    @property
    def step(self) -> str:
        """The number of the step."""
        return self.words["n"]

    @property
    def steps(self) -> str:
        """How many steps there are."""
        return self.words["steps"]

    def renamed(self, axes: dict[str, str]) -> Names:
        """The same names, but for some axes."""
        return replace(self, axes={**self.axes, **axes})

    def word(self, wish: str) -> str:
        """A word of the generated code, or its variant if the author uses the word."""
        return self.words[wish]

    def fresh(self, wish: str) -> str:
        """The wished name, or the first free one with a number."""
        name = first_free(wish, lambda name: name in self.taken or keyword.iskeyword(name))
        self.taken.add(name)
        return name


def names_of(plan: Plan, launch: Launch) -> Names:
    """Gives out the launch's names: arrays and windows keep theirs, then axes, then the rest."""
    taken = set(MODULE_NAMES) | {t.name for t in plan.ir.tensors} | {a.name for a in plan.arrays}
    taken |= {w.ref for w in launch.windows} | {launch.name, plan.ir.name}
    names = Names(taken)
    others = frozenset(a.name for a in launch.axes)
    for axis in launch.axes:
        names.axes[axis.name] = _axis_name(names, axis.name, others)
        names.rows[axis.name] = f"{names.axes[axis.name]}_rows"
    for kept in launch.scratch:
        names.scratch[kept.name] = names.fresh(f"{stem(kept.name).replace('.', '_')}_ref")
    tracks = launch.table is not None and launch.table.tracks
    for word in (*TABLE_WORDS, *WORDS, *(("phase",) if tracks else ())):
        names.words[word] = names.fresh(word)
    for word in PART_WORDS if isinstance(launch.parts, Parts) else ():
        names.words[word] = names.fresh(word)
    if launch.table is not None:
        _name_columns(names, launch.table, others)
    for window in (w for w in launch.windows if w.flows):
        names.scratch[window.ref] = names.fresh(f"{window.argument}_copied")
        names.words[window.ref] = names.fresh(f"{window.argument}_piece")
    for word in FLOW_WORDS if launch.flow is not None else ():
        names.words[word] = names.fresh(word)
    for word in BESIDE_WORDS if launch.beside is not None else ():
        names.words[word] = names.fresh(word)
    if launch.worklist:
        names.taken |= {f"{names.steps}_of", "expand", "held"}
    # the table's loops are functions of their own: their words are free again in the step
    taken -= {names.words[word] for word in TABLE_WORDS}
    return names


def _name_columns(names: Names, table: Table, others: frozenset[str]) -> None:
    """The table's columns: loops that nest, then the number of the loop and its tracks."""
    for column in table.outer:
        names.columns[column.axis] = f"{names.axes[column.axis]}_of"
    if table.tracks:
        phase = names.word("phase")
        names.columns[phase] = f"{phase}_of"
        names.taken.add(f"{phase}_of")
    for track in table.tracks:
        if track.name not in names.axes:
            names.axes[track.name] = _axis_name(names, track.name, others)
        names.columns[track.name] = f"{names.axes[track.name]}_of"
    for name, _ in table.noted:
        names.columns[name] = f"{names.fresh(name.replace('.', '_'))}_of"
        names.taken.add(names.columns[name])


# What is made of an axis' name in the table's loops, the step and the index lines.
DERIVED = (
    "add_{}", "each_{}", "{}_of", "{}_first", "{}_stop", "{}_start", "{}_begin", "{}_end",
    "{}_step", "{}_live", "{}_index", "{}_mask", "{}_position", "{}_rows",
    "{}_runs", "{}_seen", "{}_at", "{}_products", "{}_ahead", "{}_turns", "{}_short", "{}_once",
)  # fmt: skip


def _axis_name(names: Names, wish: str, others: frozenset[str]) -> str:
    """The axis' own name, unless it or a name made of it is one of the author's.

    The names made of it are taken with it.
    """
    busy = names.taken | (others - {wish})

    def family(name: str) -> set[str]:
        return {name, *(d.format(name) for d in DERIVED)}

    name = first_free(wish, lambda name: not busy.isdisjoint(family(name)))
    names.taken |= family(name)
    return name
