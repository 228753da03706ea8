"""The lock file: which config was chosen for a kernel, a class of shapes and a target.

It is JSON in the user's repository, sorted, an entry for each choice, to be reviewed like code.
What it answers depends on the file and on what is asked alone: the same on every machine.  An entry
that does not hold any more (the kernel has changed, the config is not legal, the entry was edited)
is said once, and the default is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import CallError, TileError
from ..schedule.config import Config

FORMAT, VARIABLE, NAME = 1, "TILELANG_LOCK", "tilelang.lock"
SAYS = "made by tilelang.tune: python -m tilelang tune --check says whether it still holds"


class LockWarning(UserWarning):
    """An entry of a lock file is not used."""


@dataclass(frozen=True)
class Subject:
    """What a choice is for: "moe.py:experts", "x: float32[<=1024, 64], ...", "tpu:v6e"."""

    kernel: str
    arguments: str
    target: str

    def __str__(self) -> str:
        return f"{self.kernel}({self.arguments}) on {self.target}"


@dataclass(frozen=True)
class LockEntry:
    """A choice.

    source  digest of the kernel that it was made for
    facts   figures for readers: by, objective, seconds, default, runner-up, trials, versions
    """

    subject: Subject
    source: str
    config: Config
    facts: Mapping[str, Any]

    def to_data(self) -> dict[str, Any]:
        """As it stands in the file, with a digest of the rest."""
        data: dict[str, Any] = {
            "kernel": self.subject.kernel,
            "arguments": self.subject.arguments,
            "target": self.subject.target,
            "source": self.source,
            "config": json.loads(self.config.to_json()),
            "facts": dict(self.facts),
        }
        return {**data, "digest": _digest(data)}


@dataclass(frozen=True)
class Broken:
    """An entry that cannot be used, and why."""

    subject: Subject
    why: str


@dataclass(frozen=True, eq=False)
class Lock:
    """A lock file as it was read; `token` is another one wherever it may answer another thing."""

    path: str
    token: str
    entries: Mapping[Subject, LockEntry | Broken]

    def knows(self, kernel: str) -> bool:
        return any(subject.kernel == kernel for subject in self.entries)

    def find(self, subject: Subject) -> LockEntry | None:
        """The choice; None, said once, if its entry is broken."""
        found = self.entries.get(subject)
        if isinstance(found, Broken):
            self.warn(subject, found.why)
            return None
        return found

    def warn(self, subject: Subject, why: str) -> None:
        """Says, once in a process, that the default is used."""
        text = (
            f"{self.path}: the entry for {subject} is not used: {why}; the default config is. "
            "Run python -m tilelang tune again"
        )
        if (self.token, text) not in _SAID:
            _SAID.add((self.token, text))
            warnings.warn(text, LockWarning, stacklevel=2)


_SAID: set[tuple[str, str]] = set()


# ---------------------------------------------------------------- the file


def read(path: str | Path) -> Lock:
    """The lock file; CallError where it is none: half of one, or with marks of a merge in it."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise CallError(
            f"{path} cannot be read: {error.strerror}", hint="tile.tune(...).save(path) makes it"
        ) from None
    found: dict[Subject, LockEntry | Broken] = {}
    for data in _entries(content, path):
        entry = _entry(data, path)
        if entry.subject in found:
            entry = Broken(entry.subject, "there are two of them")
        found[entry.subject] = entry
    return Lock(str(path), hashlib.sha256(content).hexdigest()[:16], found)


def _entries(content: bytes, path: str | Path) -> list[Any]:
    try:
        data = json.loads(content.decode())
        entries = data["entries"]
        if data["format"] == FORMAT and isinstance(entries, list):
            return entries
        why = f"its format is {data['format']!r}, this version reads {FORMAT}"
    except (ValueError, RecursionError) as error:
        why = f"it is no JSON ({error})"
    except (KeyError, TypeError):
        why = "it has no entries"
    hint = "take it from version control again, or tune again"
    raise CallError(f"{path} is no lock file: {why}", hint=hint)


def _entry(data: Any, path: str | Path) -> LockEntry | Broken:
    try:
        names = (data["kernel"], data["arguments"], data["target"])
        if not all(isinstance(name, str) for name in names):
            raise TypeError
        subject = Subject(*names)
    except (KeyError, TypeError):
        hint = "take it from version control again, or tune again"
        raise CallError(f"{path} has an entry of no kernel", hint=hint) from None
    rest = {name: value for name, value in data.items() if name != "digest"}
    if data.get("digest") != _digest(rest):
        return Broken(subject, "it was changed after it was written")
    try:
        config = Config.from_json(json.dumps(data["config"]))
        return LockEntry(subject, data["source"], config, data["facts"])
    except (TileError, KeyError, TypeError) as error:
        return Broken(subject, f"its config cannot be read ({error})")


def write(path: str | Path, entries: Iterable[LockEntry]) -> None:
    """Puts entries into the file, in place of those for the same things; others stay.

    All of it or nothing, one process after the other.
    """
    import filelock  # nobody who only reads a lock file needs it

    target = Path(path).absolute()
    name = hashlib.sha256(str(target).encode()).hexdigest()[:16]
    waits = Path(tempfile.gettempdir()) / f"tilelang-{os.getuid()}-{name}.lock"
    with filelock.FileLock(waits, timeout=60, mode=0o600):
        old = _entries(target.read_bytes(), path) if target.exists() else []
        made = {entry.subject: entry.to_data() for entry in entries}
        kept = [data for data in old if _entry(data, path).subject not in made]
        _replace(target, [*kept, *made.values()])


def _replace(path: Path, entries: list[dict[str, Any]]) -> None:
    ordered = sorted(entries, key=lambda d: (d["kernel"], d["arguments"], d["target"]))
    data = {"format": FORMAT, "about": SAYS, "entries": ordered}
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name}", delete=False, encoding="utf-8"
    ) as part:
        json.dump(data, part, indent=2, sort_keys=True)
        part.write("\n")
        part.flush()
        os.fsync(part.fileno())
    Path(part.name).chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
    Path(part.name).replace(path)


def _digest(data: Mapping[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---------------------------------------------------------------- the one that is used

_used: list[Lock | None] = []  # empty: nobody has said anything, so that the environment does


def use(path: str | Path | None) -> None:
    """From now on configs come from this lock file where it has an entry; None: from none.

    What was traced before, by JAX or by torch, stays as it is.  The file is read here, once.
    """
    if not isinstance(path, str | os.PathLike | None):
        hint = 'write tile.use("tilelang.lock")'
        raise CallError(f"{path!r} is no path of a lock file", hint=hint)
    chosen = None if path is None else read(path)
    _used[:] = [chosen]


def active() -> Lock | None:
    """The lock file of `use`, else of the environment variable TILELANG_LOCK."""
    if not _used:
        use(os.environ.get(VARIABLE) or None)
    return _used[0]


def token() -> str:
    """Part of the key of whatever depends on what the lock file says."""
    found = _used[0] if _used else active()
    return "" if found is None else found.token
