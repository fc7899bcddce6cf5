"""The subcommands: each takes the parsed options, prints its result and returns an exit code."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import hlo
from hlo.cpus import usable_cpus
from hlo.errors import Declined, Location
from hlo.limits import check_ranks
from hlo.module import Function, Module, Op
from hlo.settings import positive_setting
from hlo.text.xla.table import names_of_opcode
from tilewright.check import Comparison, compare
from tilewright.commands import report
from tilewright.commands.progress import Clock
from tilewright.ends import end_arrays
from tilewright.inputs import InputError, random_arrays, read_arrays, write_arrays

if TYPE_CHECKING:
    from codegen import Executable
    from tilewright.bisect import Culprit, KernelCheck
    from tiling import Plan, Proof
    from tiling.show.stages import Stages

__all__ = ["COMMANDS", "USER_ERRORS", "DeclinedError", "chosen_ops", "declined_errors", "explain_error"]


class DeclinedError(Exception):
    """A valid program that cannot be planned or compiled; the message is the `Declined` value's reason."""


USER_ERRORS = (hlo.TilewrightError, OSError, MemoryError)


def declined_errors() -> tuple[type[hlo.TilewrightError], ...]:
    """What a valid program runs into that needs more than a command line can give."""
    interp = sys.modules.get("interp")  # nothing else raises them
    return (interp.UnknownTargetError,) if interp else ()


def explain_error(error: BaseException, file: str) -> str:
    """What went wrong with the user's program, file or input, as one message that names the place."""
    if isinstance(error, hlo.TilewrightError):
        return error.render()
    if isinstance(error, OSError):
        return f"{error.filename or file}: error: {error.strerror or error}"
    return f"{file}: error: not enough memory: {error}"


def import_definitions(names: Sequence[str]) -> None:
    """Imports what defines ops. Raises InputError for a module that there is not, or whose own code fails."""
    for name in names:
        try:
            importlib.import_module(name)
        except hlo.TilewrightError:
            raise
        except Exception as e:
            raise InputError(f"--import {name}: {type(e).__name__}: {e}") from e


def load(path: str) -> Module:
    """Reads, parses and verifies a program; `-` is standard input."""
    module = hlo.parse(sys.stdin.buffer.read(), "<stdin>") if path == "-" else hlo.load(path)
    hlo.verify(module)
    return module


def entry_of(module: Module, name: str | None, file: str) -> Function:
    """The function to run. Raises InputError, naming what there is."""
    try:
        function = module.function(name if name is None else name.removeprefix("@"))
    except KeyError as e:
        raise InputError(str(e.args[0]) if name is None else f"--entry: {e.args[0]}", Location(file)) from None
    if function.is_declaration:
        raise InputError(f"@{function.name} is declared only: there is nothing to run", function.location or Location(file))
    return function


def _made(value: Any) -> Any:
    """A plan or an executable; raises DeclinedError for a refusal."""
    if isinstance(value, Declined):
        raise DeclinedError(str(value))
    return value


def _arrays(args: argparse.Namespace, module: Module, function: Function) -> tuple[np.ndarray, ...]:
    return read_arrays(function, args.inputs) if args.inputs else random_arrays(function, args.seed, module)


def _print_json(document: dict[str, Any]) -> None:
    print(json.dumps(report.jsonable(document), indent=2, allow_nan=False))


# ---------------------------------------------------------------- run, check


def _prepare(args: argparse.Namespace, clock: Clock) -> tuple[Module, Function, tuple[np.ndarray, ...]]:
    with clock.step(f"reading {args.file}", "parse"):
        module = load(args.file)
        function = entry_of(module, args.entry, args.file)
        check_ranks(module)
    with clock.step("preparing the inputs", "inputs"):
        arrays = _arrays(args, module, function)
    return module, function, arrays


def _compile(module: Module, function: Function, threads: int | None, clock: Clock) -> tuple[Plan, Executable]:
    with clock.step("planning", "plan"):
        import codegen

        plan: Plan = _made(codegen.remembered_plan(module, function.name))
    with clock.step("compiling", "compile"):
        executable: Executable = _made(codegen.compile(plan, threads=threads))
    return plan, executable


def _evaluate(
    module: Module, function: Function, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray], clock: Clock
) -> list[Comparison]:
    with clock.step("evaluating, for the check", "evaluate"):
        import interp

        expected = interp.evaluate(module, *arrays, entry=function.name)
    with clock.step("comparing", "compare"):
        if len(expected) != len(results):
            raise AssertionError(f"{len(results)} results, but the evaluator has {len(expected)}")
        return [compare(np.asarray(a), np.asarray(b)) for a, b in zip(results, expected, strict=True)]


def run(args: argparse.Namespace) -> int:
    """`tilewright run`: compile, run, time, check."""
    start = time.perf_counter()
    clock = Clock()
    module, function, arrays = _prepare(args, clock)
    plan, executable = _compile(module, function, args.threads, clock)
    with clock.step("running", "first_run"):
        results = executable(*arrays)
    with clock.step("timing", "timing"):
        walls, steps = _timed(executable, arrays, args.repeat)
    checks = _evaluate(module, function, arrays, results, clock) if args.check else None
    document = {
        "schema": "tilewright.run/1",
        **_subject(args, function),
        "repeat": args.repeat,
        "outputs": [{"shape": list(np.shape(a)), "dtype": str(np.asarray(a).dtype)} for a in results],
        "files": write_arrays(results, args.output) if args.output else [],
        "fusions": report.fusions(plan),
        "kernels": [{k: v for k, v in step.items() if k != "kind"} for step in steps if step["kind"] == "kernel"],
        "steps": steps,
        "shares": _shares(steps),
        "excess_precision": plan.machine.excess_precision,
        "fallbacks": [str(f) for f in executable.fallbacks],
        "library": list(executable.library),
        "compiled": executable.stats.compiled,
        "cache_hits": executable.stats.cache_hits,
        "scratch_bytes": executable.stats.scratch_bytes,
        "seconds": {
            **clock.seconds,
            "kernel_compile": executable.stats.compile_seconds,
            "first_result": clock.seconds["plan"] + clock.seconds["compile"] + clock.seconds["first_run"],
            "run_median": statistics.median(walls),
            "run_min": min(walls),
            "total": time.perf_counter() - start,
        },
        "check": None if checks is None else report.checks(checks),
    }
    if args.json:
        _print_json(document)
    else:
        report.show_run(document)
    return 0 if checks is None or all(c.passed for c in checks) else 1


def _timed(
    executable: Executable, arrays: Sequence[np.ndarray], repeat: int
) -> tuple[list[float], list[dict[str, Any]]]:
    """Seconds of each of `repeat` warm calls; and for each step its median and least seconds in as many profiled ones."""
    walls = []
    for _ in range(repeat):
        begin = time.perf_counter()
        executable(*arrays)
        walls.append(time.perf_counter() - begin)
    timelines = [executable.timeline(*arrays)[1] for _ in range(repeat)]
    return walls, [
        {
            "name": row[0].name,
            "kind": row[0].kind,
            "seconds": statistics.median(t.seconds for t in row),
            "seconds_min": min(t.seconds for t in row),
        }
        for row in zip(*timelines, strict=True)
    ]


def _shares(steps: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Of the time of all steps, the part of each kind."""
    total = sum(s["seconds"] for s in steps)
    kinds = ("kernel", "library", "evaluator", "copy")
    return {kind: sum(s["seconds"] for s in steps if s["kind"] == kind) / total if total else 0.0 for kind in kinds}


def check(args: argparse.Namespace) -> int:
    """`tilewright check`: compare every result with the evaluator's; with --prove, also prove the schedules."""
    clock = Clock()
    module, function, arrays = _prepare(args, clock)
    plan, executable = _compile(module, function, args.threads, clock)
    with clock.step("running", "first_run"):
        results = executable(*arrays)
    checks = _evaluate(module, function, arrays, results, clock)
    ends = None if args.inputs else end_arrays(function, args.seed, module)
    at_ends = None if ends is None else _evaluate(module, function, ends, executable(*ends), clock)
    worse = ends if ends and at_ends and all(c.passed for c in checks) and not all(c.passed for c in at_ends) else arrays
    kernels, culprit = _compare_kernels(plan, executable, worse, args, clock)
    proof = _prove(plan, clock) if args.prove else None
    document = {
        "schema": "tilewright.check/1",
        **_subject(args, function),
        "excess_precision": plan.machine.excess_precision,
        "fallbacks": [str(f) for f in executable.fallbacks],
        "library": list(executable.library),
        "check": report.checks(checks),
        "ends": None if at_ends is None else report.checks(at_ends),
        "kernels": [dataclasses.asdict(k) for k in kernels],
        "culprit": None if culprit is None else dataclasses.asdict(culprit),
        "proof": None if proof is None else report.proof(proof),
    }
    if args.json:
        _print_json(document)
    else:
        report.show_excess(document)
        report.show_check(document["check"], document["fallbacks"])
        if at_ends is not None:
            report.show_check(document["ends"], (), "at the ends of the types: ")
        report.show_kernel_checks(kernels, culprit, all(c.passed for c in (*checks, *(at_ends or ()))))
        if proof is not None:
            print(report.printable(str(proof)))
    right = all(c.passed for c in (*checks, *(at_ends or ()))) and all(k.passed for k in kernels)
    return 0 if right and (proof is None or not proof.refuted) else 1


def _compare_kernels(
    plan: Plan, executable: Executable, arrays: Sequence[np.ndarray], args: argparse.Namespace, clock: Clock
) -> tuple[list[KernelCheck], Culprit | None]:
    """Each kernel by itself, and the smallest wrong part of the first that is wrong."""
    from tilewright.bisect import Values, check_kernels, find_culprit

    if executable.whole is not None:
        return [], None
    with clock.step("comparing kernel by kernel", "kernels"):
        values = Values.of(plan, arrays)
        kernels = check_kernels(plan, values, args.threads)
    wrong = next((k for k in kernels if not k.passed), None)
    if wrong is None:
        return kernels, None
    with clock.step(f"looking for what is wrong in {wrong.name}", "bisect"):
        return kernels, find_culprit(plan, values, wrong.name, args.threads)


def _prove(plan: Plan, clock: Clock) -> Proof:
    with clock.step("proving the schedules", "prove"):
        import tiling

        return tiling.prove(plan)


def _subject(args: argparse.Namespace, function: Function) -> dict[str, Any]:
    from tilewright import __version__

    return {
        "version": __version__,
        "file": args.file,
        "entry": function.name,
        "seed": None if args.inputs else args.seed,
        "threads": args.threads or positive_setting("TILEWRIGHT_NUM_THREADS") or usable_cpus(),
        "inputs": [
            {"type": str(v.type), "source": args.inputs[k] if args.inputs else "random"}
            for k, v in enumerate(function.arguments)
        ],
    }


# ---------------------------------------------------------------- maps, plan, source


def maps(args: argparse.Namespace) -> int:
    """`tilewright maps`: what each op of the entry (and, with --entry, of another function) reads."""
    import indexing

    module = load(args.file)
    function = entry_of(module, args.entry, args.file)
    rows = []
    for number, op in chosen_ops(function, args.op):
        access = op.definition.access
        declined = str(access) if isinstance(access, Declined) else None
        for output, value in enumerate(op.results):
            found = () if declined else indexing.output_to_input(op, output=output)
            rows.append(
                {
                    "number": number,
                    "op": op.name,
                    "result": value.name,
                    "output": output,
                    "type": str(value.type),
                    "location": str(op.location) if op.location else None,
                    "declined": declined,
                    "operands": [
                        {"operand": operand.name, "maps": [str(m) for m in maps]}
                        for operand, maps in zip(op.operands, found, strict=not declined)
                    ],
                }
            )
    if args.json:
        _print_json({"schema": "tilewright.maps/1", "file": args.file, "entry": function.name, "ops": rows})
    else:
        report.show_maps(rows)
    return 0


def chosen_ops(function: Function, wanted: str | None) -> Iterator[tuple[int, Op]]:
    """(number in program order, op) of what `--op` asks for. Raises InputError when that is nothing."""
    ops = [(k, op) for k, op in enumerate(function.body.ops) if not op.definition.is_terminator]
    if wanted is None:
        chosen = ops
    elif wanted.isdecimal():
        chosen = [(k, op) for k, op in ops if k == int(wanted)]
    elif wanted.startswith("%"):
        chosen = [(k, op) for k, op in ops if any(r.name == wanted[1:] for r in op.results)]
    else:
        spellings = {wanted, wanted.replace("-", "_"), *names_of_opcode(wanted)}
        chosen = [(k, op) for k, op in ops if op.name in spellings or op.definition.mnemonic in spellings]
    if wanted is not None and not chosen:
        if not ops:
            raise InputError(f"--op {wanted}: @{function.name} has no op")
        names = ", ".join(sorted({op.name for _, op in ops}))
        count = "1 op, number 0" if len(ops) == 1 else f"{len(ops)} ops, numbers {ops[0][0]} to {ops[-1][0]}"
        raise InputError(f"--op {wanted}: @{function.name} has no such op; it has {count}; names: {names}")
    yield from chosen


def plan(args: argparse.Namespace) -> int:
    """`tilewright plan`: the fusions, their tiles, and why."""
    import codegen
    import tiling
    from tiling.show.stages import print_stages

    module = load(args.file)
    function = entry_of(module, args.entry, args.file)
    made: Plan = _made(tiling.plan(module, function.name, codegen.calibrated_machine(), codegen.supports))
    print_stages(made, codegen.supports)
    if args.json:
        _print_json(
            {
                **made.to_json(),
                "file": args.file,
            }
        )
    else:
        report.show_fusions(report.fusions(made))
        print(report.printable(str(made.explain())))
    return 0


def source(args: argparse.Namespace) -> int:
    """`tilewright source`: the generated source, as numba's Python or as C."""
    module = load(args.file)
    function = entry_of(module, args.entry, args.file)
    made, executable = _compile(module, function, None, Clock())
    stages = _stages(made) if args.stages else None
    declined = 0
    kernels, text = [{"name": k.name, "source": k.source} for k in executable.kernels], executable.source
    if args.kind == "c":
        from codegen.c.source import c_source

        in_c = [(k.name, c_source(k.statements)) for k in executable.kernels]
        declined = sum(isinstance(c, Declined) for _, c in in_c)
        kernels = [{"name": n, "declined": c.reason} if isinstance(c, Declined) else {"name": n, "source": c} for n, c in in_c]
        parts = [f"/* {n} has no form in C: {c.reason} */" if isinstance(c, Declined) else f"/* {n} */\n{c}" for n, c in in_c]
        text = "\n\n".join([*parts, *(f"/* in the evaluator: {f} */" for f in executable.fallbacks)])
    if args.json:
        rows = {} if stages is None else {"stages": [dataclasses.asdict(s) for s in stages]}
        document = {"schema": "tilewright.source/1", "file": args.file, "entry": function.name, "kernels": kernels, **rows}
        _print_json(document)
    else:
        if stages is not None:
            print(report.printable(f"{stages}\n\n==== source"))
        print(text.rstrip("\n"))
    return 3 if declined else 0


def _stages(made: Plan) -> Stages:
    from tilewright.stepping import stages

    return stages(made)


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": run,
    "check": check,
    "maps": maps,
    "plan": plan,
    "source": source,
}
