"""CachedWorker: the compiler's worker with a memory, so that unchanged kernels cost nothing.

Answers are kept in files, one for each request: the generated module, shapes and generation, with
the versions of the compiler's packages and the code that asks.  Deaths of the compiler and
time-outs are not kept.  The folder is $XDG_CACHE_HOME/raggedtile, ~/.cache/raggedtile if that is
not set; removing it is harmless.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import importlib.metadata
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tilelang
from tilelang.aot import Worker, worker_for

ROOT = Path(tilelang.__file__).parent


@dataclass(frozen=True)
class Compiler:
    """A compiler in a process of its own: its packages, our code that asks it, how it starts."""

    packages: tuple[str, ...]
    asking: tuple[str, ...]  # files of the package, patterns
    start: Callable[[], Worker]


TPU = Compiler(("jax", "jaxlib", "libtpu"), ("aot/*.py",), lambda: Worker())
CUDA = Compiler(
    ("triton",), ("aot/cuda_worker.py", "runtime/cuda/compiler.py"), lambda: worker_for("cuda:")
)


def folder() -> Path:
    """Where answers are kept."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "raggedtile" / "compiled"


@functools.cache
def versions(compiler: Compiler) -> str:
    """Whatever an answer depends on besides the request."""
    installed = [f"{name} {importlib.metadata.version(name)}" for name in compiler.packages]
    sources = sorted(path for pattern in compiler.asking for path in ROOT.glob(pattern))
    asking = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    return "; ".join([*installed, asking])


def key(request: Mapping[str, Any], compiler: Compiler) -> str:
    """The name of a request: the same for the same text, shapes and versions."""
    asked = json.dumps(request, sort_keys=True)
    return hashlib.sha256(f"{versions(compiler)}\n{asked}".encode()).hexdigest()


class CachedWorker:
    """Answers like a Worker; the process starts at the first request that is new.

    Executables are not kept.  `compiled` counts the requests that were not in the cache.
    """

    def __init__(self, at: Path | None = None, compiler: Compiler = TPU) -> None:
        self._at = folder() if at is None else at
        self._compiler = compiler
        self._worker: Worker | None = None
        self.compiled = 0

    @property
    def alive(self) -> bool:
        return True  # one that died is replaced at the next request

    def ask(self, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """The answer to a request; raises Gone as a Worker does."""
        request = {**request, "serialize": False}
        path = self._at / f"{key(request, self._compiler)}.json"
        if path.is_file():
            return json.loads(path.read_text(encoding="utf-8"))
        reply = self._started().ask(request, timeout)
        self.compiled += 1
        _write(path, json.dumps(reply))
        return reply

    def close(self) -> None:
        """Ends the process if there is one."""
        if self._worker is not None:
            self._worker.close()

    def __enter__(self) -> CachedWorker:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _started(self) -> Worker:
        if self._worker is None or not self._worker.alive:
            self.close()
            self._worker = self._compiler.start()
        return self._worker


@functools.cache
def shared(compiler: Compiler) -> CachedWorker:
    """The one of this process, for all tests: each new one takes seconds to start."""
    worker = CachedWorker(compiler=compiler)
    atexit.register(worker.close)
    return worker


def _write(path: Path, text: str) -> None:
    """All of it or nothing, whoever else writes the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, suffix=".part", delete=False, encoding="utf-8"
    ) as part:
        part.write(text)
    Path(part.name).replace(path)
