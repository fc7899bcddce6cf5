"""Compiled programs: kernels, the memory between them, and the call (`codegen.call.compile` makes them)."""

from __future__ import annotations

import ctypes
import os
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from codegen.call import signatures
from codegen.call.alignment import given_alignments, kept_alignments, misplaced
from codegen.call.as_file import write_file
from codegen.call.fallback import BegunOp, CustomCalls, EndedOp, PreparedOp, evaluate_program
from codegen.call.kept_packs import KeptPacks, Pack, packs_of
from codegen.call.kernels import BRIEF_SECONDS, Kernel, RunStats, StepTime, chunk_of, is_short, seconds_of
from codegen.call.lapack.step import lapack_step
from codegen.call.memory_safety import MemorySafetyWarning, safe_assembly
from codegen.call.processes import Processes, SpreadProgram
from codegen.call.program.layout import LINE_BYTES, laid_out, literal
from codegen.call.program.linearise import linearise
from codegen.call.program.nodes import Compute, Evaluate, below
from codegen.call.program.overlap import order_of, overlapped
from codegen.call.program.whole_loops import with_whole_loops
from codegen.call.quick import QuickCall, address_of
from codegen.call.runs.arguments import ArgumentError, taken, without_arrays, writeable
from codegen.call.runs.by_xla import call_by_xla
from codegen.call.runs.guarded import GuardedRun
from codegen.call.tracing import Trace
from codegen.call.xla_call import Failures, XlaCall
from codegen.call.xla_packs import MANY, XlaPacks
from codegen.launcher import launch, memory, native_threads
from codegen.launcher.guard import SCRATCH_GAP_BYTES, ScratchUse, StepUse
from codegen.native.jit import KernelTarget, MachineCode, stats
from codegen.native.signature import KernelSignature
from hlo.errors import Declined
from hlo.limits import check_ranks, no_memory
from hlo.module import Value
from hlo.settings import debug_modes
from tiling import Decision, EvaluatorStep, Obligation, Plan
from tiling.planning.garbage import few_collections
from tiling.show.html import source_to_html
from tiling.show.text import summary

__all__ = ["ArgumentError", "Executable"]


@dataclass(eq=False)
class Executable:
    """A compiled program. Call it with one array for each argument; it may be called from several threads at once.

    Results are arrays of their own, which may be written to.

    `plan` says what is computed where, `kernels` and `source` show the code, `fallbacks` what runs in the evaluator, `stats`
    what compiling took and how much scratch a call uses. `custom_calls` runs the program's custom calls, by target name.
    `processes` are those of the grid that the program runs in, one of which this is. `spread` says how a program in the global
    view was partitioned: its arguments are this process's tiles, whole arrays, sharded ones or functions that make the tile of
    some slices (`SpreadProgram.local`), its results are sharded arrays (`tiling.mesh.arrays`).
    """

    plan: Plan
    threads: int | None = None
    custom_calls: CustomCalls | None = None
    target: KernelTarget | None = None
    processes: Processes | None = None
    spread: SpreadProgram | None = None
    stats: RunStats = field(default_factory=RunStats)

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads: expected a positive number, found {self.threads}")
        check_ranks(self.plan.module)
        self.whole = without_arrays(self.plan)
        if self.whole is None:
            began = time.perf_counter()
            self.plan, assembly, reason = safe_assembly(self.plan)
            self.stats.source_seconds = time.perf_counter() - began
            if assembly is None:
                self.whole = reason
            else:
                self._assembly = assembly
        self._quick: QuickCall | None = None
        self._short: Callable[..., tuple[np.ndarray, ...] | None] | None = None
        self._kernels: list[Kernel] = []
        self._nodes: list[Compute] = []  # of `_kernels`
        modes = debug_modes()
        self._debug = "guard-before" if "guard-before" in modes else "guard" if "guard" in modes else ""
        self._gap_bytes = SCRATCH_GAP_BYTES if self._debug else 0
        self._uses: list[StepUse] = []  # of `_kernels`, for the guards
        self._told: dict[int, tuple[str, int]] = {}  # a memory's name and alignment in kernels
        self._evaluated: dict[int, tuple[EvaluatorStep, PreparedOp | BegunOp | EndedOp]] = {}
        if self.whole is None:
            before = (stats.compiled, stats.disk_hits + stats.memory_hits, stats.compile_seconds)
            self._build()
            self.stats.compiled = stats.compiled - before[0]
            self.stats.cache_hits = stats.disk_hits + stats.memory_hits - before[1]
            self.stats.compile_seconds = stats.compile_seconds - before[2]

    # ------------------------------------------------------------ compile

    def _build(self) -> None:
        nodes = with_whole_loops(self._assembly.nodes, self._assembly.sizes)
        if self.processes is not None:
            begin = self.processes.begin
            nodes = overlapped(nodes, lambda n: begin(n.step.op) is not None)
            self.processes.agree("order in which exchanges begin and end", order_of(nodes))
        computes = [n for n in below(nodes) if isinstance(n, Compute)]
        kept = self._kept_signatures(computes, {n for n in self._assembly.nodes if isinstance(n, Compute)})
        target = self.target or MachineCode()
        with few_collections():
            compiled = target.compile([(n.source.kernel, s) for n, s in zip(computes, kept, strict=True)])
        self._compiled = dict(zip(computes, compiled, strict=True))
        linear = linearise(nodes, self._kernel, self._assembly.exchanges)
        self._evaluated = self._prepared(linear.evaluated)
        instructions = linear.instructions
        for k, (step, prepared) in self._evaluated.items():
            if prepared.direct is not None and not self._debug:  # debug modes look at the memory around every step
                native = lapack_step(step.op, instructions[k].buffers, prepared.direct, self.custom_calls)
                if not isinstance(native, Declined):
                    instructions[k] = native
        self._launch = launch.Plan(instructions)
        self._layout = laid_out(self.plan, self._assembly, linear.lives, computes)
        self._check_places(computes)
        self._packs = KeptPacks(self._found_packs(instructions))
        self._prepare(self.plan.machine.cores, sum(seconds_of(n.fusion) for n in computes))

    @property
    def modelled_seconds(self) -> float | None:
        """What one thread takes for a call by the machine's model, of loops one turn; None where libraries take part."""
        return None if any(isinstance(s, launch.Library | launch.Host) for s in self._launch.steps) else self._seconds

    def _prepared(self, nodes: Mapping[int, Evaluate]) -> dict[int, tuple[EvaluatorStep, PreparedOp | BegunOp | EndedOp]]:
        """What runs the evaluator's steps, by position."""
        begun = {n: BegunOp(n.step, self.processes) for n in nodes.values() if n.begins and self.processes is not None}
        made: dict[int, tuple[EvaluatorStep, PreparedOp | BegunOp | EndedOp]] = {}
        for k, n in nodes.items():
            if n in begun:
                made[k] = n.step, begun[n]
            elif n.ends is not None:
                made[k] = n.step, EndedOp(begun[n.ends])
            else:
                made[k] = n.step, PreparedOp(self.plan.module, n.step, self.custom_calls, self.processes)
        return made

    def _found_packs(self, instructions: Sequence[launch.Instruction]) -> tuple[Pack, ...]:
        numbers = dict(zip(self._launch.kernels, self._nodes, strict=True))
        return packs_of(
            instructions, {k: n.writes for k, n in numbers.items()}, [k for k, n in numbers.items() if n.moves],
            [slot for slot, _ in self._layout.given], self._layout.offsets.keys(), self._assembly.sizes,
        )  # fmt: skip

    def _prepare(self, cores: int, seconds: float) -> None:
        """All that a call would find out of the layout again and again. `seconds`: what one thread takes for all kernels."""
        layout = self._layout
        threads = self.threads or cores
        self._seconds = seconds
        self.stats.scratch_bytes = layout.arena_bytes + threads * self._launch.scratch_stride
        self._addresses = np.zeros(layout.count, np.int64)
        for slot, address in layout.fixed_addresses.items():
            self._addresses[slot] = address
        self._arena_slots = np.array([*layout.offsets], np.int64)
        self._arena_offsets = np.array([*layout.offsets.values()], np.int64)
        self._given = [(slot, v.shape, v.tensor.dtype) for slot, v in layout.given]
        self._made_types = [(v.shape, v.tensor.dtype, v.tensor.size_bytes if k in layout.pooled else 0) for k, v in layout.made]
        self._kept_slots = layout.kept_slots
        inner = [max(layout.arena_bytes, 64), threads * self._launch.scratch_stride]
        self._inner_bytes = sum(map(memory.rounded_bytes, inner))
        self._need_bytes = self._inner_bytes + sum(memory.rounded_bytes(v.tensor.size_bytes) for _, v in layout.made)
        is_alone = not self._debug and self.whole is None and self.processes is None
        usable = self.threads or native_threads.default_threads()
        self._quick = layout.quick_call(self._launch, seconds, usable) if is_alone else None
        self._short = self._quick.call if self._quick is not None else None

    def _slot(self, v: Value) -> int | None:
        """The number of the memory of a value; None for a value that no step touches."""
        return self._assembly.known_slot(v)

    def _kept_signatures(self, computes: Sequence[Compute], once: Collection[Compute]) -> list[KernelSignature]:
        """The kernels' signatures, none of which declares an address to be more aligned than it is; one that did is reported.

        A call runs those of `once` once.
        """
        program = self.plan.program
        given, results = ([(self._slot(v), v) for v in vs] for vs in (program.arguments, program.results))
        over = self.plan.written_over  # these lie where their results do
        given = [(None if k in over else slot, v) for k, (slot, v) in enumerate(given)]
        alignments = given_alignments(given, results, self._assembly.exchanges)
        kept = []
        for n in computes:
            signature = signatures.kernel_signature(n.source, self.plan.machine, self._gap_bytes)
            signature, refuted = kept_alignments(n.name, signature, n.slots, alignments)
            self._report(n.name, "the same with less alignment", refuted)
            kept.append(replace(signature, is_brief=n in once and seconds_of(n.fusion) < BRIEF_SECONDS))
        return kept

    def _check_places(self, computes: Sequence[Compute]) -> None:
        """What is declared as aligned starts with a cache line; where it does not, the evaluator runs the program."""
        places = [("a constant", address_of(a)) for _, a in self._layout.fixed if a.size]
        places += [(f"memory {slot} of the arena", at) for slot, at in self._layout.offsets.items()]
        places += [(f"the copy of memory {slot}", at) for slot, at, _ in self._layout.copies]
        places += [
            (f"{n.name} {b.name}", at)
            for n in computes
            for b, at in zip(n.source.scratch, signatures.scratch_places(n.source, self._gap_bytes)[0], strict=True)
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

    def _kernel(self, node: Compute) -> launch.Step:
        """The launcher's step of a kernel of the tree."""
        source, compiled = node.source, self._compiled[node]
        places, scratch_bytes = signatures.scratch_places(source, self._gap_bytes)
        inner = [ScratchUse(b.name, at, b.size_bytes) for b, at in zip(source.scratch, places, strict=True)]
        self._uses.append(StepUse(node.name, scratch_bytes, tuple(inner)))
        for slot, b, param in zip(node.slots, source.buffers, compiled.signature.params, strict=True):
            self._told[slot] = self._told.get(slot, (b.name, 1))[0], max(param.align, self._told.get(slot, ("", 1))[1])
        self._nodes.append(node)
        self._kernels.append(Kernel(node.name, node.fusion, source.tasks, scratch_bytes, source.buffers, compiled, source.kernel))
        chunk = source.tasks if is_short(node.fusion) else chunk_of(source.tasks, self.plan.machine.cores)
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
            f"{s.op.name} (%{s.name}): {_runs(s, prepared)}"
            for s, prepared in self._evaluated.values()
            if prepared.library and not isinstance(prepared, EndedOp)
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
        return self._spread_results(self._run(arrays, None))

    def call_owned(
        self, arrays: Sequence[Any], owner: Callable[[int], Any], in_place: bool = False
    ) -> tuple[np.ndarray, ...]:
        """Runs the program. The elements of argument k stay the same for as long as the object `owner(k)` is there.

        What is only packed of them is packed once (`codegen.call.kept_packs`); None owns elements that may change.
        With `in_place` results are written over arguments as by `call_in_place`.
        """
        has_packs = self.whole is None and bool(self._packs.packs)
        if not has_packs and not in_place:
            return self(*arrays)
        return self._spread_results(self._run(arrays, None, owner if has_packs else None, in_place=in_place))

    def call_in_place(self, *arrays: Any) -> tuple[np.ndarray, ...]:
        """Runs the program, with results written over the arguments that it gives away for them (`compile(…, donate=True)`).

        Such a result is the very array that was given, where that is writeable, in C's order, at the start of a cache line, and
        shares no memory with another argument; else it is one of its own. Raises what a call raises.

        >>> import hlo
        >>> from codegen import compile
        >>> from codegen.launcher.memory import in_lines
        >>> exe = compile(hlo.parse('''func.func @main(%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32> {
        ...   %0 = stablehlo.add %x, %x : tensor<4xf32>
        ...   return %0 : tensor<4xf32>
        ... }'''), donate=True)
        >>> x = in_lines(np.ones(4, np.float32))
        >>> exe.call_in_place(x)[0] is x, x
        (True, array([2., 2., 2., 2.], dtype=float32))
        """
        return self._run(arrays, None, in_place=True)

    @property
    def written_over(self) -> dict[int, int]:
        """Argument k -> the result that is written over it, in calls that may do so."""
        return {} if self.whole is not None else dict(self._layout.written_over)

    def _spread_results(self, results: tuple[np.ndarray, ...]) -> tuple[Any, ...]:
        """Results as arrays that know how they are spread, where they are."""
        if self.spread is None or self.processes is None:
            return results
        rank, exchange = self.processes.process[1], self.processes.everyones
        return tuple([self.spread.result(k, r, rank, exchange) for k, r in enumerate(results)])

    def save(self, path: str | os.PathLike[str], targets: Sequence[str] = ()) -> None:
        """Writes the compiled program as a file, which `tilewright.load` runs with NumPy and the standard library alone.

        `targets` are the CPUs that it is for: host (default), x86-64, x86-64-v2, x86-64-v3, x86-64-v4, aarch64; the best one is
        chosen where it is loaded. Raises `codegen.ship.errors.ExportError` for a program with a step that is no kernel, and where
        no linker is found.
        """
        write_file(self, path, targets)

    def __copy__(self) -> Executable:
        """The executable itself: calls change nothing of it. (A pickled one travels as its file.)"""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Executable:
        return self

    def for_xla(self, done: int, failures: Failures, is_plain: bool = False, held: int = 0) -> XlaCall | Declined:
        """The program as XLA calls it, or whoever has addresses (`codegen.call.xla_call`), or why it cannot be called so."""
        if self.whole is not None:
            return Declined(f"the evaluator runs the whole program: {self.whole}")
        if self._debug:
            return Declined("debug modes look at every call's memory")
        if self.processes is not None:
            return Declined("other processes take part")
        threads = self.threads or native_threads.default_threads()
        return call_by_xla(
            self._launch, self._layout, self._inner_bytes + self._layout.made_bytes, threads, self._evaluate, done, failures,
            is_plain, held,
        )  # fmt: skip

    def packs_for_xla(
        self, call: XlaCall, is_deleted: Callable[[Any], bool], is_idle: Callable[[], bool], hold: Callable[[Any], Any]
    ) -> XlaPacks | None:
        """What is kept between calls of `call`, which `for_xla` gave; None where nothing is only packed, of few arguments."""
        packs = self._packs.packs
        return XlaPacks(packs, call, is_deleted, is_idle, hold) if packs or len(call.given) >= MANY else None

    def gather(self, results: Sequence[Any]) -> tuple[np.ndarray, ...]:
        """The whole arrays of which all processes hold tiles; all of them call it. Without a partition: the results."""
        return tuple(results) if self.spread is None or self.processes is None else tuple([r.gather() for r in results])

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
        timed = zip(self._named_steps(), spent.tolist(), strict=True)
        return results, [StepTime(name, kind, nanoseconds * 1e-9) for (name, kind), nanoseconds in timed if kind != "control"]

    def _named_steps(self) -> list[tuple[str, str]]:
        """(name, kind) of every step: kernel, copy, library, evaluator, or control for those that choose the next one."""
        names = iter(self._kernels)
        found = []
        for number, step in enumerate(self._launch.steps):
            if number in self._evaluated:
                op, prepared = self._evaluated[number]
                found.append((op.name, "library" if prepared.library else "evaluator"))
            elif isinstance(step, launch.Step):
                found.append((next(names).name, "kernel"))
            else:
                found.append((type(step).__name__.lower(), "copy" if isinstance(step, launch.Copy) else "control"))
        return found

    def trace(self, path: str | os.PathLike[str], *arrays: Any) -> tuple[np.ndarray, ...]:
        """The results of a call, whose timeline by thread and step is written as a file that Perfetto reads (ui.perfetto.dev)."""
        trace = Trace(self._named_steps() if self.whole is None else ())
        results: tuple[np.ndarray, ...] = trace.watched(lambda: self._run(arrays, None, trace=trace))
        trace.write(path, f"@{self.plan.program.name}")
        return results

    def _run(
        self, arrays: Sequence[Any], spent: np.ndarray | None, owner: Callable[[int], Any] | None = None,
        trace: Trace | None = None, in_place: bool = False,
    ) -> tuple[np.ndarray, ...]:  # fmt: skip
        if self.processes is None:
            return self._run_here(arrays, spent, owner, trace, in_place)
        try:
            return self._run_here(arrays, spent, owner, trace, in_place)
        except BaseException as e:
            self.processes.failed(e)  # nobody waits for what does not come
            raise

    def _run_here(
        self, arrays: Sequence[Any], spent: np.ndarray | None, owner: Callable[[int], Any] | None, trace: Trace | None,
        in_place: bool,
    ) -> tuple[np.ndarray, ...]:  # fmt: skip
        if self.spread is not None and self.processes is not None and len(arrays) == len(self.spread.arguments):
            rank = self.processes.process[1]
            arrays = [self.spread.local(k, a, rank) for k, a in enumerate(arrays)]
        given = self._arguments(arrays)
        if self.whole is not None:
            if self.processes is not None:
                self.processes.begin_program()
            return evaluate_program(self.plan.module, given, self.plan.program.name, self.custom_calls, self.processes)
        if self._debug:
            run = GuardedRun(
                self._launch, self._layout, self._assembly.sizes, self._addresses, self._uses, self._told,
                self._debug == "guard-before", self._evaluate,
            )  # fmt: skip
            return run(given, self.threads, spent)
        memory.pool.begin(self._need_bytes)
        try:
            return self._run_kernels(given, spent, owner, trace, in_place)
        finally:
            memory.pool.end(self._need_bytes)

    def _run_kernels(
        self, given: Sequence[np.ndarray], spent: np.ndarray | None, owner: Callable[[int], Any] | None,
        trace: Trace | None = None, in_place: bool = False,
    ) -> tuple[np.ndarray, ...]:  # fmt: skip
        layout = self._layout
        addresses = self._addresses.copy()
        over = {result: argument for argument, result in layout.written_over}
        mine = writeable(given, over.values()) if in_place else ()
        for (slot, _, _), a in zip(self._given, given, strict=True):
            if slot is not None:
                addresses[slot] = address_of(a)
        arena = self._arena() if layout.offsets or layout.copies else None
        if arena is not None:
            addresses[self._arena_slots] = arena.address + self._arena_offsets
            for slot, offset, size in layout.copies:
                if addresses[slot] % LINE_BYTES:
                    ctypes.memmove(arena.address + offset, int(addresses[slot]), size)
                    addresses[slot] = arena.address + offset
        outputs: list[np.ndarray] = []
        made: dict[int, np.ndarray] = {}
        again: list[tuple[int, int]] = []  # results that are another one's values, by their number and its memory
        for number, ((known, v), (shape, dtype, pooled_bytes)) in enumerate(zip(layout.made, self._made_types, strict=True)):
            if known is None:
                outputs.append(literal(v))
                continue
            if known in made:
                again.append((len(outputs), known))
                outputs.append(made[known])
                continue
            if known in self._kept_slots:
                outputs.append(self._kept(known, given).copy())
                continue
            try:
                if number in over and over[number] in mine:
                    array = given[over[number]]
                elif pooled_bytes:
                    array = memory.pool.lease(pooled_bytes, "output").array(shape, dtype)
                else:  # kernels take it as NumPy aligns it
                    array = np.empty(shape, dtype)
            except (MemoryError, OSError, OverflowError) as e:
                raise no_memory(v, self.plan.module) from e
            if number in over and array is not given[over[number]]:
                np.copyto(array, given[over[number]])
            addresses[known] = address_of(array)
            made[known] = array
            outputs.append(array)
        if trace is not None:
            watched = trace.hosted(self._evaluate)
            self._launch.run(addresses, self.threads, spent, watched, events=trace.events)
        elif owner is None:
            self._launch.run(addresses, self.threads, spent, self._evaluate)
        else:
            self._run_owned(addresses, owner)
        for number, known in again:  # each result is the caller's own: writing to one changes no other
            outputs[number] = made[known].copy()
        if arena is not None:
            arena.release()
        return tuple(outputs)

    def _run_owned(self, addresses: np.ndarray, owner: Callable[[int], Any]) -> None:
        taken = self._packs.begin(owner)
        for slot, address in taken.places.items():
            addresses[slot] = address
        if taken.out:
            plan, numbers = self._packs.plan_without(taken.out, self._launch)
            plan.run(addresses, self.threads, None, lambda number, places: self._evaluate(numbers[number], places))
        else:
            self._launch.run(addresses, self.threads, None, self._evaluate)
        taken.end()

    def _arena(self) -> memory.Lease:
        """Memory for all that lies between steps. Raises TooLargeError, with the largest of the values, where there is none."""
        try:
            return memory.pool.lease(max(self._layout.arena_bytes, 64), "scratch")
        except (MemoryError, OSError, OverflowError) as e:
            inner = [r for op in self.plan.program.ops for r in op.results if self._slot(r) in self._layout.offsets]
            inner = inner or [r for op in self.plan.program.ops for r in op.results]
            raise no_memory(max(inner, key=lambda r: r.tensor.size_bytes), self.plan.module) from e

    def _kept(self, slot: int, given: Sequence[np.ndarray]) -> np.ndarray:
        """The argument or constant whose memory a result is."""
        slots = [own for own, _, _ in self._given]
        return given[slots.index(slot)] if slot in slots else dict(self._layout.fixed)[slot]

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
        return taken(self.plan.program.arguments, arrays)


def _runs(step: EvaluatorStep, prepared: PreparedOp | BegunOp | EndedOp) -> str:
    """What runs a step that the evaluator has no part in."""
    if isinstance(prepared, BegunOp):
        return "MPI, beside kernels"
    return "MPI" if prepared.exchange else str(step.library or step.op.attr("call_target_name"))
