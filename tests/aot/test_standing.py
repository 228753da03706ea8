"""A worker that stays: for the next request, until it dies or nobody asks; not across a fork."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tilelang.aot import Gone, Worker
from tilelang.aot.standing import Standing

PID = "import os, sys\nfor line in sys.stdin: print(os.getpid(), flush=True)"
ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
DIES = "import sys; sys.stdin.readline()"


def start(code):
    return Worker([sys.executable, "-c", code])


@pytest.fixture
def standing():
    made = Standing(lambda: start(PID))
    yield made
    made.close()


def pid(standing):
    with standing.lent() as worker:
        return worker.ask({}, 20)


def ended(number):
    """Whether a process is no more."""
    for _ in range(200):
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_requests_share_a_worker(standing):
    assert pid(standing) == pid(standing)


def test_threads_take_turns(standing):
    found = []
    threads = [threading.Thread(target=lambda: found.append(pid(standing))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(set(found)) == 1


def test_one_that_died_is_replaced():
    codes = [DIES, ECHO]
    standing = Standing(lambda: start(codes.pop(0)))
    with pytest.raises(Gone), standing.lent() as worker:
        worker.ask({}, 20)
    with standing.lent() as worker:
        assert worker.ask({"a": 1}, 20) == {"a": 1}
    standing.close()


def test_it_ends_when_nobody_asks():
    standing = Standing(lambda: start(PID), idle=0.1)
    assert ended(pid(standing))
    assert pid(standing)  # and starts again
    standing.close()


FORKS = """
import os
from tests.aot.test_standing import PID, Standing, pid, start
standing = Standing(lambda: start(PID))
mine = pid(standing)
if not os.fork():
    print("own" if pid(standing) != mine else "shared", flush=True)
    os._exit(0)
os.wait()
print("kept" if pid(standing) == mine else "lost")
standing.close()
"""


def test_a_child_has_its_own():
    """In a process without JAX, whose threads a fork would leave behind."""
    root = Path(__file__).resolve().parents[2]
    run = subprocess.run([sys.executable, "-c", FORKS], cwd=root, capture_output=True, text=True,
                         timeout=60, check=False)  # fmt: skip
    assert run.stdout.split() == ["own", "kept"], run.stderr
