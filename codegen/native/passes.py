"""LLVM's passes over a module for a target, and what they need: machines, pass builders, modules read from text."""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding.ffi import ObjectRef
from llvmlite.binding.newpassmanagers import NewPassManager

from codegen.kernel.straight import SHORT_ROW
from codegen.native import loop_marks
from codegen.target import Target

__all__ = [
    "STRAIGHT", "UNROLL", "WRITTEN_OUT", "data_layout", "initialise", "is_made_by_llvm", "llvm_target", "of_its_context",
    "of_this_thread", "optimise", "optimise_marked", "parsed", "parsed_for", "places_weighed", "run_named", "run_pipeline",
    "target_machine", "without_masks",
]  # fmt: skip


@functools.cache
def initialise() -> None:
    """Has LLVM know this machine's architecture."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@functools.cache
def _initialise_others() -> None:
    """Has LLVM know the architectures that it makes code for beside this machine's: files and tests are for those, too."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def llvm_target(triple: str) -> Any:
    """LLVM's description of an architecture. Raises RuntimeError for one that this LLVM makes no code for."""
    initialise()
    if triple.partition("-")[0] != llvm.get_process_triple().partition("-")[0]:
        _initialise_others()
    return llvm.Target.from_triple(triple)


def is_made_by_llvm(triple: str) -> bool:
    """Whether this LLVM makes code for an architecture: a build of it need not have all.

    >>> is_made_by_llvm(llvm.get_process_triple()), is_made_by_llvm("z80-unknown-unknown")
    (True, False)
    """
    try:
        llvm_target(triple)
    except RuntimeError:
        return False
    return True


def target_machine(target: Target) -> Any:
    """A fresh LLVM target machine (an execution engine takes ownership of the one it is given)."""
    machine = llvm_target(target.triple)
    # the large code model: constants may lie anywhere, as the execution engine maps sections apart
    reloc = "static" if target.triple.startswith(("x86_64", "i")) else "default"
    return machine.create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc=reloc, codemodel="jitdefault", jit=True
    )


@functools.cache
def data_layout(target: Target) -> str:
    """LLVM's description of a machine's types and addresses."""
    return str(target_machine(target).target_data)


def parsed(text: str) -> Any:
    """The module of a text, in an LLVM context of its own: what a module leaves in its context is freed with it."""
    return of_its_context(llvm.parse_assembly(text, llvm.create_context()))


def parsed_for(text: str, target: Target) -> Any:
    """The same of a module that is not optimised yet. Where vectors fill SVE registers each function is told their length: LLVM
    then makes SVE's instructions of vectors of that many bytes, and takes them apart into NEON's where it does not know."""
    if target.sve_bytes:
        times = target.sve_bytes // 16
        text = re.sub(r"^(define [^{\n]*?)( *\{?)$", rf"\1 vscale_range({times},{times})\2", text, flags=re.MULTILINE)
    return parsed(text)


def of_its_context(module: Any) -> Any:
    """The module, as its context's to free. Python's collector finalises the objects of a circle (an error, the frames that it
    was raised in) in any order, and a module that is freed after its context was ends the process."""
    module._owned = True
    return module


MANY_PLACES = 96
"""Addresses that a kernel computes, from which on LLVM's loop strength reduction is left out of it.

That pass chooses what of the addresses in an innermost loop is kept in registers from turn to turn. What it weighs grows faster
than their number: for a row of an image's transform, written out in whole vectors, it took 700 of 740 ms, and half of what all
machine code of a training step of ResNet-18 took. Such loops are no slower without it on x86, whose instructions add a register,
a scaled one and a constant; loops of few places, which can be, keep it. (docs/adr/0017-compile-time.md)
"""

_CAN_LEAVE_OUT = llvm.llvm_version_info[0] <= 22
"""Whether this LLVM is one of those that were tried: another one ends the process where it does not know an option."""


@contextlib.contextmanager
def places_weighed(module: Any, target: Target) -> Iterator[None]:
    """Machine code of a kernel's optimised module is made within: with loop strength reduction where it has few places.

    The caller holds numba's lock (`codegen.forks.compiling`): LLVM's options are the process'.
    """
    can = _CAN_LEAVE_OUT and target.triple.startswith("x86_64")
    leaves_out = can and str(module).count(" = getelementptr ") >= MANY_PLACES
    if leaves_out:
        llvm.set_option("tilewright", "-disable-lsr=true")
    try:
        yield
    finally:
        if leaves_out:
            llvm.set_option("tilewright", "-disable-lsr=false")


@contextlib.contextmanager
def without_masks(stores_short_rows: bool, target: Target) -> Iterator[None]:
    """A kernel is optimised within: where it stores in short rows, for a CPU without masks for lanes, in vectors that fit a row.

    Of a loop of less than 16 turns LLVM otherwise makes whole vectors under a mask. For rows of 3, 5, 7, or 13 f32 to which
    another row is added, AVX2's masked stores took 1.3 to 3.5 times as long on AMD Zen 3. The caller holds numba's lock, as for
    `places_weighed`.
    """
    leaves_out = stores_short_rows and _CAN_LEAVE_OUT and target.triple.startswith("x86_64") and not target.has_lane_masks
    if leaves_out:
        llvm.set_option("tilewright", "-vectorizer-min-trip-count=0")
    try:
        yield
    finally:
        if leaves_out:
            llvm.set_option("tilewright", f"-vectorizer-min-trip-count={SHORT_ROW}")


UNROLL = ("loop_unroll", "sroa", "instruction_combine", "simplify_cfg")
"""What is left of O1 for library functions, whose vectors are written out: a quarter of the time, the same instructions."""
WRITTEN_OUT = ("sroa", "simplify_cfg", "instruction_combine", "loop_rotate", *UNROLL)
"""What is left of O3 and O1 for a block of products of known sizes: half of the time, no slower."""
STRAIGHT = ("always_inliner", "sroa", "simplify_cfg", "instruction_combine", "new_gvn", "simplify_cfg")
"""For code whose loops, if any, wait and dispatch."""


def run_named(names: Sequence[str], module: Any, target: Target) -> None:
    """Runs some of LLVM's passes, in place."""
    passes = llvm.create_new_module_pass_manager()
    for name in names:
        getattr(passes, f"add_{name}_pass")()
    _run(passes, module, _pass_builder(target, 1, vectorise=False, unroll=True))


def run_pipeline(module: Any, target: Target, level: int, vectorise: bool = False, unroll: bool = True) -> None:
    """Runs one of LLVM's pipelines, in place: one that vectorises, or that writes loops out."""
    builder = _pass_builder(target, level, vectorise, unroll)
    _run(builder.getModulePassManager(), module, builder)


def optimise(module: Any, target: Target, straight: bool = False, brief: bool = False, small: bool = False) -> None:
    """Run LLVM's pipelines for ``target`` over a parsed module, in place.

    First the whole of O3 with its loops as they are: a loop of some dozen iterations that is unrolled before it is vectorised
    stays scalar. Then O1, which writes out what is left of short loops and keeps their running values in registers. ``straight``
    code, without loops to vectorise, takes five passes, in a third of the time of O1, which finds no more in it. ``brief`` code
    takes of the second O1 what it does to single functions: short loops are written out, the others not several times over. That
    is half of the time, and a quarter fewer instructions to emit. ``brief`` and ``small`` code takes O2 in place of O3, which
    copies a loop for each way that a condition in it may turn out: for the rows at an image's border that is worth it, the loop
    of a hash was copied twelve times.
    """
    if straight:
        run_named(STRAIGHT, module, target)
        return
    run_pipeline(module, target, 2 if brief or small else 3, vectorise=True, unroll=False)
    if not brief:
        run_pipeline(module, target, 1)
        return
    builder = _pass_builder(target, 1, vectorise=False, unroll=True)
    for function in module.functions:
        if not function.is_declaration:
            _run(builder.getFunctionPassManager(), function, builder)


def optimise_marked(module: Any, target: Target) -> tuple[Any, str]:
    """The optimised module of a kernel whose loops are marked (`codegen.native.loop_marks`), by one pipeline; and its text, where
    that is known.

    It vectorises innermost loops as they are and then writes out what they have become, in two thirds of the time of
    ``optimise``'s two. Where one was not vectorised the second of those follows, for which it is free to be written out.
    """
    run_pipeline(module, target, 3, vectorise=True)
    text = str(module)
    if not loop_marks.has_innermost(text):
        return module, text
    module = parsed(loop_marks.unmarked(text))
    run_pipeline(module, target, 1)
    return module, ""


def _run(passes: Any, module: Any, builder: Any) -> None:
    """Runs a pass manager over a module, or over a function, in place, and frees it.

    Its class in llvmlite inherits the `_dispose` that does nothing before the one that frees: 50 KB would stay for each.
    """
    passes.run(module, builder)
    if type(passes)._dispose is ObjectRef._dispose:
        NewPassManager._dispose(passes)
        passes.detach()
    else:
        passes.close()


RUNS = 32
"""So many runs share a pass builder: llvmlite adds what LLVM asks before and after each pass to it in every run, and never takes
it away. After 200 runs an empty function took four times as long. A builder is 50 KB, which stay."""

_kept = threading.local()  # pass builders and target machines, which are one thread's at a time


def of_this_thread(key: str, make: Callable[[], Any]) -> Any:
    """What `make` gave this thread for a key: llvmlite frees no pass builder whole, and making a target machine takes as long as
    it takes to write a small kernel."""
    found = getattr(_kept, key, None)
    if found is None:
        found = make()
        setattr(_kept, key, found)
    return found


def _pass_builder(target: Target, level: int, vectorise: bool, unroll: bool) -> Any:
    """This thread's pass builder of a kind."""

    def made() -> Any:
        tuning = llvm.create_pipeline_tuning_options(speed_level=level)
        tuning.loop_vectorization = tuning.loop_interleaving = vectorise
        tuning.loop_unrolling = unroll
        tuning.slp_vectorization = False
        return llvm.create_pass_builder(target_machine(target), tuning)

    key = f"{target.key} {level} {vectorise} {unroll}"
    runs: dict[str, int] = of_this_thread("runs", dict)
    runs[key] = runs.get(key, 0) + 1
    if runs[key] % RUNS == 0:
        delattr(_kept, key)
    return of_this_thread(key, made)
