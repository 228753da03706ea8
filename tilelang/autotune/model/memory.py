"""CoreMemory: what the scalar units of one core see beside their registers: copies, flags, numbers.

Copies between HBM and the core follow each other on one connection, each at the chip's bandwidth,
and end a fixed latency after their last byte.  A wait ends when enough of them have.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...codegen.pallas.chips import Chip
from .program import Parameter

WORD = 0xFFFFFFFF
SIGN = 0x80000000
LOCAL = 4  # copies inside of a core are that much faster than from HBM
LOCAL_LATENCY = 0.3  # of the latency of a read from HBM


class Unknown:
    """A number or truth value that is not known; whatever is made of it is not known either."""

    def _same(self, *_: object) -> Unknown:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _same
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __xor__ = __rxor__ = _same
    __lt__ = __le__ = __gt__ = __ge__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _same
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        return self

    def __ne__(self, other: object) -> Any:
        return self

    def __and__(self, other: object) -> Any:
        return False if other is False else self

    def __or__(self, other: object) -> Any:
        return True if other is True else self

    __rand__, __ror__ = __and__, __or__

    def __bool__(self) -> bool:
        raise AssertionError("whether it is known has to be asked first")


UNKNOWN = Unknown()


class CoreMemory:
    """Of one core; `stalls`, `read`, `written` and `notes` are what it has to tell in the end."""

    def __init__(
        self, chip: Chip, parameters: tuple[Parameter, ...], arrays: Mapping[int, np.ndarray]
    ) -> None:
        self.now = 0.0
        self.numbers: dict[int, Any] = {}  # scalar memory
        self.stalls: defaultdict[str, float] = defaultdict(float)
        self.notes: Counter[str] = Counter()
        self.read = self.written = self.copies = 0
        self._chip, self._free = chip, 0.0
        self._rate = chip.bandwidth / chip.clock  # bytes per cycle
        self._latency = {"reads": chip.read * chip.clock, "writes": chip.write * chip.clock}
        self._flags: Counter[int] = Counter()
        # what copies add to a flag when they end: cycle, amount, why a wait for it waits
        self._coming: defaultdict[int, deque[tuple[float, int, str]]] = defaultdict(deque)
        self._symbols: dict[str, int] = {}
        self.bases = {p.index + (p.output << 16): (k + 1) << 21 for k, p in enumerate(parameters)}
        self._given = arrays
        self._arrays = [
            (p.memory, self._granules(p, self.base(p)), words(arrays[p.index]))
            for p in parameters
            if not p.output and p.index in arrays
        ]

    def base(self, parameter: Parameter) -> int:
        """The address of an argument or a result."""
        return self.bases[parameter.index + (parameter.output << 16)]

    def register(self, parameter: Parameter) -> Any:
        """What the register of an argument holds: its address, or the one number that it is."""
        if parameter.memory or parameter.output:
            return self.base(parameter)
        known = self._given.get(parameter.index)
        return UNKNOWN if known is None else int(words(known)[0])

    def address(self, symbol: str) -> int:
        """Of an allocation: each is far from all others."""
        return self._symbols.setdefault(symbol, (len(self._symbols) + 1) << 20)

    def _granules(self, parameter: Parameter, base: int) -> int:
        """An address as copies count it."""
        unit = 512 if parameter.memory == "vmem" else self._chip.unit
        return base * unit // self._chip.granule

    # ------------------------------------------------------------ what programs do

    def copy(
        self, way: tuple[str, str], at: float, size: Any, source: Any, target: Any, flags: tuple
    ) -> None:
        """Starts a copy of `size` granules in cycle `at`."""
        if size is UNKNOWN:
            self.notes["a copy of a size that is not known"] += 1
            return
        self.copies += 1
        if way[1] == "smem":
            self._fill(way[0], size, source, target)
        end, why = self._end(way, at, size * self._chip.granule)
        for flag in flags:
            if flag is UNKNOWN:
                self.notes["a copy with a flag that is not known"] += 1
            elif flag:
                self._coming[flag].append((end, size, why))

    def _end(self, way: tuple[str, str], at: float, size: int) -> tuple[float, str]:
        crossings = way.count("hbm")
        if not crossings:
            local = LOCAL_LATENCY * self._latency["reads"]
            return at + size / (LOCAL * self._rate) + local, "local copies"
        self.read += size * (way[0] == "hbm")
        self.written += size * (way[1] == "hbm")
        why = "writes" if way[1] == "hbm" else "reads"
        self._free = max(self._free, at) + crossings * size / self._rate
        return self._free + self._latency[why], why

    def _fill(self, memory: str, size: int, source: Any, target: Any) -> None:
        """What a copy writes to scalar memory."""
        if target is UNKNOWN:
            self.notes["a copy to an address that is not known"] += 1
            return
        count = size * self._chip.granule // 4
        self.numbers.update(dict.fromkeys(range(target, target + count), UNKNOWN))
        for home, begin, data in self._arrays:
            first = UNKNOWN if source is UNKNOWN else (source - begin) * self._chip.granule // 4
            if home == memory and first is not UNKNOWN and 0 <= first < len(data):
                self.numbers.update(enumerate(data[first : first + count].tolist(), target))

    def wait(self, flag: Any, amount: Any) -> None:
        """Until the flag has at least this amount."""
        if flag is UNKNOWN or amount is UNKNOWN:
            self.notes["a wait for what is not known"] += 1
            return
        begin, why, coming = self.now, "", self._coming[flag]
        while self._flags[flag] < amount and coming:
            end, added, cause = coming.popleft()
            self._flags[flag] += added
            if end > self.now:
                self.now, why = end, cause
        if self._flags[flag] < amount:
            self.notes["a wait that nothing ends"] += 1
        if why:
            self.stalls[why] += self.now - begin

    def add(self, flag: Any, amount: Any) -> None:
        """To a flag, in two's complement."""
        if flag is UNKNOWN or amount is UNKNOWN:
            self.notes["a flag or an amount that is not known"] += 1
            return
        self._flags[flag] = max(0, self._flags[flag] + ((amount & WORD ^ SIGN) - SIGN))

    def put(self, flag: Any, amount: Any) -> None:
        """Sets a flag."""
        if flag is UNKNOWN or amount is UNKNOWN:
            self.notes["a flag or an amount that is not known"] += 1
            return
        self._flags[flag] = amount

    def store(self, address: Any, value: Any) -> None:
        """To scalar memory."""
        if address is UNKNOWN:
            self.notes["a store to an address that is not known"] += 1
            return
        self.numbers[address] = value


def words(array: np.ndarray) -> np.ndarray:
    """32-bit numbers in the order in which they lie in memory: in tiles of 8 x 128 from 2-D on.

    A word holds as many rows of smaller integers as fit in it.
    """
    found = np.asarray(array)
    bits = 8 * found.dtype.itemsize
    found = found.astype(np.int64) & WORD
    if found.ndim < 2:
        return found.reshape(-1)
    if bits < 32:
        found = _packed(found, bits)
    rows, lanes = found.shape[-2:]
    height = next(h for h in (1, 2, 4, 8) if h >= min(rows, 8))
    pad = [(0, 0)] * (found.ndim - 2) + [(0, -rows % height), (0, -lanes % 128)]
    padded = np.pad(found, pad)
    tiles = padded.reshape(-1, padded.shape[-2] // height, height, padded.shape[-1] // 128, 128)
    return tiles.transpose(0, 1, 3, 2, 4).reshape(-1)


def _packed(found: np.ndarray, bits: int) -> np.ndarray:
    """Rows that share words, the first one in the lowest bits."""
    together = 32 // bits
    pad = [(0, 0)] * (found.ndim - 2) + [(0, -found.shape[-2] % together), (0, 0)]
    padded = np.pad(found, pad) & ((1 << bits) - 1)
    shape = (*found.shape[:-2], padded.shape[-2] // together, together, found.shape[-1])
    shifts = np.arange(together)[:, None] * bits
    return (padded.reshape(shape) << shifts).sum(-2)
