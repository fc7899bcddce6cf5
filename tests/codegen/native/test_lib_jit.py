"""The compiler's caches: hits, damage, folders that cannot be written, several processes, and what a key depends on."""

from __future__ import annotations

import dataclasses
import gc
import logging
import os
import subprocess
import sys
import weakref
from collections import deque
from pathlib import Path

import numpy as np
import pytest

from codegen.native import jit, object_cache
from codegen.native.jit import compile_kernel, kernel_assembly, kernel_key
from codegen.native.lower import UnresolvedSymbolError, emit_object
from codegen.native.signature import KernelSignature, Param, Scratch
from codegen.target import NAMED_TARGETS, Target, _host, host_target
from codegen.tune.probe import run

SOURCE = "def kernel(begin, end, x):\n    for i in range(begin, end):\n        x[i] = x[i] + float32(1)\n"
SIGNATURE = KernelSignature((Param("x", "float32", 4),))
ROOT = Path(__file__).parents[3]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and no kernels in memory."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr(jit, "_kernels", {})
    jit.stats.reset()
    return tmp_path


def _works(source: str = SOURCE) -> None:
    x = np.zeros(3, np.float32)
    run(compile_kernel(source, SIGNATURE), 0, 2, x)
    assert x.tolist() == [1, 1, 0]


def _counts() -> tuple[int, int, int]:
    return jit.stats.compiled, jit.stats.disk_hits, jit.stats.memory_hits


def test_memory_then_disk(cache: Path) -> None:
    _works()
    assert _counts() == (1, 0, 0)
    _works()
    assert _counts() == (1, 0, 1)
    jit.forget_kernels()
    _works()
    assert _counts() == (1, 1, 1)
    assert jit.stats.compile_seconds > 0 and jit.stats.load_seconds > 0
    assert [p.read_text() for p in (cache / "sources").iterdir()] == [SOURCE]
    kernel = compile_kernel(SOURCE, SIGNATURE)
    assert Path(kernel.source_path).read_text() == SOURCE
    assert kernel.python.__code__.co_filename == kernel.source_path


@pytest.mark.parametrize("damage", ["empty", "truncated", "flipped", "garbage", "longer"])
def test_a_damaged_file_is_compiled_again(cache: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    _works()
    (path,) = (cache / "objects").iterdir()
    good = path.read_bytes()
    bad = {
        "empty": b"",
        "truncated": good[:-7],
        "flipped": good[:-1] + bytes([good[-1] ^ 1]),
        "garbage": b"not an object file at all, but long enough to hold a header" * 3,
        "longer": good + b"x",
    }[damage]
    path.write_bytes(bad)
    jit.forget_kernels()
    with caplog.at_level(logging.WARNING, "tilewright.codegen"):
        _works()
    assert _counts() == (2, 0, 0)
    assert "damaged" in caplog.text
    assert path.read_bytes() == good


def test_a_folder_that_cannot_be_made_costs_only_a_compile(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (cache / "file").write_text("in the way")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(cache / "file"))
    with caplog.at_level(logging.WARNING, "tilewright.codegen"):
        _works()
    assert _counts() == (1, 0, 0)
    assert "cannot" in caplog.text


def test_the_cache_can_be_switched_off(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_NO_CACHE", "1")
    _works()
    assert list(cache.iterdir()) == []


def test_a_folder_under_a_file_is_mentioned_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Every kernel that was looked for there was reported as one that cannot be read."""
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(file / "cache"))
    assert object_cache.read("a" * 64) is None
    assert not object_cache.has("a" * 64)
    assert not caplog.records
    assert not object_cache.write("a" * 64, b"code")
    assert not object_cache.write("b" * 64, b"code")
    assert len(caplog.records) == 1


def test_where_the_folder_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEWRIGHT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert object_cache.cache_folder() == Path("/elsewhere/tilewright")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert object_cache.cache_folder() == Path.home() / ".cache" / "tilewright"


def test_without_a_home_nothing_is_kept_and_all_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("TILEWRIGHT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", home)
    monkeypatch.setattr(jit, "_kernels", {})
    monkeypatch.chdir(tmp_path)
    assert not object_cache.cache_enabled()
    jit.stats.reset()
    _works()
    assert _counts() == (1, 0, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_read_only(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _works()
    jit.forget_kernels()

    def put(**_: object) -> None:
        raise PermissionError("read only")

    monkeypatch.setattr(object_cache.tempfile, "mkstemp", put)
    _works()
    assert _counts() == (1, 1, 0)
    _works(SOURCE.replace("(1)", "(1.0)"))
    assert _counts() == (2, 1, 0)


def test_code_that_nobody_uses_is_let_go(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_kernels", weakref.WeakValueDictionary())
    monkeypatch.setattr(jit, "_recent", deque(maxlen=2))
    kept = compile_kernel(SOURCE, SIGNATURE)
    for k in range(3):
        compile_kernel(SOURCE.replace("(1)", f"({k}.5)"), SIGNATURE)
    gc.collect()
    assert len(jit._kernels) == 3  # the one in use, and the last two
    assert kept.key in jit._kernels
    del kept
    compile_kernel(SOURCE.replace("(1)", "(0.5)"), SIGNATURE)
    gc.collect()
    assert len(jit._kernels) == 2


def test_the_key_covers_source_signature_target_and_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    target = host_target()
    keys = {
        kernel_key(SOURCE, SIGNATURE, target),
        kernel_key(SOURCE.replace("(1)", "(2)"), SIGNATURE, target),
        kernel_key(SOURCE.replace("+", "-"), SIGNATURE, target),
        kernel_key(SOURCE.replace("float32", "float64"), SIGNATURE, target),
        kernel_key(SOURCE.replace("float32(1)", "float32(1.0)"), SIGNATURE, target),
        kernel_key(SOURCE, KernelSignature((Param("x", "float32", 64),)), target),
        kernel_key(SOURCE, KernelSignature((Param("x", "float64", 4),)), target),
        kernel_key(SOURCE, KernelSignature((Param("x", "float32", 4, stream=True),)), target),
        kernel_key(SOURCE, KernelSignature((), (Scratch("x", "float32", 0),)), target),
        kernel_key(SOURCE, SIGNATURE, dataclasses.replace(target, cpu="another")),
        kernel_key(SOURCE, SIGNATURE, dataclasses.replace(target, features="+one")),
    }
    assert len(keys) == 11
    monkeypatch.setattr(jit, "_versions", lambda: "other versions")
    assert kernel_key(SOURCE, SIGNATURE, target) not in keys


TWO = """def kernel(begin, end, {0}, {1}):
    \"\"\"{2}\"\"\"
    for {3} in range(begin, end):
        {0}[{3}] = {1}[{3}] + float32(1)
"""


def two(x: str, y: str, *rest: str, scope: str = "") -> tuple[str, KernelSignature]:
    return TWO.format(x, y, *rest), KernelSignature((Param(x, "float32", 4, scope), Param(y, "float32", 4, scope)))


def test_kernels_that_differ_in_names_alone_are_compiled_once(cache: Path) -> None:
    first, second = two("x", "y", "k1_add", "i"), two("add_5", "arg9", "k7_add_5\n\n    of another layer", "t0")
    kernels = [compile_kernel(*k) for k in (first, second)]
    assert _counts() == (1, 0, 1)
    assert kernels[0].entry == kernels[1].entry
    assert [k.source for k in kernels] == [first[0], second[0]]
    for kernel in kernels:
        x, y = np.zeros(3, np.float32), np.arange(3, dtype=np.float32)
        run(kernel, 0, 3, x, y)
        assert x.tolist() == [1, 2, 3]
        assert Path(kernel.source_path).read_text() == kernel.source


def test_names_say_which_buffers_may_overlap_and_which_is_which() -> None:
    target = host_target()
    keys = {
        kernel_key(*two("x", "y", "k", "i"), target),
        kernel_key(*two("x", "y", "k", "i", scope="both"), target),
        kernel_key(
            "def kernel(begin, end, x, y):\n    for i in range(begin, end):\n        y[i] = x[i] + float32(1)\n",
            KernelSignature((Param("x", "float32", 4), Param("y", "float32", 4))),
            target,
        ),
    }
    assert len(keys) == 3


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"expected \('begin', 'end', 'y'\), found \('begin', 'end', 'x'\)"):
        compile_kernel(SOURCE, KernelSignature((Param("y", "float32"),)))


def test_a_type_error_names_the_line() -> None:
    from numba.core.errors import TypingError

    with pytest.raises(TypingError, match="line 2"):
        compile_kernel("def kernel(begin, end, x):\n    x[0] = exp(begin)\n", SIGNATURE)
    assert not jit._building, "a kernel that does not compile leaves nothing behind"


def test_a_name_that_the_library_has_not_is_named_with_its_line() -> None:
    """It was numba's, with its pipeline and no line of the kernel."""
    with pytest.raises(NameError, match=r":3: expected a name of codegen.lib.NAMESPACE, found 'softsign'"):
        compile_kernel(SOURCE.replace("float32(1)", "softsign(x[i])"), SIGNATURE)


def test_calls_that_nothing_answers_are_refused_before_loading() -> None:
    import llvmlite.binding as llvm

    text = f'target triple = "{host_target().triple}"\ndeclare void @no_such_function()\n'
    text += "define void @f() {\n call void @no_such_function()\n ret void\n}\n"
    with pytest.raises(UnresolvedSymbolError, match="no_such_function"):
        emit_object(llvm.parse_assembly(text), host_target())


def test_a_hit_imports_no_compiler(cache: Path) -> None:
    _works()
    script = (
        "import sys, numpy as np\n"
        "from codegen.native.jit import KernelSignature, Param, compile_kernel, stats\n"
        f"kernel = compile_kernel({SOURCE!r}, KernelSignature((Param('x', 'float32', 4),)))\n"
        "assert stats.disk_hits == 1 and stats.compiled == 0, stats\n"
        "assert not {'numba', 'codegen.lib'} & {*sys.modules}\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})


def test_processes_that_share_the_folder(cache: Path) -> None:
    script = (
        "import numpy as np\n"
        "from codegen.tune.probe import apply\n"
        "x = np.arange(5.0)\n"
        "assert np.allclose(apply('exp(x) + 1', x), np.exp(x) + 1)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = [subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, env=env) for _ in range(3)]
    assert [p.wait(60) for p in running] == [0, 0, 0]
    assert len(list((cache / "objects").iterdir())) == 1


def test_targets_by_name() -> None:
    with pytest.raises(ValueError, match="unknown target 'sparc'"):
        Target.named("sparc")
    assert Target.from_features("x86_64-unknown-linux-gnu", "x", "+avx2,+fma,+f16c").lanes(4) == 8
    assert Target.from_features("aarch64-unknown-linux-gnu", "x", "+neon").lanes(8) == 2


@pytest.mark.skipif(not host_target().triple.startswith("x86_64"), reason="instruction names are those of x86")
@pytest.mark.parametrize("cpu", ["rocketlake", "sapphirerapids", "skylake-avx512", "znver5"])
def test_loops_fill_the_registers_whatever_llvm_prefers_for_a_name(cpu: str) -> None:
    """gelu of 4096 x 4096 took 1.26 times as long on a CPU that LLVM called rocketlake."""
    target = _host(host_target().triple, cpu, NAMED_TARGETS["avx512"][1].replace(",-prefer-256-bit", ""))
    source = "def kernel(begin, end, x, y):\n    for i in range(begin, end):\n        y[i] = (x[i] * x[i] + x[i]) * x[i] - x[i]\n"
    text = kernel_assembly(source, KernelSignature((Param("x", "float32"), Param("y", "float32"))), target)
    assert "%zmm" in text


def test_narrow_targets_are_left_as_they_are() -> None:
    triple, features = "x86_64-unknown-linux-gnu", "+avx2,+fma,+f16c"
    assert _host(triple, "haswell", features) == Target.from_features(triple, "haswell", features)
    assert _host("aarch64-unknown-linux-gnu", "cortex-a72", "+neon").features == "+neon"
