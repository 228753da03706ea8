"""analyze(ir: KernelIR) -> Facts: what is true of a kernel, whatever the device.

Nothing is concluded without a proof: an axis whose iterations were not shown to commute is ordered.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir import KernelIR
from .access import references
from .axes import axis_fact
from .carries import definitions
from .cuts import changes
from .facts import Facts
from .fixed import fixed_facts, freed
from .folds import fold_facts
from .inside import leaving
from .lags import lag_facts
from .mistakes import refuse
from .numbers import number_facts
from .once import stored_once
from .order import order_facts
from .outputs import output_facts
from .placed import loops
from .positions import limits, position_facts
from .ranges import ranges
from .stores import store_facts
from .symbols import scope


def analyze(ir: KernelIR) -> Facts:
    """Proves what can be proved of axes, positions, outputs, stores and tiles of a fixed block."""
    free = freed(ir)
    facts = _facts(ir)
    return facts if free is None else replace(facts, fixed=fixed_facts(ir, _facts(free)))


def again(ir: KernelIR, before: Facts) -> Facts:
    """The same of a kernel that a pass has made; which tiles the author fixed, he still knows."""
    return replace(_facts(ir), fixed=before.fixed)


def _facts(ir: KernelIR) -> Facts:
    known = ranges(ir, scope(ir))
    refs = references(ir, known.scope)
    known = replace(known, limits=limits(refs, known))
    defined = definitions(ir)
    bodies = loops(ir)
    axes = tuple(
        axis_fact(a, bodies[a.name][0], refs, defined, known) for a in ir.axes if a.name in bodies
    )
    changed = changes(ir, defined, frozenset(a.name for a in axes if a.meets))
    return Facts(
        axes=axes,
        outputs=output_facts(refs, known),
        positions=position_facts(refs, known),
        numbers=number_facts(refs, known),
        stores=store_facts(ir, defined, known, changed),
        sorted=tuple(sorted({name for name, _ in known.sorted})),
        leaving=leaving(refs, known),
        folds=fold_facts(ir, defined, changed),
        lags=lag_facts(ir, defined, known),
        orders=order_facts(ir, refs, defined, known),
    )


__all__ = ["Facts", "again", "analyze", "refuse", "stored_once"]
