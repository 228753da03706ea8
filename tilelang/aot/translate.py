"""refused(...), gone(...) -> CompileError: the user's line, the broken rule, and what to change."""

from __future__ import annotations

import posixpath
import re
import signal
from collections.abc import Iterator

from ..codegen.pallas.target import Target as TpuTarget
from ..errors import CompileError, Loc
from ..ir import Apply, KernelIR, Load, statement_exprs, statements, walk
from ..runtime.lowering import Lowered, vmem_of
from .process import Gone
from .rules import rule_of

REPORT = "the compiler's own text is in error.raw; please report it with the kernel"

_COMMENT = re.compile(r"^(?P<indent> *)# (?P<file>[^:]+):(?P<line>\d+): ")


def refused(lowered: Lowered, raw: str, line: int | None) -> CompileError:
    """The compiler's message about a line of the generated module, as an error of the kernel."""
    said = _plain(lowered, raw)
    what, hint = said or (_first_line(raw), REPORT)
    return CompileError(
        f"{_subject(lowered)} does not compile: {what}", place(lowered, line), hint, raw
    )


def gone(lowered: Lowered, ended: Gone, timeout: float) -> CompileError:
    """The end of the worker, as an error of the kernel that it was compiling."""
    subject, loc = _subject(lowered), lowered.ir.loc
    if ended.code is None:
        return CompileError(
            f"{subject} was not compiled within {timeout:g} seconds",
            loc,
            "pass a larger timeout=, or use smaller blocks: large unrolled blocks compile slowly",
            ended.said,
        )
    if -ended.code == signal.SIGKILL:
        return CompileError(
            f"{subject} was not compiled: the compiler was killed, as when memory runs out",
            loc,
            "use smaller blocks, or compile fewer kernels at a time (--jobs 1)",
            ended.said,
        )
    what, hint = _plain(lowered, ended.said) or (_last_line(ended.said), REPORT)
    how = _ended(ended.code)
    return CompileError(
        f"{subject} does not compile: {how}{': ' if what else ''}{what}", loc, hint, ended.said
    )


def place(lowered: Lowered, line: int | None) -> Loc:
    """The user's statement behind a line of the generated module, else the kernel.

    The comment above a generated statement names the author's line and is indented no more than
    the statement; the search ends where the function begins.
    """
    if line is None:
        return lowered.ir.loc
    lines = lowered.source.text.splitlines()[:line]
    depth = len(lines[-1]) - len(lines[-1].lstrip()) if lines else 0
    for text in reversed(lines):
        if text.startswith("def "):
            break
        comment = _COMMENT.match(text)
        if comment and len(comment["indent"]) <= depth:
            return _located(lowered.ir, comment["file"], int(comment["line"]))
    return lowered.ir.loc


def _located(ir: KernelIR, file: str, line: int) -> Loc:
    """The statement of the kernel at that line of a file of that name."""
    for loc in _locs(ir):
        name = posixpath.basename(loc.filename.replace("\\", "/"))
        if (name, loc.line) == (file, line):
            return loc
    return ir.loc


def _locs(ir: KernelIR) -> Iterator[Loc]:
    """Every place that the kernel names, statements before their parts."""
    for stmt in statements(ir.body):
        yield stmt.loc
        for expr in statement_exprs(stmt):
            for part in walk(expr):
                if isinstance(part, Apply | Load) and part.loc is not None:
                    yield part.loc


def _plain(lowered: Lowered, raw: str) -> tuple[str, str] | None:
    """The broken rule of the TPU compiler and what to change; None if the message is not known."""
    found, target = rule_of(raw), lowered.target
    if found is None or not isinstance(target, TpuTarget):
        return None
    rule, match = found
    groups = (match.group(), *match.groups())
    what = rule.what.format(*groups, vmem=vmem_of(lowered.plan), physical=target.vmem_physical)
    return what, rule.hint


def _subject(lowered: Lowered) -> str:
    return f"{lowered.ir.name} for {lowered.target}"


def _ended(code: int) -> str:
    """How a process ended, by its exit code."""
    if code >= 0:
        return f"the compiler's process ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"the compiler aborted its process ({name})"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
