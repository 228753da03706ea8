"""The planted bugs, by what they break."""

from __future__ import annotations

from functools import partial

from tests.planted.bug import Bug, bug
from tests.planted.cut import CUT
from tests.planted.groups import GROUPS

_GEMM = partial(bug, "grouped_gemm", "table")
_GEMM_DEAD = partial(bug, "grouped_gemm", "rectangle")
_SUM = partial(bug, "jagged_sum", "table")
_SUM_DEAD = partial(bug, "jagged_sum", "rectangle")
_ATTENTION = partial(bug, "jagged_attention", "a head each")
_CAUSAL = partial(bug, "jagged_attention_causal", "table")
_INNER = partial(bug, "jagged_attention", "emit_pipeline")
_PHASES = partial(bug, "jagged_softmax", "emit_pipeline")
_WINDOW = partial(bug, "sliding_window_attention", "table")
_WEIGHTS = partial(bug, "weight_only_grouped_gemm", "table")
_HEADS = partial(bug, "varlen_attention", "table")
_TO_ROWS = partial(bug, "padded_to_jagged", "parts")
_TO_BOXES = partial(bug, "jagged_to_padded", "parts")
_SHARED = partial(bug, "jagged_attention", "parts")
_EXACT = partial(bug, "varlen_attention", "exact")

_NEW_BLOCK = "((n == 0) | (tm_of[before] != tm)) & (tk == 0)"
_OWN_ROWS = "(tm_index >= offsets[g]) & (tm_index < offsets[g + 1])"
_SUMMED = "jnp.where(tm_mask, x_ref[...], 0.0)"
_VALUES = "jnp.where(tk_mask_1, v_ref[...], 0.0)"
_BEFORE = "(n == 0) | (b_of[before] != b) | (tq_of[before] != tq)"
_AFTER = "(n == steps - 1) | (b_of[after] != b) | (tq_of[after] != tq)"
_ORDER = "(pltpu.PARALLEL, pltpu.ARBITRARY, pltpu.ARBITRARY)"
_SPLIT = "(pltpu.PARALLEL, pltpu.PARALLEL, pltpu.ARBITRARY)"

MASKS: tuple[Bug, ...] = (
    _GEMM("row mask dropped", "jnp.where(tm_mask, acc_ref[...], y_ref[...])", "acc_ref[...]"),
    _GEMM("row mask without a begin", _OWN_ROWS, "tm_index < offsets[g + 1]"),
    _GEMM("row mask without an end", _OWN_ROWS, "tm_index >= offsets[g]"),
    _GEMM("row mask one too long", "tm_index < offsets[g + 1]", "tm_index <= offsets[g + 1]"),
    _GEMM("row mask one too late", "tm_index >= offsets[g]", "tm_index > offsets[g]"),
    _GEMM("column mask dropped", " < 136", " < 256"),
    _GEMM("column mask one too short", " < 136", " < 135"),
    _GEMM("one factor without a neutral fill: 0 * NaN", "jnp.where(tk_mask_1, w_ref[...], 0.0)",
          "w_ref[...]"),
    _SUM("mask dropped", _SUMMED, "x_ref[...]"),
    _SUM("mask by a product: 0 * NaN", _SUMMED, "x_ref[...] * tm_mask"),
    _SUM("written to the rows of all groups", "jnp.where(g_row, acc_ref[...], y_ref[...])",
         "jnp.broadcast_to(acc_ref[...], y_ref.shape)"),
    _ATTENTION("values without a neutral fill: 0 * NaN", _VALUES, "v_ref[...]"),
    _ATTENTION("score of a neighbour is 0, not -inf", "            -jnp.inf,\n",
               "            0.0,\n"),
    _CAUSAL("a row does not see itself", "tk_index <= tq_index", "tk_index < tq_index"),
    _CAUSAL("a row sees the next one", "tk_index <= tq_index", "tk_index <= tq_index + 1"),
    _WINDOW("window one too long", "distance < 20", "distance <= 20"),
    _WINDOW("begin of the window one too late", "- 20 + 1", "- 20 + 2"),
    bug("gdpa_dense_kv", "table", "values without a neutral fill: 0 * NaN",
        "jnp.where(ts_mask_1, v_ref[...], 0.0)", "v_ref[...]"),
    bug("transposed_grouped_gemm", "table", "one factor without a neutral fill: 0 * NaN",
        "jnp.where(tm_mask, dy_ref[...], 0.0)", "dy_ref[...]"),
    bug("layer_norm_long", "default", "mask dropped", "tn_index < 200", "tn_index < 256"),
    bug("split_k_matmul", "default", "parts overlap by one", "< ts * 200 + 200",
        "<= ts * 200 + 200"),
)  # fmt: skip

WINDOWS: tuple[Bug, ...] = (
    _GEMM("window of the rows one too far", "tn, n, tk: (tm_of[n], tk)",
          "tn, n, tk: (jnp.minimum(tm_of[n] + 1, 4), tk)"),
    _GEMM("weights of the group before", "(g_of[n], tk, tn)",
          "(jnp.maximum(g_of[n] - 1, 0), tk, tn)"),
    _GEMM("padding cut off at the wrong end", "y = y[:72, :200]", "y = y[8:, :200]"),
    _ATTENTION("window of keys and values one too far", "(h, tk_of[n], 0)",
               "(h, jnp.minimum(tk_of[n] + 1, 2), 0)"),
    _INNER("positions without the first tile", "tk = tk_first + pl.program_id(0)",
           "tk = pl.program_id(0)"),
    _INNER("windows without the first tile", "(h, tk_first + tk, 0)", "(h, tk, 0)"),
    _WEIGHTS("scales of the first group", "(5, 1), 0) == g", "(5, 1), 0) == 0"),
    bug("gdpa_dense_kv", "table", "keys and values of the first head", "(b_of[n], h, ts, 0)",
        "(b_of[n], 0, ts, 0)"),
    bug("paged_attention", "table", "pages of the first sequence", "table[b_of[n], p_of[n]]",
        "table[0, p_of[n]]"),
)  # fmt: skip

VISITS: tuple[Bug, ...] = (
    _GEMM("first visit does not initialise", _NEW_BLOCK, "n < 0"),
    _GEMM("every step initialises", _NEW_BLOCK, "tk == 0"),
    _GEMM("only the first step initialises", _NEW_BLOCK, "(n == 0) & (tk == 0)"),
    _GEMM("every group initialises", "tm_of[before] != tm", "g_of[before] != g"),
    _GEMM("steps in the wrong order", "grid=(2, steps, 2)", "grid=(2, 2, steps)",
          ("n = pl.program_id(1)", "n = pl.program_id(2)"),
          ("tk = pl.program_id(2)", "tk = pl.program_id(1)"),
          ("lambda tn, n, tk:", "lambda tn, tk, n:")),
    _GEMM_DEAD("existing rows are lost", "y_ref[...] = y_in_ref[...]", "pass"),
    _GEMM_DEAD("result and existing rows are two arrays", "input_output_aliases={3: 0},", ""),
    _PHASES("shared rows are not read back", "y_ref[...] = y_in_ref[...]", "pass"),
    bug("jagged_softmax", "table", "an empty range has seen the tiles before its begin",
        "jax.lax.div(tm_end + 15, 16), 0)", "jax.lax.div(tm_end + 15, 16), tm_first)"),
)  # fmt: skip

CARRIES: tuple[Bug, ...] = (
    _GEMM("accumulator never reset", "@pl.when(tk == 0)", "@pl.when((n == 0) & (tk == 0))"),
    _GEMM("accumulator reset at every step", "@pl.when(tk == 0)", "@pl.when(tk >= 0)"),
    _GEMM("epilogue at the first step", "@pl.when(tk == 1)", "@pl.when(tk == 0)"),
    _SUM("accumulator never reset", "(n == 0) | (g_of[before] != g)", "n == 0"),
    _SUM("epilogue at the last step only", "(n == steps - 1) | (g_of[after] != g)",
         "n == steps - 1"),
    _SUM("epilogue of the last step missing", "(n == steps - 1) | (g_of[after] != g)",
         "g_of[after] != g"),
    _SUM("last step looks back", "g_of[after] != g", "g_of[before] != g"),
    _ATTENTION("carries go on into the next group", _BEFORE, "(n == 0) | (tq_of[before] != tq)"),
    _ATTENTION("only the last group of a tile ends", _AFTER,
               "(n == steps - 1) | (tq_of[after] != tq)"),
    _ATTENTION("sum is not scaled to the new maximum", "total_ref[...] * alpha", "total_ref[...]"),
    _ATTENTION("maximum is not carried", "m_ref[...] = m_new", "pass"),
    _ATTENTION("scale dropped", "* 0.25503486164919736", "* 1.0"),
    _PHASES("sum not reset", "total_ref[...] = jnp.zeros((1, 128), jnp.float32)", "pass"),
    _WEIGHTS("scale dropped", "acc_ref[...] * scale_g", "acc_ref[...]"),
    bug("jagged_mean", "table", "count one too large", "jnp.maximum(end - begin, 1)",
        "end - begin + 1"),
    bug("jagged_mean", "table", "empty group divided by 0", "jnp.maximum(end - begin, 1)",
        "end - begin"),
    bug("long_sum", "default", "epilogue one step early", "@pl.when(tn == 2)", "@pl.when(tn == 1)"),
    bug("layer_norm_long", "default", "mean over the padding", "/ 200.0", "/ 256.0"),
)  # fmt: skip

STEPS: tuple[Bug, ...] = (
    _GEMM("one row of the table too few", "grid=(2, steps, 2)", "grid=(2, steps - 1, 2)"),
    _GEMM("tiles of no range have no step", "fori_loop(seen, 5,", "fori_loop(5, 5,"),
    _GEMM("cursor not moved", "return n, jnp.maximum(seen, tm_stop)", "return n, seen"),
    _GEMM("shared tile only for its first group", "(tm_first < seen), seen - 1, seen)",
          "(tm_first < seen), seen, seen)"),
    _GEMM("number of tiles rounded down", "tm_end + 15, 16", "tm_end, 16"),
    _SUM("empty group has no step", "tm_first + 1\n", "tm_first\n"),
    _SUM_DEAD("dead steps run", "return tm_live,", "return tm_live | True,"),
    _SUM_DEAD("epilogue one step early", "tm == tm_stop - 1", "tm == tm_stop - 2"),
    _CAUSAL("tile of the diagonal has no step", "minimum(offsets[b + 1], tq * 16 + 16)\n",
            "minimum(offsets[b + 1], tq * 16)\n"),
    bug("flash_attention_causal", "default", "number of tiles rounded down", "tk_end + 31, 32",
        "tk_end, 32"),
)  # fmt: skip

CORES: tuple[Bug, ...] = (
    _GEMM("steps of the table split over cores", _ORDER,
          "(pltpu.PARALLEL, pltpu.PARALLEL, pltpu.ARBITRARY)"),
    bug("transposed_grouped_gemm", "table", "steps of the table split over cores", _SPLIT,
        "(pltpu.PARALLEL, pltpu.PARALLEL, pltpu.PARALLEL)"),
    bug("long_sum", "default", "reduction split over cores", '("parallel", "arbitrary")',
        '("parallel", "parallel")'),
    bug("jagged_softmax", "fori_loop", "groups that share a block split over cores",
        '("parallel", "arbitrary")', '("parallel", "parallel")'),
)  # fmt: skip

_SEARCH = "return jax.lax.while_loop(inside, lambda n: n + 1, share)"
_COPIED = "b_of[n] = b_of[first + n]"

PARTS: tuple[Bug, ...] = (
    _TO_ROWS("a core begins one row early", _SEARCH,
             _SEARCH.replace("return ", "return -jax.lax.rem(core, 2) + ")),
    _TO_ROWS("a core begins one row late", _SEARCH,
             _SEARCH.replace("return ", "return jax.lax.rem(core, 2) + ")),
    _TO_ROWS("a core begins at its share, where no block does", _SEARCH, "return share"),
    _TO_ROWS("a core begins with a group, not with a block", "t_of[row - 1] == t_of[row]",
             "b_of[row - 1] == b_of[row]"),
    _TO_ROWS("the second core has no rows", "part(pl.program_id(0) + 1)",
             "part(1)"),
    _TO_ROWS("no rows for the second core", _SEARCH, "return jax.lax.div(core + 1, 2) * steps"),
    _TO_ROWS("rows of the second core are those of the first", _COPIED, "b_of[n] = b_of[n]",
             ("t_of[n] = t_of[first + n]", "t_of[n] = t_of[n]")),
    _TO_ROWS("one column stays behind", _COPIED, "b_of[n] = b_of[n]"),
    _TO_BOXES("one column stays behind", _COPIED, "b_of[n] = b_of[n]"),
    _TO_BOXES("a core has a row too few", "part(pl.program_id(0) + 1) - first",
              "part(pl.program_id(0) + 1) - first - pl.program_id(0)"),
    _SHARED("a core begins at its share, in the middle of a loop", _SEARCH, "return share"),
    _SHARED("a core begins where keys do", "tq_of[row - 1] == tq_of[row]",
            "tk_of[row - 1] == tk_of[row]"),
)  # fmt: skip

_TURNED = "            # q_by_h_ref[i] is q_ref[:, i]: the block with h in front"
_NEW_TILE = "@pl.when((n == 0) | (tq_of[before] != tq))\n        def _():\n"
_LENGTH = "jnp.minimum(offsets[b_of[n] + 1], 72) - tq_of[n], 16)"

HEADS: tuple[Bug, ...] = (
    _HEADS("queries of the first tile for all", _NEW_TILE + _TURNED,
           "@pl.when(n == 0)\n        def _():\n" + _TURNED),
    _HEADS("scores of the first head for all", "scores_ref[h : h + 2], -jnp.inf",
           "scores_ref[0:2], -jnp.inf"),
    _HEADS("heads put their scores into one place", "scores_ref[h : h + 2] = (",
           "scores_ref[0:2] = ("),
    bug("paged_attention", "table", "scores of the heads before", "scores_ref[h : h + 2],",
        "scores_ref[max(h - 2, 0) : max(h, 2)],"),
    _HEADS("keys of the first head for all", "k_by_h_ref[h // 2]", "k_by_h_ref[0]"),
    _HEADS("heads share a maximum", "m_ref[h : h + 2] = m_new",
           "m_ref[0:2] = m_new"),
    _HEADS("sum of the last head only is reset", "total_ref[...] = jnp.zeros((4, 16, 128), ",
           "total_ref[3] = jnp.zeros((16, 128), "),
    _HEADS("values without a neutral fill: 0 * NaN", "jnp.where(tk_mask, v_by_h_ref[h // 2], 0.0)",
           "v_by_h_ref[h // 2]"),
    _HEADS("rows of other ranges are overwritten", "tq_mask, jnp.transpose(out_by_h_ref[...], "
           "(1, 0, 2)), out_ref[...]", "True, jnp.transpose(out_by_h_ref[...], (1, 0, 2)), 0.0"),
    _HEADS("one head is not computed", "for h in range(4):", "for h in range(3):"),
    _EXACT("a row of the next range is stored", _LENGTH,
           _LENGTH.replace("tq_of[n], 16", "tq_of[n] + 1, 16")),
    _EXACT("the last row is not stored", _LENGTH,
           _LENGTH.replace("tq_of[n], 16", "tq_of[n] - 1, 16")),
    _EXACT("a row behind the block is copied", _LENGTH, _LENGTH.replace("16)", "17)")),
    _EXACT("tiles begin one row late", "tq_begin + tq * 16", "tq_begin + tq * 16 + 1"),
    _EXACT("number of tiles rounded down", "tq_end - tq_begin + 15", "tq_end - tq_begin"),
    _EXACT("keys behind the range are seen", "tk_index_1 < jnp.minimum(offsets[b + 1], tq + 16)",
           "tk_index_1 < 72", ("tk_index < jnp.minimum(offsets[b + 1], tq + 16)", "tk_index < 72"),
           ("tk_index_1 <= tq_index", "tk_index_1 >= 0")),
    _EXACT("initial rows are lost", "input_output_aliases={4: 0},", ""),
)  # fmt: skip

_BOXES = partial(bug, "jagged_to_padded", "default")
_ROWS = partial(bug, "padded_to_jagged", "default")

MOVED: tuple[Bug, ...] = (
    _BOXES("the second block is the first one", "// 16 + 1, 0,", "// 16, 0,"),
    _BOXES("rows of the first block one row late", ">= offsets[b] % 16", "> offsets[b] % 16"),
    _BOXES("turned the wrong way", "-offsets[b] % 16", "offsets[b] % 16"),
    _BOXES("not turned", "pltpu.roll(x_blocks, -offsets[b] % 16, 0)", "x_blocks"),
    _BOXES("rows behind the sequence", "t_mask, x_moved", "True, x_moved"),
    _ROWS("blocks counted towards zero", "-offsets[b_of[n]] // 16", "-(offsets[b_of[n]] // 16)"),
    _ROWS("rows of the next box", "t_mask, d_moved", "t_index >= offsets[b], d_moved"),
)  # fmt: skip

BUGS = (*HEADS, *MOVED, *CUT, *MASKS, *WINDOWS, *VISITS, *CARRIES, *STEPS, *CORES, *PARTS, *GROUPS)
