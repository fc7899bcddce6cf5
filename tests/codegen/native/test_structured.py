"""The walk over a kernel's syntax tree and numba's passes make code that computes the same; what the walk leaves, numba takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.errors import NumbaError

import codegen
import hlo
from codegen.launcher.launch import Plan, Step
from codegen.native import front_numba as front
from codegen.native import jit
from codegen.native import lower as native
from codegen.native.jit import CompiledKernel, compile_kernel
from codegen.native.signature import KernelSignature, Param
from tilewright.inputs import random_arrays

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.mlir"))
FAST = {"softmax", "layer_norm", "gelu_mlp", "causal_attention"}

BODIES = {
    "floor division and remainder of negative numbers": "y[t] = (x[t] - 9) // 4 * 100 + (x[t] - 9) % 4",
    "division by a variable": "d = x[t] % 5 + 1\n        y[t] = (x[t] - 8) // d * 100 + (x[t] - 8) % d",
    "shifts and bits": "y[t] = ((x[t] << 3) | 5) ^ (x[t] >> 1) & 7",
    "a negated literal": "y[t] = x[t] * -3 - -2",
    "a chain of comparisons": "y[t] = 0\n        if 3 <= x[t] <= 11:\n            y[t] = 1",
    "a chain that stops early reads nothing": (
        "y[t] = 0\n        if 0 <= t - 2 and x[t - 2] > 4:\n            y[t] = x[t - 2]"
    ),
    "or": "y[t] = 0\n        if x[t] < 3 or x[t] > 12 or x[t] == 7:\n            y[t] = 1",
    "not": "y[t] = 0\n        if not x[t] < 3:\n            y[t] = 1",
    "else": "if x[t] % 2 == 0:\n            y[t] = 1\n        else:\n            y[t] = 2",
    "a loop with a step": "s = 0\n        for k in range(t, 20, 3):\n            s = s * 2 + k\n        y[t] = s",
    "a range that is empty": "s = 5\n        for k in range(7 - t):\n            s = s + k\n        y[t] = s",
    "a counter that the body changes": (
        "s = 0\n        for k in range(6):\n            k = k * t\n            s += k\n        y[t] = s * 10 + k"
    ),
    "break and continue": (
        "s = 0\n        for k in range(20):\n            if k % 3 == 0:\n                continue\n"
        "            if k > t:\n                break\n            s += k\n        y[t] = s"
    ),
    "while": "s = x[t]\n        n = 0\n        while s > 1:\n            s = s // 2\n            n += 1\n        y[t] = n",
    "a sum in place": "y[t] = 3\n        y[t] += x[t]\n        y[t] -= 1",
    "minima of indices": "y[t] = min(x[t], 6) + max(t, 3)",
    "an early return": "y[t] = x[t]\n        if t == 5:\n            return",
    "a number of two types": "v = 1\n        v = 0.5 * x[t]\n        y[t] = to_int64(v)",
    "a step known at run time": "s = 0\n        for k in range(0, 20, t + 1):\n            s += k\n        y[t] = s",
    "a variable that changes between two reads": (
        "s = x[t]\n        y[t] = s + 1\n        s = s * 2\n        y[t] += (s + 1) * 100"
    ),
    "the same sum before, in and after a branch": (
        "y[t] = 0\n        if x[t] + t > 9:\n            y[t] = x[t] + t\n        y[t] += (x[t] + t) * 10"
    ),
    "the same sum in every turn of a loop": (
        "s = 0\n        for k in range(5):\n            s += k + t\n            y[t] = (k + t) * (s + k)"
    ),
    "a range backwards": "s = 0\n        for k in range(9, t, -2):\n            s = s * 2 + k\n        y[t] = s",
}
NAMES = {
    "a value of the turn before": """
y[t] = 0
last = 1
for k in range(6):
    if k > t:
        y[t] += last * 3
    last = k + x[t]
""",
    "a branch that both sides assign": """
for k in range(4):
    if x[t] % 2 == 0:
        v = t + k
    else:
        v = t - k
    y[t] = v * 7 + v // 3
""",
    "a branch within one, and a name of one side": """
if t > 3:
    if t > 9:
        v = t + 1
    else:
        w = t * 5
        v = w - 2
else:
    v = 4
y[t] = v + (v + 1) * 10
""",
    "a side that leaves": """
y[t] = 0
for k in range(9):
    if k * k > t:
        v = k
        break
    else:
        v = -k
    y[t] += v
y[t] += (v + 1) * 100
""",
    "a side of which nothing goes on": """
y[t] = 0
for k in range(9):
    if k > 4:
        if k > t:
            v = 1
            break
        else:
            v = 2
            continue
    else:
        v = 3
    y[t] = y[t] * 2 + v
""",
    "one name for loops side by side and within each other": """
s = 0
for k in range(3):
    s += x[k + t // 2]
for k in range(4):
    s += x[k + t // 2] * 2
    for k in range(k, 5):
        s += k * 7
    s += x[k + t // 4] * k
y[t] = s
""",
    "a counter that a loop within changes": """
s = 0
for k in range(3):
    while s % 7 < k + 2 and k < 20:
        s += k * 2 + 1
        k = k + 1
    s += k * 2 + 1
y[t] = s
""",
    "an address in a chain, in a branch and after": """
y[t] = 0
if t > 2 and x[(t * 3) // 4] > 1 and x[(t * 3) // 4 - 1] < 9:
    y[t] = x[(t * 3) // 4]
y[t] += x[(t * 3) // 4] * 10
""",
    "an address made of what was read": """
for k in range(3):
    i = x[t] % 4
    y[t] = x[i + k] + x[i + k + 1] * 3
    if k == 1:
        y[t] += x[i + k] * 5
""",
    "known divisors": """
v = x[t] - 9
y[t] = v // 1 + v % 1 * 3 + v // -3 * 10 + v % -3 * 100 + v // 4 * 7 + (5 - x[t]) % 7
""",
}
"""What a name stands for where several statements assign it."""

BODIES |= {name: text.strip().replace("\n", "\n        ") for name, text in NAMES.items()}
NEEDS_NUMBA = {"a number of two types", "a step known at run time"}
COUNT = 16


def _source(body: str) -> str:
    return f"def kernel(begin, end, x, y):\n    for t in range(begin, end):\n        {body}\n"


def _run(kernel: CompiledKernel, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    Plan([Step(kernel, COUNT, (0, 1))]).run(np.array([x.ctypes.data, y.ctypes.data], np.int64), 1)
    return y


def _signature() -> KernelSignature:
    return KernelSignature((Param("x", "int64", 8), Param("y", "int64", 8)))


@pytest.fixture
def numba_calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The kernels that numba's passes compile from here on; nothing comes from a cache."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_COMPILE_PROCESSES", "1")
    jit.forget_kernels()
    calls: list[str] = []
    known = front.compile_function

    def counted(function: Any, arguments: Any, name: str) -> Any:
        calls.append(name)
        return known(function, arguments, name)

    monkeypatch.setattr(front, "compile_function", counted)
    return calls


@pytest.mark.parametrize("name", BODIES)
def test_the_walk_computes_what_python_and_numba_compute(
    name: str, numba_calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _source(BODIES[name])
    x = np.arange(COUNT, dtype=np.int64)
    kernel = compile_kernel(source, _signature())
    walked = _run(kernel, x, np.full(COUNT, -1, np.int64))
    assert bool(numba_calls) == (name in NEEDS_NUMBA)
    python = np.full(COUNT, -1, np.int64)
    with np.errstate(all="ignore"):
        kernel.python(0, COUNT, x, python)
    np.testing.assert_array_equal(walked, python)
    jit.forget_kernels()
    monkeypatch.setattr(native, "_lower_structured", lambda *_: None)
    monkeypatch.setenv("TILEWRIGHT_NO_CACHE", "1")
    np.testing.assert_array_equal(_run(compile_kernel(source, _signature()), x, np.full(COUNT, -1, np.int64)), python)
    assert numba_calls


@pytest.mark.parametrize("path", [pytest.param(p, id=p.stem) for p in EXAMPLES if p.stem in FAST])
def test_the_walk_takes_every_kernel_of_the_examples(path: Path, numba_calls: list[str]) -> None:
    made = codegen.compile(hlo.load(path))
    made(*random_arrays(made.plan.module.entry, 0))
    assert made.kernels and not numba_calls


def test_the_walk_takes_the_launcher(numba_calls: list[str]) -> None:
    from codegen.call import xla_handler
    from codegen.launcher import run_source

    for source in (run_source.WORKER_SOURCE, run_source.RUN_SOURCE, run_source.OWN_SOURCE, xla_handler.FRAME_SOURCE):
        compile_kernel(source, KernelSignature(()))
    assert not numba_calls


@pytest.mark.parametrize("body", ["y[t] = x", "y[t] = add(x[t], float32(1))", "y[t] = x[t] + 'a'"])
def test_source_that_has_no_types_is_an_error_of_numba(body: str, numba_calls: list[str]) -> None:
    with pytest.raises(NumbaError, match=r"getitem|setitem|cast|add|str"):
        compile_kernel(_source(body), _signature())
    assert numba_calls


@pytest.mark.parametrize(("body", "name"), [("y[t] = x[t] + nothing", "nothing"), ("y[t] = unknown(x[t])", "unknown")])
def test_a_name_that_the_library_has_not_is_said_with_its_line(body: str, name: str, numba_calls: list[str]) -> None:
    with pytest.raises(NameError, match=rf":3: expected a name of codegen.lib.NAMESPACE, found '{name}'"):
        compile_kernel(_source(body), _signature())
    assert numba_calls
