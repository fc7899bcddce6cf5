"""Files of compiled programs: the same bits as in the process that made them, wherever NumPy is; damaged ones are refused."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import tilewright
import tilewright_runtime
from codegen.ship.errors import ExportError
from codegen.ship.save import save
from codegen.ship.targets import file_target
from codegen.target import host_target
from tests.commands.command_line import called
from tests.ship.shipping import ENDLESS, PROGRAMS, ROOT, SCALED, WIDE, bare_packages, compiled, needs_linker
from tilewright.inputs import random_arrays
from tilewright_runtime import ArrayError, FileError, container, machine

FAST = ("lstm_body", "top_k", "mlp_gradient")

pytestmark = needs_linker


def agree(found: Any, expected: Any) -> None:
    assert [(a.shape, a.dtype) for a in found] == [(a.shape, a.dtype) for a in expected]
    assert [a.tobytes() for a in found] == [a.tobytes() for a in expected]


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, np.ndarray, tuple[np.ndarray, ...]]:
    """A small program's file, an argument and the results."""
    path = tmp_path_factory.mktemp("ship") / "scaled.tw"
    executable = compiled(SCALED)
    executable.save(path)
    x = np.random.default_rng(0).standard_normal((8, 16), np.float32)
    return path, x, executable(x)


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in PROGRAMS])
def test_programs_from_files_give_the_same_bits(name: str, tmp_path: pathlib.Path) -> None:
    executable = codegen.compile(hlo.load(PROGRAMS[name]))
    executable.save(tmp_path / "program.tw")
    arrays = random_arrays(executable.plan.module.entry, 0)
    loaded = tilewright.load(tmp_path / "program.tw")
    assert isinstance(loaded, tilewright_runtime.LoadedProgram)
    expected = executable(*arrays)
    agree(loaded(*arrays), expected)
    agree(loaded(*arrays), expected)  # in a workspace that was used


def test_results_that_are_arguments_or_constants_are_copies(scaled: Any) -> None:
    path, x, expected = scaled
    loaded = tilewright_runtime.load(path)
    found = loaded(x)
    agree(found, expected)
    found[2][...] = 0
    found[3][...] = 0
    agree(loaded(x), expected)
    assert [str(t) for t in loaded.results] == ["f32[8, 16]", "f32[8]", "f32[8, 16]", "i32[3]"]


def test_arguments_are_judged(scaled: Any) -> None:
    path, x, expected = scaled
    loaded = tilewright_runtime.load(path)
    agree(loaded(np.asfortranarray(x)), expected)
    buffer = bytearray(x.nbytes + 1)
    uneven = np.frombuffer(buffer, np.uint8)[1:].view(np.float32).reshape(x.shape)
    uneven[...] = x
    agree(loaded(uneven), expected)
    for wrong, message in (
        ((x.astype(np.float64),), r"argument 0 \(x\): expected f32\[8, 16\], found an array of shape \[8, 16\], float64"),
        ((x[:4],), "found an array of shape"),
        ((x, x), "expected 1 array, found 2"),
        ((np.ma.masked_array(x),), "masked"),
    ):
        with pytest.raises(ArrayError, match=message):
            loaded(*wrong)


def test_a_file_runs_where_numpy_is_alone(scaled: Any, tmp_path: pathlib.Path) -> None:
    """No numba, llvmlite, sympy, islpy, ml_dtypes, JAX; and none of the packages that need them is imported."""
    path, x, expected = scaled
    every = ("tilewright", "tilewright_runtime", "hlo", "indexing", "tiling", "codegen", "interp")
    packages = bare_packages(tmp_path, every)
    np.save(tmp_path / "x.npy", x)
    script = (
        f"import sys; sys.path.insert(0, {str(packages)!r})\n"
        "import numpy as np, tilewright\n"
        f"found = tilewright.load({str(path)!r})(np.load({str(tmp_path / 'x.npy')!r}))\n"
        f"np.savez({str(tmp_path / 'found.npz')!r}, *found)\n"
        "own = {m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)\n"
        "print(*sorted(n for n in own if not n.startswith('_')))\n"
        "try:\n    import numba\n    print('numba is here')\nexcept ImportError:\n    print('bare')\n"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["numpy tilewright tilewright_runtime", "bare"]
    with np.load(tmp_path / "found.npz") as found:
        agree([found[f"arr_{k}"] for k in range(len(expected))], expected)


@pytest.mark.slow
def test_all_programs_run_where_numpy_is_alone(tmp_path: pathlib.Path) -> None:
    """Each shipped program's file, in one process that has NumPy and the loader: the bits of the process that made it."""
    expected = {}
    for name, path in PROGRAMS.items():
        executable = codegen.compile(hlo.load(path))
        arrays = random_arrays(executable.plan.module.entry, 0)
        executable.save(tmp_path / f"{name}.tw")
        np.savez(tmp_path / f"{name}.npz", *arrays)
        expected[name] = hashlib.sha256(b"".join(a.tobytes() for a in executable(*arrays))).hexdigest()
    script = (
        f"import sys; sys.path.insert(0, {str(bare_packages(tmp_path, ['tilewright_runtime']))!r})\n"
        "import hashlib, pathlib, numpy as np, tilewright_runtime\n"
        f"for path in sorted(pathlib.Path({str(tmp_path)!r}).glob('*.tw')):\n"
        "    with np.load(path.with_suffix('.npz')) as given:\n"
        "        found = tilewright_runtime.load(path)(*[given[f'arr_{k}'] for k in range(len(given.files))])\n"
        "    print(path.stem, hashlib.sha256(b''.join(a.tobytes() for a in found)).hexdigest(), path.stat().st_size)\n"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = {name: (digest, int(size)) for name, digest, size in (line.split() for line in done.stdout.splitlines())}
    assert {name: digest for name, (digest, _) in rows.items()} == expected
    print("\n".join(f"{name}: {size} bytes" for name, (_, size) in rows.items()))


def test_threads_share_a_call_and_programs_are_called_from_several(tmp_path: pathlib.Path) -> None:
    executable = compiled(WIDE)
    executable.save(tmp_path / "wide.tw")
    loaded = tilewright_runtime.load(tmp_path / "wide.tw", threads=3)
    arrays = [np.random.default_rng(k).standard_normal((512, 300), np.float32) for k in range(4)]
    expected = [executable(a)[0].tobytes() for a in arrays]
    wrong: list[int] = []

    def calls(k: int) -> None:
        for _ in range(10):
            if loaded(arrays[k])[0].tobytes() != expected[k]:
                wrong.append(k)

    workers = [threading.Thread(target=calls, args=(k,)) for k in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong
    with pytest.raises(ValueError, match="threads: expected a positive number, found 0"):
        tilewright_runtime.load(tmp_path / "wide.tw", threads=0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_of_a_fork_has_threads_of_its_own(tmp_path: pathlib.Path) -> None:
    compiled(WIDE).save(tmp_path / "wide.tw")
    script = (
        "import os, numpy as np, tilewright_runtime\n"
        f"loaded = tilewright_runtime.load({str(tmp_path / 'wide.tw')!r}, threads=2)\n"
        "x = np.linspace(-1, 1, 512 * 300, dtype=np.float32).reshape(512, 300)\n"
        "expected = loaded(x)[0].tobytes()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(0 if loaded(x)[0].tobytes() == expected else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0 and loaded(x)[0].tobytes() == expected\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_a_signal_ends_a_loop(tmp_path: pathlib.Path) -> None:
    """What the handler raises comes out of the call; the program may be called again."""

    class Enough(Exception):
        pass

    def raise_it(number: int, frame: object) -> None:
        raise Enough

    compiled(ENDLESS).save(tmp_path / "endless.tw")
    loaded = tilewright_runtime.load(tmp_path / "endless.tw", threads=1)
    before = signal.signal(signal.SIGALRM, raise_it)
    try:
        for _ in range(2):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(Enough):
                loaded(np.ones(4, np.int32))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_several_shapes_in_one_file(tmp_path: pathlib.Path) -> None:
    programs = [compiled(WIDE.replace("512x300", f"{n}x8")) for n in (3, 5)]
    save(programs, tmp_path / "both.tw")
    loaded = tilewright_runtime.load(tmp_path / "both.tw")
    for n, p in zip((3, 5), programs, strict=True):
        x = np.random.default_rng(n).standard_normal((n, 8), np.float32)
        agree(loaded(x), p(x))
    assert [str(a[0]) for a, _ in loaded.signatures] == ["f32[3, 8]", "f32[5, 8]"]
    with pytest.raises(ArrayError, match=r"no entry of .* takes these arguments: .*expected f32.3, 8.*expected f32.5, 8"):
        loaded(np.zeros((4, 8), np.float32))


def test_a_text_of_unknown_shapes_is_a_file_of_those_that_are_named(tmp_path: pathlib.Path) -> None:
    """`--shapes` refines the program for each set; what is loaded chooses by its arguments."""
    text = """func.func @main(%x: tensor<?x4xf32>, %s: tensor<f32>) -> tensor<?x4xf32> {
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
      %f = stablehlo.constant dense<4> : tensor<1xi32>
      %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
      %d = stablehlo.concatenate %n1, %f, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
      %b = stablehlo.dynamic_broadcast_in_dim %s, %d, dims = [] : (tensor<f32>, tensor<2xi32>) -> tensor<?x4xf32>
      %y = stablehlo.multiply %x, %b : tensor<?x4xf32>
      return %y : tensor<?x4xf32>
    }"""
    (tmp_path / "rows.mlir").write_text(text)
    program, file = str(tmp_path / "rows.mlir"), str(tmp_path / "rows.tw")
    done = called("export", program, "-o", file, "--shapes", "2x4,scalar", "--shapes", "5x4,scalar")
    assert done.returncode == 0, done.stderr
    loaded: Any = tilewright.load(file)
    assert [str(a[0]) for a, _ in loaded.signatures] == ["f32[2, 4]", "f32[5, 4]"]
    for n in (2, 5):
        x, s = np.random.default_rng(n).standard_normal((n, 4), np.float32), np.array(3.5, np.float32)
        agree(loaded(x, s), tilewright.evaluate(hlo.parse(text), x, s))
    for options, code, message in (
        ([], 2, "known only at run time, tensor<?x4xf32>; --shapes, or tilewright.refined, says which shapes"),
        (["--shapes", "2x4"], 2, "expected 2 shapes, one for each argument of @main, found 1"),
        (["--shapes", "2x5,scalar"], 2, "expected a shape of tensor<?x4xf32>, found [2, 5]"),
        (["--shapes", "2xb,scalar"], 2, "expected a shape for each argument, such as 4x8,8 or scalar, found '2xb,scalar'"),
    ):
        done = called("export", program, "-o", file, *options)
        assert done.returncode == code and message in done.stderr, done.stderr
    (tmp_path / "rows.mlir").write_text("""func.func @main(%n: tensor<1xi32>) -> tensor<?xf32> {
      %y = stablehlo.dynamic_iota %n, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
      return %y : tensor<?xf32>\n}""")
    done = called("export", program, "-o", file, "--shapes", "1")
    assert done.returncode == 3 and "no program of shapes 1: stablehlo.dynamic_iota" in done.stderr, done.stderr


def test_the_best_code_for_a_machine_is_chosen(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not host_target().triple.startswith("x86_64"):
        pytest.skip("levels of x86-64 are of x86-64 machines")
    executable = compiled(SCALED)
    executable.save(tmp_path / "levels.tw", ["x86-64", "x86-64-v3", "x86-64-v4", "x86-64-v2"])
    x = np.random.default_rng(0).standard_normal((8, 16), np.float32)
    v = {name: set(file_target(name).features) for name in ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")}
    assert v["x86-64"] < v["x86-64-v2"] < v["x86-64-v3"] < v["x86-64-v4"]
    for name, features in v.items():
        monkeypatch.setattr(machine, "features", lambda has=frozenset(features): has)
        loaded = tilewright_runtime.load(tmp_path / "levels.tw")
        assert loaded.target == name
        if not file_target(name).target.missing_features:
            for a, b in zip(loaded(x), executable(x), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5)
    monkeypatch.setattr(machine, "features", lambda: frozenset({"sse2"}))
    with pytest.raises(FileError, match=r"for other machines: x86-64-v4 needs .*avx512f.*; x86-64 needs sse, which this CPU"):
        tilewright_runtime.load(tmp_path / "levels.tw")
    monkeypatch.setattr(machine, "architecture", lambda: "riscv64")
    with pytest.raises(FileError, match="x86-64-v4 is for x86_64, this machine is riscv64"):
        tilewright_runtime.load(tmp_path / "levels.tw")


def test_what_is_no_kernel_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    call = codegen.compile(
        hlo.parse(
            "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
            '  %y = stablehlo.custom_call @mine(%x) : (tensor<4xf32>) -> tensor<4xf32>\n  return %y : tensor<4xf32>\n}'
        ),
        custom_calls={"mine": lambda op, x: x},
    )
    with pytest.raises(ExportError, match=r"stablehlo.custom_call \(%y\) is not a kernel, and a file holds kernels alone"):
        call.save(tmp_path / "call.tw")
    with pytest.raises(ExportError, match="target 'sparc': expected one of host, x86-64"):
        compiled(SCALED).save(tmp_path / "sparc.tw", ["sparc"])
    assert not list(tmp_path.iterdir())


def test_text_is_read_as_before(tmp_path: pathlib.Path) -> None:
    (tmp_path / "wide.mlir").write_text(WIDE)
    module = tilewright.load(tmp_path / "wide.mlir")
    assert isinstance(module, hlo.Module) and module.root.name == "stablehlo.add"
    with pytest.raises(ValueError, match="threads are for compiled programs"):
        tilewright.load(tmp_path / "wide.mlir", threads=2)
    with pytest.raises(FileError, match="not a file of a compiled program"):
        tilewright_runtime.load(tmp_path / "wide.mlir")


# ---------------------------------------------------------------- damage


def judge(path: pathlib.Path, x: np.ndarray, expected: tuple[np.ndarray, ...]) -> bool:
    """Whether a file is refused; if not, it is right."""
    try:
        loaded = tilewright_runtime.load(path, threads=1)
    except FileError as error:
        return str(path) in str(error)
    agree(loaded(x), expected)
    return False


def test_cut_newer_and_foreign_files_are_refused(scaled: Any, tmp_path: pathlib.Path) -> None:
    path, _, _ = scaled
    data = path.read_bytes()
    other = tmp_path / "other.tw"
    for content, message in (
        (b"", "not a file"),
        (data[:20], "cut: 20 bytes"),
        (data[:-1], f"cut or grown: written with {len(data)} bytes, found {len(data) - 1}"),
        (data + b"\0", "cut or grown"),
        (data[:8] + (2).to_bytes(4, "little") + data[12:], "format 2 is newer than the one that is read here"),
        (data[:8] + (0).to_bytes(4, "little") + data[12:], "format 0 is not the one"),
        (data[:100] + bytes([data[100] ^ 1]) + data[101:], "damaged: the document's checksum differs"),
        (data[:-1] + bytes([data[-1] ^ 1]), "is damaged: its checksum differs"),
    ):
        other.write_bytes(content)
        with pytest.raises(FileError, match=message):
            tilewright_runtime.load(other)
    with pytest.raises(FileNotFoundError):
        tilewright_runtime.load(tmp_path / "none.tw")


def mutations(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Files that are cut, that have other bits or bytes, or whose document says something else with the right checksum."""
    draw = random.Random(seed)
    head = container._FIELDS.size + 32
    size = container._FIELDS.unpack_from(data)[3]
    document = json.loads(data[head : head + size])
    places = list(leaves(document))
    for k in range(count):
        kind = k % 4
        if kind == 0:
            yield data[: draw.randrange(len(data))]
        elif kind == 1:
            at = draw.randrange(len(data))
            yield data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]
        elif kind == 2:
            at, n = draw.randrange(len(data)), draw.randrange(1, 64)
            yield data[:at] + draw.randbytes(min(n, len(data) - at)) + data[at + n :]
        else:
            changed = json.loads(json.dumps(document))
            change(changed, draw.choice(places), draw)
            body = json.dumps(changed, separators=(",", ":")).encode()
            if len(body) > size:
                body = body[:size]
            body = body.ljust(size)
            fields = data[: container._FIELDS.size]
            yield fields + hashlib.sha256(fields + body).digest() + body + data[head + size :]


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))
    if path:
        yield path


def change(document: Any, path: tuple[Any, ...], draw: random.Random) -> None:
    *way, last = path
    for key in way:
        document = document[key]
    old = document[last]
    what = draw.randrange(4)
    if what == 0:
        del document[last]
    elif what == 1:
        document[last] = draw.choice([None, -1, 0, 1, 2**40, "x", [], {}, [[]], 1.5, True, "\0", "../../x"])
    elif isinstance(old, int):
        document[last] = old + draw.choice([-64, -1, 1, 64])
    elif isinstance(old, str):
        document[last] = old[::-1] if what == 2 else old[:-1]
    elif isinstance(old, list):
        document[last] = old[::-1] if what == 2 else [*old, *old]
    else:
        document[last] = [old]


@pytest.mark.parametrize("count", [240, pytest.param(10_000, marks=pytest.mark.slow)])
def test_damaged_files_are_refused_or_right(count: int, scaled: Any, tmp_path: pathlib.Path) -> None:
    path, x, expected = scaled
    data = path.read_bytes()
    refused = 0
    for k, content in enumerate(mutations(data, count, seed=count)):
        other = tmp_path / f"{k}.tw"
        other.write_bytes(content)
        refused += judge(other, x, expected)
        other.unlink()
    assert refused > 0.9 * count


def test_nothing_is_left_where_a_file_cannot_be_written(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*paths: object) -> None:
        raise OSError("full")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="full"):
        container.write(tmp_path / "a.tw", {"schema": "x"}, [b"abc"])
    assert not list(tmp_path.iterdir())


def test_element_types_that_numpy_lacks(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ml_dtypes they are its types, without it unsigned integers of as many bits."""
    text = WIDE.replace("512x300xf32", "4x6xbf16")
    executable = compiled(text)
    executable.save(tmp_path / "bf16.tw")
    x = np.linspace(-1, 1, 24).reshape(4, 6).astype(executable.plan.program.arguments[0].tensor.dtype)
    (expected,) = executable(x)
    agree(tilewright_runtime.load(tmp_path / "bf16.tw")(x), (expected,))
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    (found,) = tilewright_runtime.load(tmp_path / "bf16.tw")(x.view(np.uint16))
    assert found.dtype == np.uint16 and found.tobytes() == expected.tobytes()


def test_the_runtime_is_a_folder_of_its_own(tmp_path: pathlib.Path, scaled: Any) -> None:
    """`tilewright_runtime` alone, copied anywhere, runs files."""
    path, x, expected = scaled
    shutil.copytree(ROOT / "tilewright_runtime", tmp_path / "tilewright_runtime", ignore=shutil.ignore_patterns("__pycache__"))
    np.save(tmp_path / "x.npy", x)
    script = (
        "import sys, hashlib, numpy as np, tilewright_runtime\n"
        f"found = tilewright_runtime.load({str(path)!r})(np.load('x.npy'))\n"
        "print(hashlib.sha256(b''.join(a.tobytes() for a in found)).hexdigest(), tilewright_runtime.__file__)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    digest = hashlib.sha256(b"".join(a.tobytes() for a in expected)).hexdigest()
    assert done.stdout.split() == [digest, str(tmp_path / "tilewright_runtime" / "__init__.py")]
