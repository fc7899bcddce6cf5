"""The command line: options, exit codes, and what becomes of errors. `tilewright.commands` does the work.

Nothing heavy is imported before the options are understood: `tilewright --help` answers at once, and `--threads` can still
be heard by the libraries that read it from the environment when they are imported.
"""

from __future__ import annotations

import argparse
import codecs
import os
import sys
import traceback
from collections.abc import Sequence

from tilewright import __version__
from tilewright.commands import tool_options

__all__ = ["DECLINED", "FAILED_CHECK", "INTERNAL_ERROR", "OK", "USAGE", "main", "parser"]

OK = 0
FAILED_CHECK = 1
USAGE = 2
DECLINED = 3
INTERNAL_ERROR = 70
INTERRUPTED = 130
CLOSED_PIPE = 141

_EPILOG = """\
exit codes: 0 done; 1 the results differ from the evaluator's by more than is allowed, or a schedule is refuted; 2 bad options,
program or input; 3 a valid program that is declined, with the reason; 70 an error inside Tilewright; 130 interrupted; 141 the
reader left
"""

_EXAMPLES = {
    name: "examples:\n" + "".join(f"  tilewright {line}\n" for line in lines) + "\n"
    for name, lines in {
        "run": ("run examples/softmax.mlir", "run model.mlir --input x.npy --output y.npy --no-check",
                "run model.mlir --mesh x=2,y=2      (under mpiexec -n 4)"),
        "check": ("check examples/gelu_mlp.mlir --seed 3", "check model.mlir --json | jq .check.passed"),
        "maps": ("maps examples/softmax.mlir --op reduce", "maps model.mlir --op %4"),
        "plan": ("plan examples/layer_norm.mlir", "plan model.mlir --json > before.json", "plan model.mlir --mesh x=64,y=64"),
        "source": ("source examples/softmax.mlir", "source examples/softmax.mlir --stages",
                   "source examples/softmax.mlir --kind c"),
        "export": ("export model.mlir -o model.tw --target x86-64-v3 --target x86-64-v4",
                   "export model.mlir -o libmodel.so --kind shared --header", "export model.mlir -o model --kind c",
                   "export rows.mlir -o rows.tw --shapes 1x64 --shapes 32x64"),
        "passes": ("passes", "passes --json"),
        "diff": ("diff before.json model.mlir", "diff examples/softmax.mlir examples/layer_norm.mlir"),
        "picture": ("picture reads examples/softmax.mlir --op reduce --at 3 -o reads.png",
                    "picture graph examples/encoder_block.mlir -o graph.svg"),
        "doctor": ("doctor",),
        "calibrate": ("calibrate", "calibrate --mpi      (under mpiexec -n 2)"),
        "cache": ("cache", "cache prune --days 7 --max-bytes 500M", "cache clear"),
        "completion": ("completion bash > ~/.local/share/bash-completion/completions/tilewright",
                       "completion fish > ~/.config/fish/completions/tilewright.fish"),
    }.items()
}  # fmt: skip

_THREAD_VARIABLES = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, found {text!r}")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 on, found {text!r}")
    return int(text)


def _axes(text: str) -> dict[str, int]:
    axes: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = part.partition("=")
        if not name or name in axes or not size.isdecimal() or int(size) < 1:
            raise argparse.ArgumentTypeError(f"expected names of axes with their sizes, as x=2,y=4, found {text!r}")
        axes[name] = int(size)
    return axes


def _started_by_mpi() -> int:
    """How many processes MPI's launcher says that it has started; 1 without one."""
    found = (os.environ.get(name, "") for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE"))
    return next((int(n) for n in found if n.isdecimal()), 1)


def parser() -> argparse.ArgumentParser:
    """The options of every subcommand."""
    p = argparse.ArgumentParser(
        prog="tilewright",
        description="Analyse, fuse, compile and run StableHLO and HLO programs on the CPU.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    p.add_argument("--version", action="version", version=f"tilewright {__version__}")
    sub = p.add_subparsers(dest="command", required=True, metavar="COMMAND")

    program = argparse.ArgumentParser(add_help=False, parents=[tool_options.entry_options()])
    program.add_argument("file", metavar="FILE", help="StableHLO (MLIR) or HLO text; - reads standard input")
    program.add_argument("--json", action="store_true", help="print JSON for programs instead of text for people")

    inputs = argparse.ArgumentParser(add_help=False)
    inputs.add_argument("--input", metavar="A.npy", action="append", default=[], dest="inputs",
                        help="an argument's array; once for each argument, in order (default: random arrays)")  # fmt: skip
    inputs.add_argument("--seed", type=_seed, default=0, metavar="N", help="seed of the random arrays (default: 0)")
    inputs.add_argument("--threads", type=_at_least_one, metavar="N", help="threads to run on (default: all cores)")

    def command(name: str, help_: str, parents: list[argparse.ArgumentParser]) -> argparse.ArgumentParser:
        return sub.add_parser(name, help=help_, description=help_ + ".", parents=parents, allow_abbrev=False,
                              epilog=_EXAMPLES.get(name, "") + _EPILOG,
                              formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip

    c = command("run", "compile and run a program, time it, and check it against the evaluator", [program, inputs])
    c.add_argument("--no-check", action="store_false", dest="check", help="leave the evaluator out")
    c.add_argument("--repeat", type=_at_least_one, default=3, metavar="N", help="timed runs after the first (default: 3)")
    c.add_argument("--output", metavar="PATH", help="write the results: NAME.npy for one, else a folder")
    c.add_argument("--mesh", type=_axes, metavar="x=2,y=2",
                   help="the axes of the processes that mpiexec has started (default: one axis of all of them)")
    c = command("check", "compare every result with the evaluator's; with --prove also prove every schedule", [program, inputs])
    c.add_argument("--prove", action="store_true", help="also prove every schedule: what is written, read and kept where")
    c = command("maps", "print what each op reads: the maps from its output to its operands", [program])
    c.add_argument("--op", metavar="OP", help="only these: a name (or HLO's opcode), a value (%%4), a number in program order")
    c = command("plan", "print the fusions and tiles, and why they are what they are", [program])
    c.add_argument("--mesh", type=_axes, metavar="x=64,y=64",
                   help="what each process of a mesh holds, computes and sends, of a program with shardings")
    c.add_argument("--memory", type=tool_options.size, metavar="N", help="with --mesh: what a process may hold, such as 500M")
    c = command("source", "print the generated source of every kernel", [program])
    c.add_argument("--stages", action="store_true", help="what each pass makes, where it changes something, before the source")
    c.add_argument("--kind", choices=("numba", "c"), default="numba", help="the language: numba's Python (default), or C")
    c = command("export", "write a program as a file for tilewright.load, as a shared library, or as C", [program])
    c.add_argument("-o", "--output", required=True, metavar="OUT", help="the file (for --kind c: the folder) to write")
    c.add_argument("--kind", choices=("program", "shared", "c"), default="program",
                   help="a file for tilewright.load (default), a shared library for C, or C sources")  # fmt: skip
    c.add_argument("--target", action="append", default=[], dest="targets", metavar="CPU",
                   help="host (default), x86-64[-v2|-v3|-v4] or aarch64[-dotprod|-i8mm]; several for a program")  # fmt: skip
    c.add_argument("--header", action="store_true", help="with --kind shared: also the header, beside the library")
    c.add_argument("--also", action="append", default=[], metavar="FILE",
                   help="the same program for other shapes, into the same file; may be given several times")  # fmt: skip
    c.add_argument("--shapes", action="append", default=[], type=tool_options.shapes, metavar="4x8,8",
                   help="what a ? of the program is: a shape for each argument; may be given several times")  # fmt: skip
    c.add_argument("--threads", type=_at_least_one, metavar="N", help="threads to plan for (default: all cores)")
    tool_options.add_commands(command)
    p.set_defaults(parser=p)  # `completion` writes what it has
    return p


_PLAIN = {"×": "x", "−": "-", "…": "...", "µ": "u", "→": "->", "–": "-", "²": "^2"}


def _plain(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that a stream's encoding lacks: plain ones that mean the same, or their numbers."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_PLAIN.get(c) or c.encode("ascii", "backslashreplace").decode() for c in lacking), error.end


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; errors of the user's making end as one message on standard error."""
    if sys.stdout is None:  # closed by the caller, who wants the exit code alone
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (open until the process ends)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    args = parser().parse_args(argv)
    codecs.register_error("tilewright", _plain)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="tilewright")  # a terminal that cannot show a character is no reason to fail
    if getattr(args, "threads", None):
        for name in _THREAD_VARIABLES:
            os.environ[name] = str(args.threads)
    try:
        code = _call(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has gone (`… | head`); the interpreter must not complain again while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    return code


def _call(args: argparse.Namespace) -> int:
    from tilewright.commands import exporting, programs, report, tools

    try:
        programs.import_definitions(getattr(args, "imports", ()))
        processes = _started_by_mpi()
        if args.command == "run" and (args.mesh or processes > 1):
            from tilewright.commands import processes as on_processes

            return on_processes.run(args, args.mesh, processes)
        if args.command == "calibrate" and args.mpi:
            from tilewright.commands import processes as on_processes

            return on_processes.calibrate(args)
        if args.command == "plan" and args.mesh:
            from tilewright.commands import mesh_plan

            return mesh_plan.run(args, args.mesh)
        return {**programs.COMMANDS, **tools.COMMANDS, **exporting.COMMANDS}[args.command](args)
    except BrokenPipeError:  # an OSError, but not one of the user's making
        raise
    except programs.DeclinedError as e:
        print(report.printable(f"{args.file}: {e}"), file=sys.stderr)
        return DECLINED
    except programs.declined_errors() as e:
        print(report.printable(e.render()), file=sys.stderr)
        return DECLINED
    except programs.USER_ERRORS as e:
        print(report.printable(programs.explain_error(e, args.file)), file=sys.stderr)
        return USAGE
    except Exception:  # noqa: BLE001 (the outermost frame: anything else is a bug, and says so)
        traceback.print_exc()
        print(f"tilewright {__version__}: this is an error inside Tilewright; please report it", file=sys.stderr)
        return INTERNAL_ERROR
