"""tuned(cases, targets): each kernel of some files, for each class of shapes and each target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..autotune.trials import Tuned
from ..errors import TileError
from .cases import Case


@dataclass(frozen=True)
class Job:
    """The cases of one choice."""

    kernel: Any  # a Kernel
    target: str
    name: str
    cases: tuple[tuple, ...]


def jobs(cases: Sequence[Case], targets: Iterable[str]) -> Iterator[Job]:
    """Cases of one kernel and one class of shapes go together."""
    for target in targets:
        found: dict[object, list[Case]] = {}
        for case in cases:
            subject, _ = case.kernel.subject(*case.arguments, target=target)
            found.setdefault((id(case.kernel), subject), []).append(case)
        for same in found.values():
            first = same[0]
            yield Job(first.kernel, target, str(first), tuple(c.arguments for c in same))


def tuned(
    listed: Iterable[Job],
    tune: Callable[..., Tuned],
    lock: Path,
    check: bool,
    options: dict[str, Any],
) -> Iterator[tuple[Job, str, bool]]:
    """Each job, what is to be read about it, and whether it failed; choices go to the lock file."""
    for job in listed:
        try:
            found = tune(
                job.kernel, job.cases, target=job.target, check=check, lock=lock, **options
            )
        except TileError as error:
            yield job, f"FAILED {error}", True
            continue
        if check:
            yield job, f"{found.subject}: the config in {lock} holds", False
        else:
            found.save(lock)
            yield job, str(found), False
