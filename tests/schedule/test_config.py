"""Config: what it refuses and in which words, JSON both ways, hashing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilelang.errors import PlanError
from tilelang.schedule.config import LOOP_TYPES, Config

REFUSED = {
    "blocks and block_sizes": (
        lambda: Config({"tm": 8}, block_sizes=[8]),
        "give blocks or block_sizes, not both",
    ),
    "zero block": (
        lambda: Config({"tm": 0}),
        "the block of tm must be an integer from 1 to 1048576, got 0",
    ),
    "bool block": (
        lambda: Config({"tm": True}),
        "the block of tm must be an integer from 1 to 1048576, got True",
    ),
    "float block": (
        lambda: Config(block_sizes=[8, 8.0]),
        "the block of block_sizes[1] must be an integer from 1 to 1048576, got 8.0",
    ),
    "huge block": (
        lambda: Config({"tm": 1 << 21}),
        "the block of tm must be an integer from 1 to 1048576, got 2097152",
    ),
    "loop type": (
        lambda: Config(loop_type="pipeline"),
        "loop_type='pipeline' is not known\n"
        "  hint: use one of grid, outer_pipeline, worklist, emit_pipeline, fori_loop, unroll",
    ),
    "steps": (
        lambda: Config(steps="list"),
        "steps='list' is not known\n  hint: use one of table, rectangle",
    ),
    "buffers": (
        lambda: Config(buffers=0),
        "buffers must be an integer from 1 to 16, got 0",
    ),
    "cores": (
        lambda: Config(cores=3),
        "cores must be an integer from 1 to 2, got 3",
    ),
    "registers": (
        lambda: Config(max_registers=8),
        "max_registers must be an integer from 16 to 255, got 8",
    ),
    "blocks without names": (
        lambda: Config(blocks=[8]),
        "blocks must name the axes, got [8]\n"
        '  hint: write blocks={"tm": 128}, or block_sizes=[128, ...] in the order of the loops',
    ),
    "one size": (
        lambda: Config(block_sizes=8),
        "block_sizes must be a list, got 8\n"
        "  hint: write block_sizes=[128, ...], or blocks={...} by the names of the axes",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    make, text = REFUSED[name]
    with pytest.raises(PlanError) as caught:
        make()
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "not a config: Expecting property name enclosed in double quotes"),
        ("[1]", "not a config: expected a JSON object"),
        (8, "not a config: the JSON object must be str"),
        ('{"block": 8}', "unknown config field 'block'"),
        ('{"buffers": "2"}', "buffers must be an integer from 1 to 16, got '2'"),
        ('{"blocks": {"tm": null}}', "the block of tm must be an integer"),
    ],
)
def test_from_json_says_what_is_wrong(text: str, what: str) -> None:
    with pytest.raises(PlanError) as caught:
        Config.from_json(text)
    assert str(caught.value).startswith(what)


def test_what_is_no_block_is_not_taken_for_one() -> None:
    with pytest.raises(PlanError) as caught:
        Config(zz="grid")
    assert caught.value.hint.startswith("fields: ")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("num_warps", "warps"), ("buffer", "buffers"), ("num_stages", "stages"), ("zz", None)],
)
def test_an_unknown_field_says_which_is_meant(name: str, meant: str | None) -> None:
    with pytest.raises(PlanError) as caught:
        Config(**{name: 4})
    assert caught.value.what == f"unknown config field {name!r}"
    said = f"did you mean {meant}?" if meant else "the block of a loop is Config({'zz': 4});"
    assert caught.value.hint.startswith(f"{said} fields: ")


counts = st.integers(1, 1 << 20)
configs = st.builds(
    Config,
    st.dictionaries(st.sampled_from(["tm", "tn", "tk"]), counts),
    loop_type=st.sampled_from([None, *LOOP_TYPES]),
    steps=st.sampled_from([None, "table", "rectangle"]),
    buffers=st.none() | st.integers(1, 16),
    cores=st.none() | st.integers(1, 2),
) | st.builds(lambda s: Config(block_sizes=s), st.lists(counts, max_size=4))


@given(configs)
def test_json_both_ways(config: Config) -> None:
    again = Config.from_json(config.to_json())
    assert again == config
    assert hash(again) == hash(config)
    assert again.to_json() == config.to_json()


def test_equal_whatever_the_order_of_blocks() -> None:
    one, other = Config({"tm": 8, "tn": 128}), Config([("tn", 128), ("tm", 8)])
    assert one == other
    assert {one: "x"}[other] == "x"
    assert one != Config({"tm": 8, "tn": 128}, steps="table")


def test_json_has_only_what_is_set() -> None:
    config = Config({"tn": 128, "tm": 8}, buffers=3)
    assert json.loads(config.to_json()) == {"blocks": {"tm": 8, "tn": 128}, "buffers": 3}
    assert Config().to_json() == "{}"
    assert str(config) == 'Config({"blocks": {"tm": 8, "tn": 128}, "buffers": 3})'


def test_block_of_an_axis() -> None:
    config = Config({"tm": 8})
    assert (config.block("tm"), config.block("tn")) == (8, None)


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Config().buffers = 3  # type: ignore[misc]
