"""Compiled programs as files that NumPy and the standard library run (`tilewright_runtime`).

    save(executable, "model.tw")                         one program, for this CPU
    save([one, other], "model.tw", targets=("x86-64-v3", "x86-64-v4"))     two sets of shapes, each for two CPUs

Each target is planned for by itself where it is not this CPU: tiles and vectors are its own.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from codegen.call.executable import Executable
from codegen.remembered.machine import machine_for
from codegen.ship.c_text import call_source, header
from codegen.ship.call_data import CallData, call_data
from codegen.ship.errors import ExportError
from codegen.ship.objects import CSources
from codegen.ship.targets import FileTarget, default_name, file_target
from codegen.ship.toolchain import Toolchain, toolchain
from codegen.supports import supports
from tilewright_runtime import container, native, program
from tiling import Plan, plan

__all__ = ["linked", "plan_for", "save"]


def plan_for(made: Plan, target: FileTarget) -> Plan:
    """The plan of the same program for a target: the one that there is, where it was made for such vectors, and on Arm for such
    products of bytes: a product of matrices is none for a CPU without the instruction."""
    machine = made.machine
    own = target.target
    fits = (machine.vector_bytes, machine.vector_registers) == (own.vector_bytes, own.vector_registers)
    if fits and (not own.is_arm or machine.byte_products == own.byte_products) and not made.written_over:
        return made  # (who calls a file gives nothing away)
    return plan(made.module, made.program.name, machine_for(own, machine), supports)


def save(
    executables: Executable | Sequence[Executable],
    path: str | os.PathLike[str],
    targets: Sequence[str] = (),
    trees: Sequence[Any] | None = None,
    compiler: Sequence[str] | None = None,
) -> None:
    """Writes a file with one program, or with the same program for several sets of shapes.

    `targets` are names of `codegen.ship.targets` (default: what kernels are compiled for here); `trees` are, for each
    program, those of its arguments and results (`tilewright_runtime.trees`) or None; `compiler` links (default:
    `codegen.ship.toolchain`). Raises ExportError for a program with a step that is no kernel, and where there is no linker.
    """
    programs = [executables] if isinstance(executables, Executable) else list(executables)
    if not programs:
        raise ExportError("a file of no program")
    chosen = [file_target(n) for n in dict.fromkeys(targets or [default_name()])]
    if elsewhere := [t.name for t in chosen if t.system == "Windows"]:
        raise ExportError(f"{', '.join(elsewhere)}: what loads files runs on Linux and macOS; a C library is for Windows, too")
    # The loader takes the first that runs: the one that needs most.
    chosen.sort(key=lambda t: (-t.target.vector_bytes, -len(t.features)))
    sections: list[bytes] = []
    numbers: dict[bytes, int] = {}

    def section(data: bytes) -> int:
        if data not in numbers:
            numbers[data] = len(sections)
            sections.append(data)
        return numbers[data]

    entries = []
    for k, made in enumerate(programs):
        variants = [call_data(plan_for(made.plan, t), t, None if trees is None else trees[k]) for t in chosen]
        first = variants[0]
        entries.append({
            "name": first.entry,
            "names": {"arguments": [t.name for t in first.arguments], "results": [t.name for t in first.results]},
            "variants": [
                {
                    "target": v.target.name, "architecture": v.target.architecture, "system": v.target.system,
                    "features": list(v.target.features), "interface": v.interface,
                    "code": section(linked(v, toolchain(v.target, compiler))),
                    "constants": [section(a.tobytes()) for a in v.constants],
                }
                for v in variants
            ],
        })  # fmt: skip
    container.write(path, {"schema": program.SCHEMA, "entries": entries}, sections)


def linked(data: CallData, tools: Toolchain) -> bytes:
    """The shared library of a program's call for files, whose constants the caller brings."""
    with tempfile.TemporaryDirectory(prefix="tilewright-ship-") as name:
        folder = Path(name)
        inputs = write_inputs(data, folder, native.PREFIX, own_constants=False, for_python=True)
        tools.link(inputs, folder / "program.so", data.target)
        return (folder / "program.so").read_bytes()


def write_inputs(data: CallData, folder: Path, name: str, own_constants: bool, for_python: bool = False) -> list[Path]:
    """Writes what a linker takes of a program, but for its constants: the paths of the call's C and of the kernels' code."""
    (folder / f"{name}.h").write_text(header(data, name), "utf-8")
    source = call_source(data, name, own_constants, is_alone=isinstance(data.code, CSources))
    asks = "#define TW_FOR_PYTHON\n" if for_python else ""
    (folder / f"{name}.c").write_text(asks + source, "utf-8")
    inputs = [folder / f"{name}.c"]
    kind = "kernel_{}.c" if isinstance(data.code, CSources) else "object_{}.o"
    for k, content in enumerate(data.code.parts):
        inputs.append(folder / kind.format(k))
        inputs[-1].write_bytes(content)
    return inputs
