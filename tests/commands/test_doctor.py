"""python -m tilelang doctor: its rules are functions of version numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilelang.__main__ import main
from tilelang.commands import doctor
from tilelang.commands.doctor import Installed, findings, lines, number, sick

GOOD = Installed(
    python="3.11.7",
    jax="0.10.2",
    jaxlib="0.10.2",
    libtpu="0.0.42.1",
    torch=None,
    numpy="2.4.6",
    wanted="0.0.42.*",
)


def test_a_good_installation():
    assert findings(GOOD) == ()
    assert list(lines(GOOD, "cpu: cpu")) == [
        "python   3.11.7",
        "jax      0.10.2",
        "jaxlib   0.10.2",
        "libtpu   0.0.42.1",
        "torch    not installed",
        "numpy    2.4.6",
        "devices  cpu: cpu",
        "nothing known is wrong with these versions",
    ]


NEXT = {"jaxlib": "0.11.2", "wanted": "0.0.46.*", "libtpu": "0.0.46.3"}
TROUBLE = [
    ({"other": "0.1.11"}, "another project", True),
    ({"jax": "0.9.0"}, "older than 0.10.2", True),
    ({**NEXT, "jax": "0.11.0"}, "freezes the grid", False),
    ({**NEXT, "jax": "0.11.2"}, "freezes the grid", False),
    ({"libtpu": "0.0.43"}, "an operand that is not read", True),
    ({"libtpu": "0.0.45.2"}, "an operand that is not read", True),
    ({"jaxlib": "0.11.2", "wanted": "0.0.46.*"}, "jaxlib 0.11.2 is newer than libtpu", True),
    ({"libtpu": None}, "libtpu is not installed", False),
]


@pytest.mark.parametrize(("changes", "words", "fails"), TROUBLE)
def test_known_bad_combinations(changes, words, fails):
    installed = replace(GOOD, **changes)
    (found,) = findings(installed)
    assert words in found.what and found.do
    assert "\n" not in str(found)
    assert str(found).startswith("PROBLEM: " if fails else "note: ")
    assert sick(installed) is fails


@pytest.mark.parametrize(
    "changes", [{**NEXT, "jax": "0.11.3"}, {"libtpu": "0.0.46.3"}, {"wanted": None}]
)
def test_good_ones_are_left_alone(changes):
    assert findings(replace(GOOD, **changes)) == ()


def test_without_jax():
    bare = Installed(python="3.11.7", numpy="2.4.6")
    assert not sick(bare)
    assert any("JAX is not installed" in line for line in lines(bare, ""))
    assert doctor.devices(bare, initialise=False) == "JAX is not installed"


def test_numbers_of_versions():
    assert number("0.11.1rc2") == (0, 11, 1)
    assert number("0.0.42.*") == (0, 0, 42)
    assert number("2.13.0+cpu") == (2, 13, 0)
    assert number("dev") == ()


def test_the_command(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "look", lambda: replace(GOOD, jax=None))
    assert main(["doctor"]) == 0
    assert "python   3.11.7" in capsys.readouterr().out
    monkeypatch.setattr(doctor, "look", lambda: replace(GOOD, jax=None, other="0.1.11"))
    assert main(["doctor"]) == 1
    assert "pip uninstall -y tilelang" in capsys.readouterr().out


def test_this_installation_is_read():
    found = doctor.look()
    assert found.numpy is not None and number(found.numpy) >= (2, 0)
    assert number(found.python) >= (3, 11)
