"""Programs on several processes over MPI: every collective equal to the simulated grid, and every failure an end of all."""

from __future__ import annotations

import json
import os
import pathlib
import random
import re
import signal
import time

import pytest

from tests.mesh.global_programs import PROGRAMS
from tests.mesh.launch import ROOT, SECONDS, launch, run
from tests.mesh.programs import cases

pytestmark = pytest.mark.mpi


FEW_GLOBAL = (
    "product of sums, the result in parts", "from rows to columns", "a stencil", "axes that are called replica and partition"
)  # fmt: skip
ALL_GLOBAL = tuple(p.name for p in PROGRAMS if p.kinds)


@pytest.mark.parametrize(
    ("n", "global_programs"),
    [
        pytest.param(2, (), marks=pytest.mark.slow),
        (4, FEW_GLOBAL),
        pytest.param(4, ALL_GLOBAL, marks=pytest.mark.slow),
        pytest.param(8, (), marks=pytest.mark.slow),
    ],
)
def test_every_collective_is_the_simulated_grids(n: int, global_programs: tuple[str, ...]) -> None:
    done = run(n, "-m", "tests.mesh.worker", *global_programs)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {case.name for case in cases(n)} | set(global_programs)
    assert {name: faults for name, faults in found.items() if faults} == {}


@pytest.mark.jax
@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_functions_of_jax_are_what_they_are_on_one_device(n: int) -> None:
    """Products in every sharding, layers, training steps, windows, stencils, sorts, gathers, transforms, experts, a ring."""
    done = run(n, "-m", "tests.mesh.fifty")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["faults"]
    assert len(found) == 76
    assert {name: fault for name, fault in found.items() if fault} == {}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        pytest.param(
            "input",
            "process 1 failed: argument 0 (%x): expected tensor<4xf32>, found an array of shape [3], float32",
            marks=pytest.mark.slow,
        ),
        ("leaves", "process 0: stablehlo.all_reduce (<text>:3:8) waits for process 1, which has ended"),
        ("unanswered", "deadlock: process (0, 0) waits at stablehlo.recv (<text>:3:10) for a message that nobody sends"),
        pytest.param("raises", "process 1 failed: of one process's own", marks=pytest.mark.slow),
    ],
)
def test_what_goes_wrong_on_one_process_ends_all(kind: str, expected: str) -> None:
    done = run(2, "-m", "tests.mesh.faulty", kind)
    assert done.returncode != 0
    assert expected in done.stderr


def test_processes_that_do_not_run_the_same_are_told() -> None:
    done = run(2, "-m", "tests.mesh.faulty", "start")
    assert done.returncode == 0, done.stderr
    for expected in (
        "the processes disagree on the program: process 0 has @main of",
        "the processes disagree on the mesh: process 0 has x=2, process 1 has y=2",
        "MPI runs 2: start it with `mpiexec -n 3`",
    ):
        assert done.stdout.count(expected) == 2  # both say so


def test_an_error_of_all_is_not_taken_for_anothers() -> None:
    """Who has come out of a meeting is not missed in it: the others come out of it, too, and find the error themselves."""
    done = run(2, "-m", "tests.mesh.faulty", "slow")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["process 0 has ['last', 'last']", "process 1 failed: wrong for all"]


def _killed_at_a_random_moment(seed: int) -> None:
    """One of two processes is killed; the other, and the launcher, end with a message."""
    chance = random.Random(seed)
    started = launch(2, "-m", "tests.mesh.faulty", "forever")
    assert started.stdout is not None and started.stderr is not None
    for _ in range(2):
        assert started.stdout.readline().startswith("ready")
    children = {int(p) for p in _descendants(started.pid) if "tests.mesh.faulty" in _command(p) and "mpiexec" not in _command(p)}
    assert len(children) == 2
    time.sleep(chance.random() / 4)
    victim = sorted(children)[chance.randrange(2)]
    os.kill(victim, signal.SIGKILL)
    began = time.monotonic()
    out, err = started.communicate(timeout=SECONDS)
    assert time.monotonic() - began < SECONDS and started.returncode != 0
    assert "BAD TERMINATION" in out + err
    assert not any(os.path.exists(f"/proc/{p}") and "tests.mesh.faulty" in _command(p) for p in children)


def _descendants(pid: int) -> list[int]:
    found, todo = [], [pid]
    while todo:
        for task in pathlib.Path(f"/proc/{todo.pop()}/task").iterdir():
            below = [int(c) for c in (task / "children").read_text().split()]
            found += below
            todo += below
    return found


def _command(pid: int) -> str:
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


@pytest.mark.slow
def test_a_process_that_is_killed_at_any_of_fifty_moments_ends_all() -> None:
    for seed in range(50):
        _killed_at_a_random_moment(seed)


def test_the_command_reports_once(tmp_path: pathlib.Path) -> None:
    """A run is told by one process, and its results are each process's."""
    program = next(c for c in cases(2) if c.name == "softmax over all processes")
    (tmp_path / "a.mlir").write_text(program.text)
    command = ("-m", "tilewright", "run", "--mesh", "x=2", "--repeat", "1")
    done = run(2, *command, "--json", "--output", str(tmp_path / "{rank}.npy"), str(tmp_path / "a.mlir"))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["check"]["passed"] and len(document["check"]["outputs"]) == 2 and document["mesh"] == {"x": 2}
    assert sorted(p.name for p in tmp_path.glob("*.npy")) == ["0.npy", "1.npy"]


@pytest.mark.slow
def test_an_error_of_all_is_told_once(tmp_path: pathlib.Path) -> None:
    text = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { %r = stablehlo.nonsense %x : tensor<4xf32> }"
    (tmp_path / "b.mlir").write_text(text)
    failed = run(2, "-m", "tilewright", "run", str(tmp_path / "b.mlir"))
    assert failed.returncode != 0 and failed.stderr.count("unknown op 'stablehlo.nonsense'") == 1


@pytest.mark.slow
def test_the_network_is_measured_and_planned_for(tmp_path: pathlib.Path) -> None:
    done = run(2, "-m", "tilewright", "calibrate", "--mpi", "--json", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["processes"] == 2 and 0 < found["latency_seconds"] < 1 and found["bytes_per_second"] > 0
    shown = f"{found['latency_seconds'] * 1e6:.3g} us for a step, {found['bytes_per_second'] / 1e9:.3g} GB/s"
    plan = run(1, "-m", "tilewright", "plan", "--mesh", "x=2,y=2", "examples/mesh/mlp.mlir", XDG_CACHE_HOME=str(tmp_path))
    assert f"of the network: {shown}" in plan.stdout
    alone = run(1, "-m", "tilewright", "calibrate", "--mpi")
    assert alone.returncode == 2 and alone.stderr.count("between two processes at least") == 1


@pytest.mark.jax
@pytest.mark.slow
def test_the_pages_commands_run(tmp_path: pathlib.Path) -> None:
    page = (ROOT / "docs" / "howto-mesh.md").read_text("utf-8")
    commands = re.findall(r"^    mpiexec -n (\d+) (.+)$", page, re.M)
    assert len(commands) == 5
    for n, command in commands:
        words = command.split()
        assert words[0] in ("tilewright", "python")
        program = ["-m", "tilewright", *words[1:]] if words[0] == "tilewright" else words[1:]
        done = run(int(n), *program, XDG_CACHE_HOME=str(tmp_path))
        assert done.returncode == 0, f"{command}: {done.stderr}"
