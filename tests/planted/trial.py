"""What the suite says of a kernel's text: tests.checks on hard layouts, cheapest first.

The text runs on the CPU as a call runs it.  Exceptions are reports too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
from tests import checks, two_cores
from tests.frameworks import from_jax
from tests.planted.bug import FORMS, Bug
from tests.planted.cores import unsafe_splits
from tests.ragged import Space, every_stratum, wild_offsets
from tests.subjects import SUBJECTS, Arrays, Subject
from tilelang.codegen.source import Source
from tilelang.runtime.execution import results_of
from tilelang.runtime.lowering import Lowered
from tilelang.runtime.primitive import Code
from tilelang.runtime.program import Device, generated, program

SPACE = Space(rows=72, groups=5, block=16)
LAYOUTS = every_stratum(SPACE)
CROWDED = [la for la in LAYOUTS if la.stratum in ("crowded", "edges and empties", "gap before")]


@dataclass(frozen=True)
class Report:
    """Which check complained, and its words."""

    check: str
    text: str


def verdict(planted: Bug) -> Report | None:
    """The first report on a planted bug; None if nobody noticed."""
    lowered = printed(planted.subject, planted.form)
    return next(reports(planted.subject, lowered, planted.plant(lowered.source.text)), None)


def soundness(name: str, form: str) -> Report | None:
    """The first report on an example as it is printed; None if all is well."""
    lowered = printed(name, form)
    return next(reports(name, lowered, lowered.source.text), None)


@functools.cache
def printed(name: str, form: str) -> Lowered:
    """An example with its small blocks in one of the FORMS."""
    subject = named(name)
    config = tile.Config(subject.blocks_in(form), **FORMS[form])
    return subject.kernel.lower(*_arguments(subject), config=config)


def named(name: str) -> Subject:
    """The example of a name; StopIteration if there is none."""
    return next(s for s in SUBJECTS if s.name == name)


def text_of(subject: Subject, form: str) -> str | None:
    """The text of an example in a form, or for two cores; None if it has no such form."""
    options = {"cores": 2} if form == "cores" else FORMS[form]
    try:
        config = tile.Config(subject.blocks_in(form), **options)
        return subject.kernel.source(*_arguments(subject), config=config)
    except tile.PlanError:
        return None


@functools.cache
def arrays_of(subject: str) -> Arrays:
    """The small arguments of an example without offsets and statics."""
    found = named(subject)
    if found.ragged is None:
        return found.arrays("float32")
    return found.arrays("float32", rows=SPACE.rows, groups=SPACE.groups)


def _arguments(subject: Subject) -> tuple[Any, ...]:
    layout = None if subject.ragged is None else LAYOUTS[0]
    return subject.arguments(arrays_of(subject.name), layout)


# ---------------------------------------------------------------- checks


def reports(name: str, lowered: Lowered, text: str) -> Iterator[Report]:
    """What each check says of a text; checks that are content say nothing."""
    subject = named(name)
    yield from (Report("cores", found) for found in unsafe_splits(text))
    call = runnable(lowered, text, pltpu.InterpretParams() if lowered.plan.varying else True)
    for check, run in (*_of_cores(subject, lowered, text), *_dynamic(subject, call)):
        try:
            found = run()
        except Exception as error:  # a kernel that does not run has been caught
            found = [f"{type(error).__name__}: {error}"]
            pltpu.reset_tpu_interpret_mode_state()
        yield from (Report(check, each) for each in found)


def runnable(lowered: Lowered, text: str, interpret: Any = True) -> checks.Call:
    """A text as a function of complete arguments, as a call on the CPU would run it."""
    device = Device(lowered.target.device_kind, lowered.target.cores, interpret, False)
    operands = tuple(p.tensor for p in lowered.ir.params if p.tensor is not None)
    source, results = replace(lowered.source, text=text), results_of(lowered.ir)
    run = _program(source, lowered.ir.name, device, operands, results)

    def call(*arguments: Any) -> Any:
        tensors = [a for a in arguments if isinstance(a, np.ndarray)]
        return from_jax(run, tensors)

    return call


@functools.lru_cache(2)  # tests that run one text on one layout after the other compile it once
def _program(
    source: Source, name: str, device: Device, operands: tuple[str, ...], results: Any
) -> Callable[..., Any]:
    code, effectful = generated(source.load(), device), not isinstance(device.interpret, bool)
    return program(Code(name, results, lambda *where: code, effectful), operands, _never)


def _never(wanted: frozenset[str]) -> Any:
    raise AssertionError("a text is run, and not differentiated")


def _of_cores(
    subject: Subject, lowered: Lowered, text: str
) -> Iterator[tuple[str, Callable[[], list[str]]]]:
    """Where cores share a table: each alone, and the second one first."""
    if not two_cores.has_parts(text):
        return
    arrays, other = arrays_of(subject.name), runnable(lowered, two_cores.other_order(text))
    each = [runnable(lowered, two_cores.alone(text, core)) for core in (0, 1)]
    spread = subject.arguments(arrays, LAYOUTS[0])
    yield "idle", lambda: _some(two_cores.idle(each, spread))
    for layout in LAYOUTS:
        given = subject.arguments(arrays, layout)
        yield "parts", functools.partial(lambda a: _some(two_cores.stored_once(each, a)), given)
        yield (
            "other order",
            functools.partial(checks.every_layout, subject, other, arrays, [layout], "float32"),
        )


def _dynamic(subject: Subject, call: checks.Call) -> Iterator[tuple[str, Callable[[], list[str]]]]:
    """The checks that run the text: one for dense examples, each layout in turn for ragged ones."""
    arrays = arrays_of(subject.name)
    if subject.ragged is None:
        yield "result", lambda: _some(checks.right(subject, call, _arguments(subject), "float32"))
        return
    for layout in LAYOUTS:
        yield (
            "layouts",
            functools.partial(checks.every_layout, subject, call, arrays, [layout], "float32"),
        )
    for layout in CROWDED:
        yield "neighbours", functools.partial(checks.neighbours, subject, call, arrays, [layout])
    for offsets in wild_offsets(SPACE).values():
        yield "wrong offsets", functools.partial(checks.unchecked, subject, call, arrays, offsets)


def _some(text: str) -> list[str]:
    return [text] if text else []
