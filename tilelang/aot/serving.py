"""serve(answer): what every worker does: reads lines of JSON and answers each with one."""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any


def serve(answer: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
    """Answers until stdin ends."""
    answers = _own_stdout()
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()


def failing_line(error: BaseException, filename: str) -> int | None:
    """The innermost line of the generated module that an error names, None if it names none."""
    named = re.compile(rf'"{re.escape(filename)}":(\d+)')
    for raised in _chain(error):
        frames = traceback.extract_tb(raised.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == filename]
        lines = lines or [int(number) for number in named.findall(str(raised))[:1]]
        if lines:
            return lines[-1]
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what it was raised from."""
    raised: BaseException | None = error
    while raised is not None:
        yield raised
        raised = raised.__cause__ or raised.__context__


def text_of(error: BaseException) -> str:
    """The message, and that of the compiler's own error behind it; tracebacks are left out."""
    texts = [
        f"{type(raised).__name__}: {raised}"
        for raised in _chain(error)
        if "StackTrace" not in type(raised).__name__
    ]
    return "\n".join(dict.fromkeys(texts))


def _own_stdout() -> IO[str]:
    """Stdout for answers alone: what libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers
