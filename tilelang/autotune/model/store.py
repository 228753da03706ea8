"""kept(key, make, folder) -> make()'s answer, from disk if the same question was answered before.

An entry names its whole question and the digest of its answer.  One that is cut off, changed,
moved to another name, or that another user wrote is a miss; writers replace whole files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import filelock

Answer = dict[str, Any]


def folder() -> Path:
    """Where answers are kept; removing it is harmless."""
    import platformdirs  # nobody else needs it, and a folder may be given

    return platformdirs.user_cache_path("raggedtile") / "predicted"


def kept(key: str, make: Callable[[], Answer], at: Path, patience: float) -> Answer:
    """The answer to a question; of several processes that ask it one works, and others wait.

    They wait for `patience` seconds; then, and where nothing can be written, they work as well.
    """
    name = hashlib.sha256(key.encode()).hexdigest()
    with contextlib.ExitStack() as stack:
        try:
            at.mkdir(mode=0o700, parents=True, exist_ok=True)
            at.chmod(0o700)  # it may have been there
            lock = filelock.FileLock(at / f"{name}.lock", timeout=patience, mode=0o600)
            stack.enter_context(lock)
        except (OSError, filelock.Timeout):
            return make()
        known = read(at / f"{name}.json", key)
        if known is None:
            known = make()
            with contextlib.suppress(OSError):
                write(at / f"{name}.json", key, known)
        return known


def read(path: Path, key: str) -> Answer | None:
    """The answer in a file; None unless it is whole, ours, and about this question."""
    try:
        if path.stat().st_uid != os.getuid():
            return None
        entry = json.loads(path.read_text(encoding="utf-8"))
        text = json.dumps(entry["answer"])
        if entry["key"] == key and entry["digest"] == _digest(key, text):
            return json.loads(text)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    return None


def write(path: Path, key: str, answer: Answer) -> None:
    """All of it or nothing, whoever else writes the same file."""
    entry = {"key": key, "digest": _digest(key, json.dumps(answer)), "answer": answer}
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, suffix=".part", delete=False, encoding="utf-8"
    ) as part:
        json.dump(entry, part)
    Path(part.name).replace(path)


def _digest(key: str, text: str) -> str:
    return hashlib.sha256(f"{key}\n{text}".encode()).hexdigest()
