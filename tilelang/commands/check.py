"""check(cases, targets) -> CheckRow...: every case compiled for every target, a worker per target.

Starting a worker costs seconds, so that one compiles many cases; if it dies the case is reported
and the rest goes on in a fresh one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ..aot import Compiled, CudaCompiled, Worker, compile_lowered, worker_for
from ..errors import CompileError, TileError
from .cases import Case


@dataclass(frozen=True)
class CheckRow:
    """One case for one target: what the compiler made of it, or why it refused."""

    case: Case
    target: str
    result: Compiled | CudaCompiled | TileError

    @property
    def failed(self) -> bool:
        return isinstance(self.result, TileError)


def check(
    cases: Sequence[Case],
    targets: Iterable[str],
    *,
    jobs: int = 2,
    timeout: float = 120,
    start: Callable[[str], Worker] = worker_for,
) -> tuple[CheckRow, ...]:
    """Rows of the first target, then of the next; `jobs` workers at a time."""
    with ThreadPoolExecutor(max(jobs, 1)) as pool:
        rows = pool.map(lambda target: _for_one(cases, target, timeout, start), targets)
        return tuple(row for some in rows for row in some)


def _for_one(
    cases: Sequence[Case], target: str, timeout: float, start: Callable[[str], Worker]
) -> list[CheckRow]:
    worker = start(target)
    rows = []
    try:
        for case in cases:
            if not worker.alive:
                worker.close()
                worker = start(target)
            rows.append(CheckRow(case, target, _compile(case, target, timeout, worker)))
    finally:
        worker.close()
    return rows


def _compile(
    case: Case, target: str, timeout: float, worker: Worker
) -> Compiled | CudaCompiled | TileError:
    """The result or the error; an exception that is none of ours is one all the same."""
    try:
        lowered = case.kernel.lower(*case.arguments, target=target)
        return compile_lowered(lowered, timeout=timeout, worker=worker)
    except TileError as error:
        return error
    except Exception as error:  # one case must not end the others
        return CompileError(f"{case.name} for {target}: {type(error).__name__}: {error}")
