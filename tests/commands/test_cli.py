"""`tilewright` as a user calls it, on tiny programs: in processes of its own, and in this one where the document counts."""

from __future__ import annotations

import ast
import json
import os
import pathlib
import pty
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from codegen.lib import NAMESPACE
from tests.commands.command_line import ROOT, SOFTMAX, TWO, called, tilewright


def document(*arguments: str, **environment: str) -> dict[str, Any]:
    """The JSON that a successful command prints; nothing may stand on standard error."""
    done = tilewright(*arguments, "--json", **environment) if environment else called(*arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def softmax(tmp_path: pathlib.Path) -> str:
    path = tmp_path / "softmax.mlir"
    path.write_text(SOFTMAX)
    return str(path)


@pytest.fixture
def two(tmp_path: pathlib.Path) -> str:
    path = tmp_path / "two.mlir"
    path.write_text(TWO)
    return str(path)


def reference_softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


# ---------------------------------------------------------------- run


def test_run_prints_fusions_kernels_and_the_check_and_is_silent_on_stderr(softmax: str) -> None:
    done = tilewright("run", softmax)
    assert (done.returncode, done.stderr) == (0, "")
    for text in ("Fusions", "tiles", "scratch", "moved unfused", "moved fused", "Steps", "time spent", "largest error", "ulp"):
        assert text in done.stdout
    assert "output 0 float32[6, 10]: ok" in done.stdout
    assert "\x1b" not in done.stdout


def test_run_json_has_what_the_tables_have(softmax: str) -> None:
    d = document("run", softmax, "--repeat", "2")
    assert d["schema"] == "tilewright.run/1"
    assert (d["file"], d["entry"], d["seed"], d["repeat"]) == (softmax, "main", 0, 2)
    assert d["inputs"] == [{"type": "tensor<6x10xf32>", "source": "random"}]
    assert d["outputs"] == [{"shape": [6, 10], "dtype": "float32"}]
    assert d["fallbacks"] == []
    assert len(d["fusions"]) >= 1
    for f in d["fusions"]:
        assert set(f) == {"name", "ops", "tile_sizes", "scratch_bytes", "bytes_unfused", "bytes_fused"}
        assert 0 < f["bytes_fused"] <= f["bytes_unfused"]
    assert "stablehlo.exponential" in [op for f in d["fusions"] for op in f["ops"]]
    assert all(k["seconds"] >= k["seconds_min"] > 0 for k in d["kernels"])
    assert len(d["kernels"]) >= 1
    s = d["seconds"]
    assert s["total"] > s["first_result"] > s["run_min"] > 0
    assert d["check"]["passed"] is True
    (output,) = d["check"]["outputs"]
    assert (output["shape"], output["dtype"], output["passed"]) == ([6, 10], "float32", True)
    assert output["allowed_rel"] == 1e-5
    assert 0 <= output["max_rel"] <= 1e-5


def test_run_computes_what_numpy_computes_from_the_given_input(softmax: str, tmp_path: pathlib.Path) -> None:
    x = np.random.default_rng(3).standard_normal((6, 10), dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    out = tmp_path / "y.npy"
    d = document("run", softmax, "--input", str(tmp_path / "x.npy"), "--output", str(out))
    assert d["inputs"][0]["source"] == str(tmp_path / "x.npy")
    assert d["seed"] is None
    assert d["files"] == [str(out)]
    np.testing.assert_allclose(np.load(out), reference_softmax(x), rtol=1e-6)


def test_run_takes_arrays_in_other_layouts(two: str, tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((4, 3), dtype=np.float32) for _ in range(2))
    np.save(tmp_path / "a.npy", np.asfortranarray(a))
    np.save(tmp_path / "b.npy", b.astype(">f4"))
    out = tmp_path / "results"
    done = called("run", two, "--input", str(tmp_path / "a.npy"), "--input", str(tmp_path / "b.npy"), "--output", str(out))
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(out / "output_0.npy"), a + b)
    np.testing.assert_array_equal(np.load(out / "output_1.npy"), a.T)


def test_seeds_decide_the_inputs(softmax: str, tmp_path: pathlib.Path) -> None:
    results = []
    for k, seed in enumerate(("5", "5", "6")):
        out = tmp_path / f"{k}.npy"
        document("run", softmax, "--seed", seed, "--output", str(out), "--no-check")
        results.append(np.load(out))
    np.testing.assert_array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2])


def test_no_check_leaves_the_check_out(softmax: str) -> None:
    d = document("run", softmax, "--no-check")
    assert d["check"] is None
    assert "evaluate" not in d["seconds"]
    assert "largest error" not in called("run", softmax, "--no-check").stdout


def test_entry_and_threads(two: str) -> None:
    d = document("run", two, "--entry", "double", "--threads", "1")
    assert (d["entry"], d["threads"], d["outputs"]) == ("double", 1, [{"shape": [5], "dtype": "float32"}])
    assert document("run", two, "--entry", "@double")["entry"] == "double"


def test_a_second_process_compiles_nothing(softmax: str, tmp_path: pathlib.Path) -> None:
    cache = str(tmp_path / "cache")
    first = document("run", softmax, XDG_CACHE_HOME=cache)
    second = document("run", softmax, XDG_CACHE_HOME=cache)
    assert first["compiled"] >= 1
    assert first["cache_hits"] == 0
    assert second["compiled"] == 0
    assert second["cache_hits"] == first["compiled"]
    assert second["fusions"] == first["fusions"]


def test_a_program_from_standard_input() -> None:
    done = tilewright("check", "-", stdin=SOFTMAX)
    assert (done.returncode, done.stderr) == (0, "")


def test_check_prints_the_errors_alone(softmax: str) -> None:
    done = called("check", softmax)
    assert (done.returncode, done.stderr) == (0, "")
    assert "output 0 float32[6, 10]: ok" in done.stdout
    assert "Fusions" not in done.stdout
    d = document("check", softmax)
    assert (d["schema"], d["check"]["passed"]) == ("tilewright.check/1", True)


def test_progress_shows_on_a_terminal_only(softmax: str) -> None:
    leader, follower = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "tilewright", "run", softmax],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=follower,
            env={**os.environ, "TERM": "xterm"},
        )
        os.close(follower)
        shown = b""
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:  # Linux reports the closed terminal so
                break
            if not part:
                break
            shown += part
        assert process.wait() == 0
    finally:
        os.close(leader)
    assert b"compiling" in shown


# ---------------------------------------------------------------- maps, plan, source


def test_maps_prints_every_operand_of_every_op(softmax: str) -> None:
    done = called("maps", softmax)
    assert (done.returncode, done.stderr) == (0, "")
    assert "%y = stablehlo.divide" in done.stdout
    assert "operand 0 %x: (d0)[s0] -> (d0, s0)" in done.stdout
    assert "reads nothing" in done.stdout


@pytest.mark.parametrize(
    ("wanted", "results"),
    [
        ("reduce", ["m", "z"]),
        ("stablehlo.reduce", ["m", "z"]),
        ("%e", ["e"]),
        ("1", ["m"]),
    ],
)
def test_maps_of_chosen_ops(softmax: str, wanted: str, results: Sequence[str]) -> None:
    d = document("maps", softmax, "--op", wanted)
    assert d["schema"] == "tilewright.maps/1"
    assert [r["result"] for r in d["ops"]] == results


def test_maps_of_ops_by_hlo_opcodes(tmp_path: pathlib.Path) -> None:
    """`dot` stands in the text, but the op that it becomes has another name."""
    path = tmp_path / "dot.hlo"
    path.write_text(
        """HloModule m
ENTRY main {
  a = f32[4,8]{1,0} parameter(0)
  b = f32[8,5]{1,0} parameter(1)
  d = f32[4,5]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = s32[] constant(0)
  ROOT s = f32[2,5]{1,0} dynamic-slice(d, z, z), dynamic_slice_sizes={2,5}
}
"""
    )
    for wanted, result in (("dot", "d"), ("dot_general", "d"), ("dynamic-slice", "s"), ("dynamic_slice", "s")):
        assert [r["result"] for r in document("maps", str(path), "--op", wanted)["ops"]] == [result]


def test_maps_json_tells_the_maps(softmax: str) -> None:
    (row,) = document("maps", softmax, "--op", "%m")["ops"]
    assert row["op"] == "stablehlo.reduce"
    assert row["location"] == f"{softmax}:3:8" or row["location"].startswith(f"{softmax}:3:")
    (maps,) = [o["maps"] for o in row["operands"] if o["operand"] == "x"]
    assert len(maps) == 1
    assert maps[0].startswith("(d0)[s0] -> (d0, s0)")
    assert "s0 in [0, 9]" in maps[0]


def test_plan_explains(softmax: str) -> None:
    done = called("plan", softmax)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Fusions" in done.stdout
    d = document("plan", softmax)
    assert d["schema"] == "tilewright.plan/1"
    assert d["explanation"].strip()
    assert d["explanation"].strip().splitlines()[0] in done.stdout
    assert [op for f in d["fusions"] for op in f["ops"]].count("stablehlo.reduce") == 2


def test_the_plan_is_of_the_target_that_kernels_are_compiled_for(softmax: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was the CPU's own, and not what `run` and `source` made."""
    monkeypatch.delenv("TILEWRIGHT_MACHINE", raising=False)
    monkeypatch.setenv("TILEWRIGHT_TARGET", "baseline")
    assert "128-bit vectors" in called("plan", softmax).stdout


def test_hostile_names_do_no_harm(tmp_path: pathlib.Path) -> None:
    """Names that are Python's or the kernel library's: the result is right, the source calls nothing but that library."""
    text = SOFTMAX.replace("@main", "@eval")
    names = "x float32 m select mb def s __import__.os e range z maximum y exp zb t0".split()
    for old, new in zip(names[::2], names[1::2], strict=True):
        text = re.sub(rf"%{old}\b", f"%{new}", text)
    program = tmp_path / "p.mlir"
    program.write_text(text)
    assert document("check", str(program))["check"]["passed"]
    d = document("source", str(program))
    assert (d["schema"], len(d["kernels"]) >= 1) == ("tilewright.source/1", True)
    for kernel in d["kernels"]:
        tree = ast.parse(kernel["source"])
        assert kernel["name"]
        for node in ast.walk(tree):
            assert not isinstance(node, ast.Import | ast.ImportFrom | ast.Attribute | ast.Global)
            if isinstance(node, ast.Call):
                assert isinstance(node.func, ast.Name)
                assert node.func.id in {*NAMESPACE, "range", "min", "max", "abs"}


def test_source_prints_every_kernel(softmax: str) -> None:
    done = called("source", softmax)
    assert (done.returncode, done.stderr) == (0, "")
    defined = [n.name for n in ast.parse(done.stdout).body if isinstance(n, ast.FunctionDef)]
    assert len(defined) == len(document("source", softmax)["kernels"]) >= 1


# ---------------------------------------------------------------- the command itself


def test_help_and_version() -> None:
    done = tilewright("--help")
    assert done.returncode == 0
    for word in ("run", "maps", "plan", "source", "check", "exit codes"):
        assert word in done.stdout
    for command in ("run", "maps", "plan", "source", "check"):
        assert "--entry" in called(command, "--help").stdout
    import tilewright as package

    assert tilewright("--version").stdout.strip() == f"tilewright {package.__version__}"


def test_a_reader_that_leaves_early_is_no_error(two: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tilewright", "source", two], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    shown = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), shown) == (141, b"")
