"""Prediction: how long a kernel takes on a TPU, and why, by its compiled schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...aot.hlo import Transfer
from ...codegen.pallas.chips import Chip
from ...codegen.pallas.target import Target
from ...schedule.config import Config


@dataclass(frozen=True)
class KernelTime:
    """One kernel of the program; seconds and bytes.

    ours     whether it is generated code, and not a kernel that XLA put around it
    compute  its bundles, and what they wait for units of the core
    traffic  what its bytes take at the chip's bandwidth
    stalls   why it stands still -> seconds: "units", and copies: "reads", "writes", "local copies"
    matrix   share of the time that the matrix units multiply
    spills   stores of vector registers that did not fit
    notes    what could not be resolved -> how often
    """

    name: str
    ours: bool
    seconds: float
    compute: float
    traffic: float
    stalls: Mapping[str, float]
    matrix: float
    read: int
    written: int
    spills: int
    notes: Mapping[str, int]

    def __str__(self) -> str:
        """A line."""
        waits = ", ".join(f"{why} {_share(s, self.seconds)}" for why, s in self.stalls.items())
        return (
            f"{self.name}{'' if self.ours else ' (XLA)'}: {duration(self.seconds)}; compute "
            f"{duration(self.compute)}, traffic {duration(self.traffic)} "
            f"({self.read:,} B read, {self.written:,} written); waits: {waits or 'none'}; "
            f"matrix units {self.matrix:.0%}{f'; {self.spills:,} spills' if self.spills else ''}"
        )


@dataclass(frozen=True)
class ProgramRun:
    """The whole program with one set of arguments.

    kernels  in the order in which they were compiled
    fetched  seconds in which kernels wait for what XLA moves between HBM and vector memory
    limit    seconds that no schedule can beat: every argument and result moved once (or only what
             the kernels move, if that is less), or the products, padding included, at the chip's
             peak
    """

    kernels: tuple[KernelTime, ...]
    fetched: float
    limit: float

    @property
    def seconds(self) -> float:
        return sum(kernel.seconds for kernel in self.kernels) + self.fetched

    @property
    def around(self) -> float:
        """Seconds of what XLA does around the generated kernels."""
        return self.fetched + sum(k.seconds for k in self.kernels if not k.ours)


@dataclass(frozen=True)
class Prediction:
    """Predicted time of a kernel for one target and config; nothing was run.

    runs   one for each set of values that was given
    loops  that XLA runs around the kernels: what is in them is counted once
    notes  what could not be resolved -> how often; with any the time is not to be ranked by
    """

    target: Target
    config: Config
    runs: tuple[ProgramRun, ...]
    loops: int = 0

    @property
    def seconds(self) -> float:
        """The mean over the sets of values."""
        return sum(run.seconds for run in self.runs) / len(self.runs)

    @property
    def worst(self) -> float:
        """Seconds of the slowest set of values."""
        return max(run.seconds for run in self.runs)

    @property
    def limit(self) -> float:
        """Seconds that no schedule can beat, the mean over the sets."""
        return sum(run.limit for run in self.runs) / len(self.runs)

    @property
    def notes(self) -> Mapping[str, int]:
        found = (Counter(kernel.notes) for run in self.runs for kernel in run.kernels)
        loops = {"a loop of XLA, of which one turn is counted": self.loops} if self.loops else {}
        return dict(sum(found, Counter())) | loops

    def __str__(self) -> str:
        """A line of times, one for each kernel of the slowest set, and one for each doubt."""
        blocks = ", ".join(f"{name}={size}" for name, size in self.config.blocks)
        slowest = max(self.runs, key=lambda run: run.seconds)
        sets = ""
        if len(self.runs) > 1:
            sets = f" (mean of {len(self.runs)} sets, worst {duration(self.worst)})"
        times = f"{self.seconds / self.limit:.2f}x of it" if self.limit else "which is nothing"
        lines = [
            f"{self.target}, blocks {blocks or 'none'}: {duration(self.seconds)}{sets} predicted, "
            f"limit {duration(self.limit)}: {times}",
            *(f"  {kernel}" for kernel in slowest.kernels),
        ]
        if slowest.fetched:
            lines.append(f"  waits for arrays that XLA moves: {duration(slowest.fetched)}")
        if self.notes:
            lines.append("  UNRESOLVED, do not compare this time with others:")
        return "\n".join([*lines, *(f"    {note} ({n} times)" for note, n in self.notes.items())])


def runs_of(answer: Mapping[str, Any], chip: Chip, moved_once: int) -> tuple[ProgramRun, ...]:
    """The worker's answer as values; `moved_once` are the bytes of arguments and results."""
    transfers = [Transfer(size, tuple(beside)) for size, beside in answer["transfers"]]
    return tuple(_run(kernels, transfers, chip, moved_once) for kernels in answer["runs"])


def _run(
    kernels: list[dict[str, Any]], transfers: Sequence[Transfer], chip: Chip, moved_once: int
) -> ProgramRun:
    bandwidth = chip.bandwidth * chip.cores
    fetched = sum(transfer.bytes for transfer in transfers)
    moved = fetched + sum(k["read"] + k["written"] for k in kernels)
    multiplied = sum(k["matrix"] for k in kernels) / _matrix_cycles(chip)
    times = tuple(_kernel(k, chip) for k in kernels)
    waits = _waits(times, transfers, bandwidth)
    return ProgramRun(
        times,
        waits + chip.read if waits else 0.0,
        max(min(moved, moved_once) / bandwidth, multiplied),
    )


def _waits(kernels: Sequence[KernelTime], transfers: Sequence[Transfer], bandwidth: float) -> float:
    """Seconds that are left of transfers when all kernels beside them have run.

        kernel     | compute       |  wait  | compute |
                   | reads |
        transfer           |-------|--------|

    They have the bandwidth that the kernels leave, the first one started first.
    """
    free = {k.name: max(k.seconds - k.traffic, 0.0) for k in kernels}
    waits = 0.0
    for transfer in transfers:
        left = transfer.bytes / bandwidth
        for name in transfer.beside:
            used = min(left, free.get(name, 0.0))
            if used:
                free[name] -= used
                left -= used
        waits += left
    return waits


def _kernel(found: Mapping[str, Any], chip: Chip) -> KernelTime:
    stalls = {why: cycles / chip.clock for why, cycles in found["stalls"].items()}
    seconds = found["cycles"] / chip.clock
    copies = sum(spent for why, spent in stalls.items() if why != "units")
    return KernelTime(
        name=found["name"],
        ours=found["ours"],
        seconds=seconds,
        compute=seconds - copies,
        traffic=(found["read"] + found["written"]) / (chip.bandwidth * chip.cores),
        stalls=stalls,
        matrix=found["matrix"] / _matrix_cycles(chip) / seconds if seconds else 0.0,
        read=found["read"],
        written=found["written"],
        spills=found["spills"],
        notes=found["notes"],
    )


def _matrix_cycles(chip: Chip) -> float:
    """Cycles that all matrix units of a chip multiply in a second."""
    return chip.clock * chip.units.matrix * chip.cores


def duration(seconds: float) -> str:
    """ "12.3 us"."""
    for unit, scale in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.4g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "0%"
