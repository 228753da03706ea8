"""Kept answers: whatever is wrong with an entry, it is a miss and never an answer."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tilelang.autotune.model import store

ROOT = Path(__file__).resolve().parents[2]
ANSWER = {"runs": [1.5, {"a": None}], "transfers": 3}
OTHER = {"runs": [], "transfers": 0}


def no_answer() -> dict[str, Any]:
    raise AssertionError("it was kept")


def entry(at: Path) -> Path:
    """The one entry of a folder."""
    (found,) = at.glob("*.json")
    return found


@pytest.fixture
def at(tmp_path: Path) -> Path:
    folder = tmp_path / "kept" / "deeper"
    assert store.kept("question", lambda: ANSWER, folder, 10) == ANSWER
    return folder


def test_an_answer_is_kept(at: Path) -> None:
    assert store.kept("question", no_answer, at, 10) == ANSWER
    assert store.kept("another question", lambda: OTHER, at, 10) == OTHER
    assert store.kept("question", no_answer, at, 10) == ANSWER


def test_only_its_owner_can_look(at: Path) -> None:
    assert stat.S_IMODE(at.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry(at).stat().st_mode) == 0o600
    at.chmod(0o755)  # made so by somebody else
    store.kept("question", no_answer, at, 10)
    assert stat.S_IMODE(at.stat().st_mode) == 0o700


def test_every_truncation_is_a_miss(at: Path) -> None:
    path = entry(at)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert store.read(path, "question") is None, length


def test_every_changed_byte_is_a_miss_or_the_same_answer(at: Path) -> None:
    path = entry(at)
    whole = path.read_bytes()
    for place in range(len(whole)):
        for change in (1, 32):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ change]) + whole[place + 1 :])
            assert store.read(path, "question") in (None, ANSWER), place


@pytest.mark.parametrize(
    "content",
    [
        "",
        "null",
        "[]",
        "3",
        '"x"',
        "{}",
        '{"key": "question"}',
        "[" * 100_000,
        "\ud800",
        "\x00" * 9,
    ],
)
def test_what_is_no_entry_is_a_miss_and_is_replaced(at: Path, content: str) -> None:
    entry(at).write_text(content, encoding="utf-8", errors="surrogatepass")
    assert store.kept("question", lambda: OTHER, at, 10) == OTHER
    assert store.kept("question", no_answer, at, 10) == OTHER


def test_swapped_entries_are_misses(at: Path) -> None:
    store.kept("another question", lambda: OTHER, at, 10)
    first, second = sorted(at.glob("*.json"))
    texts = first.read_text(), second.read_text()
    first.write_text(texts[1])
    second.write_text(texts[0])
    assert store.kept("question", lambda: {"new": 1}, at, 10) == {"new": 1}
    assert store.kept("another question", lambda: {"new": 2}, at, 10) == {"new": 2}


def test_an_answer_that_was_exchanged_is_a_miss(at: Path) -> None:
    path = entry(at)
    found = json.loads(path.read_text())
    path.write_text(json.dumps(found | {"answer": OTHER}))
    assert store.read(path, "question") is None


def test_another_users_entry_is_a_miss(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.os, "getuid", lambda: os.stat(at).st_uid + 1)
    assert store.read(entry(at), "question") is None


def test_where_nothing_can_be_written_answers_are_made(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert store.kept("question", lambda: ANSWER, blocked / "kept", 10) == ANSWER


def test_what_making_raises_is_raised_and_nothing_is_kept(tmp_path: Path) -> None:
    def fail() -> dict[str, Any]:
        raise OSError("of the maker's own")

    with pytest.raises(OSError, match="of the maker's own"):
        store.kept("question", fail, tmp_path, 10)
    assert list(tmp_path.glob("*.json")) == []


def started(code: str, at: Path) -> subprocess.Popen[str]:
    """Another process that does this to a folder."""
    before = "import sys, os; from pathlib import Path; from tilelang.autotune.model import store\n"
    command = (sys.executable, "-c", f"{before}at = Path(sys.argv[1])\n{code}", str(at))
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, encoding="utf-8")


WRITE = """
for number in range(10**9):
    store.write(at / "entry.json", "question", {"number": number, "weight": "x" * 10_000})
"""
ASK = f"""
def make():
    (at / f"made-{{os.getpid()}}").touch()
    return {ANSWER}
print(store.kept("question", make, at, 60) == {ANSWER})
"""


def test_a_writer_that_is_killed_leaves_whole_entries(tmp_path: Path) -> None:
    path = tmp_path / "entry.json"
    for wait in range(3):
        writer = started(WRITE, tmp_path)
        while not path.exists():
            time.sleep(0.001)
        for _ in range(20 * wait):
            assert store.read(path, "question") is not None
        writer.kill()
        writer.communicate()
        assert store.read(path, "question") is not None
        path.unlink()


def test_of_several_processes_one_works(tmp_path: Path) -> None:
    asking = [started(ASK, tmp_path) for _ in range(3)]
    assert [process.communicate(timeout=60)[0] for process in asking] == ["True\n"] * 3
    assert len(list(tmp_path.glob("made-*"))) == 1


FAULTS = {
    "the digest is not looked at": lambda path, key: json.loads(path.read_text())["answer"],
    "the question is not looked at": lambda path, key: (
        (found := json.loads(path.read_text())) and (found["answer"] if found["digest"] else None)
    ),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_planted_fault_is_caught(at: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "read", FAULTS[what])
    with pytest.raises(AssertionError):
        test_an_answer_that_was_exchanged_is_a_miss(at)
