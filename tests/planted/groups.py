"""Bugs in blocks of hl.grid loops: whose rows are whose, what is exact, which turns there are."""

from __future__ import annotations

from functools import partial

from tests.planted.bug import Bug, bug

_SUM = partial(bug, "jagged_sum", "groups")
_MEAN = partial(bug, "jagged_mean", "groups")
_TO = partial(bug, "jagged_to_padded", "groups")
_BACK_TO = partial(bug, "padded_to_jagged", "groups")
_NORM = partial(bug, "jagged_layer_norm", "groups")
_PAGES = partial(bug, "paged_attention", "groups")
_TEST = "jax.lax.cond(jnp.isnan(jnp.sum(sums * 0.0)), apart, lambda: sums)"
_BEGIN = "each(jnp.where(live, begin, most), most)"
_END = "each(jnp.where(live, end, 0), 0)"
_BACK = " + jnp.where(up, jnp.inf, 0.0) - jnp.where(down, jnp.inf, 0.0)"

GROUPS: tuple[Bug, ...] = (
    _SUM("a group's first row is left out", "tm_index >= offsets_begin",
         "tm_index > offsets_begin"),
    _SUM("a group has the next one's first row", "tm_index < offsets_end",
         "tm_index <= offsets_end"),
    _SUM("NaN of a neighbour: 0 * NaN", _TEST, "sums"),
    _SUM("two parts of float32 and not three", "product(values - high - middle) + ", ""),
    _SUM("one part of float32", "product(values - high - middle) + product(middle) + ", ""),
    _SUM("a block begins with its last group", f"{_BEGIN}.min(axis=1)",
         "each(begin, 0).max(axis=1)"),
    _SUM("a block ends with its first group", f"{_END}.max(axis=1)", "end[::size]"),
    _SUM("sums go on into the next block",
         "= jnp.broadcast_to(jnp.zeros((1, 128), jnp.float32), (2, 128))", "= acc_ref[...]"),
    _MEAN("an empty group is divided by 0", "jnp.maximum(end - begin, 1)", "end - begin"),
    _MEAN("lengths of other groups", "count.astype(jnp.float32).T",
          "jnp.broadcast_to(count.astype(jnp.float32)[:, :1], (1, 2)).T"),
    _TO("the row before a group", "(index >= first)", "(index >= first - 1)"),
    _TO("a row of the next group", "(index < stop)", "(index <= stop)"),
    _TO("rows from where a register tile begins", "- there + some, 0", "* 0 + some, 0"),
    _TO("rows behind the first few are left out", "fori_loop(1, count", "fori_loop(1, 1"),
    _TO("the rows of other tiles too", "jnp.maximum(begin, t * 16)", "begin"),
    _TO("boxes of the last block hold what the one before left",
        "(n == 0) | (b_of[before] != b)", "n == 0"),
    _TO("a box of no rows has no step",
        "jnp.where(t_end > t_begin, jax.lax.div(t_end + 15, 16), t_first), t_first + 1",
        "jnp.where(t_end > t_begin, jax.lax.div(t_end + 15, 16), t_first), t_first"),
    _TO("a block has no end", f"{_END}.max(axis=1)", "end[::size]"),
    _BACK_TO("rows behind a box", ", begin + 45)", ", begin + 48)"),
    _BACK_TO("rows of a box behind its group", "offsets_end[jnp.minimum(b * 2 + lane, 4)]",
             "begin + 45"),
    _BACK_TO("the last tile of a block is not the first of the next",
             "(t_end > t_begin) & (t_first < seen), seen - 1, seen", "t_first < 0, seen - 1, seen"),
    _BACK_TO("the window ends a register tile early", "(source.shape[0] - near) // tile",
             "(source.shape[0] - near) // tile - 1"),
    _BACK_TO("the last rows of a tile", "(target.shape[0] - some) // tile",
             "(target.shape[0] - some) // tile - 1"),
    _NORM("rows are summed into the next group too",
          "(tm_index < offsets_end_ref[...])\n                    & tm_mask",
          "(tm_index <= offsets_end_ref[...])\n                    & tm_mask"),
    _NORM("rows look up the group before theirs too", "(tm_2_index >= normal_offsets_begin)",
          "(tm_2_index >= normal_offsets_begin - 1)"),
    _NORM("what a row looks up is not of its group alone",
          "(tm_index >= offsets_begin_ref[...]) & (tm_index < offsets_end_ref[...])\n"
          "                        & g_mask,", "(tm_index < offsets_end_ref[...]) & g_mask,"),
    _NORM("rows of a block's last group are not stored", "(tm_2_index < offsets_spans[g + 3])",
          "(tm_2_index < offsets_spans[g + 3] - 1)"),
    _NORM("rows of the blocks before are stored again", "tm_2_mask\n                & (jnp.sum(",
          "~tm_2_mask\n                | (jnp.sum("),
    _NORM("sums of the block before are kept",
          "squares_ref[...] = jnp.zeros((1, 2), jnp.float32)", "pass"),
    _NORM("lengths are those of a block's first group", "scale_ref[...] = jax.lax.rsqrt("
          "squares_ref[...] / count", "scale_ref[...] = jax.lax.rsqrt(squares_ref[...] / "
          "count[:, :1]"),
    _PAGES("the second page of a turn is its first", "p_of[n] * 4 + 1,", "p_of[n] * 4,"),
    _PAGES("a turn too few", "+ 3) // 4", ") // 4"),
    _PAGES("the third page counts twice", "+ weights_2 + weights_3", "+ weights_2 + weights_2"),
)  # fmt: skip
# Those that only rows with NaN and Inf of their own tell.
NOT_FINITE: tuple[Bug, ...] = (
    _SUM("what is not finite is not put back", _BACK, ""),
    _SUM("NaN is put back as Inf", _BACK, " + jnp.where(up, jnp.inf, 0.0)"),
    _SUM("Inf is put back as -Inf", _BACK, " - jnp.where(up, jnp.inf, 0.0)"),
    _SUM("what is not finite is summed", "jnp.where(jnp.abs(values) < jnp.inf, values, 0.0)",
         "values"),
    _SUM("parts that are rounded up to Inf", "bits = jax.lax.bitcast_convert_type(values, "
         "jnp.int32) & -65536\n        return jax.lax.bitcast_convert_type(bits, jnp.float32)",
         "return values.astype(jnp.bfloat16).astype(jnp.float32)"),
)  # fmt: skip
# Those that only offsets which are none tell, where nothing is checked.
WILD: tuple[Bug, ...] = (
    _SUM("a block begins where its first group does", f"{_BEGIN}.min(axis=1)",
         "begin[::size]", ("each(begin, most).min(axis=1)", "begin[::size]")),
    _SUM("a block ends where its last group does", f"{_END}.max(axis=1)",
         "jnp.pad(jnp.where(live, end, 0), (0, -count % size))[size - 1 :: size]"),
)  # fmt: skip
