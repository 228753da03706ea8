"""Every planted bug is caught by a check of the examples; the texts without it are right."""

from __future__ import annotations

import importlib.util
import os

import pytest

if os.environ.get("TRITON_INTERPRET") != "1" or importlib.util.find_spec("triton") is None:
    pytest.skip("needs Triton, and TRITON_INTERPRET=1", allow_module_level=True)

from tests.gpu.planted import BUGS
from tests.gpu.trial import text_of, verdict

PRINTED = sorted({(b.subject, b.form) for b in BUGS})


@pytest.mark.thorough
@pytest.mark.parametrize("planted", BUGS, ids=str)
def test_every_bug_is_caught(planted):
    assert verdict(planted.subject, planted.form, planted)


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "form"), PRINTED)
def test_without_a_bug_nothing_is_said(name, form):
    assert verdict(name, form) == ""


# Programs that run in order mend what others did: a store past the rows, a table of several chunks.
RACES = ("a tile is stored into the rows of the next group", "a chunk starts at one item")


@pytest.mark.parametrize("what", RACES)
def test_what_the_order_of_programs_hid_is_caught(what):
    (planted,) = (b for b in BUGS if b.what == what)
    assert verdict(planted.subject, planted.form, planted)


@pytest.mark.parametrize(("name", "form"), PRINTED)
def test_every_bug_has_a_place(name, form):
    """So that it is not only every few days that somebody sees that a text has changed."""
    text = text_of(name, form).text
    for planted in BUGS:
        if (planted.subject, planted.form) == (name, form):
            assert planted.plant(text) != text


def test_there_are_enough_bugs_and_each_has_a_name():
    assert len(BUGS) >= 25 and len({str(b) for b in BUGS}) == len(BUGS)
