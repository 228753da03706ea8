"""The generated source of every example in every loop type, byte for byte as it was last reviewed.

    pytest --update-golden -k golden     writes tests/golden/forms anew; the diff is what to review

`forms.txt` says for every example and loop type whether the text is that of the default config, a
text of its own (a file beside it), or a refusal, and then why.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import tilelang as tile
from tests.subjects import HAS_TORCH, SUBJECTS, Subject
from tests.test_golden import GOLDEN, TARGET, source

FORMS = GOLDEN / "forms"
INDEX = FORMS / "forms.txt"
CONFIGS = {
    "grid": tile.Config(loop_type="grid"),
    "outer_pipeline": tile.Config(loop_type="outer_pipeline"),
    "rectangle": tile.Config(loop_type="outer_pipeline", steps="rectangle"),
    "worklist": tile.Config(loop_type="worklist"),
    "emit_pipeline": tile.Config(loop_type="emit_pipeline"),
    "fori_loop": tile.Config(loop_type="fori_loop"),
    "unroll": tile.Config(loop_type="unroll"),
}
each = pytest.mark.parametrize("subject", SUBJECTS, ids=str)


def printed(subject: Subject, form: str) -> tuple[str, str | None]:
    """What the index says of one loop type, and the text if it is not that of the default."""
    try:
        text = subject.kernel.source(*subject.cases[-2], target=TARGET, config=CONFIGS[form])
    except tile.TileError as refused:
        return f"refused: {refused.what}", None
    return ("default", None) if text == source(subject) else ("own text", text)


def path(subject: Subject, form: str) -> Path:
    return FORMS / f"{subject.name}.{form}.pallas.py"


def indexed() -> dict[str, str]:
    """Every line of the index: "example form" -> what became of it."""
    lines = INDEX.read_text(encoding="utf-8").splitlines() if INDEX.exists() else []
    return dict(tuple(line.split(": ", 1)) for line in lines)  # type: ignore[arg-type]


@each
def test_golden_forms(subject, update_golden):
    found = {form: printed(subject, form) for form in CONFIGS}
    index = {f"{subject.name} {form}": how for form, (how, _) in found.items()}
    if update_golden:
        FORMS.mkdir(exist_ok=True)
        merged = {**indexed(), **index}
        lines = sorted(f"{name}: {how}\n" for name, how in merged.items())
        INDEX.write_text("".join(lines), encoding="utf-8")
        for form, (_, text) in found.items():
            path(subject, form).unlink(missing_ok=True)
            if text is not None:
                path(subject, form).write_text(text, encoding="utf-8")
    known = indexed()
    assert index == {name: known.get(name) for name in index}
    for form, (_, text) in found.items():
        assert path(subject, form).exists() == (text is not None)
        assert text is None or text == path(subject, form).read_text(encoding="utf-8")


@pytest.mark.skipif(not HAS_TORCH, reason="the examples spelled in torch are not loaded")
def test_no_golden_form_without_an_example():
    names = {f"{s.name} {form}" for s in SUBJECTS for form in CONFIGS}
    assert set(indexed()) == names
    files = {path(s, form) for s in SUBJECTS for form in CONFIGS}
    assert set(FORMS.glob("*.py")) <= files
