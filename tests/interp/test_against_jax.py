# ruff: noqa: E501  (programs are written as they are printed)
"""Random programs and one program of each kind of op: the evaluator, XLA's CPU backend and the reference interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hlo
import interp

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.jax

TOLERANCE = {"float32": 3e-5, "float64": 1e-12, "float16": 1e-2, "bfloat16": 6e-2, "complex64": 3e-5, "complex128": 1e-12}


@pytest.fixture(autouse=True)
def wide_types() -> Any:
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def lowered(function: Callable[..., Any], inputs: list[Any]) -> tuple[str, list[np.ndarray]]:
    """The program's text and XLA's results; no input is dropped where it is not used."""
    low = jax.jit(function, keep_unused=True).lower(*inputs)
    return low.as_text(), [np.asarray(v) for v in jax.tree.leaves(low.compile()(*inputs))]


def agree(found: Any, expected: Any, tolerance: float | None = None) -> None:
    assert len(found) == len(expected)
    for f, e in zip(found, expected, strict=True):
        assert f.dtype == e.dtype and f.shape == e.shape
        bound = tolerance or TOLERANCE.get(e.dtype.name)
        if bound is None:
            wide = np.float64 if e.dtype.kind == "V" else e.dtype
            np.testing.assert_array_equal(f.astype(wide), e.astype(wide))
            continue
        wide = np.complex128 if e.dtype.kind == "c" else np.float64
        size = np.abs(e.astype(wide))
        scale = float(size[np.isfinite(size)].max(initial=1.0))
        np.testing.assert_allclose(f.astype(wide), e.astype(wide), rtol=bound, atol=bound * scale)


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(s, marks=pytest.mark.slow) for s in range(12, 60))])
def test_random_programs(seed: int) -> None:
    from tests.interp.random_programs import example

    program, inputs = example(seed)
    text, expected = lowered(program, inputs)
    agree(interp.evaluate(hlo.parse(text), *inputs), expected)


REFERENCE = """
import io, json, sys
import numpy as np
from jax._src.interpreters import mlir
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import stablehlo
stablehlo.register_stablehlo_passes()
NAMES = {"i1": np.bool_, "i8": np.int8, "ui8": np.uint8, "i16": np.int16, "i32": np.int32, "ui32": np.uint32, "i64": np.int64,
         "f32": np.float32, "f64": np.float64}
for line in sys.stdin:
    case = json.loads(line)
    with mlir.make_ir_context(), ir.Location.unknown():
        module = ir.Module.parse(case["text"])
        passmanager.PassManager.parse("builtin.module(inline)").run(module.operation)
        if "chlo." in case["text"]:
            passmanager.PassManager.parse("builtin.module(func.func(chlo-legalize-to-stablehlo))").run(module.operation)
        results = stablehlo.eval_module(module, [ir.Attribute.parse(a) for a in case["inputs"]])
        out = [np.array(r) for r in results]
    print(json.dumps([[o.dtype.name, list(o.shape), np.ascontiguousarray(o).tobytes().hex()] for o in out]), flush=True)
"""


def as_attribute(x: np.ndarray) -> str:
    names = {"float32": "f32", "float64": "f64", "bool": "i1"}
    element = names.get(x.dtype.name) or x.dtype.name.replace("uint", "ui").replace("int", "i")
    return f'dense<"0x{np.ascontiguousarray(x).tobytes().hex()}"> : tensor<{"".join(f"{n}x" for n in x.shape)}{element}>'


@pytest.mark.parametrize(
    "first",
    [
        160,
        pytest.param(100, marks=pytest.mark.slow),
        pytest.param(120, marks=pytest.mark.slow),
        pytest.param(140, marks=pytest.mark.slow),
    ],
)
def test_random_programs_in_the_reference_interpreter(first: int) -> None:
    """One process for many programs; where it aborts, which it does on ops that it lacks, the program's turn is over.

    Programs that scatter are left out: it scatters into the operand itself, whose other readers then see the result.
    """
    from tests.interp.random_programs import example

    compared = 0
    seed, last = first, first + (8 if first == 160 else 20)
    while seed < last:
        with subprocess.Popen(
            [sys.executable, "-c", REFERENCE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdin and process.stdout
            while seed < last:
                program, inputs = example(seed, scatters=False)
                seed += 1
                text, _ = lowered(program, inputs)
                process.stdin.write(json.dumps({"text": text, "inputs": [as_attribute(x) for x in inputs]}) + "\n")
                process.stdin.flush()
                answer = process.stdout.readline()
                if not answer:
                    break
                expected = [np.frombuffer(bytes.fromhex(h), d).reshape(s) for d, s, h in json.loads(answer)]
                agree(interp.evaluate(hlo.parse(text), *inputs), expected)
                compared += 1
            process.kill()
    assert compared >= (last - first) // 2


FLOATS = ["float32", "float64", "float16", "bfloat16"]
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
COMPLEX = ["complex64", "complex128"]
SMALL = [
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3b11fnuz",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "int4",
    "uint4",
    "int2",
    "uint2",
]


def array(name: str, shape: Any, salt: str = "") -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(f"{name} {shape} {salt}".encode()))
    d = jax.numpy.dtype(name)
    if d.kind == "c":
        return np.asarray(rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(d)
    if "float" in name:
        return np.asarray(rng.normal(size=shape) * 2).astype(d)
    return rng.integers(-8, 8, shape).astype(np.int8).astype(d)


def kinds() -> dict[str, tuple[list[str], Callable[..., Any], Callable[[str], list[Any]]]]:
    """name -> (element types, function, inputs)."""
    from jax import lax

    jnp = jax.numpy
    real, numbers = FLOATS + INTEGERS, FLOATS + INTEGERS + COMPLEX
    index = np.array([0, 2, 2, -1, 9])
    return {
        "dot": (numbers, lambda a, b: lax.dot_general(a, b, (((2,), (1,)), ((0,), (2,)))), lambda d: [array(d, (3, 4, 20)), array(d, (6, 20, 3))]),
        "cumulative sum": (numbers, lambda a: lax.cumsum(a, axis=1), lambda d: [array(d, (3, 40))]),
        "cumulative product": (numbers, lambda a: lax.cumprod(a, axis=0, reverse=True), lambda d: [array(d, (9, 3))]),
        "convolution": (
            numbers,
            lambda a, b: lax.conv_general_dilated(
                a, b, (2, 1), ((1, 2), (0, -1)), lhs_dilation=(1, 2), rhs_dilation=(2, 1), feature_group_count=2
            ),
            lambda d: [array(d, (2, 4, 7, 8)), array(d, (6, 2, 3, 2))],
        ),
        "batch groups": (
            numbers,
            lambda a, b: lax.conv_general_dilated(a, b, (1,), ((1, 1),), batch_group_count=2),
            lambda d: [array(d, (4, 3, 7)), array(d, (4, 3, 3))],
        ),
        "scatter add": (numbers, lambda a, u: a.at[index].add(u), lambda d: [array(d, (6, 3)), array(d, (5, 3))]),
        "scatter multiply": (numbers, lambda a, u: a.at[index, :2].multiply(u), lambda d: [array(d, (6, 3)), array(d, (5, 2))]),
        "scatter maximum": (real, lambda a, u: a.at[index].max(u), lambda d: [array(d, (6,)), array(d, (5,))]),
        "scatter apply": (real, lambda a: a.at[np.array([0, 3])].apply(lambda v: v + v), lambda d: [array(d, (6,))]),
        "gather": (numbers, lambda a: a[np.array([[0, 7], [2, -1]]), 1:3], lambda d: [array(d, (6, 3))]),
        "sort": (real, lambda a: lax.sort(a, dimension=0), lambda d: [array(d, (9, 4))]),
        "sort by two": (real, lambda a, b: lax.sort((a, b), num_keys=2), lambda d: [array("int2", (4, 30)).astype(np.int8), array(d, (4, 30))]),
        "top k": (real, lambda a: lax.top_k(a, 3), lambda d: [array(d, (4, 9))]),
        "arg max": (real, lambda a: lax.argmax(a, 1, np.int32), lambda d: [array(d, (4, 9))]),
        "pooling": (
            real,
            lambda a: lax.reduce_window(a, a.dtype.type(0), lax.max, (2, 3), (2, 1), ((0, 1), (1, 1)), window_dilation=(1, 2)),
            lambda d: [np.abs(array(d, (7, 9)))],
        ),
        "pooling gradient": (
            FLOATS,
            lambda a, s: jax.vjp(lambda v: lax.reduce_window(v, -jnp.inf, lax.max, (2, 2), (2, 1), "VALID"), a)[1](s)[0],
            lambda d: [array(d, (6, 5)), array(d, (3, 4))],
        ),
        "next after": (FLOATS, lax.nextafter, lambda d: [array(d, (40,)), array(d, (40,), "b")]),
        "reduce precision": (FLOATS, lambda a: (lax.reduce_precision(a, 4, 3), lax.reduce_precision(a, 8, 2)), lambda d: [array(d, (60,))]),
        "rounding": (FLOATS, lambda a: (lax.round(a), jnp.round(a), lax.floor(a), lax.ceil(a)), lambda d: [array(d, (60,))]),
        "softmax": (FLOATS, lambda a: jax.nn.softmax(a), lambda d: [array(d, (5, 9))]),
        "gelu": (FLOATS, lambda a: jax.nn.gelu(a, approximate=False), lambda d: [array(d, (50,))]),
        "power": (FLOATS, lambda a, b: lax.pow(lax.abs(a), b), lambda d: [array(d, (40,)), array(d, (40,), "b")]),
        "fft": (COMPLEX, lambda a: (lax.fft(a, "FFT", (4, 6)), lax.fft(a, "IFFT", (6,))), lambda d: [array(d, (2, 4, 6))]),
        "real fft": (FLOATS[:2], lambda a: lax.fft(lax.fft(a, "RFFT", (5, 6)), "IRFFT", (5, 6)), lambda d: [array(d, (2, 5, 6))]),
        "loops": (FLOATS[:2], lambda a: lax.scan(lambda c, x: (c + x, c * x), a[0], a), lambda d: [array(d, (6, 3))]),
        "branches": (FLOATS[:2], lambda a: lax.switch(jnp.int32(7), [jnp.sin, jnp.cos, jnp.tan], a), lambda d: [array(d, (5,))]),
        "batched gather": (numbers, lambda a: jax.vmap(lambda v, i: v[i])(a, np.array([[0, 4]] * 4)), lambda d: [array(d, (4, 5, 3))]),
        "ragged dot": (FLOATS[:2], lambda a, b: lax.ragged_dot(a, b, np.array([2, 4, 3], np.int32)), lambda d: [array(d, (9, 4)), array(d, (3, 4, 5))]),
        "bits": (INTEGERS, lambda a, b: (a & b, a | b, a ^ b, a << b, a >> b, lax.shift_right_logical(a, b)), lambda d: [array(d, (40,)), array(d, (40,), "b")]),
        "bitcast": (["float32", "int32", "uint32"], lambda a: lax.bitcast_convert_type(a, np.int8), lambda d: [array(d, (5, 4))]),
        "bitcast to halves": (["int8", "uint8"], lambda a: lax.bitcast_convert_type(lax.bitcast_convert_type(a, jnp.int4), jnp.uint8), lambda d: [array(d, (5,))]),
    }  # fmt: skip


def programs() -> list[Any]:
    """Every kind with every type; two types of each kind (other ones from kind to kind) always run, the rest are slow."""
    chosen: list[Any] = []
    for n, (name, (types, _, _)) in enumerate(kinds().items()):
        always = {types[n % len(types)], types[(n * 5 + 3) % len(types)]}
        chosen += [pytest.param(name, d, marks=[] if d in always else [pytest.mark.slow]) for d in types]
    return chosen


@pytest.mark.parametrize(("kind", "element"), programs())
def test_every_kind_of_op(kind: str, element: str) -> None:
    _, function, inputs = kinds()[kind]
    arrays = inputs(element)
    text, expected = lowered(function, arrays)
    agree(interp.evaluate(hlo.parse(text), *arrays), expected)


@pytest.mark.parametrize(
    "source",
    [
        s
        if s in ("float32", "bfloat16", "int64", "complex64", "float8_e5m2", "int4")
        else pytest.param(s, marks=pytest.mark.slow)
        for s in [*FLOATS, *INTEGERS, *COMPLEX, *SMALL, "bool"]
    ],
)
def test_conversions_between_all_types(source: str) -> None:
    goals = [g for g in FLOATS + INTEGERS + COMPLEX + SMALL + ["bool"] if not (source in COMPLEX and g not in COMPLEX)]
    x = array("int8", (60,)).astype(bool) if source == "bool" else array(source, (60,))
    text, expected = lowered(lambda a: tuple(jax.lax.convert_element_type(a, jax.numpy.dtype(g)) for g in goals), [x])
    for f, e, goal in zip(interp.evaluate(hlo.parse(text), x), expected, goals, strict=True):
        assert f.tobytes() == e.tobytes() or goal in ("float8_e4m3b11fnuz",), goal


RANDOM = """func.func @main(%a: tensor<{n}xui64>) -> (tensor<{n}xui64>, {t}) {{
  %s, %o = stablehlo.rng_bit_generator %a, algorithm = {algorithm} : (tensor<{n}xui64>) -> (tensor<{n}xui64>, {t})
  return %s, %o : tensor<{n}xui64>, {t}
}}"""


@pytest.mark.parametrize(("algorithm", "words"), [("THREE_FRY", 2), ("PHILOX", 2), ("PHILOX", 3), ("DEFAULT", 2)])
@pytest.mark.parametrize(
    "shape", ["", "3x5x", *(pytest.param(s, marks=pytest.mark.slow) for s in ("1x", "4x", "4x5x", "3x3x3x", "0x", "1000x"))]
)
def test_random_bits_are_those_of_xla(algorithm: str, words: int, shape: str) -> None:
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir

    state = np.array([0x123456789ABCDEF1, 0xFFFFFFFFFFFFFFFE, 0x1111][:words], np.uint64)
    for element in ("ui64", "ui32", "ui8", "f32"):
        text = RANDOM.format(n=words, t=f"tensor<{shape}{element}>", algorithm=algorithm)
        device = jax.devices("cpu")[0]
        with mlir.make_ir_context():
            module = ir.Module.parse(text)
            options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
            executable = device.client.compile_and_load(module, jax._src.lib._jax.DeviceList((device,)), options)
        expected = [np.asarray(v) for v in executable.execute([jax.device_put(state, device)])]
        found = interp.evaluate(hlo.parse(text), state)
        assert [f.tobytes() for f in found] == [e.tobytes() for e in expected]


def test_linear_algebra() -> None:
    rng = np.random.default_rng(1)
    m = rng.normal(size=(2, 4, 4)) + 1j * rng.normal(size=(2, 4, 4))
    positive = m @ m.conj().swapaxes(-1, -2) + np.eye(4)
    b = rng.normal(size=(2, 4, 3)) + 0j
    for lower in (True, False):
        t = "tensor<2x4x4xcomplex<f64>>"
        text = f"func.func @main(%a: {t}) -> {t} {{\n%r = stablehlo.cholesky %a, lower = {str(lower).lower()} : {t}\nreturn %r : {t}\n}}"
        (root,) = interp.evaluate(hlo.parse(text), positive)
        product = root @ root.conj().swapaxes(-1, -2) if lower else root.conj().swapaxes(-1, -2) @ root
        np.testing.assert_allclose(product, positive, rtol=1e-12)
        assert not np.triu(root, 1).any() if lower else not np.tril(root, -1).any()
        for transpose in ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"):
            for left in (True, False):
                right_side = b if left else b.swapaxes(-1, -2)
                s = f"tensor<{'x'.join(map(str, right_side.shape))}xcomplex<f64>>"
                text = f"""func.func @main(%a: {t}, %b: {s}) -> {s} {{
                  %r = "stablehlo.triangular_solve"(%a, %b) {{left_side = {str(left).lower()}, lower = {str(lower).lower()},
                    unit_diagonal = false, transpose_a = #stablehlo<transpose {transpose}>}} : ({t}, {s}) -> {s}
                  return %r : {s}
                }}"""
                (x,) = interp.evaluate(hlo.parse(text), positive, right_side)
                triangle = np.tril(positive) if lower else np.triu(positive)
                op = {
                    "NO_TRANSPOSE": triangle,
                    "TRANSPOSE": triangle.swapaxes(-1, -2),
                    "ADJOINT": triangle.conj().swapaxes(-1, -2),
                }[transpose]
                np.testing.assert_allclose(op @ x if left else x @ op, right_side, rtol=1e-10, atol=1e-12)
