"""C libraries: a C and a C++ program use them, from four threads at once, under a memory checker; kernels as C; another CPU."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
from collections.abc import Sequence

import numpy as np
import pytest

import codegen
import hlo
import tilewright_runtime
from codegen.c.compile import c_compiler
from codegen.ship.errors import ExportError
from codegen.ship.library import c_name, c_sources, shared_library
from codegen.ship.targets import default_name, file_target
from codegen.ship.toolchain import toolchain
from tests.commands.command_line import called
from tests.ship.shipping import PROGRAMS, SCALED, WIDE, compiled, needs_compiler
from tests.ship.small_programs import small_program
from tilewright.inputs import random_arrays

STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic")

# Reads every argument from a file, calls from four threads at once with a pool, and writes the results; checks what is refused.
PROGRAM = r"""
#include "model.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef _WIN32
#include <malloc.h>
#define aligned_alloc(alignment, bytes) _aligned_malloc(bytes, alignment)
#define free_aligned _aligned_free
#else
#define free_aligned free
#endif
#ifndef TURNS
#define TURNS 3
#endif

static const void *arguments[MODEL_ARGUMENTS];
static model_threads *threads;

static void *call(void *given) {
    int count, code;
    const model_tensor *results = model_results(&count);
    void **made = (void **)calloc((size_t)count, sizeof(void *));
    size_t bytes = model_workspace_bytes(model_threads_count(threads));
    void *workspace = aligned_alloc(64, bytes);
    (void)given;
    for (int k = 0; k < count; ++k) made[k] = aligned_alloc(64, (results[k].size_bytes + 127) / 64 * 64);
    for (int turn = 0; turn < TURNS; ++turn) {
        code = model_run(arguments, (void *const *)made, workspace, bytes, threads);
        if (code != MODEL_DONE) { fprintf(stderr, "%s\n", model_message(code)); exit(2); }
    }
    if (model_run(arguments, (void *const *)made, workspace, bytes - 64, threads) != MODEL_ERROR_WORKSPACE) exit(3);
    if (model_run(arguments, (void *const *)made, (char *)workspace + 1, bytes, threads) != MODEL_ERROR_WORKSPACE) exit(3);
    if (model_run(NULL, (void *const *)made, workspace, bytes, threads) != MODEL_ERROR_NULL) exit(4);
    free_aligned(workspace);
    return made;
}

int main(int count, char **names) {
    pthread_t callers[4];
    void *made[4];
    int results;
    const model_tensor *inputs = model_arguments(NULL), *outputs = model_results(&results);
    if (count != MODEL_ARGUMENTS + 2) return 1;
    for (int k = 0; k < MODEL_ARGUMENTS; ++k) {
        FILE *file = fopen(names[k + 1], "rb");
        char *memory = (char *)aligned_alloc(64, (inputs[k].size_bytes + 127) / 64 * 64);
        if (!file || fread(memory, 1, inputs[k].size_bytes, file) != inputs[k].size_bytes) return 1;
        fclose(file);
        arguments[k] = memory;
    }
    threads = model_threads_start(3);
    if (!threads) return 1;
    for (int k = 0; k < 4; ++k) if (pthread_create(&callers[k], NULL, call, NULL)) return 1;
    for (int k = 0; k < 4; ++k) pthread_join(callers[k], &made[k]);
    FILE *file = fopen(names[count - 1], "wb");
    if (!file) return 1;
    for (int k = 0; k < results; ++k) {
        for (int c = 0; c < 4; ++c)
            if (memcmp(((void **)made[c])[k], ((void **)made[0])[k], outputs[k].size_bytes)) return 5;
        if (fwrite(((void **)made[0])[k], 1, outputs[k].size_bytes, file) != outputs[k].size_bytes) return 1;
    }
    fclose(file);
    for (int c = 0; c < 4; ++c) {
        for (int k = 0; k < results; ++k) free_aligned(((void **)made[c])[k]);
        free(made[c]);
    }
    for (int k = 0; k < MODEL_ARGUMENTS; ++k) free_aligned((void *)(size_t)arguments[k]);
    model_threads_stop(threads);
    return 0;
}
"""


def run(command: Sequence[object], folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done


def results_of(executable: codegen.Executable, command: Sequence[object], folder: pathlib.Path) -> list[np.ndarray]:
    """What a program of `PROGRAM` writes for the random arrays of an executable."""
    names = []
    for k, a in enumerate(random_arrays(executable.plan.module.entry, 0)):
        names.append(folder / f"argument{k}")
        names[-1].write_bytes(a.tobytes())
    run([*command, *names, folder / "results"], folder)
    data, found, at = (folder / "results").read_bytes(), [], 0
    for v in executable.plan.program.results:
        found.append(np.frombuffer(data, v.tensor.dtype, int(np.prod(v.shape)), at).reshape(v.shape))
        at += found[-1].nbytes
    assert at == len(data)
    return found


def same_bits(found: Sequence[np.ndarray], executable: codegen.Executable) -> None:
    expected = executable(*random_arrays(executable.plan.module.entry, 0))
    assert [a.tobytes() for a in found] == [a.tobytes() for a in expected]


def close(found: Sequence[np.ndarray], executable: codegen.Executable) -> None:
    for a, b in zip(found, executable(*random_arrays(executable.plan.module.entry, 0)), strict=True):
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=1e-4, atol=1e-5)


@needs_compiler
def test_c_and_cxx_programs_use_a_library_from_four_threads(tmp_path: pathlib.Path) -> None:
    executable = compiled(SCALED)
    paths = shared_library(executable, tmp_path / "libmodel.so")
    assert [p.name for p in paths] == ["libmodel.so", "model.h"]
    (tmp_path / "main.c").write_text(PROGRAM)
    end = ["-I", ".", "-L", ".", "-lmodel", "-pthread", "-Wl,-rpath,$ORIGIN"]
    run([c_compiler(), "-std=c11", "-D_GNU_SOURCE", *STRICT, "main.c", "-o", "main", *end], tmp_path)
    same_bits(results_of(executable, ["./main"], tmp_path), executable)
    cxx = shutil.which("g++") or shutil.which("clang++")
    if cxx is not None:
        run([cxx, "-x", "c++", "-std=c++17", "-D_GNU_SOURCE", *STRICT, "main.c", "-o", "maincc", *end], tmp_path)
        same_bits(results_of(executable, ["./maincc"], tmp_path), executable)
    symbols = run(["nm", "-D", "--defined-only", "libmodel.so"], tmp_path).stdout if shutil.which("nm") else "T model_run"
    assert all(" T model_" in line for line in symbols.splitlines()), symbols


@needs_compiler
@pytest.mark.jax
@pytest.mark.slow
@pytest.mark.parametrize("name", ["wide", *PROGRAMS])
def test_a_memory_checker_has_nothing_to_say(name: str, tmp_path: pathlib.Path) -> None:
    """Valgrind, which knows no AVX-512; then the compiler's own checks of memory, behavior and threads over all of the C.

    Programs have small sizes, kernels as many instructions: without optimization they are built in seconds, and an iteration
    of a loop is checked as well as a million. Blocks of more instructions are too many for valgrind (long ones of AVX2).
    """
    executable = compiled(WIDE if name == "wide" else small_program(name))
    (tmp_path / "main.c").write_text(PROGRAM)
    if shutil.which("valgrind"):
        shared_library(executable, tmp_path / "libmodel.so", "x86-64-v3")
        end = ["-I", ".", "-L", ".", "-lmodel", "-pthread", "-Wl,-rpath,$ORIGIN"]
        run([c_compiler(), "-std=c11", "-DTURNS=1", "-g", "main.c", "-o", "main", *end], tmp_path)
        checked = ["valgrind", "--error-exitcode=9", "--leak-check=full", "-q", "--vex-guest-max-insns=12", "./main"]
        close(results_of(executable, checked, tmp_path), executable)
    c_sources(executable, tmp_path / "model")
    sources = sorted((tmp_path / "model").glob("*.c"))
    for checks in ("address,undefined", "thread"):
        own = [f"-fsanitize={checks}", "-fno-sanitize=alignment", "-fno-sanitize-recover=all", "-DTURNS=1"]
        command = [c_compiler(), "-std=gnu11", "-g", "-O0", *own, "-Imodel", "-w"]
        run([*command, "main.c", *sources, "-o", "checked", "-lm", "-pthread"], tmp_path)
        close(results_of(executable, ["./checked"], tmp_path), executable)


@needs_compiler
@pytest.mark.parametrize("name", ["scaled", *(pytest.param(n, marks=pytest.mark.slow) for n in PROGRAMS)])
def test_programs_as_c(name: str, tmp_path: pathlib.Path) -> None:
    executable = compiled(SCALED) if name == "scaled" else codegen.compile(hlo.load(PROGRAMS[name]))
    paths = c_sources(executable, tmp_path / "model")
    assert {"model.h", "model.c", "kernel_0.c"} <= {p.name for p in paths}
    (tmp_path / "main.c").write_text(PROGRAM)
    flags = ["-std=gnu11", "-O1", "-fno-math-errno", "-ffp-contract=off", "-fwrapv", "-I", "model"]
    sources = [p for p in paths if p.suffix == ".c"]
    run([c_compiler(), *flags, *STRICT[:3], "main.c", *sources, "-o", "main", "-lm", "-pthread"], tmp_path)
    close(results_of(executable, ["./main"], tmp_path), executable)


@pytest.mark.ship
@pytest.mark.slow
def test_another_cpu_runs_a_program(tmp_path: pathlib.Path) -> None:
    """Zig links for 64-bit Arm, and qemu runs it where it is."""
    executable = compiled(SCALED)
    executable.save(tmp_path / "arm.tw", ["aarch64"])
    c_sources(executable, tmp_path / "model", "aarch64")
    (tmp_path / "main.c").write_text(PROGRAM)
    zig = [*toolchain(file_target("aarch64")).command, "-target", "aarch64-linux-musl", "-static", "-fno-sanitize=undefined"]
    sources = sorted((tmp_path / "model").glob("*.c"))
    run([*zig, "-O2", "-ffp-contract=off", "-I", "model", "main.c", *sources, "-o", "main", "-lm", "-pthread"], tmp_path)
    qemu = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if qemu:
        close(results_of(executable, [qemu, "./main"], tmp_path), executable)


@pytest.mark.ship
@pytest.mark.slow
@pytest.mark.parametrize("target", ["x86-64-v3-windows", "aarch64-macos"])
def test_zig_links_for_other_systems(target: str, tmp_path: pathlib.Path) -> None:
    """A library with constants, and a program that calls it from four threads, are linked; Wine runs the one for Windows."""
    executable = compiled(SCALED)
    chosen = file_target(target)
    library = {"Windows": "model.dll", "Darwin": "libmodel.dylib"}[chosen.system]
    shared_library(executable, tmp_path / library, target)
    begin = (tmp_path / library).read_bytes()[:4]
    assert begin[:2] == b"MZ" if chosen.system == "Windows" else begin == b"\xcf\xfa\xed\xfe"
    (tmp_path / "main.c").write_text(PROGRAM)
    system = {"Windows": "windows-gnu", "Darwin": "macos"}[chosen.system]
    zig = [*toolchain(chosen).command, "-target", f"{chosen.architecture}-{system}"]
    run([*zig, *STRICT, "main.c", "-L", ".", "-lmodel", "-pthread", "-o", "main.exe"], tmp_path)
    wine = next((w for w in ("wine64", "wine", "/usr/lib/wine/wine64") if shutil.which(w)), None)
    if chosen.system == "Windows" and wine and not chosen.target.missing_features:
        own = [f"WINEPREFIX={tmp_path / 'wine'}", "WINEDEBUG=-all", "WINEDLLOVERRIDES=mscoree,mshtml="]
        close(results_of(executable, ["env", *own, wine, "main.exe"], tmp_path), executable)
    if chosen.system == "Windows":
        with pytest.raises(ExportError, match=f"{target}: what loads files runs on Linux and macOS"):
            executable.save(tmp_path / "model.tw", [target])
    else:
        executable.save(tmp_path / "model.tw", [target])
        with pytest.raises(tilewright_runtime.FileError, match=r"is for Darwin, this is Linux|this machine is"):
            tilewright_runtime.load(tmp_path / "model.tw")
    assert (tmp_path / "main.exe").stat().st_size > 1000


@pytest.mark.ship
@pytest.mark.slow
def test_zig_links_for_this_machine(tmp_path: pathlib.Path) -> None:
    executable = compiled(SCALED)
    assert toolchain(file_target("host")).crosses
    executable.save(tmp_path / "model.tw")
    x = np.random.default_rng(0).standard_normal((8, 16), np.float32)
    for a, b in zip(tilewright_runtime.load(tmp_path / "model.tw")(x), executable(x), strict=True):
        assert a.tobytes() == b.tobytes()


def test_names_of_libraries() -> None:
    assert [c_name(n) for n in ("libmodel.so", "out/x-y.so", "lib.so", "2d.so")] == ["model", "x_y", "lib", "model_2d"]


def test_no_linker_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codegen.ship.toolchain.c_compiler", lambda: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ExportError, match=r"no linker: pip install 'tilewright\[ship\]' brings Zig's"):
        toolchain(file_target("host"))
    monkeypatch.setattr("codegen.ship.toolchain.c_compiler", lambda: "/usr/bin/cc")
    with pytest.raises(ExportError, match=r"/usr/bin/cc links for .*, not for"):
        toolchain(file_target("aarch64"))


@needs_compiler
def test_the_command_exports(tmp_path: pathlib.Path) -> None:
    (tmp_path / "wide.mlir").write_text(SCALED)
    program, library = str(tmp_path / "wide.mlir"), str(tmp_path / "libwide.so")
    done = called("export", program, "-o", str(tmp_path / "wide.tw"), "--target", "host")
    assert done.returncode == 0 and done.stdout == f"{tmp_path / 'wide.tw'}: {(tmp_path / 'wide.tw').stat().st_size} bytes\n"
    done = called("export", program, "-o", library, "--kind", "shared", "--header", "--json")
    assert done.returncode == 0 and '"schema": "tilewright.export/1"' in done.stdout
    assert (tmp_path / "wide.h").read_text().startswith(f"/* A compiled program, for {default_name()} (")
    assert called("export", program, "-o", str(tmp_path / "c"), "--kind", "c").returncode == 0
    for arguments, message in (
        (["-o", library, "--kind", "shared", "--target", "host", "--target", "x86-64"], "--kind shared: one --target, found"),
        (["-o", library, "--header"], "--header goes with --kind shared"),
        (["-o", library, "--target", "z80"], "target 'z80': expected one of host"),
        (["-o", str(tmp_path / "wide.mlir"), "--kind", "c"], "is no folder"),
        (["-o", str(tmp_path / "none" / "x.tw")], "No such file"),
    ):
        done = called("export", program, *arguments)
        assert done.returncode == 2 and message in done.stderr, done.stderr
