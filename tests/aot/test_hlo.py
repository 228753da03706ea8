"""Reading optimised HLO, bundle dumps and lines of generated modules: text in, values out."""

# HLO has the lines that it has.
# ruff: noqa: E501

from __future__ import annotations

import pytest

from tests.aot.written import by_hand, first_line, lowered
from tilelang.aot.bundles import collect, count, step
from tilelang.aot.hlo import Transfer, copies, kernels, transfers
from tilelang.aot.rules import RULES, rule_of
from tilelang.aot.translate import place

HLO = """HloModule jit_f, is_scheduled=true

%fused_computation (param_0.1: bf16[512,4,128]) -> bf16[4,512,128] {
  %param_0.1 = bf16[512,4,128]{2,1,0:T(4,128)(2,1)} parameter(0)
  %copy.1 = bf16[512,4,128]{2,0,1:T(8,128)(2,1)} copy(%param_0.1)
  ROOT %bitcast.1 = bf16[4,512,128]{2,1,0:T(8,128)(2,1)S(1)} bitcast(%copy.1)
}

%fused_add (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %convert.9 = f32[8]{0} convert(%a)
  ROOT %add.1 = f32[8]{0} add(%convert.9, %convert.9)
}

ENTRY %main.1 (x.1: bf16[512,4,128], w.1: f32[200,300]) -> f32[500,300] {
  %x.1 = bf16[512,4,128]{2,1,0:T(4,128)(2,1)} parameter(0)
  %w.1 = f32[200,300]{1,0:T(8,128)} parameter(1), sharding={replicated}
  %start = (f32[200,300]{1,0:T(8,128)S(1)}, f32[200,300]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%w.1)
  %done = f32[200,300]{1,0:T(8,128)S(1)} copy-done(%start)
  %copy_bitcast_fusion = bf16[4,512,128]{2,1,0:T(8,128)(2,1)S(1)} fusion(%x.1), kind=kLoop, calls=%fused_computation
  %sum = f32[8]{0} fusion(%x.1), kind=kLoop, calls=%fused_add
  %zero = f32[]{:T(256)} constant(0)
  %one = f32[]{:T(256)} copy(%zero)
  %pad.0 = f32[208,300]{1,0:T(8,128)} pad(%w.1, %zero), padding=0_8x0_0
  %f.1 = f32[500,300]{1,0:T(8,128)S(1)} custom-call(%pad.0, %done), custom_call_target="tpu_custom_call", metadata={op_name="copy(x)"}
  ROOT %copy.1 = f32[500,300]{0,1:T(8,128)} copy(%f.1)
}
"""


def test_whole_arrays_that_are_moved():
    assert copies(HLO) == [
        ("copy", "copy_bitcast_fusion", "bf16", (4, 512, 128)),
        ("pad", "pad.0", "f32", (208, 300)),
        ("copy", "copy.1", "f32", (500, 300)),
    ]


LOOP = """HloModule jit_f

%fused (p0: bf16[1,1,64], p1: u32[], p2: bf16[64]) -> bf16[1,1,64] {
  %p0 = bf16[1,1,64]{2,1,0:T(2,128)(2,1)} parameter(0)
  %p2 = bf16[64]{0:T(1024)(128)(2,1)} parameter(2)
  %reshape.6 = bf16[1,1,64]{2,1,0:T(2,128)(2,1)} reshape(%p2)
  ROOT %update = bf16[1,1,64]{2,1,0:T(2,128)(2,1)} dynamic-update-slice(%p0, %reshape.6)
}

%body (p: (u32[], bf16[64], bf16[1,1,64])) -> (u32[], bf16[64], bf16[1,1,64]) {
  %p = (u32[]{:T(128)}, bf16[64]{0:T(1024)}, bf16[1,1,64]{2,1,0:T(2,128)}) parameter(0)
  %n = u32[]{:T(128)} get-tuple-element(%p), index=0
  %next = u32[]{:T(128)} add(%n, %n)
  %x = bf16[64]{0:T(1024)} get-tuple-element(%p), index=1
  %part = bf16[64]{0:T(1024)} dynamic-slice(%x, %n), dynamic_slice_sizes={64}
  %made = bf16[1,1,64]{2,1,0:T(2,128)} fusion(%p, %n, %part), kind=kLoop, calls=%fused
  ROOT %t = (u32[]{:T(128)}, bf16[64]{0:T(1024)}, bf16[1,1,64]{2,1,0}) tuple(%next, %x, %made)
}

%busy (p: (u32[], bf16[64])) -> (u32[], bf16[64]) {
  %x.2 = bf16[64]{0:T(1024)} get-tuple-element(%p), index=1
  %copy.7 = bf16[64]{0:T(1024)} copy(%x.2)
  %sum = bf16[64]{0:T(1024)} add(%copy.7, %x.2)
}

ENTRY %main (x.1: bf16[64]) -> bf16[64] {
  %x.1 = bf16[64]{0:T(1024)} parameter(0)
  %while = (u32[]{:T(128)}, bf16[64]{0}, bf16[1,1,64]{2,1,0}) while(%x.1), condition=%c, body=%body
  %work = (u32[]{:T(128)}, bf16[64]{0}) while(%x.1), condition=%c, body=%busy
  %f.1 = bf16[1,64]{1,0:T(2,128)} custom-call(%while), custom_call_target="tpu_custom_call"
  %max = bf16[1]{0:T(1024)} reduce(%f.1, %x.1), dimensions={1}, to_apply=%m
  ROOT %reduce = bf16[64]{0:T(1024)} reduce(%f.1, %x.1), dimensions={0}, to_apply=%m
}
"""


def test_moves_that_are_written_as_loops_and_sums():
    assert copies(LOOP) == [
        ("reshape", "while", "bf16", (64,)),
        ("reshape", "reduce", "bf16", (64,)),
    ]


def test_launches():
    assert kernels(HLO) == ["f.1"]


DUMP = """= control target key start
LH: loop header

     0   :  { %s1 = inlined_call_operand.hbm [shape: s32[9]] }
   0x1   :  { %2 = dma.hbm_to_smem /* base_bounds: (1)
element_size_in_bytes: 512 */ }
   0x2 LB: > { %v3 = vld [vmem:[%s1] sm:$0xff] }
"""


def test_bundles(tmp_path):
    assert count(DUMP) == 3
    for name in ("f.1-01-final_bundles", "copy-2-01-final_bundles", "TLP-01-final_bundles"):
        (tmp_path / f"1795-{name}.txt").write_text(DUMP)
    (tmp_path / "1795-f.1-00-schedule-analysis_final_bundles.txt").write_text(DUMP)
    assert collect(tmp_path, ["f.1"]) == [("copy-2", 3, False, 0, 0), ("f.1", 3, True, 0, 0)]
    assert list(tmp_path.iterdir()) == []


def dumped(*bundles: str) -> str:
    return "".join(f" {index:#x}   : > {{ {text} }}\n" for index, text in enumerate(bundles))


FILL = (  # a loop of two bundles
    "%s0 = smov 0",
    "%s1 = sadd.s32 1, %s0 } /* Start region 4 :: Start region 5 */",
    "%9 = sbr.rel (!%p1) target = $region5",
)
STEP = (  # a loop of six, of which two are guarded
    "%s2 = smov 0 } /* Start region 7",
    "%10 = sbr.rel (%p2) target = $region8",
    "%11 = vst [vmem:[%s2]] %v1",
    "%12 = vst [vmem:[%s2 + $0x1]] %v1 } /* End region 6",
    "%s3 = sadd.s32 1, %s2 } /* Start/End empty region 8",
    "%13 = sbr.rel (!%p3) target = $region7",
)


def test_bundles_of_a_step():
    assert step(DUMP) == (0, 0)
    assert step(dumped(*FILL)) == (2, 0)
    assert step(dumped(*FILL, *STEP, "%s4 = smov 0")) == (6, 2)
    around = ("%s5 = smov 0 } /* Start region 20", *FILL, *STEP)
    assert step(dumped(*around, "%14 = sbr.rel target = $region20")) == (6, 2)
    long = ["%v2 = vadd.f32 %v1, %v1"] * 20
    assert step(dumped(*around, *long, "%14 = sbr.rel target = $region20")) == (31, 2)


def test_the_comment_above_a_line_leads_to_the_author():
    module = by_hand("y_ref[...] = value + value", "float32")
    lines = module.source.text.splitlines()
    at = {text.strip(): number for number, text in enumerate(lines, 1)}
    first = place(module, at["value = x_ref[...]"])
    assert (first.line, first.text.strip()) == (first_line(), "value = x[tm, :]")
    assert place(module, at["y_ref[...] = value + value"]).line == first_line() + 1
    assert place(module, at["grid=(4,),"]) == module.ir.loc
    assert place(module, None) == place(module, 1) == module.ir.loc


def test_generated_lines_lead_to_the_author():
    made = lowered()
    lines = made.source.text.splitlines()
    number = next(n for n, text in enumerate(lines, 1) if text.strip().startswith("y_ref[...] ="))
    assert place(made, number).text.strip() == "y[tm, :] = value * 2"


# What libtpu 0.0.42.1 and JAX 0.10.2 say, and a word of the rule that it breaks.
SAID = [
    ("E1001: CompileTimeScopedVmemOom: Scoped allocation with size 16.58M and limit", "vector mem"),
    ("Allocation (size=2000000) would exceed memory (size=1048576) :: space=smem", "scalar memory"),
    ("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm.", "memory of one chip"),
    ("Offsets along tiled dimensions must be aligned to tiles. Failed to verify", "register tile"),
    ("E2003: CompileTimeMosaicUnprovenMemoryAccessAlignment: cannot statically", "register tile"),
    ("Mosaic failed: infer-vector-layout: unsupported shape cast vector<64xi1>", "changes shape"),
    (
        "INVALID_ARGUMENT: Failed to parse the Mosaic module: unknown attribute code: 23",
        "libtpu is",
    ),
    ("ABORTED: Internal error when accessing libtpu multi-process lockfile.", "another process"),
    ("Not implemented: Up to 1 batch dim supported", "one batch dimension"),
    ("NotImplementedError: Buffer count >2 not supported for output buffered refs.", "buffers"),
    ("Not implemented: Unsupported dot precision: HIGH", "no product"),
    ("captures constants [f32[256]]. You should pass them as inputs", "not one of its arguments"),
    ("64-bit types are not supported", "64-bit"),
]


@pytest.mark.parametrize(("raw", "words"), SAID)
def test_known_messages(raw, words):
    found = rule_of(raw)
    assert found is not None and words in found[0].what


def test_unknown_messages_break_no_rule():
    assert rule_of("INTERNAL: something new about vector<8x128x2xbf16>") is None


def test_rules_say_what_to_change():
    for rule in RULES:
        assert rule.hint
        assert not rule.what.endswith(".")


def test_bytes_that_move_between_memories() -> None:
    """Arrays that XLA moves as they are, whole or in parts, and what runs meanwhile."""
    text = """
ENTRY %main.1 (ids.1: s32[1024], table.1: bf16[4096,256], w.1: s8[8192]) -> bf16[1024,256] {
  %ids.1 = s32[1024]{0:T(1024)} parameter(0)
  %table.1 = bf16[4096,256]{1,0:T(8,128)(2,1)} parameter(1)
  %w.1 = s8[8192]{0:T(1024)} parameter(2)
  %copy-start = (bf16[4096,256]{1,0:T(8,128)(2,1)S(1)}, bf16[4096,256]{1,0:T(8,128)(2,1)}, u32[]{:S(2)}) copy-start(%table.1)
  %slice-start = ((s8[8192]{0:T(1024)}), s8[4096]{0:T(1024)S(1)}, s32[]{:S(2)}) slice-start(%w.1), slice={[0:4096]}
  %copy-done = bf16[4096,256]{1,0:T(8,128)(2,1)S(1)} copy-done(%copy-start)
  %fusion.7 = s32[1024]{0:T(1024)S(1)} fusion(%copy-done), kind=kLoop, calls=%fused_computation.3
  %slice-done = s8[4096]{0:T(1024)S(1)} slice-done(%slice-start)
  %copy.4 = s32[1024]{0:T(1024)S(1)} copy(%ids.1)
  %copy.3 = s32[1024]{0:T(256)} copy(%ids.1)
  %copy-start.2 = (s32[1024]{0:T(256)}, s32[1024]{0:T(1024)}, u32[]{:S(2)}) copy-start(%ids.1)
  %copy-done.2 = s32[1024]{0:T(256)} copy-done(%copy-start.2)
}
"""
    assert transfers(text) == [
        Transfer(4096 * 256 * 2, ("slice-start",)),
        Transfer(4096, ("copy-done", "fusion.7")),
        Transfer(1024 * 4, ()),
    ]
