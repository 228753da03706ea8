"""Bugs planted into generated Triton, each of which a check must catch.

Programs run one after the other in the interpreter, so that a store into the next group's rows is
overwritten by that group: bugs of that kind need a GPU.
"""

from __future__ import annotations

from tests.planted.bug import Bug, bug

SEARCH, TABLE, SPLIT = "search", "table", "split"

BUGS: tuple[Bug, ...] = (
    bug(
        "grouped_gemm",
        SEARCH,
        "the last tile of a group is left out",
        " + 15, 0) // 16",
        ", 0) // 16",
    ),
    bug(
        "grouped_gemm",
        SEARCH,
        "an item belongs to the group before",
        "tile_ends <= ",
        "tile_ends < ",
    ),
    bug(
        "grouped_gemm",
        SEARCH,
        "tiles of a group start at the item",
        "tile_counts, 0), axis=0)",
        "tile_counts, 0), axis=0) * 0",
    ),
    bug(
        "grouped_gemm",
        SEARCH,
        "one tile too far",
        "tm_in = tm_at < tm_end",
        "tm_in = tm_at <= tm_end",
    ),
    bug(
        "grouped_gemm",
        SEARCH,
        "the accumulator is forgotten",
        "x_tile, w_tile, acc,",
        "x_tile, w_tile,",
    ),
    bug(
        "grouped_gemm",
        SEARCH,
        "items are taken once too often",
        "item_count *",
        "(item_count - 1) *",
    ),
    bug("grouped_gemm", TABLE, "items before count from this group", "- 1, mask=", "+ 0, mask="),
    bug(
        "grouped_gemm", TABLE, "an end that is the item is passed over", "end <= item", "end < item"
    ),
    bug(
        "jagged_attention",
        SEARCH,
        "keys behind the range count",
        "                tk_in,\n",
        "                tk_in | True,\n",
    ),
    bug(
        "jagged_attention",
        SEARCH,
        "keys are read to the end of the array",
        "tk_in = tk_at < tk_end",
        "tk_in = tk_at < 45",
    ),
    bug("jagged_attention", SEARCH, "the old maximum is kept", "            m = m_new\n", ""),
    bug("jagged_attention", SEARCH, "the sum is not rescaled", "total * alpha +", "total +"),
    bug(
        "jagged_attention_causal",
        SEARCH,
        "keys after the query are seen",
        "<= tq_at[:, None]",
        "<= tq_at[:, None] + 1",
    ),
    bug(
        "jagged_sum",
        SEARCH,
        "rows of the next group are summed",
        "tm_in = tm_at < tm_end",
        "tm_in = tm_at < tm_end + 1",
    ),
    bug(
        "jagged_softmax",
        SEARCH,
        "the largest of NaN is not NaN and of nothing is 0",
        'float("-inf"))',
        "0.0)",
    ),
    bug(
        "jagged_dense_add",
        SEARCH,
        "rows of the dense part are moved by one",
        "tm_at - begin",
        "tm_at - begin + 1",
    ),
    bug(
        "jagged_to_padded",
        SEARCH,
        "rows are read from the start of the array",
        "t_at + begin",
        "t_at",
    ),
    bug(
        "padded_to_jagged",
        SEARCH,
        "rows of the wrong group",
        "_rows = t_at - begin",
        "_rows = t_at",
    ),
    bug(
        "gdpa_jagged_kv",
        SEARCH,
        "keys come from the queries' range",
        "tl.load(kv_offsets_ptr",
        "tl.load(q_offsets_ptr",
    ),
    bug(
        "segment_reduction",
        SEARCH,
        "a maximum begins at 0",
        '[128], float("-inf"), tl.float32)',
        "[128], 0.0, tl.float32)",
    ),
    bug(
        "moe",
        SEARCH,
        "a row is gathered from its lane",
        "tl.load(token_ptr + ts_at",
        "tl.load(token_ptr + 0 * ts_at",
    ),
    bug(
        "transposed_grouped_gemm",
        SEARCH,
        "rows of neighbours enter the sum",
        "mask=tm_in[:, None]",
        "mask=(tm_at < 45)[:, None]",
    ),
    bug("jagged_sum", SPLIT, "the last part is left out", "range(0, 3)", "range(0, 2)"),
    bug("jagged_sum", SPLIT, "one part too many is added", "range(0, 3)", "range(0, 4)"),
    bug(
        "jagged_sum",
        SPLIT,
        "a part goes to the end of the range",
        "tl.minimum(tm_part + tm_length, tm_last)",
        "tm_last",
    ),
    bug(
        "jagged_sum",
        SPLIT,
        "the last part goes into the next group",
        "tl.minimum(tm_part + tm_length, tm_last)",
        "(tm_part + tm_length)",
    ),
    bug("jagged_sum", SPLIT, "parts are rounded down", ", 0) + 47) //", ", 0)) //"),
    bug(
        "segment_reduction",
        SPLIT,
        "a part of a maximum begins at 0",
        '[128], float("-inf"), tl.float32)',
        "[128], 0.0, tl.float32)",
    ),
    bug(
        "jagged_layer_norm",
        SEARCH,
        "the mean is that of the tile",
        "mean = total / count",
        "mean = total",
    ),
)
