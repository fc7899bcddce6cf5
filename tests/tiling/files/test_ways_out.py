"""Loops and maps in the words of other compilers, read by their own parsers: MLIR's in jaxlib, isl, Python with NumPy."""

from __future__ import annotations

import ctypes
from collections import Counter

import islpy as isl
import numpy as np
import pytest

import codegen
import hlo
import indexing
import tiling
from hlo.errors import Declined
from indexing.show.affine import affine_map, affine_set, parse_affine_map
from tests.goldens.programs import FILES
from tests.shipped_plans import planned
from tiling.files.isl_schedule import isl_schedule
from tiling.files.mlir import as_mlir

MACHINE = tiling.Machine()
# What of the shipped programs the dialects cannot say, by name; everything else is parsed and verified.
DECLINED = Counter(
    {
        "a scan": 1, "a step of kind Scatter": 1, "a step of kind Ordering": 1, "an index with a maximum": 1,
        "an element whose place is a value known at run time": 1,
    }
)  # fmt: skip


@pytest.mark.jax
def test_every_kernel_of_the_shipped_programs_is_mlir_or_declined_by_name() -> None:
    from jax._src.interpreters.mlir import make_ir_context
    from jaxlib.mlir import ir

    context = make_ir_context()
    parsed, declined = 0, Counter[str]()
    for path in FILES.values():
        for plan in planned(path, MACHINE, kernels=True).nested():
            for fusion in plan.fusions:
                text = as_mlir(fusion.schedule, fusion.name)
                if isinstance(text, Declined):
                    declined["an index with a maximum" if text.reason.startswith("the index max") else text.reason] += 1
                    continue
                module = ir.Module.parse(text, context)
                assert module.operation.verify()
                assert str(module.body.operations[0].attributes["sym_name"]) == f'"{fusion.name}"'
                parsed += 1
    assert declined == DECLINED
    assert parsed >= 30


def all_maps() -> list[indexing.IndexingMap]:
    found: dict[str, indexing.IndexingMap] = {}
    for path in FILES.values():
        for op in hlo.load(path).functions["main"].body.ops:
            rows = indexing.output_to_input(op) if op.operands and op.results else ()
            found |= {} if isinstance(rows, Declined) else {str(m): m for row in rows for m in row}
    return list(found.values())


def test_maps_go_to_mlir_and_back() -> None:
    maps = [m for m in all_maps() if not m.runtimes and m.unknown is None]
    assert len(maps) > 40
    for m in maps:
        text, domain = affine_map(m), affine_set(m)
        assert not isinstance(text, Declined) and not isinstance(domain, Declined)
        assert parse_affine_map(text, domain).to_isl().is_equal(m.to_isl()), m
        assert str(indexing.parse_map(str(m))) == str(m)  # XLA's text


@pytest.mark.jax
def test_mlir_reads_the_maps() -> None:
    from jax._src.interpreters.mlir import make_ir_context
    from jaxlib.mlir import ir

    context = make_ir_context()
    for m in all_maps():
        if not m.runtimes and m.unknown is None:
            text, domain = affine_map(m), affine_set(m)
            read = str(ir.Attribute.parse(str(text), context))  # in MLIR's own words
            assert parse_affine_map(read, str(ir.Attribute.parse(str(domain), context))).to_isl().is_equal(m.to_isl())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("affine_map<(d0) -> (d0 ** 2)>", "unexpected"),
        ("affine_map<(d0)>", "no affine_map"),
        ("(d0) -> (d0)", "no affine_map"),
        ("affine_map<(d0) -> (d9)>", "d9"),
    ],
)
def test_other_texts_are_refused(text: str, reason: str) -> None:
    with pytest.raises(hlo.ParseError):
        parse_affine_map(text)


def test_what_no_affine_map_says_is_declined() -> None:
    m = indexing.parse_map("(d0){rt0} -> (d0 + rt0), domain: d0 in [0, 3], rt0 in [0, 2]")
    assert isinstance(affine_map(m), Declined)


def test_isl_reads_the_loops_as_a_schedule_tree() -> None:
    read = 0
    for path in FILES.values():
        for plan in planned(path, MACHINE, kernels=True).nested():
            for fusion in plan.fusions:
                text = isl_schedule(fusion.schedule)
                if isinstance(text, Declined):
                    assert text.reason in ("a step of kind Scatter", "a step of kind Ordering")
                    continue
                tree = isl.Schedule.read_from_str(isl.DEFAULT_CONTEXT, text)
                assert not tree.get_domain().is_empty()
                placed = tree.get_map().intersect_domain(tree.get_domain())
                assert placed.domain().is_equal(tree.get_domain()) and placed.is_injective()
                read += 1
    assert read >= 30


def test_a_schedule_tree_generates_each_iteration_once() -> None:
    """isl's own code generator walks the tree: it has the loops that the schedule has."""
    schedule = planned(FILES["softmax"], MACHINE).fusions[0].schedule
    tree = isl.Schedule.read_from_str(isl.DEFAULT_CONTEXT, str(isl_schedule(schedule)))
    build = isl.AstBuild.alloc(isl.DEFAULT_CONTEXT)
    code = build.node_from_schedule(tree).to_C_str()
    nests = [n for p in schedule.phases for n in p.all_steps if isinstance(n, tiling.Nest)]
    assert code.count("for (") == 1 + sum(len(n.loops) for n in nests)


# (what a task of Python takes: seconds for those left to the slow tests)
SHORT = ("lstm_body", "top_k", "rotary", "mlp_gradient", "resnet_block", "max_pooling", "grouped_query_attention")


@pytest.mark.parametrize("name", [n if n in SHORT else pytest.param(n, marks=pytest.mark.slow) for n in FILES])
def test_functions_of_numpy_compute_what_the_machine_code_does(name: str) -> None:
    """The first task of each kernel, on arrays of the program's sizes."""
    for kernel in codegen.compile(hlo.load(FILES[name])).kernels:
        draw = np.random.default_rng(0)
        arrays = []
        for b in kernel.buffers:
            made = draw.integers(0, 4, b.size_elems) if b.element.dtype.kind in "iub" else draw.uniform(0.25, 1, b.size_elems)
            arrays.append(made.astype(b.element.dtype))
        before, expected = [a.copy() for a in arrays], [aligned(a) for a in arrays]
        kernel.function(0, 1, *arrays, *kernel.scratch())
        scratch = aligned(np.zeros(kernel.scratch_bytes + 64, np.uint8))
        places = (ctypes.c_void_p * len(expected))(*(a.ctypes.data for a in expected))
        entry = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(kernel.compiled.entry)
        entry(0, 1, places, scratch.ctypes.data)
        assert any(not np.array_equal(a, b) for a, b in zip(arrays, before, strict=True)), kernel.name
        for b, found, other in zip(kernel.buffers, arrays, expected, strict=True):
            # sums of 3,072 products come to 1,000 before a mean is taken off, and CPUs make them in other orders
            np.testing.assert_allclose(found, other, rtol=1e-4, atol=2e-4, err_msg=f"{kernel.name}: {b.name}")


def aligned(a: np.ndarray) -> np.ndarray:
    """A copy that begins with a cache line."""
    room = np.empty(a.nbytes + 64, np.uint8)
    first = -room.ctypes.data % 64
    made = room[first : first + a.nbytes].view(a.dtype)
    made[...] = a
    return made


def test_kernels_are_functions_of_numpy() -> None:
    """`Kernel.function` is the kernel as plain Python over flat arrays; it computes what the machine code does."""
    text = """func.func @main(%x: tensor<3x5xf32>) -> tensor<3xf32> {
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1] : (tensor<3x5xf32>, tensor<f32>) -> tensor<3xf32>
      return %s : tensor<3xf32>
    }"""  # noqa: E501
    executable = codegen.compile(hlo.parse(text))
    (kernel,) = executable.kernels
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    flat = [x.reshape(-1) if b.scope is tiling.Scope.ARGUMENT else np.zeros(3, np.float32) for b in kernel.buffers]
    kernel.function(0, kernel.tasks, *flat, *kernel.scratch())
    (result,) = (a for b, a in zip(kernel.buffers, flat, strict=True) if b.scope is tiling.Scope.RESULT)
    np.testing.assert_array_equal(result, executable(x)[0])
