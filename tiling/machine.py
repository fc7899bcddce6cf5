"""The machine that a plan is made for: cores, caches, vector width, bandwidths and peaks."""

from __future__ import annotations

import ctypes
import math
import os
import platform
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from hlo.cpus import usable_cpus
from hlo.errors import SettingError
from hlo.settings import choice_setting, positive_setting

__all__ = ["Machine"]


@dataclass(frozen=True)
class Machine:
    """What the cost model knows of a machine. Rates are for one core unless they say otherwise.

    vector_bytes          bytes of a vector register
    fma_per_cycle         vector fused multiply-adds that start in a cycle
    l1_bytes, l2_bytes    a core's own caches; `l3_bytes` is what all cores share
    *_bytes_per_second    what one core streams from that level; `memory_` is for all cores together
    excess_precision      whether kernels may keep numbers more precise between two ops than their type is: bf16 as f32. Without
                          (the default, unless TILEWRIGHT_EXCESS_PRECISION=allow) each op is rounded to its type
    byte_products         products of two bytes that a multiply-add sums in each lane of 32 bits: 4 with VNNI and with
                          Arm's dot products, 8 with Arm's products of matrices
    pair_products         products of two bf16 that an instruction sums in each lane of 32 bits in the time of a multiply-add: 2
                          with AVX512-BF16
    tile_products         products of two bytes that tile registers sum in a cycle: 1024 with AMX; 1 where there are none
    ahead_bytes           how far ahead a large input that is walked through is asked for: two pages, less where the hardware
                          foresees the next page by itself
    rows_at_a_time        how many long rows that come from memory are read side by side: where the hardware stops fetching ahead
                          at the end of a page, several wait for their next pages together; elsewhere streams disturb each other

    Raises ValueError, which names the field, for a number that no machine has.

    >>> Machine(cores=0)
    Traceback (most recent call last):
    ...
    ValueError: Machine: cores: expected a whole number from 1 on, found 0
    """

    cores: int = 2
    vector_bytes: int = 32
    vector_registers: int = 16
    fma_per_cycle: int = 2
    hertz: float = 3.0e9
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    l3_bytes: int = 16 << 20
    l1_bytes_per_second: float = 150e9
    l2_bytes_per_second: float = 80e9
    l3_bytes_per_second: float = 40e9
    memory_bytes_per_second: float = 40e9
    launch_seconds: float = 5e-6
    excess_precision: bool = False
    byte_products: int = 1
    pair_products: int = 1
    tile_products: int = 1
    ahead_bytes: int = 8192
    rows_at_a_time: int = 1

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            value: Any = getattr(self, name)
            least = _LEAST.get(name, 1)
            if kind is bool:
                fits, expected = isinstance(value, bool), "True or False"
            elif kind is int:
                fits = not isinstance(value, bool) and isinstance(value, (int, np.integer)) and bool(value >= least)
                expected = f"a whole number from {least} on"
            else:
                fits = isinstance(value, (int, float, np.floating)) and bool(0 < value < math.inf)
                expected = "a positive finite number"
            if fits and name == "vector_bytes":
                fits, expected = value & (value - 1) == 0, "a power of two"
            if not fits:
                raise ValueError(f"Machine: {name}: expected {expected}, found {value!r}")

    def lanes(self, itemsize_bytes: int) -> int:
        """How many elements a vector register holds."""
        return max(1, self.vector_bytes // itemsize_bytes)

    @property
    def near(self) -> Machine:
        """The same machine for what is read and written again and again in a core's own cache: it comes from there.

        >>> Machine(l2_bytes_per_second=80e9, memory_bytes_per_second=20e9).near.memory_bytes_per_second / 1e9
        80.0
        """
        rate = self.l2_bytes_per_second
        return replace(self, l3_bytes_per_second=rate, memory_bytes_per_second=max(rate, self.memory_bytes_per_second))

    def peak_flops(self, itemsize_bytes: int) -> float:
        """Floating-point operations one core can do in a second in contractions.

        >>> Machine(vector_bytes=64, fma_per_cycle=2, hertz=4e9).peak_flops(4) / 1e9
        256.0
        """
        return 2.0 * self.lanes(itemsize_bytes) * self.fma_per_cycle * self.hertz

    def products_per_lane(self, factor_bytes: int) -> float:
        """Products of such factors that a core sums in the time of one in each lane of 32 bits of its multiply-adds.

        >>> Machine(vector_bytes=64, byte_products=4, tile_products=1024).products_per_lane(1)
        32.0
        """
        by_tiles = self.tile_products / factor_bytes / (self.lanes(4) * self.fma_per_cycle)
        return max(1.0, by_tiles, {1: self.byte_products, 2: self.pair_products}.get(factor_bytes, 1))

    @property
    def pairs_per_lane(self) -> float:
        """The same of factors of bf16: 1 where neither tiles nor vectors have an instruction for them."""
        return self.products_per_lane(2)

    def micro_tile(self, itemsize_bytes: int, columns: int) -> tuple[int, int]:
        """Rows and columns of the register block of a contraction whose result has `columns` columns.

        The block's accumulators, one row of the right operand and a broadcast value must fit the registers.
        """
        lanes = self.lanes(itemsize_bytes)
        for vectors in (4, 2, 1) if self.vector_registers >= 32 else (2, 1):
            if vectors == 1 or columns > (vectors // 2) * lanes:
                break
        rows = (self.vector_registers - vectors - 1) // vectors
        return min(rows, {4: 6, 2: 12 if self.vector_registers >= 32 else 6, 1: 14}[vectors]), vectors * lanes

    @classmethod
    def detect(cls) -> Machine:
        """This machine, from what the operating system tells; what it does not tell keeps a cautious default.

        TILEWRIGHT_MACHINE describes another one, as `description` writes it, in part or in whole. Raises SettingError for a
        description that is none.
        """
        return cls._detect().described()

    def described(self) -> Machine:
        """This machine with the fields that TILEWRIGHT_MACHINE names. Raises SettingError for a description that is none."""
        text = os.environ.get("TILEWRIGHT_MACHINE", "").strip()
        try:
            return replace(self, **_parsed(text)) if text else self
        except SettingError:
            raise
        except ValueError as error:
            raise SettingError(f"TILEWRIGHT_MACHINE: {str(error).removeprefix('Machine: ')}") from None

    @property
    def description(self) -> str:
        """All fields as text, for TILEWRIGHT_MACHINE.

        >>> Machine(cores=64).description[:38]
        'cores=64,vector_bytes=32,vector_regist'
        """
        return ",".join(f"{name}={value}" for name, value in asdict(self).items())

    @classmethod
    def _detect(cls) -> Machine:
        found = cls(cores=_cores(), excess_precision=_excess_precision())
        features = _cpu_flags()
        if "avx512f" in features:
            found = replace(found, vector_bytes=64, vector_registers=32)
        elif "avx2" in features or "avx" in features:
            found = replace(found, vector_bytes=32, vector_registers=16)
        elif platform.machine() in ("x86_64", "AMD64", *_ARM):
            found = replace(found, vector_bytes=16, vector_registers=32 if platform.machine() != "x86_64" else 16)
        dots = "asimddp" if platform.machine() in _ARM else "avx512_vnni" if found.vector_bytes == 64 else "avx_vnni"
        caches = _caches()
        return replace(
            found,
            byte_products=8 if {dots, "i8mm"} <= features else 4 if dots in features else 1,
            pair_products=2 if "avx512_bf16" in features and found.vector_bytes == 64 else 1,
            tile_products=_TILE_PRODUCTS if "amx_int8" in features and found.vector_bytes == 64 else 1,
            ahead_bytes=2048 if _foresees_pages() else found.ahead_bytes,
            rows_at_a_time=4 if _is_zen_3() else found.rows_at_a_time,
            l1_bytes=caches.get(1, found.l1_bytes),
            l2_bytes=caches.get(2, found.l2_bytes),
            l3_bytes=_share(caches.get(3, found.l3_bytes), os.cpu_count() or 1),
        )

    def __str__(self) -> str:
        return (
            f"{self.cores} cores, {self.vector_bytes * 8}-bit vectors, L1 {self.l1_bytes >> 10} KiB, "
            f"L2 {self.l2_bytes >> 10} KiB, L3 {self.l3_bytes >> 20} MiB{', excess precision' if self.excess_precision else ''}"
        )


_ARM = ("aarch64", "arm64")
_TILE_PRODUCTS = 1024
"""16 x 16 sums of 64 products in 16 cycles."""

_KINDS: dict[str, type] = {f.name: type(f.default) for f in fields(Machine)}
_LEAST = {"vector_registers": 5}
"""Where 1 is too few. A register block's accumulators, operands and a broadcast value take five (`Machine.micro_tile`)."""


def _parsed(text: str) -> dict[str, Any]:
    """The fields that a description names."""
    kinds = _KINDS
    found: dict[str, Any] = {}
    for item in text.split(","):
        name, _, value = (part.strip() for part in item.partition("="))
        if name not in kinds:
            raise SettingError(f"TILEWRIGHT_MACHINE: expected NAME=VALUE of {', '.join(kinds)}, found {item!r}")
        if kinds[name] is bool:
            if value not in ("True", "False"):
                raise SettingError(f"TILEWRIGHT_MACHINE: {name}: expected True or False, found {value!r}")
            found[name] = value == "True"
            continue
        try:
            found[name] = kinds[name](value)
        except ValueError:
            found[name] = 0
        if not 0 < found[name] < float("inf"):
            raise SettingError(f"TILEWRIGHT_MACHINE: {name}: expected a positive {kinds[name].__name__}, found {value!r}")
    return found


MOST_SHARED_BYTES = 64 << 20
"""The most of a shared cache that there is for one CPU, but for a few models with more."""


def _share(shared_bytes: int, cpus: int) -> int:
    """What `cpus` CPUs, all that the system has, may expect of a shared cache of `shared_bytes`.

    A virtual machine with two CPUs is told of the cache of the whole socket, whose other CPUs fill it with data of their own.

    >>> _share(32 << 20, 8) >> 20, _share(480 << 20, 2) >> 20
    (32, 128)
    """
    return min(shared_bytes, cpus * MOST_SHARED_BYTES)


def _cores() -> int:
    wanted = positive_setting("TILEWRIGHT_NUM_THREADS")
    if wanted is not None:
        return wanted
    return usable_cpus()


def _excess_precision() -> bool:
    return choice_setting("TILEWRIGHT_EXCESS_PRECISION", ("forbid", "allow")) == "allow"


_SYSCTL_FEATURES = {"hw.optional.arm.FEAT_DotProd": "asimddp", "hw.optional.arm.FEAT_I8MM": "i8mm"}


def _cpu_flags() -> frozenset[str]:
    """The CPU's features as Linux names them, which lists Arm's under another word; on macOS what counts for products."""
    if sys.platform == "darwin":
        return frozenset(own for name, own in _SYSCTL_FEATURES.items() if _sysctl(name))
    return frozenset((_of_cpu("flags") or _of_cpu("Features")).split())


def _foresees_pages() -> bool:
    """Whether the hardware follows a stream from page to page: Intel's does (next-page prefetcher, since 2012)."""
    return _of_cpu("vendor_id") == "GenuineIntel"


def _is_zen_3() -> bool:
    """AMD's Zen 3 reads four rows side by side at 1.16 times the rate of one, Zen 4 at .6 to .9 (maxima of 8192 x 4096)."""
    family, model = _of_cpu("cpu family"), _of_cpu("model")
    if _of_cpu("vendor_id") != "AuthenticAMD" or family != "25" or not model.isdigit():
        return False
    return int(model) < 0x10 or 0x20 <= int(model) < 0x60


def _of_cpu(what: str) -> str:
    """What Linux tells of the first CPU under a name; nothing elsewhere."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    match = re.search(rf"^{what}\s*:\s*(.*)$", text, re.MULTILINE)
    return match.group(1).strip() if match else ""


_SYSCTL_NAMES = {1: "hw.perflevel0.l1dcachesize", 2: "hw.perflevel0.l2cachesize"}
"""Of the fast cores of an arm64 Mac; the names without `perflevel0` are those of Intel's, and of its slow cores."""


def _sysctl_caches(ask: Callable[[str], int | None]) -> dict[int, int]:
    """Cache level -> bytes, as macOS tells by name; a level that it does not tell is left out."""
    sizes: dict[int, int] = {}
    for level, name in {**_SYSCTL_NAMES, 3: "hw.l3cachesize"}.items():
        size = ask(name) or ask(name.replace("perflevel0.", ""))
        if size:
            sizes[level] = size
    return sizes


def _sysctl(name: str) -> int | None:
    """The number that macOS keeps under a name; None where there is none."""
    call = getattr(ctypes.CDLL(None), "sysctlbyname", None)
    if call is None:
        return None
    value, size = ctypes.c_int64(0), ctypes.c_size_t(8)
    failed = call(name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0))
    return int(value.value) if not failed else None


def _caches() -> dict[int, int]:
    """Cache level -> bytes of core 0's data (or unified) cache, as Linux lists them; on macOS those that sysctl tells."""
    if sys.platform == "darwin":
        return _sysctl_caches(_sysctl)
    sizes: dict[int, int] = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            if (index / "type").read_text().strip() == "Instruction":
                continue
            level, size = int((index / "level").read_text()), (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        match = re.fullmatch(r"(\d+)([KM]?)", size)
        if match:
            sizes[level] = int(match.group(1)) << {"": 0, "K": 10, "M": 20}[match.group(2)]
    return sizes
