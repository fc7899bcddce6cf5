"""From a module or a plan to an executable: codegen.compile(module)  ->  Executable  ->  exe(*arrays) -> tuple of arrays."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from codegen.call.executable import Executable
from codegen.call.fallback import CustomCalls
from codegen.call.processes import Processes, SpreadProgram
from codegen.native.jit import KernelTarget
from codegen.remembered.machine import calibrated_machine, machine_for
from codegen.remembered.plans import remembered_plan
from codegen.supports import supports, supports_beside
from codegen.target import default_target
from hlo.logs import log_of, set_up_logs
from hlo.module import Module, as_module
from tiling import Plan, plan
from tiling.pipeline import check_settings
from tiling.planning.garbage import few_collections
from tiling.show.stages import print_stages

__all__ = ["GridOfProcesses", "compile"]

_log = logging.getLogger("tilewright.codegen")


class GridOfProcesses(Protocol):
    """Processes that run one program together (`tilewright.Mesh`)."""

    def partitioned(self, module: Module, entry: str) -> SpreadProgram | None:
        """What each process runs of a program in the global view; None for one that is each process's already."""
        ...

    def join(
        self, plan: Plan, compile: Callable[[Module], Callable[..., Any]], is_partitioned: bool = False,
        infeed: Sequence[str] = (),
    ) -> Processes:  # fmt: skip
        """This process of the grid, once all have found that they run the same; `compile` makes the kernels of folds."""
        ...


def compile(
    module_or_plan: Module | Plan,
    entry: str = "main",
    threads: int | None = None,
    custom_calls: CustomCalls | None = None,
    *,
    excess_precision: bool | None = None,
    target: KernelTarget | None = None,
    mesh: GridOfProcesses | None = None,
    infeed: Sequence[str] = (),
    donate: bool = False,
) -> Executable:
    """The compiled form of a module's entry function, or of a plan that was made (and perhaps edited) before.

    `custom_calls` maps the target names of custom calls to functions (op, *operands) that return an array or a tuple of them.
    The operands are copies, theirs to keep and to write (`hlo.foreign.borrows` marks functions that take read-only views).
    `excess_precision` lets kernels keep bf16 numbers in f32 between two ops; without it every op is rounded to its type. None: as
    TILEWRIGHT_EXCESS_PRECISION says (`forbid` by default, or `allow`), or a given plan's machine.
    `target` compiles the kernels (`codegen.c.compile.CCompiler` does so by the system's C compiler); by default LLVM does.
    A module is planned for the vectors and registers of its `target`, if it has one, else for this CPU's.
    With a `mesh` the program runs on all its processes, each of which calls this and then the
    executable (docs/howto-mesh.md); one in the global view is partitioned first (`tiling.mesh.partition`). `infeed` names the
    functions of the module that its infeed ops call in turn, on this process; only programs on processes have them.
    With `donate` results are written over the arguments that the function gives away for them (`tf.aliasing_output`), where it is
    called so: by `Executable.call_in_place`, by `tilewright.jit` for donated arrays. Other calls copy these arguments first.
    Always succeeds on a verified module: what no kernel covers runs in the evaluator, and `fallbacks` says so.
    Raises KeyError when there is no function `entry`, TypeError for what is no module, ValueError for fewer than one thread,
    for `excess_precision` beside a plan, or for an `infeed` without a mesh.
    """
    if infeed and mesh is None:
        raise ValueError("infeed: programs on processes have one (mesh=…)")
    set_up_logs()
    began = time.perf_counter()
    spread = None if mesh is None or isinstance(module_or_plan, Plan) else mesh.partitioned(as_module(module_or_plan), entry)
    if spread is not None:
        module_or_plan, entry = spread.module, "main"
    if isinstance(module_or_plan, Plan):
        given = module_or_plan
        if excess_precision is not None:
            raise ValueError("excess_precision: a plan has it from its machine (Machine.excess_precision)")
        rules = supports_beside(custom_calls or {})
        if not all(rules(op) is None for f in given.fusions for op in f.ops):
            # A plan made without knowing what can be generated: made again with it.
            given = plan(given.module, given.program.name, given.machine, rules, donate=given.donate)
    else:
        machine = calibrated_machine()
        its = getattr(target, "target", None)  # what does not say for which vectors it compiles is planned for this CPU
        if its is not None and its != default_target():
            machine = machine_for(its, machine)
        if excess_precision is not None:
            machine = replace(machine, excess_precision=excess_precision)
        module, rules = as_module(module_or_plan), supports_beside(custom_calls or {})
        donate = donate and mesh is None
        if rules is supports:
            given = remembered_plan(module, entry, machine, donate)
        else:
            given = plan(module, entry, machine, rules, donate=donate)
    check_settings()
    print_stages(given, rules)
    planned = time.perf_counter()
    _log_plan(given, planned - began)
    processes = None if mesh is None else mesh.join(given, compile, spread is not None, tuple(infeed))
    if processes is not None and threads is None:
        threads = processes.threads
    with few_collections():
        made = Executable(given, threads, custom_calls, target, processes, spread)
    s = made.stats
    s.plan_seconds = planned - began
    _log.info(
        "@%s: %.3f s for the plan, %.3f s for %d kernels' sources, %.3f s for machine code (%d compiled, %d from caches)",
        given.program.name, s.plan_seconds, s.source_seconds, len(made.kernels), s.compile_seconds, s.compiled, s.cache_hits,
    )  # fmt: skip
    _log_executable(made, time.perf_counter() - began)
    return made


def _log_plan(made: Plan, seconds: float) -> None:
    log = log_of("plans")
    if log.isEnabledFor(logging.INFO):
        ops, kernels = len(made.program.ops), sum(len(p.fusions) for p in made.nested())
        log.info("@%s: %d ops in %d kernels for %s, %.3f s", made.program.name, ops, kernels, made.machine, seconds)


def _log_executable(made: Executable, seconds: float) -> None:
    log, name, s = log_of("compiles"), made.plan.program.name, made.stats
    if log.isEnabledFor(logging.INFO):
        types = ", ".join(str(v.type) for v in made.plan.program.arguments)
        log.info(
            "@%s(%s): %.3f s, of which %.3f s for machine code: %d of %d kernels compiled, %d from caches",
            name, types, seconds, s.compile_seconds, s.compiled, len(made.kernels), s.cache_hits,
        )  # fmt: skip
    for what, rows in (("the evaluator", made.fallbacks), ("a library", made.library)):
        for row in rows:
            log_of("fallbacks").info("@%s: %s runs %s", name, what, row)
