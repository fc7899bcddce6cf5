"""The second target: kernels as C, built by the system's compiler, compute what machine code does, program by program."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llvmlite import ir

import codegen
import hlo
from codegen.c import compile as by_c
from codegen.c.compile import CCompiler, CCompilerError, c_compiler, flags
from codegen.c.functions import c_function
from codegen.c.source import c_source
from codegen.c.types import NoForm, Types
from codegen.kernel.ir import Kernel
from codegen.kernel.parse import parse
from codegen.native.jit import CompiledKernel, KernelTarget, MachineCode
from codegen.native.signature import KernelSignature
from codegen.target import Target, default_target
from hlo import Declined
from tests.random_programs import random_program
from tilewright.inputs import random_arrays

ROOT = Path(__file__).parents[3]
PROGRAMS = {p.stem: p for folder in ("examples", "tests/programs") for p in sorted((ROOT / folder).glob("*.mlir"))}
FAST = ("rms_norm_residual", "top_k", "cumulative_sum", "embedding_gradient")
# What folds numbers takes them in order in C, where machine code takes as many at once as a vector has lanes.
TOLERANCE = 1e-5

needs_compiler = pytest.mark.skipif(c_compiler() is None, reason="no C compiler (cc, gcc or clang) is on the path")


def compared(module: hlo.Module) -> bool:
    """Compiles a program for both targets and compares all results; True where they are the same bits."""
    machine, c = codegen.compile(module), CCompiler()
    other = codegen.compile(module, target=c)
    assert len(c.sources) >= 1 and len(other.kernels) == len(machine.kernels)
    arrays = random_arrays(machine.plan.module.entry, 0)
    found, expected = other(*arrays), machine(*arrays)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
            continue
        a, b = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (a, b))
        scale = float(np.max(np.abs(b[np.isfinite(b)]), initial=0.0))
        np.testing.assert_allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE * scale)
    return all(a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True))


@needs_compiler
@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in PROGRAMS])
def test_programs_compute_in_c_what_they_do_in_machine_code(name: str) -> None:
    same = compared(hlo.load(PROGRAMS[name]))
    assert same or name not in ("top_k", "cumulative_sum", "embedding_gradient", "rotary", "max_pooling", "mlp_gradient")


@needs_compiler
@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(k, marks=pytest.mark.slow) for k in range(2, 40))])
def test_random_programs_compute_in_c_what_they_do_in_machine_code(seed: int) -> None:
    compared(random_program(seed)[0])


ELEMENTWISE = """func.func @main(%x: tensor<257xT>, %y: tensor<257xT>) -> tensor<257xT> {{
  %0 = {op} : {type}
  return %0 : tensor<257xT>
}}"""
BINARY = ("add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "power")
UNARY = ("abs", "negate", "sign")
FLOAT = ("exponential", "log", "tanh", "logistic", "sine", "cosine", "cbrt", "floor", "round_nearest_even", "round_nearest_afz")
ENDS = {
    "f": (0.0, -0.0, 1.0, -1.5, 2.5, np.inf, -np.inf, np.nan, 1e-40, 3e38),
    "i": (0, 1, -1, 7, -8, np.iinfo(np.int32).min, np.iinfo(np.int32).max),
    "u": (0, 1, 7, np.iinfo(np.uint32).max),
}


NUMBERS = {"f64": np.float64, "i32": np.int32, "ui32": np.uint32}


@needs_compiler
@pytest.mark.parametrize(
    "element", ["i32", *(pytest.param(e, marks=pytest.mark.slow) for e in ("f32", "ui32", "bf16", "f16", "f64"))]
)
def test_scalar_functions_are_bit_equal_at_the_ends_of_their_types(element: str) -> None:
    """Every operation is the same one in both, none is reassociated: so are the bits, NaN by NaN."""
    is_float = element[0] in "bf"
    kind = NUMBERS.get(element, np.float32)
    ends = np.array(ENDS["f" if is_float else element[0]], kind)
    rng = np.random.default_rng(1)
    pairs = [(a, b) for a in ends for b in ends]
    more = rng.standard_normal((257 - len(pairs), 2)) * 9 if is_float else rng.integers(0, 99, (257 - len(pairs), 2))
    both = np.concatenate([np.array(pairs, kind), more.astype(kind)])
    names = [*BINARY, *(UNARY if element[0] != "u" else ()), *(FLOAT if is_float else ())]
    lines = [f"  %{k} = stablehlo.{n} %x{', %y' if n in BINARY else ''} : tensor<257x{element}>" for k, n in enumerate(names)]
    types = ", ".join([f"tensor<257x{element}>"] * len(names))
    text = "\n".join([
        f"func.func @main(%x: tensor<257x{element}>, %y: tensor<257x{element}>) -> ({types}) {{", *lines,
        f"  return {', '.join(f'%{k}' for k in range(len(names)))} : {types}", "}",
    ])  # fmt: skip
    module = hlo.parse(text)
    machine, other = codegen.compile(module), codegen.compile(module, target=CCompiler())
    dtype = machine.plan.module.entry.arguments[0].tensor.dtype
    with np.errstate(all="ignore"):
        arrays = [np.ascontiguousarray(both[:, k]).astype(dtype) for k in range(2)]
    for name, a, b in zip(names, other(*arrays), machine(*arrays), strict=True):
        if is_float:
            wide = [x.astype(np.float64) for x in (a, b)]
            np.testing.assert_array_equal(np.isnan(wide[0]), np.isnan(wide[1]), err_msg=name)
            a, b = (np.where(np.isnan(w), np.zeros((), x.dtype), x) for w, x in zip(wide, (a, b), strict=True))
        assert a.tobytes() == b.tobytes(), name


def kernel(body: str, element: str = "f32") -> Any:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    words = f'"""k\n\n    y: result {element}[8]\n    x: argument {element}[8]\n    """'
    return parse(f"def kernel(begin, end, y, x):\n    {words}\n{lines}")


def text_of(body: str) -> str:
    made = c_source(kernel(body))
    assert isinstance(made, str)
    return made[made.index("void kernel") :]


BY_COMPARATOR = """func.func @main(%x: tensor<3x70xf64>) -> tensor<3x70xf64> {
  %r = "stablehlo.sort"(%x) ({ ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %p = stablehlo.abs %a : tensor<f64>
    %q = stablehlo.abs %b : tensor<f64>
    %c = stablehlo.compare LT, %p, %q : (tensor<f64>, tensor<f64>) -> tensor<i1>
    stablehlo.return %c : tensor<i1> }) {dimension = 1 : i64, is_stable = true} : (tensor<3x70xf64>) -> tensor<3x70xf64>
  return %r : tensor<3x70xf64> }"""


@needs_compiler
@pytest.mark.parametrize("count", [2, 3, 70])
def test_merge_sorts_have_a_form_in_c(count: int) -> None:
    """Runs of a width that doubles: a range with such a step has no form."""
    module = hlo.parse(BY_COMPARATOR.replace("70", str(count)))
    c = CCompiler()
    x = np.random.default_rng(1).integers(-9, 9, (3, count)).astype(np.float64)
    (found,) = codegen.compile(module, target=c)(x)
    np.testing.assert_array_equal(found, np.take_along_axis(x, np.argsort(np.abs(x), 1, kind="stable"), 1))
    assert len(c.sources) == 1


def test_constants_of_vectors_may_be_arguments_of_macros() -> None:
    """A choice between two constant vectors was `tw_select(c, (v4){1, 1, 1, 1}, …)`: a macro of nine arguments."""
    kind = ir.VectorType(ir.IntType(32), 4)
    function = ir.Function(ir.Module(), ir.FunctionType(kind, [ir.IntType(1)]), "chosen")
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(builder.select(function.args[0], ir.Constant(kind, [1, 2, 3, 4]), ir.Constant(kind, [0] * 4)))
    made = c_function(function, "chosen", "v4i", Types())
    assert "tw_select(" in made and re.search(r"\(\(\w+\)\{1, 2, 3, 4\}\), \(\(\w+\)\{0, 0, 0, 0\}\)\)", made), made


def test_loops_declare_their_counters_and_blocks_what_they_alone_use() -> None:
    first = "for t in range(begin, end):\n    v = x[t]\n    for i in range(t, 8, 2):\n        y[i] = v"
    made = text_of(f"{first}\nfor i in range(8):\n    y[i] = x[i]")
    assert made == """void kernel(int64_t begin, int64_t end, float *restrict y, float *restrict x) {
    for (int64_t t = begin; t < end; t += 1) {
        float v = x[t];
        for (int64_t i = t; i < 8; i += 2) {
            y[i] = v;
        }
    }
    for (int64_t i = 0; i < 8; i += 1) {
        y[i] = x[i];
    }
}
"""


def test_a_counter_that_the_body_changes_and_a_range_that_it_changes() -> None:
    made = text_of("n = end\nfor k in range(n):\n    n = n - 1\n    k = k * 2\n    y[k] = x[n]")
    assert "for (int64_t k_at = 0, k_stop = n; k_at < k_stop; k_at += 1) {\n        k = k_at;" in made


def test_negative_numbers_are_shifted_as_unsigned_ones() -> None:
    """The compiler's checks of behavior: `left shift of negative value`, of the keys of a selection."""
    made = text_of("n = end - 9\ny[(n << 2) & 7] = x[0]")
    assert "(int64_t)((uint64_t)n << 2)" in made, made


def test_names_of_c_are_nobodys() -> None:
    assert "float int_ = x[0];" in text_of("int = x[0]\ny[0] = int")


def test_what_has_no_form_in_c_is_declined_with_the_reason() -> None:
    made = c_source(parse("def kernel(begin, end, y):\n    y[0] = 1\n"))
    assert made == Declined("buffer y of no known type")
    assert c_source(kernel("v = 1\nv = x[0]\ny[0] = v")) == Declined("a name of two types, v: int64 and float32")


def test_bytes_are_multiplied_without_the_instructions_of_one_cpu() -> None:
    target = default_target()
    features = replace(target, features=f"{target.features},+avx512vnni", vector_bytes=64)
    source = (
        'def kernel(begin, end, c, a, b):\n    """k\n\n    c: result i32[64, 64]\n    a: argument i8[64, 64]\n'
        '    b: shared i8[4, 1024]\n    """\n    gemm_bytes(64, 64, 64, a, 0, 64, b, 0, 1024, c, 0, 64, 16)\n'
    )
    made = c_source(parse(source), features)
    assert isinstance(made, str) and "vpdpbusd" not in made


def llvm_function(emit: Any) -> Any:
    kind = ir.VectorType(ir.IntType(32), 16)
    function = ir.Function(ir.Module("m"), ir.FunctionType(kind, [kind] * 3), "f")
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(emit(builder, kind, function.args))
    return function


def test_an_instruction_of_one_cpu_has_no_form_in_c() -> None:
    def dot(b: Any, kind: Any, args: Any) -> Any:
        callee = ir.Function(b.module, ir.FunctionType(kind, [kind] * 3), "llvm.x86.avx512.vpdpbusd.512")
        return b.call(callee, args)

    def asm(b: Any, kind: Any, args: Any) -> Any:
        return b.asm(ir.FunctionType(kind, [kind] * 2), "vpmulld $2, $1, $0", "=v,v,v", args[:2], side_effect=False)

    for emit, found in ((dot, "LLVM's llvm.x86.avx512.vpdpbusd.512"), (asm, "the instruction vpmulld")):
        with pytest.raises(NoForm, match=found):
            c_function(llvm_function(emit), "f", "void", Types())


def test_a_target_without_a_compiler_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_c, "c_compiler", lambda: None)
    with pytest.raises(CCompilerError, match="no C compiler: neither cc nor gcc nor clang"):
        codegen.compile(hlo.load(PROGRAMS["rms_norm_residual"]), target=CCompiler())


@dataclass
class Watched:
    """A target of its own: another one, and the kernels that it was asked for."""

    inner: KernelTarget
    seen: list[str] = field(default_factory=list)

    @property
    def target(self) -> Target:
        return self.inner.target

    def compile(self, kernels: Sequence[tuple[Kernel, KernelSignature]]) -> list[CompiledKernel]:
        self.seen += [k.title for k, _ in kernels]
        return self.inner.compile(kernels)


def test_a_program_is_planned_for_the_target_that_compiles_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was planned for the host: register blocks of sixteen floats in a row for vectors of four."""
    monkeypatch.delenv("TILEWRIGHT_MACHINE", raising=False)
    text = """func.func @main(%a: tensor<96x64xf32>, %b: tensor<64x96xf32>) -> tensor<96x96xf32> {
      %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
        : (tensor<96x64xf32>, tensor<64x96xf32>) -> tensor<96x96xf32>
      return %0 : tensor<96x96xf32> }"""
    narrow = Watched(MachineCode(replace(default_target(), vector_bytes=16, vector_registers=16)))
    made = codegen.compile(hlo.parse(text), target=narrow)
    assert (made.plan.machine.vector_bytes, made.plan.machine.vector_registers) == (16, 16)
    assert narrow.seen == [f.name for f in made.plan.fusions]
    a = np.random.default_rng(0).standard_normal((96, 64), np.float32)
    np.testing.assert_allclose(made(a, a.T)[0], a @ a.T, rtol=1e-4, atol=1e-4)


def test_both_targets_are_of_the_protocol() -> None:
    targets: list[KernelTarget] = [MachineCode(), CCompiler()]
    assert all(t.target == default_target() for t in targets)
    assert "-ffast-math" not in flags(default_target())
