"""Small final schedules, written by hand, and what running them must give.

The chip has round numbers: 100 bytes per cycle, reads take 500 cycles and writes 300 beside that,
two delay slots, granules of 32 bytes.  A bundle is written as its instructions, and behind "|" the
comment that the compiler puts after it; ">" before it says that it is in a loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tilelang.autotune.model.execute import Execution, execute
from tilelang.autotune.model.program import parse
from tilelang.codegen.pallas.chips import Chip, Units

CHIP = Chip(
    clock=1e9,
    bandwidth=100e9,
    read=500e-9,
    write=300e-9,
    delay_slots=2,
    granule=32,
    unit=32,
    cores=1,
    units=Units(8, 100, 1, 8, 3, 50, 60, 40, 10, matrix=1),
)
SEVEN = replace(CHIP, delay_slots=6)  # empty bundles may stand for several slots


def dump(*bundles: str) -> str:
    """The text of a dump."""
    lines = []
    for address, bundle in enumerate(bundles):
        body, _, note = bundle.partition("|")
        comment = f" /* {note.strip()} */" if note else ""
        depth = ">" * (len(body) - len(body.lstrip(">")))
        body = body.lstrip(">").strip()
        lines.append(f"{address:#6x}   : {depth} {{ {body} }}{comment}")
    return "= control target key end\n\n" + "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Case:
    """A program, and fields of what its execution must be."""

    what: str
    text: str
    expected: Mapping[str, object]
    arrays: Mapping[int, list[int]] = field(default_factory=dict)
    chip: Chip = CHIP
    core: int = 0

    def run(self, chip: Chip | None = None) -> Execution:
        chip = chip or self.chip
        arrays = {place: np.array(numbers, np.int32) for place, numbers in self.arrays.items()}
        return execute(parse(self.text, chip), chip, arrays, self.core)

    def is_right(self, chip: Chip | None = None) -> bool:
        found = self.run(chip)
        wanted = {"notes": {}} | self.expected
        return all(getattr(found, name) == value for name, value in wanted.items())

    def __str__(self) -> str:
        return self.what


def operand(index: int, shape: str, register: int, memory: str = "hbm", kind: str = "input") -> str:
    return (
        f"%s9{index}_s{register} = inlined_call_operand.{memory} "
        f"[shape: {shape}, index: {index}, kind: {kind}, shape index: {{}}]"
    )


READ = (
    "%5 = dma.hbm_to_vmem [thread:$0] {guard} /*hbm=*/%s90_s10, /*size_in_granules=*/100, "
    "/*vmem=*/%s3_s3, /*dst_syncflagno=*/[#allocation1]"
)
WRITE = (
    "%6 = dma.vmem_to_hbm /*vmem=*/%s3_s3, /*size_in_granules=*/100, /*hbm=*/%s90_s10, "
    "/*dst_syncflagno=*/[#allocation2], /*src_stride=*/128, /*dst_stride=*/128"
)
FILL = (
    "%7 = dma.hbm_to_smem /*hbm=*/{source}, /*size_in_granules=*/2, /*smem=*/%s4_s4, "
    "/*dst_syncflagno=*/[#allocation1]"
)
COUNT_DOWN = (  # from the number in s5, which takes 4 + 4 * s5 bundles in all
    "%s6_s6 = smov 0",
    "%s7_s6 = sadd.s32 1, %s6_s6 | Start region 1",
    "%p1_p0 = scmp.lt.s32.totalorder %s7_s6, %s5_s5 ;; %9 = vsyncpa [#allocation8], 0",
    "%8 = sbr.rel (%p1_p0) target = $region1 | End region 1",
    "",
    "",
)

CASES = (
    Case(
        "bundles in the delay slots of a branch run, once per turn",
        dump(
            "%s1_s1 = smov 0",
            "%s2_s1 = sadd.s32 1, %s1_s1 | Start region 1",
            "%p1_p0 = scmp.lt.s32.totalorder %s2_s1, 5",
            "%9 = sbr.rel (%p1_p0) target = $region1",
            "",
            "%8 = vsyncadd [#allocation3], 1",
            "",
        ),
        {"cycles": 1 + 5 * 5 + 1, "bundles": 27, "stalls": {}},
    ),
    Case(
        "on 7x an empty bundle before a region stands for the slots that are left",
        dump(
            "%s1_s1 = smov 0",
            "%s2_s1 = sadd.s32 1, %s1_s1 | Start region 1",
            "%p1_p0 = scmp.lt.s32.totalorder %s2_s1, 5",
            "%9 = sbr.rel (%p1_p0) target = $region1 | End region 1",
            "%8 = vsyncadd [#allocation3], 1",
            "",
            "| Start region 2",
        ),
        {"cycles": 1 + 5 * (3 + 6) + 1, "stalls": {}},
        chip=SEVEN,
    ),
    Case(
        "on 7x it does so at the end of a loop, too",
        dump(
            "%s1_s1 = smov 0",
            "> %s2_s1 = sadd.s32 1, %s1_s1 | Start region 1",
            "> %p1_p0 = scmp.lt.s32.totalorder %s2_s1, 5",
            "> %9 = sbr.rel (%p1_p0) target = $region1",
            "> %8 = vsyncadd [#allocation3], 1 | End region 1",
            ">",
            "%8 = vsyncadd [#allocation3], 1",
            "%7 = dma.done.wait [#allocation3], 6",
            "%8 = vsyncadd [#allocation3], 4294967290",
        ),
        {"cycles": 1 + 5 * (3 + 6) + 3, "stalls": {}},
        chip=SEVEN,
    ),
    Case(
        "an empty bundle in the middle of them is one slot, in whatever loop it is printed",
        dump(
            "%s1_s1 = smov 0",
            "> %s2_s1 = sadd.s32 1, %s1_s1 | Start region 1",
            "> %p1_p0 = scmp.lt.s32.totalorder %s2_s1, 5",
            "> %9 = sbr.rel (%p1_p0) target = $region1",
            "> %8 = vsyncadd [#allocation3], 1",
            "",
            "> %8 = vsyncadd [#allocation3], 1 | End region 1",
            "",
            "",
            "",
        ),
        {"cycles": 1 + 5 * 9, "stalls": {}},
        chip=SEVEN,
    ),
    Case(
        "signed numbers are compared as such",
        dump(
            "%s1_s1 = smov 4294967295",
            "%p1_p0 = scmp.lt.s32.totalorder %s1_s1, 0",
            "%9 = sbr.rel (%p1_p0) target = $region1",
            "",
            "",
            "%5 = vsyncpa [#allocation3], 0",
            "| Start region 1",
        ),
        {"cycles": 6},
    ),
    Case(
        "a wait ends when the copy has",
        dump(
            operand(0, "bf16[800,128]", 10),
            READ.format(guard=""),
            "%7 = dma.done.wait [#allocation1], 100 /* a comment */",
            "%8 = vsyncadd [#allocation1], 4294967196",
        ),
        {"cycles": 1 + 32 + 500 + 2, "stalls": {"reads": 531}, "read": 3200, "written": 0},
    ),
    Case(
        "copies follow each other, and each wait is for one of them",
        dump(
            operand(0, "bf16[800,128]", 10),
            READ.format(guard=""),
            WRITE + " ;; " + READ.format(guard=""),
            "%7 = dma.done.wait [#allocation1], 100",
            "%8 = vsyncadd [#allocation1], 4294967196",
            "%7 = dma.done.wait [#allocation1], 100",
            "%8 = vsyncadd [#allocation1], 4294967196",
            "%7 = dma.done.wait [#allocation2], 100",
        ),
        {"cycles": 1 + 3 * 32 + 500 + 3, "read": 6400, "written": 3200},
    ),
    Case(
        "a guarded copy starts where its guard says so: what is there already is not fetched again",
        dump(
            "%s1_s1 = smov 0 ;; " + operand(0, "bf16[800,128]", 10),
            "%p2_p1 = scmp.eq.s32.totalorder %s1_s1, 0 | Start region 1",
            READ.format(guard="(%p2_p1),"),
            "%s2_s1 = sadd.s32 1, %s1_s1 ;; %7 = dma.done.wait (%p2_p1), [#allocation1], 100",
            "%8 = vsyncadd (%p2_p1), [#allocation1], 4294967196",
            "%p1_p0 = scmp.lt.s32.totalorder %s2_s1, 4",
            "%9 = sbr.rel (%p1_p0) target = $region1",
            "",
            "",
        ),
        {"cycles": 2 + 32 + 500 + 6 + 3 * 8, "read": 3200},
    ),
    Case(
        "registers keep what a guard does not let be written, and merge what they are told to",
        dump(
            "%s1_s1 = smov 7 ;; %s2_s2 = smov 3 ;; %p1_p0 = scmp.lt.s32.totalorder 1, 0",
            "%s3_s5 = smov (%p1_p0, %s2_s2), 9",
            *COUNT_DOWN,
        ),
        {"cycles": 2 + 1 + 5 * 3},
    ),
    Case(
        "all of a bundle is read before any of it is written",
        dump(
            "%s1_s1 = smov 2 ;; %s5_s5 = smov 4",
            "%s3_s5 = smov %s1_s1 ;; %s4_s1 = smov %s5_s5",
            "%s8_s8 = sadd.s32 %s4_s1, %s3_s5 ;; %s5_s5 = ssub.s32 %s4_s1, 1",
            *COUNT_DOWN,
        ),
        {"cycles": 3 + 1 + 5 * 3},
    ),
    Case(
        "a pointer is the number that it is made of, even in one bundle",
        dump(
            "%s1_s1 = smov 1",
            "%s2_s5 = sshll.u32 %s1_s1, 2 ;; %s3_s5 = int_to_ptr.vmem [resolvable:$true] %s2_s5",
            *COUNT_DOWN,
        ),
        {"cycles": 2 + 1 + 5 * 4},
    ),
    Case(
        "a pipeline without steps is skipped, though the region behind it has no name",
        dump(
            "%s1_s1 = smov 0 | Start region 4",
            "%p1_p0 = scmp.le.s32.totalorder %s1_s1, 0",
            "%9 = sbr.rel (%p1_p0) target = $region6",
            "",
            " | End region 4",
            "| Start region 5",
            "%7 = dma.done.wait [#allocation1], 100 | End region 5",
            "%8 = vsyncpa [#allocation1], 1",
        ),
        {"cycles": 6},
    ),
    Case(
        "numbers are copied to scalar memory from an offset on, and steer",
        dump(
            operand(0, "s32[64]", 10) + " ;; %s4_s4 = smov [#allocation9]",
            "%s11_s11 = scalar_lea.hbm %s90_s10, 1",
            FILL.format(source="%s11_s11"),
            "%7 = dma.done.wait [#allocation1], 2",
            "%s12_s12 = smov 3",
            "%s5_s5 = sld [smem:[#allocation9 + %s12_s12]]",
            *COUNT_DOWN,
        ),
        {"bundles": 6 + 1 + 5 * 6},
        {0: [2] * 11 + [6] + [2] * 52},
    ),
    Case(
        "addresses of HBM may have another unit than copies of it",
        dump(
            operand(0, "s32[256]", 10) + " ;; %s4_s4 = smov [#allocation9]",
            "%s11_s11 = scalar_lea.hbm %s90_s10, 1",  # 512 bytes: 128 numbers
            "%s12_s12 = sshll.u32 %s11_s11, 4",
            FILL.format(source="%s12_s12"),
            "%s5_s5 = sld [smem:[#allocation9 + $0x3]]",
            *COUNT_DOWN,
        ),
        {"bundles": 5 + 1 + 5 * 7},
        {0: [2] * 131 + [7] + [2] * 124},
        replace(CHIP, unit=512),
    ),
    Case(
        "numbers that XLA put into vector memory are copied from there",
        dump(
            operand(1, "s32[256]", 10, "vmem") + " ;; %s4_s4 = smov [#allocation9]",
            "%s12_s12 = sshll.u32 %s90_s10, 4",
            FILL.format(source="%s12_s12").replace("hbm_to_smem /*hbm", "vmem_to_smem /*vmem"),
            "%s5_s5 = sld [smem:[#allocation9 + $0x3]]",
            *COUNT_DOWN,
        ),
        {"bundles": 4 + 1 + 5 * 7},
        {1: [2] * 3 + [7] + [2] * 252},
    ),
    Case(
        "arrays of two dimensions lie in tiles",
        dump(
            operand(0, "s32[16,130]", 10) + " ;; %s4_s4 = smov [#allocation9]",
            "%s11_s11 = scalar_lea.hbm %s90_s10, 144",  # words 1152: row 1 of the second tile
            FILL.format(source="%s11_s11"),
            "%7 = dma.done.wait [#allocation1], 2",
            "%s5_s5 = sld [smem:[#allocation9 + $0x1]]",
            *COUNT_DOWN,
        ),
        {"bundles": 5 + 1 + 5 * 9},
        {0: [[9 if (row, lane) == (1, 129) else 1 for lane in range(130)] for row in range(16)]},
    ),
    Case(
        "an argument that is one number lies in its register",
        dump(operand(0, "s32[1]", 5, "<no memory space>"), *COUNT_DOWN),
        {"bundles": 1 + 1 + 5 * 7},
        {0: [7]},
    ),
    Case(
        "a core that has no work skips it",
        dump(
            "%s1_s1 = sld [smem:[#allocation7]] /* core id */",
            "%p1_p0 = scmp.ne.s32.totalorder %s1_s1, 0",
            "%9 = sbr.rel (%p1_p0) target = $region2",
            "",
            "",
            "%5 = vsyncpa [#allocation3], 0 | Start region 1",
            "| Start region 2",
        ),
        {"cycles": 6},
        core=1,
    ),
    Case(
        "a constant comes back from the vector units, as in the barrier of two cores",
        dump(
            "%v1_v0 = vmov 5 /* materialized constant */ ;; %6 = vpush.ccrf %v1_v0",
            "%v10_v0 = vmov 5",
            "%9 = vpush.ccrf %v10_v0",
            "%v2_v1 = vpop.ccrf",
            "%v3_v1 = vpop.ccrf",
            "%11 = vpush %v3_v1",
            "%s5_s5 = spop %11",
            *COUNT_DOWN,
        ),
        {"bundles": 7 + 1 + 5 * 5},
    ),
    Case(
        "a quotient by a number that is known is the upper half of a product",
        dump("%s1_s1 = smov 25", "%s2_s5 = smulhi.u32 858993460, %s1_s1", *COUNT_DOWN),
        {"bundles": 2 + 1 + 5 * 5, "notes": {}},
    ),
    Case(
        "quotient and remainder are taken from a queue, in that order",
        dump(
            "%12 = sdivrem.u32 17, 5",
            "%s1_s1 = spop.drf %12",
            "%s2_s5 = spop.drf %12",
            *COUNT_DOWN,
        ),
        {"bundles": 3 + 1 + 5 * 2},
    ),
    Case(
        "the remainder alone is in a queue where the division says so, as with three buffers",
        dump("%12 = sdivrem.u32 17, 5 /* kRem */", "%s2_s5 = spop.drf %12", *COUNT_DOWN),
        {"bundles": 2 + 1 + 5 * 2},
    ),
    Case(
        "what depends on data that is not known is noted",
        dump(
            operand(0, "s32[64]", 10) + " ;; %s4_s4 = smov [#allocation9]",
            FILL.format(source="%s90_s10"),
            "%s5_s5 = sld [smem:[#allocation9]]",
            *COUNT_DOWN,
        ),
        {"notes": {"a condition that is not known": 1}},
    ),
    Case(
        "a number that is compared with itself is asked for NaN, and is none",
        dump(
            "%s1_s1 = sld [smem:[#allocation9]]",
            "%p1_p0 = scmp.ne.f32.partialorder %s1_s1, %s1_s1 ;; %s5_s5 = smov 1",
            "%5 = vsyncadd (%p1_p0), [#allocation3], 1",
            *COUNT_DOWN,
        ),
        {"cycles": 3 + 1 + 5},
    ),
    Case(
        "what is not known and decides nothing is not noted",
        dump(
            "%s1_s1 = sld [smem:[#allocation9]]",
            "%p1_p0 = scmp.lt.s32.totalorder %s1_s1, 5 ;; %p2_p1 = scmp.lt.s32.totalorder 1, 0",
            "%p3_p2 = pand %p1_p0, %p2_p1 ;; %s5_s5 = smov 1",
            "%s3_s3 = scalar_select /*predicate=*/%p1_p0, /*on_true=*/%s1_s1, /*on_false=*/4",
            "%5 = vsyncadd (%p3_p2), [#allocation3], 1",
            *COUNT_DOWN,
        ),
        {"cycles": 5 + 1 + 5},
    ),
    Case(
        "a reduction over lanes is waited for",
        dump("%1 = vadd.xlane.f32.xlu0 %v1_v0", "", "%v2_v1 = vpop.xlane.xlu0 %1"),
        {"cycles": 51, "bundles": 3, "stalls": {"units": 48}},
    ),
    Case(
        "results of products come one after the other, and in the next turn of a loop too",
        dump(
            "%1 = vmatmul.f32.gmra.mxu0 %v1_v0",
            "%2 = vmatmul.f32.gmra.mxu0 %v1_v0",
            "%v2_v1 = vpop.f32.mrf.mxu0",
            "%s1_s1 = smov 1",
            "%7 = dma.done.wait [#allocation1], 0",  # a line of its own
            "%v2_v1 = vpop.f32.mrf.mxu0",
        ),
        {"cycles": 109, "stalls": {"units": 103}, "matrix": 16.0},
    ),
    Case(
        "products wait for their weights, special functions for none but themselves",
        dump(
            "%1 = vmatpush.msra.mxu0 %v1_v0 ;; %3 = vpow2.f32 %v1_v0",
            "%2 = vmatmul.f32.vlgmr.msra.gmra.mxu0 %v1_v0 ;; %v9_v9 = vpop.eup %3",
            "%v2_v1 = vpop.f32.mrf.mxu0",
        ),
        {"cycles": 10 + 100 + 1},
    ),
    Case(
        "vector registers that did not fit are counted as often as they are stored",
        dump(
            "%1 = vst [vmem:[#allocation5_spill] sm:$0xff] /*vst_source=*/%v1_v0",
            "%2 = vst [vmem:[#allocation6] sm:$0xff] /*vst_source=*/%v1_v0",
        ),
        {"spills": 1},
    ),
)
