"""What stays with the process when programs are compiled and dropped: the code of the last few, nothing else."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
import weakref
from collections import deque
from pathlib import Path

import numpy as np
import pytest

import codegen
import hlo
from codegen.native import jit, passes
from codegen.native import lower as native
from codegen.native.signature import KernelSignature, Param
from codegen.target import default_target

ROOT = Path(__file__).resolve().parents[3]


def program(k: int) -> hlo.Module:
    n = 3 + k
    return hlo.parse(f"""func.func @main(%x: tensor<{n}xf32>) -> tensor<{n}xf32> {{
      %c = stablehlo.constant dense<{k}.25> : tensor<{n}xf32>
      %0 = stablehlo.multiply %x, %c : tensor<{n}xf32>
      return %0 : tensor<{n}xf32>
    }}""")


def test_the_code_of_dropped_programs_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_recent", deque(maxlen=3))
    seen: list[weakref.ref[native.LoadedObject]] = []
    modules: list[weakref.ref[hlo.Module]] = []
    for k in range(10):
        module = program(k)
        exe = codegen.compile(module)
        assert exe(np.ones(3 + k, np.float32))[0][0] == k + 0.25
        seen.append(weakref.ref(exe.kernels[0].compiled._loaded))
        modules.append(weakref.ref(module))
        del exe, module
    gc.collect()
    assert [r() is not None for r in seen] == [False] * 7 + [True] * 3
    assert not any(r() for r in modules)


def test_few_are_kept() -> None:
    assert jit._recent.maxlen is not None and jit._recent.maxlen <= 64


class _MallocInfo(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    )


def test_memory_of_calls_stays_with_the_process() -> None:
    """Given back to the system it was cleared anew at each call, which took longer than the kernels of a step."""
    program = """
import ctypes, sys
from codegen.call.xla_call import expect_memory
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
class Info(ctypes.Structure):
    _fields_ = tuple((n, ctypes.c_size_t) for n in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks".split()) + (
        ("fordblks", ctypes.c_size_t), ("keepcost", ctypes.c_size_t))
libc.mallinfo2.restype = Info
expect_memory(8 << 20)
before = libc.mallinfo2().hblkhd
where = libc.malloc(3 << 20)
mapped = libc.mallinfo2().hblkhd - before
libc.free(where)
print(mapped == 0, libc.mallinfo2().fordblks >= 3 << 20)
"""
    if not hasattr(ctypes.CDLL(None), "mallinfo2"):
        pytest.skip("this C library does not count its memory")
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT).stdout
    assert said.split() == ["True", "True"]


@pytest.mark.parametrize("is_brief", [False, True])
def test_llvm_keeps_nothing_of_a_kernel(is_brief: bool) -> None:
    """Pass managers, builders, contexts: 110 KB stayed for each kernel that was compiled."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        pytest.skip("this C library does not count its memory")
    libc.mallinfo2.restype = _MallocInfo

    def used() -> int:
        gc.collect()
        info = libc.mallinfo2()
        return int(info.uordblks + info.hblkhd)

    source = "def kernel(begin, end, x, r):\n    for i in range(begin, end):\n        r[i] = x[i] + float32(1)\n"
    signature = KernelSignature((Param("x", "float32"), Param("r", "float32")), is_brief=is_brief)

    def build(k: int) -> None:
        native.build(source, "<kernel>", signature, f"kernel_{k}", default_target())

    def grown(first: int) -> float:
        before = used()
        for k in range(first, first + 12):
            build(k)
        return (used() - before) / 12

    for k in range(3):
        build(k)
    # What stays for each kernel does so in each round; what another thread of this process takes meanwhile does not.
    assert min(grown(first) for first in (3, 15, 27)) < 8192


def test_builders_of_passes_are_renewed_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run leaves what LLVM asks before and after a pass in the builder: after 200 runs a pass was asked for 200 times."""
    made: list[object] = []
    create = passes.llvm.create_pass_builder
    monkeypatch.setattr(passes.llvm, "create_pass_builder", lambda *x: (made.append(x), create(*x))[1])
    monkeypatch.setattr(passes, "_kept", threading.local())
    runs = 3 * passes.RUNS
    for _ in range(runs):
        passes.run_named(["sroa"], native.parsed("define void @f() { ret void }"), default_target())
    assert len(made) == runs // passes.RUNS + 1


def test_modules_in_a_circle_are_freed_once() -> None:
    """The collector finalises a module's context before the module, in the order in which they were made; freed twice, the module
    ended the process. What an error's frames hold is such a circle."""
    for _ in range(20):
        circle: list[object] = [native.parsed("define void @f() { ret void }")]
        circle.append(circle)
        del circle
        assert gc.collect()
