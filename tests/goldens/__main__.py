"""Prints a program's plan and kernels, or how they differ from those that another revision makes of the same text."""

from __future__ import annotations

import argparse
import difflib
import os
import pathlib
import subprocess
import sys
import tempfile

import hlo
from tests.goldens import prints, programs


def main() -> int:
    p = argparse.ArgumentParser(prog="python -m tests.goldens", description=__doc__)
    p.add_argument("name", help="group/name, as in the tables: file/softmax, seed/7, jax/mlp; or a file of StableHLO")
    p.add_argument("--machine", choices=prints.MACHINES, help="default: the group's")
    p.add_argument("--against", metavar="REVISION", help="print the difference from what this revision makes")
    args = p.parse_args()
    group, _, name = args.name.partition("/")
    if args.name.endswith(".mlir"):
        module, machine = hlo.load(args.name), args.machine or "avx2"
    else:
        module, machine = programs.GROUPS[group]()[name](), args.machine or programs.machine_of(group)
    text = prints.printed(module, machine).text
    if args.against is None:
        print(text)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", args.against], cwd=programs.ROOT, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        program = pathlib.Path(folder) / "program.mlir"
        program.write_text(str(module), "utf-8")
        command = [sys.executable, "-m", "tests.goldens", str(program), "--machine", machine]
        environment = {**os.environ, "PYTHONPATH": folder}
        other = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    sys.stdout.writelines(difflib.unified_diff(other.splitlines(True), f"{text}\n".splitlines(True), args.against, "now"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
