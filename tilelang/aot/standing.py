"""Standing: a worker that stays for the next request, because to start one takes seconds.

JAX lowers kernel after kernel, each in a call that nobody sees; the worker ends by itself when none
came for a while, and with this process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .process import Worker

IDLE = 120.0  # seconds


class Standing:
    """Lends one worker, to one thread at a time; one that ended is started anew."""

    def __init__(self, start: Callable[[], Worker], idle: float = IDLE) -> None:
        self._start, self._idle = start, idle
        self._forked()
        os.register_at_fork(after_in_child=self._forked)

    @contextmanager
    def lent(self) -> Iterator[Worker]:
        """The worker, for as long as the block runs."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            if self._worker is None or not self._worker.alive:
                self._end()
                self._worker = self._start()
            try:
                yield self._worker
            finally:
                self._timer = threading.Timer(self._idle, self.close)
                self._timer.daemon = True
                self._timer.start()

    def close(self) -> None:
        """Ends the process if there is one."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = None

    def _forked(self) -> None:
        """A child has no worker: the one that it sees answers its parent, whose lock it cannot
        open."""
        self._lock = threading.Lock()
        self._worker: Worker | None = None
        self._timer: threading.Timer | None = None
