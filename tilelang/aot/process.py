"""Worker: a process that compiles, one line of JSON for each request; Gone when it is no more."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-P", "-m", "tilelang.aot.worker")
TAIL = 8000  # bytes of the worker's messages that are kept

# Without a TPU libtpu must be told which machine to pretend to be; the topology that is compiled
# for is chosen by each request.
PRETENDED = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # else one process at a time may compile
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
}


class Gone(Exception):
    """The worker ended without an answer, or was ended after `timeout` seconds (then `code` is
    None); `said` is the end of what it wrote to stderr."""

    def __init__(self, code: int | None, said: str) -> None:
        self.code, self.said = code, said
        super().__init__(f"the worker ended with {code}")


class Worker:
    """A process that answers requests one at a time.  Use in one thread, and close it."""

    def __init__(
        self, command: Sequence[str] = COMMAND, flags: str = "", pretend: bool = True
    ) -> None:
        """Starts the process; `flags` are extra flags of libtpu.

        `pretend`: as if this were a machine with a TPU, whose CPU is used; else with what is here.
        """
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=environment(os.environ, flags, pretend),
            encoding="utf-8",
        )
        self._replies: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """The answer to a request; raises Gone if none comes in `timeout` seconds."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it ended: the reader says so
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        try:
            return json.loads(self._replies.get(timeout=timeout))
        except queue.Empty:
            self._end()
            raise Gone(None, self._tail()) from None
        except ValueError:  # "" at the end, or what is no answer
            self._end()
            raise Gone(self._process.returncode, self._tail()) from None

    def close(self) -> None:
        """Ends the process."""
        self._end()
        self._said.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._replies.put(line)
        self._replies.put("")

    def _end(self) -> None:
        """Ends a process that may have ended by itself a moment ago: its own code is kept."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._process.stdout.close()

    def _tail(self) -> str:
        size = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(size - TAIL, 0))
        return self._said.read().decode(errors="replace").strip()


def environment(
    inherited: Mapping[str, str], flags: str = "", pretend: bool = True
) -> dict[str, str]:
    """The environment of a worker, that of a machine with a TPU if it pretends to be one."""
    found = {**inherited, **(PRETENDED if pretend else {})}
    root = Path(__file__).resolve().parents[2]
    if root.name not in ("site-packages", "dist-packages"):  # a checkout that is not installed
        found["PYTHONPATH"] = os.pathsep.join(filter(None, (found.get("PYTHONPATH"), str(root))))
    if flags:
        found["LIBTPU_INIT_ARGS"] = f"{found.get('LIBTPU_INIT_ARGS', '')} {flags}".strip()
    return found
