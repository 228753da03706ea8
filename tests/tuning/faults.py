"""python -m tests.tuning.faults [--count N] [--seed S]: injected faults, and what they led to.

Whatever happens to files and workers, no config is chosen or served but the one that tuning chose
or the default, and no result is wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tilelang as tile
from tests.tuning.kernels import BEST, DEFAULT, SECOND, arguments, scale_rows, sums, tuned
from tilelang.autotune import lock as locks

WRITER = """
import sys
from tilelang.autotune import lock
from tilelang.schedule.config import Config
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
for n in range(count):
    subject = lock.Subject(f"{name}.py:kernel", f"x: int32[{n % 4}]", "cpu")
    lock.write(path, [lock.LockEntry(subject, "s", Config({"tm": n % 4 + 1}), {"n": n})])
"""
FAULTS = ("crash", "garbage", "cut", "error", "wrong", "nan", "short")


class Wrong(AssertionError):
    """A fault led to a wrong config or a wrong result."""


def require(holds: bool, what: str) -> None:
    if not holds:
        raise Wrong(what)


class Campaign:
    """A tuned kernel whose trials and choice are on disk, to be damaged."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.whole = folder, folder / "whole"
        self.choice = tuned(self.whole / "trials")
        self.lock = self.whole / "tilelang.lock"
        self.choice.save(self.lock)
        subject, source = sums.subject(
            tile.spec((64, 8), "float32"), tile.spec((3,), "int32"), target="cpu"
        )
        other = locks.LockEntry(subject, source, tile.Config({"tf": 8, "tm": 16}), {})
        locks.write(self.lock, [other])
        self.x, self.s = arguments()

    def copy(self) -> Path:
        """The files, to be damaged."""
        at = self.folder / "damaged"
        shutil.rmtree(at, ignore_errors=True)
        shutil.copytree(self.whole, at)
        return at

    def served(self, path: Path) -> str:
        """What a call gets with a lock file: "error", "default" or "choice"; Wrong for others."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tile.LockWarning)
            try:
                tile.use(path)
            except tile.CallError:
                tile.use(None)
                return "error"
            try:
                config = scale_rows.lower(self.x, self.s, target="cpu").config
                results = scale_rows(self.x, self.s)
            finally:
                tile.use(None)
        require(bool(np.array_equal(results, self.x * self.s[:, None])), "a wrong result")
        if config == self.choice.config:
            return "choice"
        require(config.block("tm") == DEFAULT, f"{config} was served")
        return "default"

    def again(self, at: Path, faults: dict[int, str] | None = None, want: int = BEST) -> str:
        """Tunes again over kept trials; Wrong if it chooses anything but what is best."""
        found = tuned(at / "trials", faults)
        require(found.config.block("tm") == want, f"{found.config} was chosen")
        return "chosen rightly"


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Cut off, with a changed byte, or with a part doubled or left out."""
    place, how = rng.randrange(len(content)), rng.randrange(4)
    end = min(place + rng.randrange(1, 200), len(content))
    if how == 0:
        return content[:place]
    if how == 1:
        flipped = bytes([content[place] ^ (1 << rng.randrange(7))])
        return content[:place] + flipped + content[place + 1 :]
    if how == 2:
        return content[:place] + content[end:]
    return content[:end] + content[place:]


def damaged_lock(campaign: Campaign, rng: random.Random) -> str:
    path = campaign.copy() / "tilelang.lock"
    path.write_bytes(damaged(path.read_bytes(), rng))
    return campaign.served(path)


def exchanged_lock(campaign: Campaign, rng: random.Random) -> str:
    """Fields of two entries change places, as when a merge goes wrong."""
    path = campaign.copy() / "tilelang.lock"
    data = json.loads(path.read_text())
    a, b = data["entries"]
    for name in rng.sample(sorted(a), rng.randrange(1, len(a))):
        a[name], b[name] = b[name], a[name]
    path.write_text(json.dumps(data))
    return campaign.served(path)


def foreign_lock(campaign: Campaign, rng: random.Random) -> str:
    """An entry that is whole, and of a kernel that has changed, or illegal."""
    path = campaign.copy() / "tilelang.lock"
    subject, source = scale_rows.subject(campaign.x, campaign.s, target="cpu")
    config, illegal = tile.Config({"tm": 8}), tile.Config({"tq": 8})
    entry = rng.choice(
        [
            locks.LockEntry(subject, "0" * 16, config, {}),
            locks.LockEntry(subject, source, illegal, {}),
        ]
    )
    locks.write(path, [entry])
    found = campaign.served(path)
    require(found == "default", "a stale entry was served")
    return found


def damaged_trial(campaign: Campaign, rng: random.Random) -> str:
    at = campaign.copy()
    path = rng.choice(sorted((at / "trials").glob("*.json")))
    path.write_bytes(damaged(path.read_bytes(), rng))
    return campaign.again(at)


def exchanged_trials(campaign: Campaign, rng: random.Random) -> str:
    at = campaign.copy()
    first, second = rng.sample(sorted((at / "trials").glob("*.json")), 2)
    texts = first.read_bytes(), second.read_bytes()
    first.write_bytes(texts[1])
    second.write_bytes(texts[0])
    return campaign.again(at)


def failing_worker(campaign: Campaign, rng: random.Random) -> str:
    at = campaign.folder / "fresh"
    shutil.rmtree(at, ignore_errors=True)
    bad = rng.sample([1000, SECOND, BEST], rng.randrange(1, 4))
    want = next((size for size in (BEST, SECOND) if size not in bad), DEFAULT)
    return campaign.again(at, {size: rng.choice(FAULTS) for size in bad}, want)


def killed_writer(campaign: Campaign, rng: random.Random) -> str:
    """A process that writes the lock file is killed in the midst of it."""
    path = campaign.copy() / "tilelang.lock"
    writer = _writer(path, "killed", 10_000)
    time.sleep(rng.random() * 0.05)
    writer.kill()
    writer.wait()
    require(campaign.served(path) == "choice", "what was there is gone")
    return "choice"


def two_writers(campaign: Campaign, rng: random.Random) -> str:
    path = campaign.copy() / "tilelang.lock"
    both = [_writer(path, name, rng.randrange(4, 12)) for name in ("one", "two")]
    require(all(writer.wait(120) == 0 for writer in both), "a writer failed")
    names = Counter(subject.kernel for subject in locks.read(path).entries)
    require(names["one.py:kernel"] == names["two.py:kernel"] == 4, f"entries are lost: {names}")
    return campaign.served(path)


def _writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    found = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert found.stdout is not None
    found.stdout.readline()
    return found


# What is done, and how often in a hundred.
KINDS: tuple[tuple[Callable[[Campaign, random.Random], str], int], ...] = (
    (damaged_lock, 45),
    (exchanged_lock, 15),
    (foreign_lock, 8),
    (damaged_trial, 12),
    (exchanged_trials, 8),
    (failing_worker, 5),
    (killed_writer, 5),
    (two_writers, 2),
)


def run(count: int, seed: int) -> Counter[str]:
    """Injects so many faults: how often each kind led to what."""
    rng, found = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(Path(folder))
        kinds, weights = zip(*KINDS, strict=True)
        # every kind is met, however few there are
        drawn = [*kinds, *rng.choices(kinds, weights, k=max(count - len(kinds), 0))][:count]
        for number, kind in enumerate(drawn):
            case = random.Random(f"{seed} {number}")
            try:
                found[f"{kind.__name__}: {kind(campaign, case)}"] += 1
            except Wrong as wrong:
                found[f"{kind.__name__}: WRONG {wrong} (seed {seed}, number {number})"] += 1
    return found


def main() -> int:
    """Prints the counts; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.tuning.faults")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start, found = time.perf_counter(), run(options.count, options.seed)
    for what, times in sorted(found.items()):
        print(f"{times:5}  {what}")
    bad = sum(times for what, times in found.items() if "WRONG" in what)
    seconds = time.perf_counter() - start
    print(f"{sum(found.values())} faults, {bad} wrong configs or results; {seconds:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
