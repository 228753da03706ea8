"""files -> sentences -> tokens: bounded, deterministic, and indifferent to what the bytes are."""

from __future__ import annotations

import ast
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_BYTES = 1 << 20  # read of one file; what lies behind is not looked at
MAX_SENTENCE = 256  # tokens; a longer run without a full stop is cut into several sequences
MAX_DOCUMENTS = 48  # of the documentation found by default

_PROSE = {".md", ".rst", ".txt"}
_NOT_PROSE = {"CMakeLists.txt", "entry_points.txt", "top_level.txt", "SOURCES.txt"}
_NOT_ABOUT = {"data", "licenses", "test", "tests"}  # folders without documentation
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n")
_TOKEN = re.compile(r"\w+|[^\w\s]+")


class UnreadableError(Exception):
    """A file that was asked for and cannot be read; the message says which and why."""


@dataclass(frozen=True)
class Document:
    """One text and where it is from."""

    name: str
    text: str


def read(path: Path) -> Document:
    """The first MAX_BYTES of any file as text; bytes that are no UTF-8 become U+FFFD.

    Raises UnreadableError if there is no such file, or if it is none.
    """
    try:
        with path.open("rb") as file:
            return Document(str(path), file.read(MAX_BYTES).decode("utf-8", errors="replace"))
    except OSError as error:
        raise UnreadableError(f"cannot read {path}: {error.strerror or error}") from None


def documentation() -> list[Document]:
    """The documentation that came with Python and with the installed packages, a fair sample.

    Half are docstrings of the standard library's modules, half are text files and the
    descriptions of the installed packages; the same installation gives the same sample.
    """
    library = Path(sysconfig.get_path("stdlib"))
    packages = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    modules = _sample(sorted(library.glob("*.py")), MAX_DOCUMENTS // 2)
    prose = sorted(p for root in packages for p in root.rglob("*") if _is_prose(p, root))
    texts = _sample(prose, MAX_DOCUMENTS // 2)
    return [_docstrings(p) for p in modules] + [_body(p) for p in texts]


def sentences(text: str) -> Iterator[list[str]]:
    """The sentences of a text, each as its tokens: words, and runs of other signs."""
    for part in _SENTENCE_END.split(text):
        tokens = _TOKEN.findall(part)
        for start in range(0, len(tokens), MAX_SENTENCE):
            yield tokens[start : start + MAX_SENTENCE]


def batch(documents: Sequence[Document], tokens: int) -> list[list[str]]:
    """Sentences of all documents in turn, until another one would make more than `tokens`."""
    chosen: list[list[str]] = []
    room = tokens
    for sentence in _in_turn([sentences(d.text) for d in documents]):
        if len(sentence) > room:
            break
        chosen.append(sentence)
        room -= len(sentence)
    return chosen


def _in_turn(streams: Iterable[Iterator[list[str]]]) -> Iterator[list[str]]:
    waiting = list(streams)
    while waiting:
        alive = []
        for stream in waiting:
            item = next(stream, None)
            if item is not None:
                alive.append(stream)
                yield item
        waiting = alive


def _sample(paths: Sequence[Path], count: int) -> list[Path]:
    """At most `count` of the paths, evenly spread."""
    count = min(count, len(paths))
    return [paths[i * len(paths) // count] for i in range(count)]


def _is_prose(path: Path, root: Path) -> bool:
    if path.name == "METADATA":
        return path.parent.name.endswith(".dist-info")
    if path.suffix not in _PROSE or path.name in _NOT_PROSE:
        return False
    return not _NOT_ABOUT & set(path.relative_to(root).parts) and path.is_file()


def _body(path: Path) -> Document:
    """A text file; of a package's METADATA only the description."""
    document = read(path)
    text = document.text.partition("\n\n")[2] if path.name == "METADATA" else document.text
    return Document(document.name, text)


def _docstrings(path: Path) -> Document:
    """Every docstring of a module."""
    document = read(path)
    try:
        tree = ast.parse(document.text)
    except SyntaxError:  # cut off at MAX_BYTES
        return document
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    found = (ast.get_docstring(n) for n in ast.walk(tree) if isinstance(n, documented))
    return Document(document.name, "\n\n".join(d for d in found if d))


def origin(documents: Sequence[Document]) -> str:
    """How much text there was, for a reader to compare runs by."""
    size = sum(len(d.text) for d in documents)
    return f"documents: {len(documents)} ({size:,} characters, Python {sys.version.split()[0]})"
