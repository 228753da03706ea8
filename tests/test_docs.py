"""README and docs: every Python block runs, and prints what the page says that it prints.

The ```python blocks of one page run in order in one namespace.  Two comments, on a line of their
own before a block, say otherwise:

    <!-- no-run: reason -->   the Python block is checked for syntax only
    <!-- prints -->           the text block is what the Python block before it prints

`pytest tests/test_docs.py --update-golden` writes those text blocks anew.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOTE = re.compile(r"<!-- (no-run: .+|prints) -->\n\n?\Z")
PLACE = re.compile(r'File "[^"]*", line \d+')
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


@dataclass(frozen=True)
class Block:
    """A fenced block: what language, from which line of the page, and the note before it."""

    language: str
    code: str
    line: int
    note: str


def _blocks(page: str) -> list[Block]:
    blocks = []
    for match in FENCE.finditer(page):
        before = page[: match.start()]
        note = NOTE.search(before)
        line = before.count("\n") + 2
        blocks.append(Block(match[1], match[2], line, note[1] if note else ""))
    return blocks


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _module(page: Path, blocks: list[Block], folder: Path) -> Path:
    """A file with the page's Python blocks at the page's line numbers, for inspect to find."""
    lines = [""] * page.read_text(encoding="utf-8").count("\n")
    for block in blocks:
        body = block.code.splitlines()
        lines[block.line - 1 : block.line - 1 + len(body)] = body
    path = folder / f"{page.stem}.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _run(block: Block, path: Path, module: types.ModuleType) -> str:
    """What the block prints."""
    code = compile("\n" * (block.line - 1) + block.code, str(path), "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, module.__dict__)
    return printed.getvalue()


def _comparable(text: str) -> list[str]:
    """The lines of an output, without what depends on where the page lies."""
    return [line.rstrip() for line in PLACE.sub('File "...", line N', text).strip().splitlines()]


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_page_runs(page, tmp_path, update_golden):
    blocks = _blocks(page.read_text(encoding="utf-8"))
    runnable = [b for b in blocks if b.language == "python" and not b.note.startswith("no-run")]
    if any("import torch" in b.code for b in runnable):
        pytest.importorskip("torch", reason="the page calls kernels from torch")
    path = _module(page, runnable, tmp_path)
    module = types.ModuleType(page.stem)
    module.__file__ = str(path)
    printed = ""
    for block in blocks:
        if block in runnable:
            printed = _run(block, path, module)
        elif block.language == "python":
            compile(block.code, f"{_name(page)}:{block.line}", "exec")
        elif block.note == "prints" and update_golden:
            shown = printed.replace(str(path), path.name).strip()
            text = page.read_text(encoding="utf-8")
            page.write_text(text.replace(f"\n{block.code}```", f"\n{shown}\n```", 1), "utf-8")
        elif block.note == "prints":
            assert _comparable(printed) == _comparable(block.code), f"{_name(page)}:{block.line}"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page):
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [t for t in targets if not (page.parent / t).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_pieces_that_need_a_checkout_say_so(page):
    """The package is installed without its examples; what people copy first needs none of them."""
    text = page.read_text(encoding="utf-8")
    needs = any("from examples" in b.code for b in _blocks(text) if b.language == "python")
    assert not needs or "of a checkout" in text
    assert not (needs and page.stem in ("README", "recipes", "scale"))


@pytest.mark.slow
@pytest.mark.parametrize("stem", ["recipes", "scale"])
def test_whole_pages_run_one_piece_after_the_other(stem, tmp_path):
    """Also the pieces that need four devices, or flatbuffers."""
    pytest.importorskip("flatbuffers", reason="jax.export writes with it")
    pytest.importorskip("torch", reason="the page calls kernels from torch")
    page = ROOT / "docs" / f"{stem}.md"
    blocks = [b for b in _blocks(page.read_text(encoding="utf-8")) if b.language == "python"]
    path = _module(page, blocks, tmp_path).rename(tmp_path / "page.py")
    devices = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    environment = {**os.environ, **devices, "PYTHONPATH": str(ROOT)}
    run = [sys.executable, str(path)]
    done = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_pages_are_there():
    stems = {page.stem for page in PAGES}
    assert {"README", "language", "pipeline", "config", "errors", "tpu"} <= stems


def test_blocks_are_found_with_their_notes_and_lines():
    page = "a\n```python\nx = 1\n```\n<!-- prints -->\n```text\n1\n```\n"
    assert _blocks(page) == [
        Block("python", "x = 1\n", 3, ""),
        Block("text", "1\n", 7, "prints"),
    ]
