"""The options of the commands in `tilewright.commands.tools`, which imports what they need only when one is called."""

from __future__ import annotations

import argparse
from collections.abc import Callable

__all__ = ["PICTURES", "add_commands", "entry_options", "size"]


def _index(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(p.strip().isdecimal() for p in parts):
        raise argparse.ArgumentTypeError(f"expected an index such as 3,0, found {text!r}")
    return tuple(int(p) for p in parts)


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = -1.0
    if not days >= 0:  # also what is no number
        raise argparse.ArgumentTypeError(f"expected a number of days, such as 30 or 0.5, found {text!r}")
    return days


def size(text: str) -> int:
    """Bytes, as people write them. Raises ArgumentTypeError for what is none."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in "KMG" else (text, "")
    if not number.isdecimal():
        raise argparse.ArgumentTypeError(f"expected bytes, such as 500M, found {text!r}")
    return int(number) << {"": 0, "K": 10, "M": 20, "G": 30}[unit]


def shapes(text: str) -> tuple[tuple[int, ...], ...]:
    """A shape for each argument: sizes with `x` between them, shapes with commas; `scalar` is one of no dimensions.

    Raises ArgumentTypeError for what is none.

    >>> shapes("4x8,8,scalar")
    ((4, 8), (8,), ())
    """
    found = []
    for word in text.split(","):
        sizes = [] if word.strip() == "scalar" else word.strip().split("x")
        if not all(n.isdecimal() for n in sizes):
            raise argparse.ArgumentTypeError(f"expected a shape for each argument, such as 4x8,8 or scalar, found {text!r}")
        found.append(tuple(int(n) for n in sizes))
    return tuple(found)


PICTURES = ("reads", "tiles", "graph", "roofline", "lines", "mesh")


def entry_options() -> argparse.ArgumentParser:
    """The options of whatever reads a program."""
    p = argparse.ArgumentParser(add_help=False)
    p.add_argument("--entry", metavar="NAME", help="the function to use (default: the program's entry)")
    p.add_argument("--import", metavar="MODULE", action="append", default=[], dest="imports",
                   help="an installed Python module that defines ops of the program; may be given several times")  # fmt: skip
    return p


def add_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds this module's commands; `command(name, help, parents)` makes one."""
    json_option = argparse.ArgumentParser(add_help=False)
    json_option.add_argument("--json", action="store_true", help="print JSON for programs instead of text for people")
    entry = entry_options()
    c = command("diff", "compare the plans of two programs (or of two files that `plan --json` wrote)", [entry, json_option])
    c.add_argument("file", metavar="FIRST")
    c.add_argument("other", metavar="SECOND")
    c = command("picture", "draw a picture into a file (needs the notebook extra)", [entry])
    c.add_argument("kind", choices=PICTURES, metavar="KIND", help="; ".join(
        ["reads: the input elements of an output element", "tiles: the tiles of each kernel's result",
         "graph: kernels, and the traffic between them", "roofline: kernels under the machine's limits",
         "lines: cache lines in the order of the loops",
         "mesh: who holds what of a program with shardings, and sends to whom"]))  # fmt: skip
    c.add_argument("file", metavar="FILE")
    c.add_argument("--op", metavar="OP", help="for reads and lines: an op's name, value or number (default: the root)")
    c.add_argument("--at", type=_index, metavar="I,J", help="for reads: the output index (default: the middle)")
    c.add_argument("-o", "--output", required=True, metavar="OUT", help="a .png, .svg or .pdf file")
    c = command("explore", "write a program's page to click in: maps, elements, tiles, stages", [entry])
    c.add_argument("file", metavar="FILE")
    c.add_argument("-o", "--output", metavar="OUT.html", help="where to write it (default: beside the program's name, here)")
    c.add_argument("--open", action="store_true", help="and open it in the browser")
    c = command("passes", "list the compiler's passes in the order in which they run", [json_option])
    c.set_defaults(file="tilewright passes")
    c = command("doctor", "show versions, CPU features, threads and the cache, and try a kernel", [json_option])
    c.set_defaults(file="tilewright doctor")
    c = command("calibrate", "measure this machine, or with --mpi the network between processes, for later plans", [json_option])
    c.add_argument("--mpi", action="store_true", help="the network between the processes that mpiexec has started")
    c.set_defaults(file="tilewright calibrate")
    c = command("cache", "show the kernel cache, prune it, or clear it", [json_option])
    c.add_argument("action", nargs="?", default="show", choices=["show", "prune", "clear"], help="what to do (default: show)")
    c.add_argument("--days", type=_days, default=30.0, metavar="N", help="prune: remove what is older (default: 30)")
    c.add_argument("--max-bytes", type=size, metavar="N", help="prune: remove the oldest until this many are left, such as 500M")
    c.set_defaults(file="tilewright cache")
    c = command("completion", "print a completion script: source <(tilewright completion bash)", [])
    c.add_argument("shell", choices=["bash", "zsh", "fish"])
    c.set_defaults(file="tilewright completion")
