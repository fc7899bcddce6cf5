#!/usr/bin/env python3
"""Sets the project up in `.venv` and runs it: `python3 dev.py example`, `python3 dev.py test`, `python3 dev.py test hlo`.

Needs Python 3.11 or later and nothing else; uses the standard library alone. A second call finds the environment
as the first one left it and starts at once. (Written so that an old Python can still read it and say so.)
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

NEEDED = (3, 11)
ROOT = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(ROOT, ".venv")
BIN = os.path.join(VENV, "Scripts" if os.name == "nt" else "bin")
PYTHON = os.path.join(BIN, "python.exe" if os.name == "nt" else "python")
STAMP = os.path.join(VENV, "tilewright-dev.json")
PACKAGES = ("hlo", "indexing", "tiling", "codegen", "interp", "tilewright", "tilewright_runtime")
EXAMPLE = os.path.join("examples", "softmax.mlir")


class SetupError(Exception):
    """The machine lacks something; the message says what and how to get it."""


def say(text: str) -> None:
    print("dev.py: " + text, file=sys.stderr, flush=True)


def clean_environment() -> dict[str, str]:
    """The caller's environment without what would let other installations leak into `.venv`.

    And with bytecode kept beside the sources, in folders that git ignores, as linters and tests keep what they found: some two
    hundred processes of the tests read it. (A PYTHONPYCACHEPREFIX stays, and holds it elsewhere.)
    """
    dropped = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__", "PYTHONDONTWRITEBYTECODE")
    env = {k: v for k, v in os.environ.items() if k not in dropped}
    env["PYTHONNOUSERSITE"] = "1"
    return env


def run(command: list[str], quiet: bool = False) -> int:
    """Runs a command in the project's folder and returns its exit code."""
    out = subprocess.DEVNULL if quiet else None
    return subprocess.call(command, cwd=ROOT, env=clean_environment(), stdout=out, stderr=out)


def use_newer_python() -> None:
    """Goes on in a Python that is new enough, when this one is not. Raises SetupError when there is none."""
    if sys.version_info[:2] >= NEEDED:
        return
    test = "import sys; sys.exit(sys.version_info[:2] < (%d, %d))" % NEEDED  # noqa: UP031 (old Pythons read this)
    for minor in range(NEEDED[1], NEEDED[1] + 4):
        found = shutil.which("python3.%d" % minor)  # noqa: UP031
        if found and run([found, "-c", test], quiet=True) == 0:
            os.execv(found, [found, os.path.abspath(__file__), *sys.argv[1:]])
    raise SetupError(
        "Python %d.%d or later is needed, this is %s (%s), and no newer one is on the PATH.\n"  # noqa: UP031
        "    Install one (Debian, Ubuntu: apt install python3.11 python3.11-venv) and call it: python3.11 dev.py …"
        % (*NEEDED, sys.version.split()[0], sys.executable)
    )


def wanted_stamp(extras: set[str]) -> dict[str, object]:
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as f:
        digest = hashlib.sha256(f.read()).hexdigest()
    # The root is part of it: an editable install points at it, so a folder that was moved is set up again.
    return {"pyproject": digest, "python": sys.version, "root": ROOT, "extras": sorted(extras)}


def found_stamp() -> dict[str, object] | None:
    """What the last complete set-up wrote, or None when there was none or its file is no longer readable."""
    try:
        with open(STAMP, encoding="utf-8") as f:
            stamp = json.load(f)
    except (OSError, ValueError):
        return None
    return stamp if isinstance(stamp, dict) else None


def pip_command() -> list[str]:
    """How to install into `.venv`: by its own pip, or by the pip of the Python that runs this."""
    if run([PYTHON, "-m", "pip", "--version"], quiet=True) == 0:
        return [PYTHON, "-m", "pip"]
    outer = [sys.executable, "-m", "pip", "--python", PYTHON]
    if run([*outer, "--version"], quiet=True) == 0:
        return outer
    raise SetupError(
        "this Python has neither a working `venv` nor `pip`.\n"
        "    Debian, Ubuntu: apt install python3-venv    Fedora: dnf install python3-pip"
    )


def make_venv() -> None:
    """Makes an empty `.venv`, with its own pip where this Python can do that."""
    if run([sys.executable, "-m", "venv", "--clear", VENV], quiet=True) == 0:
        return
    # Debian without python3-venv has no ensurepip; an outer pip can still fill an environment without one.
    if run([sys.executable, "-m", "venv", "--clear", "--without-pip", VENV], quiet=True) != 0:
        raise SetupError(
            f"`{sys.executable} -m venv` fails.\n"
            "    Debian, Ubuntu: apt install python3-venv; or is the disk full, the folder not writable?"
        )


def set_up(extras: set[str]) -> None:
    """Makes `.venv` hold the project and the extras; returns at once when it does already. Raises SetupError."""
    stamp = found_stamp()
    held = stamp.get("extras") if stamp else None
    had = {str(e) for e in held} if isinstance(held, list) else set()
    if stamp == wanted_stamp(had) and extras <= had and os.path.exists(PYTHON):
        return
    extras = extras | had
    start = time.monotonic()
    same = stamp is not None and stamp.get("python") == sys.version and stamp.get("root") == ROOT
    if not (same and os.path.exists(PYTHON)):
        say(f"making {os.path.relpath(VENV)} with Python {sys.version.split()[0]}")
        make_venv()
    elif os.path.exists(STAMP):
        os.remove(STAMP)  # an interrupted install must not look complete
    target = ".[{}]".format(",".join(sorted(extras))) if extras else "."
    say(f"installing {target} with its dependencies (the first time takes a minute or two)")
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    options = ["--disable-pip-version-check", "--no-input", *quiet]
    if run([*pip_command(), "install", *options, "--editable", target]) != 0:
        raise SetupError("pip could not install the dependencies; its message is above (is there a network?)")
    # pip compiles what it installs, but not a folder that it only points to: where PYTHONDONTWRITEBYTECODE is set, each process
    # would compile these sources again, for more than a second.
    run([PYTHON, "-m", "compileall", "-q", "-j", "0", *PACKAGES])
    with open(STAMP, "w", encoding="utf-8") as f:
        json.dump(wanted_stamp(extras), f)
    say(f"set up in {time.monotonic() - start:.0f} s")


LINTERS = {
    "ruff": [PYTHON, "-m", "ruff", "check", "--no-fix", "."],
    "mypy": [PYTHON, "-m", "mypy"],
}


def run_steps(steps: dict[str, list[str]]) -> int:
    """Runs every step, also after one has failed; returns the first exit code that is not 0, else 0."""
    failed = {}
    for name, command in steps.items():
        say(f"{name} …")
        start = time.monotonic()
        code = run(command)
        say(f"{name}: {'ok' if code == 0 else f'FAILED (exit code {code})'}, {time.monotonic() - start:.1f} s")
        if code != 0:
            failed[name] = code
    if failed:
        say("failed: " + ", ".join(failed))
    return next(iter(failed.values()), 0)


def example(args: argparse.Namespace) -> int:
    set_up(set())
    return run([PYTHON, "-m", "tilewright", "run", args.file, *args.rest])


EXTRAS = ("models", "notebook", "docs", "mpi", "ship", "mlir", "jax", "test", "torch")
LARGE = {"torch", "mlir"}  # hundreds of megabytes, or gigabytes where no build is for CPUs alone: installed where they are named

# The layers that `test` takes by name: their packages, whose docstrings are tests too, and their tests.
LAYERS = {
    **{name: [name, f"tests/{name}"] for name in ("hlo", "indexing", "tiling", "codegen", "interp")},
    "facts": ["tests/test_scalar_functions.py", "tests/test_families_proved.py", "tests/mutations"],
    "tilewright": [
        "tilewright", "tests/commands", "tests/explorer",
        *(f"tests/test_{n}.py" for n in ("examples", "pictures", "goldens")),
    ],
    "safety": ["tests/safety", "tests/hostile"],
    "ship": ["tilewright_runtime", "tests/ship"],
    "jax": ["tests/jax"],
    "mesh": ["tests/mesh"],
    "torch": ["tests/torch"],
    "docs": ["tests/documents"],
    "machines": ["tests/test_machines.py"],
    "project": ["tests/project"],
}


def extras_of(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in EXTRAS:
            raise argparse.ArgumentTypeError(f"expected some of {','.join(EXTRAS)}, found {name!r}")
    return names


def layers_of(rest: list[str]) -> tuple[list[str], list[str]]:
    """The layers that the arguments begin with, and the other arguments."""
    count = next((k for k, a in enumerate(rest) if a not in LAYERS), len(rest))
    return rest[:count], rest[count:]


def paths_of(layers: list[str]) -> list[str]:
    """The folders and files of some layers' packages and tests."""
    patterns = [p for name in layers for p in LAYERS[name]]
    return [os.path.relpath(found, ROOT) for p in patterns for found in sorted(glob.glob(os.path.join(ROOT, p)))]


def test(args: argparse.Namespace) -> int:
    # Notebooks, pictures, model examples and the documentation are tested where their extras are installed.
    set_up({"test", "jax", *(set(EXTRAS) - LARGE if args.slow else ()), *args.extras})
    layers, rest = layers_of(args.rest)
    paths = paths_of(layers)
    slow = ["--slow"] if args.slow else []
    # A process for each core (`-n 0` among the arguments: one for all).
    pytest = [PYTHON, "-m", "pytest", "-n", "auto", "--dist", "worksteal", *slow, *paths, *rest]
    linters = {"ruff": [*LINTERS["ruff"][:-1], *paths]} if layers else LINTERS
    return run_steps({**linters, "pytest": pytest})


def lint(args: argparse.Namespace) -> int:
    set_up({"test", "jax"})
    return run_steps(LINTERS)


def bench(args: argparse.Namespace) -> int:
    set_up({"jax"})
    return run([PYTHON, os.path.join("benchmarks", "compare_jax.py"), *args.rest])


SMOKE = """
import pathlib, sys
import numpy as np
import hlo, indexing, tiling, codegen, interp, tilewright, tilewright_runtime
for package in (hlo, indexing, tiling, codegen, interp, tilewright, tilewright_runtime):
    folder = pathlib.Path(package.__file__).parent
    assert folder.is_relative_to(sys.prefix), f"{folder} is not of the installed distribution"
    assert (folder / "py.typed").is_file(), f"{folder} has no type information"
module = tilewright.parse(
    "func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {"
    " %0 = stablehlo.tanh %x : tensor<4x8xf32> return %0 : tensor<4x8xf32> }"
)
tilewright.verify(module)
x = np.linspace(-2, 2, 32, dtype=np.float32).reshape(4, 8)
executable = tilewright.compile(module)
assert not executable.fallbacks, executable.fallbacks
assert np.allclose(executable(x)[0], np.tanh(x), rtol=1e-6)
assert np.allclose(tilewright.evaluate(module, x)[0], np.tanh(x), rtol=1e-6)
"""


def smoke(distribution: str) -> int:
    """Installs a wheel or an sdist into an empty environment and tries it there; the exit code of the first step that fails."""
    with tempfile.TemporaryDirectory(prefix="tilewright-bare-") as bare:
        here = os.path.join(bare, os.path.basename(BIN))
        python = os.path.join(here, os.path.basename(PYTHON))
        steps = [
            [sys.executable, "-m", "venv", bare],
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", distribution],
            [python, "-P", "-c", SMOKE],
            [os.path.join(here, "tilewright"), "doctor"],
            [os.path.join(here, "tilewright"), "check", os.path.join(ROOT, "examples", "gelu_mlp.mlir")],
        ]
        environment = {**clean_environment(), "XDG_CACHE_HOME": os.path.join(bare, "cache")}
        for step in steps:
            code = subprocess.call(step, cwd=bare, env=environment)
            if code != 0:
                say(f"failed with {os.path.basename(distribution)}: " + " ".join(step[:3]))
                return code
    say(f"ok: {os.path.basename(distribution)}, installed and tried")
    return 0


def dist(args: argparse.Namespace) -> int:
    """Builds the wheel and the sdist into `dist/`, installs each into an empty environment, and tries it there."""
    set_up({"test", "jax"})
    if run([*pip_command(), "install", "--quiet", "--disable-pip-version-check", "build>=1.2,<2"]) != 0:
        raise SetupError("pip could not install `build`; its message is above")
    folder = os.path.join(ROOT, "dist")
    shutil.rmtree(folder, ignore_errors=True)
    if run([PYTHON, "-m", "build", "--outdir", folder, "."]) != 0:
        return 1
    codes = [smoke(os.path.join(folder, f)) for f in sorted(os.listdir(folder))]
    return max(codes)


def docs(args: argparse.Namespace) -> int:
    set_up({"docs"})
    return run([PYTHON, "-m", "mkdocs", "build", "--strict", "--site-dir", os.path.join(ROOT, "site")])


def setup(args: argparse.Namespace) -> int:
    set_up({"test", "jax", *args.extras})
    print(f"ready: {os.path.join(BIN, 'tilewright')} --help")
    return 0


def add_extras(c: argparse.ArgumentParser) -> None:
    text = (
        "with these extras too: models (real models), notebook (notebooks, pictures), docs, mpi (many processes), ship (files for"
        " other CPUs), mlir (IREE's compiler, which reads what is said in MLIR), torch; jax and test are there anyway"
    )
    c.add_argument("--extras", type=extras_of, default=(), metavar="A,B", help=text)


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="dev.py", description="Sets the project up in .venv and runs it.", allow_abbrev=False
    )
    sub = p.add_subparsers(dest="command", required=True, metavar="COMMAND")
    c = sub.add_parser("example", help="run a shipped example, checked against the evaluator")
    c.add_argument("file", nargs="?", default=EXAMPLE, help=f"the program (default: {EXAMPLE})")
    c.set_defaults(call=example)
    text = "ruff, mypy --strict and pytest on every core, or ruff and pytest of some layers: " + ", ".join(LAYERS)
    c = sub.add_parser(
        "test",
        help=text + "; other arguments go to pytest",
        usage="dev.py test [LAYER ...] [--slow] [--extras A,B] [PYTEST'S ARGUMENTS]",
        description=f"Runs {text}. Other arguments, after the layers, go to pytest (-n 0: one process).",
    )
    c.add_argument("--slow", action="store_true", help="the slow tests too, with every extra")
    add_extras(c)
    c.set_defaults(call=test)
    sub.add_parser("lint", help="ruff and mypy --strict alone").set_defaults(call=lint)
    sub.add_parser("bench", help="compare with JAX; other arguments go to the benchmark").set_defaults(call=bench)
    c = sub.add_parser("dist", help="build the wheel and the sdist, and try each in an empty environment")
    c.set_defaults(call=dist)
    sub.add_parser("docs", help="build the documentation into site/, strictly").set_defaults(call=docs)
    c = sub.add_parser("setup", help="set up, with the tests' needs and JAX, and run nothing")
    add_extras(c)
    c.set_defaults(call=setup)
    return p


PASSES_ON = {"example", "test", "bench"}


def main(argv: list[str] | None = None) -> int:
    p = parser()
    args, rest = p.parse_known_args(argv)
    if rest and args.command not in PASSES_ON:
        p.error(f"unrecognized arguments: {' '.join(rest)}")
    args.rest = rest
    try:
        use_newer_python()
        code: int = args.call(args)
    except SetupError as e:
        say(f"error: {e}")
        return 2
    except KeyboardInterrupt:
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
