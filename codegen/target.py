"""The machine that kernels are compiled for: CPU name, features, vector width.

``Target`` is plain data, so a compile for AVX2 or for the x86-64 baseline can be asked for on any newer machine; that is
how the narrower paths are tested.  Nothing else in ``codegen`` looks at the CPU by itself.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace

from codegen.forks import compiling

_AVX2_FEATURES = "+avx,+avx2,+bmi,+bmi2,+cmov,+cx16,+cx8,+f16c,+fma,+fxsr,+lzcnt,+mmx,+movbe,+popcnt,+sahf,+sse,+sse2"
_AVX2_FEATURES += ",+sse3,+sse4.1,+sse4.2,+ssse3,+xsave"

_WHOLE_REGISTERS = "-prefer-256-bit"
"""LLVM fills half a register in the loops that it vectorizes for every Intel CPU with AVX-512, by its name: the first of them
lowered their clock for whole ones. Later ones do not, and the micro-kernels fill whole ones on all."""
_LOWERS_CLOCK = ("skylake-avx512", "cascadelake", "cooperlake")

# x86-64 targets that have names -> CPU and features.
_AVX512_FEATURES = _AVX2_FEATURES + ",+avx512bw,+avx512cd,+avx512dq,+avx512f,+avx512vl," + _WHOLE_REGISTERS
_VNNI_FEATURES = _AVX512_FEATURES + ",+avx512vnni"

NAMED_TARGETS = {
    "amx": ("x86-64-v4", _VNNI_FEATURES + ",+avx512bf16,+amx-tile,+amx-int8,+amx-bf16"),
    "avx512bf16": ("x86-64-v4", _VNNI_FEATURES + ",+avx512bf16"),
    "avx512vnni": ("x86-64-v4", _VNNI_FEATURES),
    "avx512": ("x86-64-v4", _AVX512_FEATURES),
    "avx2": ("x86-64-v3", _AVX2_FEATURES),
    "baseline": ("x86-64", "+sse,+sse2"),
}


@dataclass(frozen=True)
class ByteDot:
    """An instruction that adds products of two bytes to lanes of 32 bits: which of its factors have signs, its LLVM name.

    >>> Target.named("avx512vnni").byte_dots[0].intrinsic(16)
    'llvm.x86.avx512.vpdpbusd.512'
    """

    signed: tuple[bool, bool]
    name: str

    def intrinsic(self, lanes: int) -> str:
        """LLVM's name of the instruction in so many lanes."""
        return self.name.format(lanes=lanes, bytes=4 * lanes, bits=32 * lanes)


_X86_DOTS = (ByteDot((False, True), "llvm.x86.avx512.vpdpbusd.{bits}"),)
_ARM_SIGNS = {"sdot": (True, True), "udot": (False, False), "usdot": (False, True)}
_NEON_DOTS = tuple(ByteDot(s, f"llvm.aarch64.neon.{name}.v{{lanes}}i32.v{{bytes}}i8") for name, s in _ARM_SIGNS.items())
_SVE_DOTS = tuple(ByteDot(s, f"llvm.aarch64.sve.{name}.nxv4i32") for name, s in _ARM_SIGNS.items())
_NEON_MATRICES = tuple(
    ByteDot(s, f"llvm.aarch64.neon.{name}.v{{lanes}}i32.v{{bytes}}i8")
    for name, s in (("smmla", (True, True)), ("ummla", (False, False)), ("usmmla", (False, True)))
)
"""Two rows by two columns of eight bytes each: eight products for each lane."""


@functools.cache
def _key(target: Target) -> str:
    fields = (target.triple, target.cpu, target.features, str(target.vector_bytes), str(target.vector_registers))
    return hashlib.sha256("\n".join(fields).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Target:
    """What LLVM and the emitters need to know about a CPU.

    ``vector_bytes`` is the width of the registers that explicit vector code uses: 64 with AVX-512, 32 with AVX2, else 16.

    >>> Target.named("avx2").lanes(4)
    8
    >>> Target.named("baseline").has_fma
    False
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    vector_registers: int
    has_fma: bool
    has_f16: bool

    @property
    def lowers_clock(self) -> bool:
        """Whether the CPU lowers its clock while registers of 64 bytes are in use: the first ones of Intel that have them.

        >>> wide = "+avx2,+avx512bw,+avx512dq,+avx512f,+avx512vl"
        >>> [_host("x86_64", cpu, wide).lowers_clock for cpu in ("cascadelake", "sapphirerapids")]
        [True, False]
        """
        return self.vector_bytes == 64 and self.cpu in _LOWERS_CLOCK

    @property
    def has_scaling(self) -> bool:
        """Whether an instruction multiplies each lane by a power of two, whatever the exponent and the vector's width.

        >>> Target.named("avx512").has_scaling, Target.named("avx2").has_scaling
        (True, False)
        """
        return {"+avx512f", "+avx512vl"} <= set(self.features.split(","))

    @property
    def has_lane_masks(self) -> bool:
        """Whether stores of some lanes of a vector are an instruction like any other: AVX-512's, SVE's. AVX2's takes the time of
        some ten stores on AMD's CPUs, and others have none.

        >>> Target.named("avx512").has_lane_masks, Target.named("avx2").has_lane_masks
        (True, False)
        """
        return self.has_scaling or bool(self.sve_bytes)

    def lanes(self, item_bytes: int) -> int:
        """vector_bytes // item_bytes, the elements of one vector register."""
        return max(1, self.vector_bytes // item_bytes)

    @property
    def is_arm(self) -> bool:
        """Whether this is a 64-bit Arm CPU.

        >>> Target.from_features("arm64-apple-darwin23", "apple-m1", "+neon").is_arm, Target.named("avx2").is_arm
        (True, False)
        """
        return self.triple.startswith(("aarch64", "arm64"))

    @property
    def byte_dots(self) -> tuple[ByteDot, ...]:
        """The instructions that sum products of bytes: by AVX-512 VNNI or AVX-VNNI, by Arm's dot products, which SVE
        always has (mixed signs: I8MM).

        >>> arm = Target.from_features("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon,+dotprod")
        >>> [dot.signed for dot in arm.byte_dots], [dot.signed for dot in Target.named("avx512vnni").byte_dots]
        ([(True, True), (False, False)], [(False, True)])
        """
        have = {item[1:] for item in self.features.split(",") if item.startswith("+")}
        if self.is_arm:
            dots = _SVE_DOTS if self.sve_bytes else _NEON_DOTS if "dotprod" in have else ()
            return dots if "i8mm" in have else dots[:2]
        wide = {"avx512vnni", "avx512vl"} <= have
        return _X86_DOTS if wide or (self.vector_bytes <= 32 and "avxvnni" in have) else ()

    @property
    def byte_matrices(self) -> tuple[ByteDot, ...]:
        """The instructions that add two rows by two columns of eight bytes each: those of Arm's I8MM, with NEON's registers.

        >>> [x.signed for x in Target.from_features("aarch64-linux-gnu", "neoverse-v1", "+neon,+i8mm").byte_matrices]
        [(True, True), (False, False), (False, True)]
        """
        return _NEON_MATRICES if self.is_arm and not self.sve_bytes and "+i8mm" in self.features.split(",") else ()

    @property
    def byte_products(self) -> int:
        """Products of two bytes that an instruction sums in each lane of 32 bits: 8 of matrices (`byte_matrices`), 4 of vectors
        (`byte_dots`), else 1.

        >>> Target.named("avx512").byte_products, Target.from_features("x86_64", "alderlake", "+avx2,+avxvnni").byte_products
        (1, 4)
        """
        return 8 if self.byte_matrices else 4 if self.byte_dots else 1

    @property
    def tile_features(self) -> frozenset[str]:
        """What tile registers multiply: ``amx-int8``, ``amx-bf16``, or nothing. Code for them asks Linux first.

        >>> sorted(Target.named("amx").tile_features), Target.named("avx512").tile_features
        (['amx-bf16', 'amx-int8'], frozenset())
        """
        have = {item[1:] for item in self.features.split(",") if item.startswith("+")}
        if "amx-tile" not in have or self.vector_bytes != 64 or "linux" not in self.triple:
            return frozenset()
        return frozenset(have & {"amx-int8", "amx-bf16"})

    @property
    def tile_products(self) -> int:
        """Products of two bytes that tiles sum in a cycle: 1024 with AMX (16 x 16 sums of 64 products in 16 cycles), else 1."""
        return 1024 if "amx-int8" in self.tile_features else 1

    @property
    def pair_products(self) -> int:
        """Products of two bf16 that an instruction of vectors sums in a lane of 32 bits, in the time of a multiply-add: 2 or 1.

        Intel's first CPUs with the instruction start half as many in a cycle as multiply-adds; later ones have tiles.

        >>> Target.named("avx512bf16").pair_products, Target.named("avx512vnni").pair_products
        (2, 1)
        """
        have = self.features.split(",")
        return 2 if "+avx512bf16" in have and self.vector_bytes == 64 and self.cpu not in _LOWERS_CLOCK else 1

    @property
    def key(self) -> str:
        """A short digest of every field, for cache keys."""
        return _key(self)

    @property
    def sve_bytes(self) -> int:
        """The bytes of an SVE register where vectors fill one, which is then known when code is made; 0 where they fill NEON's.

        >>> Target.from_features("aarch64-unknown-linux-gnu", "a64fx", "+neon,+sve", sve_bytes=64).sve_bytes
        64
        """
        return self.vector_bytes if self.is_arm and self.vector_bytes > 16 else 0

    @staticmethod
    def from_features(triple: str, cpu: str, features: str, sve_bytes: int = 0) -> Target:
        """Derive the widths from an LLVM feature string such as ``+avx2,+fma,-avx512f``.

        With `sve_bytes` vectors fill SVE registers of so many bytes, which features do not tell; else Arm's are NEON's. Raises
        ValueError for a length that no SVE register has, and for a target without SVE.
        """
        have = {item[1:] for item in features.split(",") if item.startswith("+")}
        x86 = triple.startswith(("x86_64", "i386", "i686"))
        wide = {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= have
        if sve_bytes and ("sve" not in have or sve_bytes not in (16, 32, 64, 128, 256)):
            expected = "16, 32, 64, 128 or 256 and a target with +sve"
            raise ValueError(f"sve_bytes: expected {expected}, found {sve_bytes} and {features}")
        vector_bytes = sve_bytes or (64 if wide else 32 if "avx2" in have else 16)
        registers = 32 if wide or not x86 else 16
        return Target(triple, cpu, features, vector_bytes, registers, not x86 or "fma" in have, not x86 or "f16c" in have)

    @staticmethod
    def named(name: str) -> Target:
        """``host``, ``amx`` (AVX-512 with VNNI and tiles), ``avx512bf16``, ``avx512vnni``, ``avx512``, ``avx2``, or ``baseline``,
        which has SSE2 only.

        Whether or not this CPU can run it.
        Raises ValueError for another name, and for an x86 name on another architecture.
        """
        if name == "host":
            return host_target()
        if name not in NAMED_TARGETS:
            raise ValueError(f"unknown target {name!r}: expected host, {', '.join(NAMED_TARGETS)}")
        triple = host_target().triple
        if not triple.startswith("x86_64"):
            raise ValueError(f"target {name!r} needs an x86-64 machine, found {triple}")
        return Target.from_features(triple, *NAMED_TARGETS[name])

    @property
    def missing_features(self) -> list[str]:
        """What kernels for this target may use and this CPU lacks; empty where they run.

        >>> Target.named("baseline").missing_features
        []
        """
        wanted, there = self.features.split(","), host_target().features.split(",")
        return sorted({f[1:] for f in wanted if f.startswith("+")} - {f[1:] for f in there if f.startswith("+")})


def is_macos(triple: str) -> bool:
    """Whether a target triple names macOS, which is called by several names.

    >>> is_macos("arm64-apple-darwin23.1.0"), is_macos("x86_64-unknown-linux-gnu")
    (True, False)
    """
    return any(name in triple for name in ("darwin", "macos", "apple"))


def clock_number(triple: str) -> int:
    """The number of the monotonic clock for `clock_gettime`: 1 on Linux, 6 on macOS, where there is no clock 1."""
    return 6 if is_macos(triple) else 1


@functools.lru_cache(maxsize=1)
def host_target() -> Target:
    """The CPU that this process runs on."""
    with compiling:
        import llvmlite.binding as llvm

        triple = llvm.get_process_triple()
        return _host(triple, llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())


def _host(triple: str, cpu: str, features: str) -> Target:
    """The target of a CPU that LLVM calls `cpu`: vectors as wide as its registers, whatever LLVM prefers for that name.

    >>> wide = "+avx2,+avx512bw,+avx512dq,+avx512f,+avx512vl"
    >>> _host("x86_64-unknown-linux-gnu", "sapphirerapids", wide).features.split(",")[-1]
    '-prefer-256-bit'
    """
    target = Target.from_features(triple, cpu, features)
    return replace(target, features=f"{features},{_WHOLE_REGISTERS}") if target.vector_bytes == 64 else target


def default_target() -> Target:
    """The target of compiles that do not name one: ``TILEWRIGHT_TARGET`` (a name of `Target.named`), else the host.

    Raises SettingError for another name, and for a target whose instructions this CPU does not have.
    """
    name = os.environ.get("TILEWRIGHT_TARGET") or "host"
    try:
        target = Target.named(name)
        if missing := target.missing_features:
            raise ValueError(f"{name}: this CPU ({host_target().cpu}) lacks {', '.join(missing)}")
    except ValueError as e:
        from hlo.errors import SettingError  # here: a helper process does without hlo

        raise SettingError(f"TILEWRIGHT_TARGET: {e}") from None
    return target


_current: ContextVar[Target | None] = ContextVar("tilewright_target", default=None)


def current_target() -> Target:
    """The target of the compile that is under way in this context, else the default."""
    return _current.get() or default_target()


@contextlib.contextmanager
def use_target(target: Target) -> Iterator[Target]:
    """Make ``target`` the current one inside a ``with`` block."""
    token = _current.set(target)
    try:
        yield target
    finally:
        _current.reset(token)
