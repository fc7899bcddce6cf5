"""Compiled programs as C libraries: a shared library with a header, or C that any C11 compiler of POSIX takes.

    shared_library(executable, "libmodel.so")      libmodel.so and model.h
    c_sources(executable, "model")                 model/model.h, model.c, kernel_0.c, …, constants.c
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from codegen.call.executable import Executable
from codegen.ship.c_text import constants_assembly, constants_source, header
from codegen.ship.call_data import call_data, data_of
from codegen.ship.errors import ExportError
from codegen.ship.objects import CSources
from codegen.ship.save import plan_for, write_inputs
from codegen.ship.targets import default_name, file_target
from codegen.ship.toolchain import toolchain

__all__ = ["c_name", "c_sources", "shared_library"]


def c_name(path: str | os.PathLike[str]) -> str:
    """The name of a library's functions and of its header, from its file's.

    >>> c_name("build/libmodel.so"), c_name("my-model.2.dylib"), c_name("3d")
    ('model', 'my_model', 'model_3d')
    """
    stem = Path(path).name.partition(".")[0]
    word = re.sub(r"\W", "_", stem.removeprefix("lib") or stem, flags=re.ASCII)
    return word if re.match(r"[A-Za-z]", word) else f"model_{word}"


def shared_library(
    executable: Executable,
    path: str | os.PathLike[str],
    target: str | None = None,
    with_header: bool = True,
    compiler: Sequence[str] | None = None,
) -> tuple[Path, ...]:
    """Writes a shared library, with its header beside it; returns their paths.

    Raises ExportError for a program with a step that is no kernel, for a kernel that the target's C has no form of, and where
    there is no linker.
    """
    chosen = file_target(target or default_name())
    data = call_data(plan_for(executable.plan, chosen), chosen)
    name, to = c_name(path), Path(path)
    with tempfile.TemporaryDirectory(prefix="tilewright-ship-") as folder:
        inputs = write_inputs(data, Path(folder), name, own_constants=True)
        constants = constants_assembly(data, Path(folder), name)
        toolchain(chosen, compiler).link([*inputs, *([constants] if constants else [])], to, chosen)
    if not with_header:
        return (to,)
    own = to.with_name(f"{name}.h")
    own.write_text(header(data, name), "utf-8")
    return to, own


def c_sources(executable: Executable, folder: str | os.PathLike[str], target: str | None = None) -> tuple[Path, ...]:
    """Writes the whole program as C into a folder, which is made; returns the files' paths.

    `cc -O3 -fno-math-errno -ffp-contract=off -fwrapv FOLDER/*.c -lm -pthread` with a `main` makes a program of it. Kernels use
    the instructions of `target` only where the compiler is told that it may. Raises ExportError as `shared_library` does.
    """
    chosen = replace(file_target(target or default_name()), through_c=True)
    to, code = Path(folder), CSources(chosen.target)
    data = data_of(Executable(plan_for(executable.plan, chosen), None, None, code), chosen, code)
    name = c_name(to)
    if to.exists() and not to.is_dir():
        raise ExportError(f"{to} is no folder")
    to.mkdir(parents=True, exist_ok=True)
    # Two programs may have equal kernels and stand in one: each has its own names.
    code.sources.update({k: text.replace("tilewright_", f"{name}_kernel_") for k, text in code.sources.items()})
    paths = [to / f"{name}.h", *write_inputs(data, to, name, own_constants=True)]
    call = to / f"{name}.c"
    call.write_text(re.sub(r"\btilewright_(?=[0-9a-f]{24}\b)", f"{name}_kernel_", call.read_text("utf-8")), "utf-8")
    if data.constants:
        paths.append(to / "constants.c")
        paths[-1].write_text(constants_source(data, name), "utf-8")
    return tuple(paths)
