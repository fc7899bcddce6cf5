"""The program of a compile helper: `python -P helper.py ROOT FOLDER...`, started by `codegen.native.workers` and by nobody else.

ROOT is the folder of Tilewright's packages, each FOLDER one of a package that they need. Nothing is imported from the working
folder or from this script's: the standard library comes first, then these, then what the interpreter itself knows.

The file of `codegen` itself is not run: it would import planner and launcher, twice what compiling kernels needs.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import sys

__all__: list[str] = []


def _main(root: str, folders: list[str]) -> None:
    library = os.path.dirname(os.__file__)
    standard = [p for p in sys.path if p in (library, os.path.join(library, "lib-dynload")) or p.endswith(".zip")]
    rest = [p for p in sys.path if os.path.isabs(p) and p not in standard]
    sys.path[:] = [*standard, root, *folders, *rest]
    found = importlib.util.find_spec("codegen")
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    origin = os.path.abspath(found.origin) if found is not None and found.origin is not None else None
    if found is None or origin is None or os.path.dirname(origin) != here or os.path.dirname(here) != os.path.abspath(root):
        sys.exit(f"`codegen` is at {origin} for a helper of {here}")
    gc.disable()  # what is imported stays: nothing to collect before `serve` says how often
    sys.modules["codegen"] = importlib.util.module_from_spec(found)
    importlib.import_module("codegen.native.serve").serve()


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])
