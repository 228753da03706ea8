"""Programs that were wrong once, kept as data in corpus/: `entries()` reads them, `keep` adds one.

python -m tests.fuzzing kernels --count N --seed S --keep
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

import tilelang as tile
from tests.fuzzing import program as language
from tests.fuzzing.program import Program

FOLDER = Path(__file__).parent / "corpus"


@dataclass(frozen=True)
class Entry:
    """A program and the way in which it failed: which call, and the seeds of its arguments.

    way     "reference", "wild", or a config in JSON; "" is the default config
    failed  what was seen: the outcome when it was kept
    open    what is not mended yet: such a program may fail; "" when it must not any more
    """

    program: Program
    way: str
    seeds: tuple[int, ...]
    failed: str
    open: str = ""

    @property
    def config(self) -> tile.Config | None:
        return tile.Config.from_json(self.way) if self.way.startswith("{") else None

    @property
    def name(self) -> str:
        """Of its file: what failed, and a few digits of what the program is."""
        word = self.failed.split()[0].strip(":").lower()
        return f"{word}-{sha256(repr((self.program, self.way)).encode()).hexdigest()[:8]}"


def entries() -> list[Entry]:
    """All that were kept, by name."""
    return [_read(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))]


def keep(entry: Entry, folder: Path = FOLDER) -> Path:
    """Writes a file of its own for the entry."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{entry.name}.json"
    path.write_text(written(entry), encoding="utf-8")
    return path


def written(entry: Entry) -> str:
    """The text of a file."""
    kept = {"failed": entry.failed, "way": entry.way, "seeds": list(entry.seeds)}
    kept |= {"open": entry.open} if entry.open else {}
    lines = {**kept, **_plain(entry.program)}
    return (
        "{\n" + ",\n".join(f"{json.dumps(n)}: {json.dumps(v)}" for n, v in lines.items()) + "\n}\n"
    )


def _read(text: str) -> Entry:
    found = json.loads(text)
    way, seeds, failed = (found.pop(name) for name in ("way", "seeds", "failed"))
    unmended = found.pop("open", "")
    return Entry(_value(found), way, tuple(seeds), failed, unmended)


def _plain(value: Any) -> Any:
    """A node as a list of its kind and the fields that are not the usual ones."""
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    if not hasattr(value, "__dataclass_fields__"):
        return value
    own = {f.name: getattr(value, f.name) for f in fields(value)}
    usual = {f.name: f.default for f in fields(value)}
    return {
        "is": type(value).__name__,
        **{n: _plain(v) for n, v in own.items() if usual[n] != v or type(usual[n]) is not type(v)},
    }


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return tuple(_value(entry) for entry in plain)
    if not isinstance(plain, dict):
        return plain
    given = {name: _value(value) for name, value in plain.items() if name != "is"}
    return getattr(language, plain["is"])(**given)
