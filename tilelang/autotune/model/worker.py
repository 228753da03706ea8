"""python -m tilelang.autotune.model.worker: compiles generated modules and runs their schedules.

request  what tilelang.aot.worker is sent, with
         generation  "v6e"
         sets        [{position of an argument: [shape, flat integers]}, ...]
answer   runs: for each set what each kernel does; transfers: bytes that XLA moves around them, and
         what runs meanwhile; loops: of XLA, whose kernels are in `runs` once
         or error, line: what was raised, and the line of the module that it is about
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...aot import hlo
from ...aot.bundles import texts
from ...aot.serving import serve
from ...aot.worker import answered, build
from ...codegen.pallas.chips import CHIPS, Chip
from ...codegen.source import Source
from .execute import Execution, execute
from .program import Program, parse
from .scalars import calls, matched


def predicted(source: Source, request: Mapping[str, Any]) -> dict[str, Any]:
    """What every kernel of a module does in each set of arguments."""
    built = build(source, request)
    text, chip = built.executable.as_text() or "", CHIPS[request["generation"]]
    kernels = [(name, parse(dump, chip)) for name, dump in texts(Path(request["dump"]))]
    ours = hlo.kernels(text)
    if missing := set(ours) - {name for name, _ in kernels}:
        raise ValueError(f"libtpu wrote no schedule of {', '.join(sorted(missing))}")
    runs = []
    for given in request["sets"]:
        known = {int(place): _array(*value) for place, value in given.items()}
        found = built.traced(functools.partial(calls, known=known))
        runs.append([_kernel(name, name in ours, p, chip, found) for name, p in kernels])
    moved = [[each.bytes, each.beside] for each in hlo.transfers(text)]
    return {"runs": runs, "transfers": moved, "loops": text.count(" while(")}


def _array(shape: list[int], numbers: list[int]) -> np.ndarray:
    return np.array(numbers, np.int32).reshape(shape)


def _kernel(name: str, ours: bool, program: Program, chip: Chip, found: list) -> dict[str, Any]:
    arrays = matched(program, found) if ours else {}
    cores = range(chip.cores if program.core else 1)
    ran = [execute(program, chip, arrays, core) for core in cores]
    return {"name": name, "ours": ours} | asdict(_together(ran))


def _together(ran: list[Execution]) -> Execution:
    """Cores side by side: the slowest one's time, and what all of them do."""
    notes = sum((Counter(one.notes) for one in ran), Counter())
    return replace(
        max(ran, key=lambda one: one.cycles),
        read=sum(one.read for one in ran),
        written=sum(one.written for one in ran),
        matrix=sum(one.matrix for one in ran),
        spills=sum(one.spills for one in ran),
        notes=dict(notes),
    )


if __name__ == "__main__":
    serve(functools.partial(answered, make=predicted))
