"""Every rule of the executor, on a schedule written by hand; planted faults of each are caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.autotune.programs import CASES, CHIP, Case, dump
from tilelang.autotune.model import execute as executing
from tilelang.autotune.model import memory
from tilelang.autotune.model import program as parsing
from tilelang.autotune.model.memory import CoreMemory, words
from tilelang.autotune.model.units import Queues
from tilelang.codegen.pallas.chips import CHIPS, Chip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule(case: Case) -> None:
    found = case.run()
    wanted = {"notes": {}} | dict(case.expected)
    assert {name: getattr(found, name) for name in wanted} == wanted


def _more_slots(chip: Chip) -> Chip:
    return replace(chip, delay_slots=chip.delay_slots + 1)


def _one_slot_less(chip: Chip) -> Chip:
    return replace(chip, delay_slots=chip.delay_slots - 1)


def _no_latency(chip: Chip) -> Chip:
    return replace(chip, units=replace(chip.units, reduce=0, product=0))


CHIP_FAULTS: tuple[Callable[[Chip], Chip], ...] = (_more_slots, _one_slot_less, _no_latency)


@pytest.mark.parametrize("fault", CHIP_FAULTS)
def test_a_planted_fault_of_the_chip_is_caught(fault: Callable[[Chip], Chip]) -> None:
    assert not all(case.is_right(fault(case.chip)) for case in CASES)


def _unnamed_regions_lost(chunks: list[str]) -> dict[int, int]:
    found = {}
    for index, chunk in enumerate(chunks):
        for edge, number in parsing._REGION.findall(chunk):
            if edge != "End":
                found.setdefault(int(number), index)
    return found | {6: found.get(5, 0)}


def _from_the_start(fill: Callable[..., None]) -> Callable[..., None]:
    def filled(of: CoreMemory, home: str, size: int, source: Any, target: Any) -> None:
        fill(of, home, size, of._arrays[0][1] if of._arrays else source, target)

    return filled


def _entered_idle(run: Callable[..., Any]) -> Callable[..., Any]:
    return lambda queues, begin, end, state, asked: run(queues, begin, end, (), asked)


def _unsigned(kind: str, texts: list[str]) -> str:
    return f"{texts[0]} {executing.COMPARISONS[kind.split('.')[0]]} {texts[1]}"


FAULTS: dict[str, tuple[Any, str, Any]] = {
    "waits are ignored": (CoreMemory, "wait", lambda *_: None),
    "a skipped copy is counted": (executing._Core, "_sure", lambda *_: True),
    "latencies of copies are left out": (
        CoreMemory,
        "_end",
        lambda m, way, at, size: (at, "reads"),
    ),
    "flags only grow": (CoreMemory, "add", lambda *_: None),
    "a region without a name is lost": (parsing, "_regions", _unnamed_regions_lost),
    "offsets of copies are left out": (CoreMemory, "_fill", _from_the_start(CoreMemory._fill)),
    "arrays lie without tiles": (memory, "words", lambda array: array.reshape(-1)),
    "every argument is an address": (CoreMemory, "register", CoreMemory.base),
    "numbers have no sign": (executing, "_compared", _unsigned),
    "delays are written out": (Chip, "implicit_delays", property(lambda chip: False)),
    "units are idle where a line begins": (Queues, "run", _entered_idle(Queues.run)),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_planted_fault_is_caught(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executing, "MOST_LINES", 10_000)
    monkeypatch.setattr(*FAULTS[what])
    assert not all(case.is_right() for case in CASES)


def test_words_of_one_dimension_are_in_order() -> None:
    assert words(np.array([3, -1], np.int32)).tolist() == [3, 2**32 - 1]


def test_rows_of_small_integers_share_words() -> None:
    found = words(np.array([[1, 2], [3, -1], [5, 6], [7, 8], [9, 10]], np.int8))
    assert found.reshape(-1, 128)[:, :2].tolist() == [[0x07050301, 0x0806FF02], [9, 10]]


def test_what_is_no_dump_is_refused() -> None:
    with pytest.raises(ValueError, match="no bundle in the dump"):
        parsing.parse("nothing here", CHIP)
    with pytest.raises(ValueError, match="a branch to region 9, which is nowhere"):
        parsing.parse(dump("%1 = sbr.rel target = $region9"), CHIP)


def test_a_loop_that_does_not_end_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executing, "MOST_LINES", 1000)
    text = dump(" | Start region 1", "%9 = sbr.rel target = $region1", "", "", "")
    case = Case("endless", text, {})
    assert case.run().notes == {"a loop that does not end": 1}


# bfloat16 operations per second of one core, as published
PEAKS = {"v4": 137.5e12, "v5e": 197e12, "v5p": 229.5e12, "v6e": 918e12, "7x": 1153.5e12}


def test_chips_agree_with_the_published_peaks() -> None:
    """A matrix unit is 128 wide, on v6e and 7x 256, and multiplies 8 rows in `multiply` cycles."""
    assert PEAKS.keys() == CHIPS.keys()
    for name, chip in CHIPS.items():
        wide = 128 * chip.units.results
        rows = 8 / chip.units.multiply
        made = 2 * wide * wide * rows * chip.units.matrix * chip.clock
        assert made == pytest.approx(PEAKS[name], rel=0.25), name
