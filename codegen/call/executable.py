"""Compiled programs: kernels, the memory between them, and the call.

codegen.compile(module)  ->  Executable  ->  exe(*arrays) -> tuple of arrays
"""

from __future__ import annotations

import ctypes
import logging
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from codegen.call import launch, memory
from codegen.call.alignment import declared_alignment, given_alignments, kept_alignments, misplaced
from codegen.call.assembly import below
from codegen.call.fallback import CustomCalls, PreparedOp, evaluate_program
from codegen.call.guard import SCRATCH_GAP_BYTES, Guards, ScratchUse, StepUse
from codegen.call.lifetimes import Lifetime, place
from codegen.call.linearise import linearise
from codegen.call.memory_safety import MemorySafetyWarning, safe_assembly
from codegen.call.native_lapack import lapack_step
from codegen.call.nodes import Compute
from codegen.call.quick import SMALL_BYTES, QuickCall, address_of
from codegen.call.whole_loops import with_whole_loops
from codegen.call.xla_call import Failures, XlaCall
from codegen.kernel import ir as kernel_ir
from codegen.native.jit import CompiledKernel, KernelTarget, MachineCode, stats
from codegen.native.signature import KernelSignature, Param, Scratch
from codegen.remembered.machine import calibrated_machine
from codegen.remembered.plans import remembered_plan
from codegen.source.emit import PhaseSource
from codegen.supports import supports, supports_beside
from hlo.errors import Declined, TilewrightError
from hlo.limits import check_ranks, no_memory
from hlo.module import DenseArray, Module, Value, as_module
from hlo.registry import Literal
from hlo.settings import debug_modes
from hlo.types import TensorType
from tiling import Buffer, Decision, EvaluatorStep, Fusion, Obligation, Plan, plan
from tiling.pipeline import check_settings
from tiling.planning.garbage import few_collections
from tiling.show.html import source_to_html
from tiling.show.stages import print_stages
from tiling.show.text import summary
from tiling.words import amount, count

__all__ = ["Executable", "Kernel", "RunStats", "StepTime", "compile"]


_log = logging.getLogger("tilewright.codegen")
SHORT_SECONDS = 4e-6
LINE_BYTES = 64
XLA_MOST_BYTES = 1 << 25
READ_AGAIN = 8  # times the size of an argument that a kernel which reads it goes through


class ArgumentError(TilewrightError):
    """An array that does not fit the program's argument."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """One compiled phase of a fusion: `source` is it as Python, `function` runs that step by step, `statements` are its tree."""

    name: str
    fusion: Fusion
    tasks: int
    scratch_bytes: int  # of one thread
    buffers: tuple[Buffer, ...]
    compiled: CompiledKernel
    statements: kernel_ir.Kernel

    @property
    def source(self) -> str:
        return self.compiled.source

    @property
    def _facts(self) -> str:
        return f"{self.name}: {count(self.tasks, 'task')}, {amount(self.scratch_bytes)} of scratch a thread"

    def __repr__(self) -> str:
        return f"<Kernel {self._facts}>"

    def _repr_html_(self) -> str:
        return source_to_html(self._facts, self.source, is_open=True)

    @property
    def function(self) -> Any:
        """The source as a plain Python function of (begin, end, *flat arrays)."""
        return self.compiled.python


@dataclass(frozen=True)
class StepTime:
    """What one step of a call took; `kind` is kernel, library, evaluator or copy."""

    name: str
    kind: str
    seconds: float


@dataclass
class RunStats:
    """Where the kernels came from, what a call needs beside its arguments and results, and what took how long.

    `plan_seconds` are the planner's, `source_seconds` those of writing and proving the kernels, `compile_seconds` those of
    machine code, here and in other processes.
    """

    compiled: int = 0
    cache_hits: int = 0
    compile_seconds: float = 0.0
    scratch_bytes: int = 0
    plan_seconds: float = 0.0
    source_seconds: float = 0.0


@dataclass(eq=False)
class Executable:
    """A compiled program. Call it with one array for each argument; it may be called from several threads at once.

    Results are arrays of their own, which may be written to.

    `plan` says what is computed where, `kernels` and `source` show the code, `fallbacks` what runs in the evaluator, `stats`
    what compiling took and how much scratch a call uses. `custom_calls` runs the program's custom calls, by target name.
    """

    plan: Plan
    threads: int | None = None
    custom_calls: CustomCalls | None = None
    target: KernelTarget | None = None
    stats: RunStats = field(default_factory=RunStats)
    _make: Callable[[], Executable] | None = field(default=None, init=False)  # compiles one that was restored from a record

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads: expected a positive number, found {self.threads}")
        check_ranks(self.plan.module)
        self.whole = _whole_program_reason(self.plan)
        if self.whole is None:
            began = time.perf_counter()
            self.plan, assembly, reason = safe_assembly(self.plan)
            self.stats.source_seconds = time.perf_counter() - began
            if assembly is None:
                self.whole = reason
            else:
                self._assembly = assembly
        self._fixed: list[tuple[int, np.ndarray]] = []
        self._literals: list[np.ndarray] = []
        self._quick: QuickCall | None = None
        self._short: Callable[..., tuple[np.ndarray, ...] | None] | None = None
        self._kernels: list[Kernel] = []
        modes = debug_modes()
        self._debug = "guard-before" if "guard-before" in modes else "guard" if "guard" in modes else ""
        self._uses: list[StepUse] = []  # of `_kernels`, for the guards
        self._told: dict[int, tuple[str, int]] = {}  # a memory's name and alignment in kernels
        self._evaluated: dict[int, tuple[EvaluatorStep, PreparedOp]] = {}
        if self.whole is None:
            before = (stats.compiled, stats.disk_hits + stats.memory_hits, stats.compile_seconds)
            self._build()
            self.stats.compiled = stats.compiled - before[0]
            self.stats.cache_hits = stats.disk_hits + stats.memory_hits - before[1]
            self.stats.compile_seconds = stats.compile_seconds - before[2]

    def __getattr__(self, name: str) -> Any:
        """What a restored executable lacks (its plan, its kernels' sources) comes from compiling it after all."""
        make = self.__dict__.get("_make")
        if make is None or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        for own, value in vars(make()).items():
            self.__dict__.setdefault(own, value)
        self._make = None
        return getattr(self, name)

    # ------------------------------------------------------------ compile

    def _build(self) -> None:
        program = self.plan.program
        nodes = with_whole_loops(self._assembly.nodes, self._assembly.sizes)
        computes = [n for n in below(nodes) if isinstance(n, Compute)]
        signatures = self._kept_signatures(computes)
        target = self.target or MachineCode()
        with few_collections():
            compiled = target.compile([(n.source.kernel, s) for n, s in zip(computes, signatures, strict=True)])
        self._compiled = dict(zip(computes, compiled, strict=True))
        linear = linearise(nodes, self._kernel, self._assembly.exchanges)
        self._evaluated = {k: (s, PreparedOp(self.plan.module, s, self.custom_calls)) for k, s in linear.evaluated.items()}
        instructions = linear.instructions
        for k, (step, prepared) in self._evaluated.items():
            if prepared.direct is not None and not self._debug:  # debug modes look at the memory around every step
                native = lapack_step(step.op, instructions[k].buffers, prepared.direct)
                if not isinstance(native, Declined):
                    instructions[k] = native
        self._launch = launch.Plan(instructions)
        given = {self._slot(v) for v in program.arguments}
        results = {self._slot(v) for v in program.results}
        constants = self._constants(given)
        sizes, lives = self._assembly.sizes, linear.lives
        inner = [s for s in lives if s not in given and s not in results and s not in constants]
        offsets, total = place([Lifetime(sizes[s], lives[s][0], lives[s][1]) for s in inner])
        self._offsets = dict(zip(inner, offsets, strict=True))
        total = self._place_copies(computes, total)
        self._check_places(computes)
        given_rows, made_rows = ([(self._slot(v), v) for v in vs] for vs in (program.arguments, program.results))
        self._lay_out(self._assembly.count, total, given_rows, made_rows, self.plan.machine.cores)

    def _lay_out(
        self, count: int, arena_bytes: int, given: Sequence[tuple[int | None, Value]], made: Sequence[tuple[int | None, Value]],
        cores: int,
    ) -> None:  # fmt: skip
        """What a call needs of `count` memories: those of the arguments and the results, of constants, of what lies between."""
        self._arena_bytes = arena_bytes
        threads = self.threads or cores
        self.stats.scratch_bytes = arena_bytes + threads * self._launch.scratch_stride
        self._addresses = np.zeros(count, np.int64)
        for slot, a in self._fixed:
            self._addresses[slot] = address_of(a)
        self._arena_slots = np.array([*self._offsets], np.int64)
        self._arena_offsets = np.array([*self._offsets.values()], np.int64)
        self._given = [(slot, v.shape, v.tensor.dtype) for slot, v in given]
        self._made = list(made)
        self._made_types = [(v.shape, v.tensor.dtype, v.tensor.size_bytes) for _, v in made]
        self._kept_slots = {slot for slot, _, _ in self._given if slot is not None} | {slot for slot, _ in self._fixed}
        sizes_leased = [max(arena_bytes, 64), threads * self._launch.scratch_stride, *(v.tensor.size_bytes for _, v in made)]
        self._need_bytes = sum(map(memory.rounded_bytes, sizes_leased))
        self._quick = None if self._debug or self.whole is not None else self._quick_call(arena_bytes, given, made)
        self._short = self._quick.call if self._quick is not None else None

    def _place_copies(self, computes: Sequence[Compute], total: int) -> int:
        """Room in the arena, `total` bytes so far, for copies of small arguments that kernels read again and again.

        NumPy aligns to 16 bytes: half of the vectors of such a row would be read from two cache lines each.
        """
        largest: dict[int, int] = {}
        for n in computes:
            most = max(b.size_bytes for b in n.source.buffers)
            largest |= {slot: max(largest.get(slot, 0), most) for slot in n.slots}
        self._copies: list[tuple[int, int, int]] = []  # memory, place in the arena, bytes
        for v in self.plan.program.arguments:
            slot, size = self._slot(v), v.tensor.size_bytes
            if slot is not None and LINE_BYTES < size <= SMALL_BYTES and largest.get(slot, 0) >= READ_AGAIN * size:
                self._copies.append((slot, total, size))
                total += _in_lines(size)
        return total

    def _slot(self, v: Value) -> int | None:
        """The number of the memory of a value; None for a value that no step touches."""
        return self._assembly.known_slot(v)

    def _quick_call(
        self, arena_bytes: int, given: Sequence[tuple[int | None, Value]], made: Sequence[tuple[int | None, Value]]
    ) -> QuickCall | None:
        """The short way to call a small program, or None."""
        moved = arena_bytes + sum(v.tensor.size_bytes for _, v in (*given, *made))
        if not QuickCall.takes(self._launch, moved):
            return None
        slots = [slot for slot, _ in made]
        fixed = {slot: address_of(a) for slot, a in self._fixed}
        if None in slots or len(set(slots)) != len(slots) or set(slots) & {*(slot for slot, _ in given), *fixed}:
            return None
        rows = [(slot, v.shape, v.tensor.dtype) for slot, v in (*given, *made) if slot is not None]
        return QuickCall(rows[: len(given)], rows[len(given) :], fixed, self._offsets, arena_bytes, self._launch)

    def _constants(self, given: set[int | None]) -> set[int]:
        """Memories of constants that kernels or results read."""
        found: set[int] = set()
        for op in (op for p in self.plan.nested() for op in p.program.ops):
            slot = self._slot(op.results[0]) if isinstance(op.definition.semantics, Literal) else None
            if slot is not None and slot not in found:
                dense: DenseArray = op.attr("value")
                self._fixed.append((slot, memory.in_lines(dense.array)))
                found.add(slot)
        return {s for s in found if s not in given}

    def _signature(self, node: Compute) -> KernelSignature:
        """The arguments of a kernel of the tree."""
        source = node.source
        shared = self.plan.machine.l3_bytes
        exceeds = sum(b.size_bytes for b in source.buffers) > shared
        params = tuple(
            Param(
                b.name, b.element.dtype.name, declared_alignment(b),
                # What the shared cache would not keep until it is read need not go through it.
                stream=b in source.written and 2 * b.size_bytes >= shared and exceeds,
                ahead=b in source.walked and 2 * b.size_bytes >= shared,
            )
            for b in source.buffers
        )  # fmt: skip
        places, _ = self._scratch_places(source)
        scratch = [Scratch(b.name, b.element.dtype.name, offset) for b, offset in zip(source.scratch, places, strict=True)]
        scratch += [Scratch(b.name, b.element.dtype.name, 0, stack_bytes=_in_lines(b.size_bytes)) for b in source.local]
        return KernelSignature(params, tuple(scratch))

    def _kept_signatures(self, computes: Sequence[Compute]) -> list[KernelSignature]:
        """The kernels' signatures, none of which declares an address to be more aligned than it is; one that did is reported."""
        program = self.plan.program
        given, results = ([(self._slot(v), v) for v in vs] for vs in (program.arguments, program.results))
        alignments = given_alignments(given, results, self._assembly.exchanges)
        signatures = []
        for n in computes:
            signature, refuted = kept_alignments(n.name, self._signature(n), n.slots, alignments)
            self._report(n.name, "the same with less alignment", refuted)
            signatures.append(signature)
        return signatures

    def _check_places(self, computes: Sequence[Compute]) -> None:
        """What is declared as aligned starts with a cache line; where it does not, the evaluator runs the program."""
        places = [("a constant", address_of(a)) for _, a in self._fixed if a.size]
        places += [(f"memory {slot} of the arena", at) for slot, at in self._offsets.items()]
        places += [(f"the copy of memory {slot}", at) for slot, at, _ in self._copies]
        places += [
            (f"{n.name} {b.name}", at)
            for n in computes
            for b, at in zip(n.source.scratch, self._scratch_places(n.source)[0], strict=True)
        ]
        places.append(("a thread's scratch", self._launch.scratch_stride))
        fault = misplaced(places)
        if fault is not None:
            self._report("the program", "the evaluator", [fault])
            self.whole = str(fault)

    def _report(self, name: str, instead: str, refuted: Sequence[Obligation]) -> None:
        """Warns of what is refuted and replaced, and writes it into the plan."""
        for fault in refuted:
            warnings.warn(f"{name} is refuted and replaced by {instead}: {fault}", MemorySafetyWarning, stacklevel=6)
            self.plan = replace(self.plan, decisions=(*self.plan.decisions, Decision(name, instead, False, str(fault))))

    def _scratch_places(self, source: PhaseSource) -> tuple[list[int], int]:
        """Where each scratch buffer of a kernel starts in its thread's scratch, and the size of that."""
        places, total = [], 0
        for b in source.scratch:
            places.append(total)
            total += _in_lines(b.size_bytes) + (SCRATCH_GAP_BYTES if self._debug else 0)
        return places, total

    def _kernel(self, node: Compute) -> launch.Step:
        """The launcher's step of a kernel of the tree."""
        source, compiled = node.source, self._compiled[node]
        places, scratch_bytes = self._scratch_places(source)
        inner = [ScratchUse(b.name, at, b.size_bytes) for b, at in zip(source.scratch, places, strict=True)]
        self._uses.append(StepUse(node.name, scratch_bytes, tuple(inner)))
        for slot, b, param in zip(node.slots, source.buffers, compiled.signature.params, strict=True):
            self._told[slot] = self._told.get(slot, (b.name, 1))[0], max(param.align, self._told.get(slot, ("", 1))[1])
        self._kernels.append(Kernel(node.name, node.fusion, source.tasks, scratch_bytes, source.buffers, compiled, source.kernel))
        chunk = source.tasks if _is_short(node.fusion) else _chunk(source.tasks, self.plan.machine.cores)
        return launch.Step(compiled, source.tasks, node.slots, max(1, chunk), scratch_bytes, source.is_long)

    # ------------------------------------------------------------ look

    def __repr__(self) -> str:
        return f"<Executable of @{self.plan.program.name}: {summary(self.plan)}>"

    def _repr_html_(self) -> str:
        """The plan, then each kernel's source."""
        return self.plan._repr_html_() + "".join(source_to_html(k._facts, k.source) for k in self.kernels)

    @property
    def kernels(self) -> list[Kernel]:
        """The compiled kernels, in the order in which they run."""
        return list(self._kernels)

    @property
    def fallbacks(self) -> list[str]:
        """What runs in the evaluator, with the reason."""
        if self.whole is not None:
            return [f"the whole program: {self.whole}"]
        return [f"{s.op.name} (%{s.name}): {s.reason}" for s, prepared in self._evaluated.values() if not prepared.library]

    @property
    def library(self) -> list[str]:
        """What a library runs, or a function that the caller gave."""
        return [
            f"{s.op.name} (%{s.name}): {s.library or s.op.attr('call_target_name')}"
            for s, prepared in self._evaluated.values()
            if prepared.library
        ]

    @property
    def source(self) -> str:
        """The source of all kernels."""
        parts = [f"# {k.name}\n{k.source}" for k in self.kernels]
        return "\n\n".join([*parts, *(f"# in the evaluator: {f}" for f in self.fallbacks)])

    # ------------------------------------------------------------ run

    def __call__(self, *arrays: Any) -> tuple[np.ndarray, ...]:
        """Runs the program. Raises ArgumentError when an array has not the argument's shape and type."""
        if self._short is not None:
            results = self._short(*arrays)
            if results is not None:
                return results
        return self._run(arrays, None)

    def for_xla(self, done: int, failures: Failures) -> XlaCall | Declined:
        """The program as XLA calls it (`codegen.call.xla_call`), or why it cannot be called so."""
        if self.whole is not None:
            return Declined(f"the evaluator runs the whole program: {self.whole}")
        if self._debug:
            return Declined("debug modes look at every call's memory")
        moved = self._need_bytes + sum(prod(shape) * dtype.itemsize for _, shape, dtype in self._given)
        if moved > XLA_MOST_BYTES:
            return Declined(f"it needs {amount(moved)}, which the pool keeps between calls and XLA does not")
        fixed = {slot: address_of(a) for slot, a in self._fixed}
        made: list[tuple[int, int, int]] = []
        written: set[int] = set()
        for known, v in self._made:
            size_bytes = v.tensor.size_bytes
            if known is None:  # a constant that no step reads
                known = self._addresses.size + len(made)
                literal = memory.in_lines(_literal(v))
                self._literals.append(literal)
                fixed[known] = address_of(literal)
            elif known not in written and known not in self._kept_slots:
                written.add(known)
                made.append((known, 0, LINE_BYTES if size_bytes > SMALL_BYTES else 1))
                continue
            made.append((known, size_bytes, 1))
        given = [slot for slot, _, _ in self._given]
        threads = self.threads or launch.default_threads()
        return XlaCall(
            self._launch, given, made, fixed, self._offsets, self._arena_bytes, threads, self._evaluate, done, failures
        )

    def profile(self, *arrays: Any) -> tuple[tuple[np.ndarray, ...], list[float]]:
        """(results, seconds of each of `kernels`)."""
        spent = np.zeros(len(self._launch.steps) if self.whole is None else 0, np.int64)
        results = self._run(arrays, spent)
        return results, [float(spent[k]) * 1e-9 for k in self._launch.kernels] if self.whole is None else []

    def timeline(self, *arrays: Any) -> tuple[tuple[np.ndarray, ...], list[StepTime]]:
        """(results, the seconds of every step of one call): kernels, copies, libraries' functions, the evaluator's ops."""
        if self.whole is not None:
            began = time.perf_counter()
            results = self._run(arrays, None)
            return results, [StepTime("the whole program", "evaluator", time.perf_counter() - began)]
        spent = np.zeros(len(self._launch.steps), np.int64)
        results = self._run(arrays, spent)
        names = iter(self._kernels)
        rows = []
        for number, (step, nanoseconds) in enumerate(zip(self._launch.steps, spent.tolist(), strict=True)):
            if number in self._evaluated:
                op, prepared = self._evaluated[number]
                rows.append(StepTime(op.name, "library" if prepared.library else "evaluator", nanoseconds * 1e-9))
            elif isinstance(step, launch.Step):
                rows.append(StepTime(next(names).name, "kernel", nanoseconds * 1e-9))
            elif isinstance(step, launch.Copy):
                rows.append(StepTime("copy", "copy", nanoseconds * 1e-9))
        return results, rows

    def _run(self, arrays: Sequence[Any], spent: np.ndarray | None) -> tuple[np.ndarray, ...]:
        given = self._arguments(arrays)
        if self.whole is not None:
            return evaluate_program(self.plan.module, given, self.plan.program.name, self.custom_calls)
        if self._debug:
            return self._run_guarded(given, spent)
        memory.pool.begin(self._need_bytes)
        try:
            return self._run_kernels(given, spent)
        finally:
            memory.pool.end(self._need_bytes)

    def _run_kernels(self, given: Sequence[np.ndarray], spent: np.ndarray | None) -> tuple[np.ndarray, ...]:
        addresses = self._addresses.copy()
        for (slot, _, _), a in zip(self._given, given, strict=True):
            if slot is not None:
                addresses[slot] = address_of(a)
        arena = self._arena() if self._offsets or self._copies else None
        if arena is not None:
            addresses[self._arena_slots] = arena.address + self._arena_offsets
            for slot, offset, size in self._copies:
                if addresses[slot] % LINE_BYTES:
                    ctypes.memmove(arena.address + offset, int(addresses[slot]), size)
                    addresses[slot] = arena.address + offset
        outputs: list[np.ndarray] = []
        made: dict[int, np.ndarray] = {}
        again: list[tuple[int, int]] = []  # results that are another one's values, by their number and its memory
        for (known, v), (shape, dtype, size_bytes) in zip(self._made, self._made_types, strict=True):
            if known is None:
                outputs.append(_literal(v))
                continue
            if known in made:
                again.append((len(outputs), known))
                outputs.append(made[known])
                continue
            if known in self._kept_slots:
                outputs.append(self._kept(known, given).copy())
                continue
            try:
                if size_bytes <= SMALL_BYTES:  # kernels take it as NumPy aligns it, and NumPy makes it in a tenth of the time
                    array = np.empty(shape, dtype)
                else:
                    array = memory.pool.lease(size_bytes, "output").array(shape, dtype)
            except (MemoryError, OSError, OverflowError) as e:
                raise no_memory(v, self.plan.module) from e
            addresses[known] = address_of(array)
            made[known] = array
            outputs.append(array)
        self._launch.run(addresses, self.threads, spent, self._evaluate)
        for number, known in again:  # each result is the caller's own: writing to one changes no other
            outputs[number] = made[known].copy()
        if arena is not None:
            arena.release()
        return tuple(outputs)

    def _run_guarded(self, given: Sequence[np.ndarray], spent: np.ndarray | None) -> tuple[np.ndarray, ...]:
        """The same run with every array between pages without access, looked at between any two steps (`codegen.call.guard`)."""
        uses = dict(zip(self._launch.kernels, self._uses, strict=True))
        guards = Guards(uses, self._told, before=self._debug == "guard-before")
        addresses = self._addresses.copy()
        for k, ((slot, _, _), a) in enumerate(zip(self._given, given, strict=True)):
            if slot is not None:
                addresses[slot] = guards.place_copy(slot, f"argument {k}", a)
        for slot, a in self._fixed:
            addresses[slot] = guards.place_copy(slot, "constant", a)
        for slot in self._offsets:
            addresses[slot] = guards.place(slot, "array", self._assembly.sizes[slot])
        for k, (known, v) in enumerate(self._made):
            if known is not None:
                addresses[known] = guards.place(known, f"result {k}", v.tensor.size_bytes)
        self._launch.run(addresses, self.threads, spent, self._evaluate, guards)
        # Results are copies: guarded pages are not kept for longer than the call.
        return tuple([_literal(v) if s is None else guards.array(s, v.shape, v.tensor.dtype).copy() for s, v in self._made])

    def _arena(self) -> memory.Lease:
        """Memory for all that lies between steps. Raises TooLargeError, with the largest of the values, where there is none."""
        try:
            return memory.pool.lease(max(self._arena_bytes, 64), "scratch")
        except (MemoryError, OSError, OverflowError) as e:
            inner = [r for op in self.plan.program.ops for r in op.results if self._slot(r) in self._offsets]
            inner = inner or [r for op in self.plan.program.ops for r in op.results]
            raise no_memory(max(inner, key=lambda r: r.tensor.size_bytes), self.plan.module) from e

    def _kept(self, slot: int, given: Sequence[np.ndarray]) -> np.ndarray:
        """The argument or constant whose memory a result is."""
        slots = [own for own, _, _ in self._given]
        return given[slots.index(slot)] if slot in slots else dict(self._fixed)[slot]

    def _evaluate(self, number: int, addresses: np.ndarray) -> None:
        """Runs one op of the evaluator's on the memories at these addresses: what it reads, then its results."""
        _, prepared = self._evaluated[number]
        arrays = [view(at) for view, at in zip(prepared.views, addresses.tolist(), strict=True)]
        count = prepared.count
        for target, a in zip(arrays[count:], prepared(arrays[:count]), strict=True):
            np.copyto(target, a, casting="same_kind")

    def _arguments(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        if self.whole is None and len(arrays) == len(self._given):
            for a, (_, shape, dtype) in zip(arrays, self._given, strict=True):
                if type(a) is not np.ndarray or a.shape != shape or a.dtype != dtype:
                    break
                if not (a.flags.c_contiguous and a.flags.aligned):
                    break
            else:
                return list(arrays)
        wanted = self.plan.program.arguments
        if len(arrays) != len(wanted):
            raise ArgumentError(f"expected {len(wanted)} array{'s' * (len(wanted) != 1)}, found {len(arrays)}")
        given = []
        for k, (v, a) in enumerate(zip(wanted, arrays, strict=True)):
            t = v.type
            if not isinstance(t, TensorType):
                given.append(a)  # a token or a tuple: the evaluator runs such a program whole, and checks it
                continue
            if isinstance(a, np.ma.MaskedArray):
                raise ArgumentError(
                    f"argument {k}{f' (%{v.name})' if v.name else ''}: expected an array, found a masked one, whose mask would be"
                    " lost; give its `filled()` values, or the mask as an argument of its own"
                )
            a = np.asarray(a)
            same = len(t.shape) == a.ndim and all(n is None or n == m for n, m in zip(t.shape, a.shape, strict=True))
            if not same or a.dtype != t.dtype:
                name = f" (%{v.name})" if v.name else ""
                raise ArgumentError(f"argument {k}{name}: expected {t}, found an array of shape {list(a.shape)}, {a.dtype}")
            if not a.flags.c_contiguous or not a.flags.aligned:
                a = np.array(a, order="C")
            given.append(a)
        return given


def _in_lines(size_bytes: int) -> int:
    return -(-size_bytes // 64) * 64




def _literal(v: Value) -> np.ndarray:
    assert v.op is not None
    dense: DenseArray = v.op.attr("value")
    return np.array(dense.array)


def _is_short(fusion: Fusion) -> bool:
    """True for a kernel that one thread has done by the time that another has heard of it."""
    e = fusion.estimate
    return e.arithmetic_seconds * fusion.threads + e.traffic_seconds < SHORT_SECONDS


def _chunk(tasks: int, threads: int) -> int:
    """Tasks taken at a time: enough pieces that threads finish together, few enough that taking them costs nothing."""
    return max(1, tasks // (threads * 32))


def _whole_program_reason(made: Plan) -> str | None:
    """Why the evaluator must run the whole program, or None: values that are no arrays of a fixed shape pass between its ops."""
    for op in made.program.ops:
        for v in (*op.operands, *op.results):
            if not isinstance(v.type, TensorType):
                return f"{op.name} has a value of type {v.type}"
            if not v.type.is_static:
                return f"{op.name} has a value whose shape is known only at run time, {v.type}"
    for v in made.program.arguments:
        if not isinstance(v.type, TensorType) or not v.type.is_static:
            return f"an argument of type {v.type}"
    return None


def compile(
    module_or_plan: Module | Plan,
    entry: str = "main",
    threads: int | None = None,
    custom_calls: CustomCalls | None = None,
    *,
    excess_precision: bool | None = None,
    target: KernelTarget | None = None,
) -> Executable:
    """The compiled form of a module's entry function, or of a plan that was made (and perhaps edited) before.

    `custom_calls` maps the target names of custom calls to functions (op, *operands) that return an array or a tuple of them.
    The operands are copies, theirs to keep and to write (`hlo.foreign.borrows` marks functions that take read-only views).
    `excess_precision` lets kernels keep bf16 numbers in f32 between two ops; without it every op is rounded to its type. None: as
    TILEWRIGHT_EXCESS_PRECISION says (`forbid` by default, or `allow`), or a given plan's machine.
    `target` compiles the kernels (`codegen.c.compile.CCompiler` does so by the system's C compiler); by default LLVM does.
    Always succeeds on a verified module: what no kernel covers runs in the evaluator, and `fallbacks` says so.
    Raises KeyError when there is no function `entry`, TypeError for what is no module, ValueError for fewer than one thread, or
    for `excess_precision` beside a plan.
    """
    began = time.perf_counter()
    if isinstance(module_or_plan, Plan):
        given = module_or_plan
        if excess_precision is not None:
            raise ValueError("excess_precision: a plan has it from its machine (Machine.excess_precision)")
        rules = supports_beside(custom_calls or {})
        if not all(rules(op) is None for f in given.fusions for op in f.ops):
            # A plan made without knowing what can be generated: made again with it.
            given = plan(given.module, given.program.name, given.machine, rules)
    else:
        machine = calibrated_machine()
        if excess_precision is not None:
            machine = replace(machine, excess_precision=excess_precision)
        module, rules = as_module(module_or_plan), supports_beside(custom_calls or {})
        given = remembered_plan(module, entry, machine) if rules is supports else plan(module, entry, machine, rules)
    check_settings()
    print_stages(given, rules)
    planned = time.perf_counter()
    with few_collections():
        made = Executable(given, threads, custom_calls, target)
    s = made.stats
    s.plan_seconds = planned - began
    _log.info(
        "@%s: %.3f s for the plan, %.3f s for %d kernels' sources, %.3f s for machine code (%d compiled, %d from caches)",
        given.program.name, s.plan_seconds, s.source_seconds, len(made.kernels), s.compile_seconds, s.compiled, s.cache_hits,
    )  # fmt: skip
    return made
