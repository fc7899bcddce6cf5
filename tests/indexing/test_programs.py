"""Maps across many ops: fusions, calls, branches; runtime values that the program tells; collectives."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

import hlo
import interp
from indexing import Region, input_to_output, output_to_input, parse_map
from indexing.deriving.collectives import exchange_maps
from indexing.program import maps_from

FUSIONS = {
    "binary": (
        "p0 = f32[100] parameter(0)\n p1 = f32[100] parameter(1)\n ROOT a = f32[100] add(p0, p1)",
        "f32[100]",
        ["f32[100]", "f32[100]"],
        [["(d0) -> (d0), domain: d0 in [0, 99]"]] * 2,
    ),
    "reduce of reduce": (
        "p0 = f32[150, 20, 10, 50] parameter(0)\n p1 = f32[] parameter(1)\n"
        " r = f32[20, 10] reduce(p0, p1), dimensions={0, 3}, to_apply=max\n"
        " ROOT s = f32[10] reduce(r, p1), dimensions={0}, to_apply=max",
        "f32[10]",
        ["f32[150, 20, 10, 50]", "f32[]"],
        [
            ["(d0)[s0, s1, s2] -> (s0, s2, d0, s1), domain: d0 in [0, 9], s0 in [0, 149], s1 in [0, 49], s2 in [0, 19]"],
            ["(d0) -> (), domain: d0 in [0, 9]"],
        ],
    ),
    "reduce of broadcast": (
        "p0 = f32[15, 20] parameter(0)\n p1 = f32[] parameter(1)\n"
        " b = f32[15, 32, 20, 64] broadcast(p0), dimensions={0, 2}\n"
        " ROOT s = f32[15, 64] reduce(b, p1), dimensions={1, 2}, to_apply=max",
        "f32[15, 64]",
        ["f32[15, 20]", "f32[]"],
        [
            ["(d0, d1)[s0] -> (d0, s0), domain: d0 in [0, 14], d1 in [0, 63], s0 in [0, 19]"],
            ["(d0, d1) -> (), domain: d0 in [0, 14], d1 in [0, 63]"],
        ],
    ),
    "reversals and reshapes that cancel": (
        "p0 = f32[10, 11] parameter(0)\n a = f32[10, 11] reverse(p0), dimensions={0, 1}\n b = f32[110] reshape(a)\n"
        " c = f32[110] reverse(b), dimensions={0}\n ROOT d = f32[10, 11] reshape(c)",
        "f32[10, 11]",
        ["f32[10, 11]"],
        [["(d0, d1) -> (d0, d1), domain: d0 in [0, 9], d1 in [0, 10]"]],
    ),
    "concatenation of slices": (
        "p0 = f32[4] parameter(0)\n p1 = f32[4] parameter(1)\n a = f32[4] add(p0, p1)\n b = f32[2] slice(a), slice={[0:2]}\n"
        " e = f32[4] exponential(a)\n f = f32[2] slice(e), slice={[0:2]}\n g = f32[2] add(b, f)\n"
        " ROOT h = f32[4] concatenate(g, f), dimensions={0}",
        "f32[4]",
        ["f32[4]", "f32[4]"],
        [["(d0) -> (d0 - 2), domain: d0 in [2, 3]", "(d0) -> (d0), domain: d0 in [0, 1]"]] * 2,
    ),
    "slice of padding": (
        "p0 = f32[8] parameter(0)\n p1 = f32[] parameter(1)\n a = f32[20] pad(p0, p1), padding=8_4\n"
        " ROOT b = f32[4] slice(a), slice={[0:4]}",
        "f32[4]",
        ["f32[8]", "f32[]"],
        [[], ["(d0) -> (), domain: d0 in [0, 3]"]],
    ),
}


@pytest.mark.parametrize("name", FUSIONS)
def test_fusions_are_composed(name: str) -> None:
    body, out, types, want = FUSIONS[name]
    parameters = "\n ".join(f"p{k} = {t} parameter({k})" for k, t in enumerate(types))
    names = ", ".join(f"p{k}" for k in range(len(types)))
    text = (
        "HloModule m\nmax { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT m = f32[] maximum(a, b) }\n"
        f"f {{ {body} }}\nENTRY e {{ {parameters}\n ROOT r = {out} fusion({names}), kind=kLoop, calls=f }}"
    )
    op = hlo.parse(text).root
    assert [sorted(map(str, maps)) for maps in output_to_input(op)] == want
    for k, maps in enumerate(want):
        assert len(input_to_output(op, k)[0]) == len(maps)


def test_calls_and_branches_are_entered() -> None:
    module = hlo.parse("""
func.func @main(%a: tensor<4x3xf32>, %b: tensor<3xf32>, %p: tensor<i1>) -> tensor<3x4xf32> {
  %0 = call @turn(%a) : (tensor<4x3xf32>) -> tensor<3x4xf32>
  %1 = "stablehlo.if"(%p) ({
    %x = stablehlo.broadcast_in_dim %b, dims = [0] : (tensor<3xf32>) -> tensor<3x4xf32>
    stablehlo.return %x : tensor<3x4xf32>
  }, {
    %x = stablehlo.reverse %0, dims = [1] : tensor<3x4xf32>
    stablehlo.return %x : tensor<3x4xf32>
  }) : (tensor<i1>) -> tensor<3x4xf32>
  return %1 : tensor<3x4xf32>
}
func.func private @turn(%x: tensor<4x3xf32>) -> tensor<3x4xf32> {
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x3xf32>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}""")
    a, b, p = module.entry.arguments
    found = maps_from(module.root.result, module=module)
    assert str(found[a].only) == "(d0, d1) -> (-d1 + 3, d0), domain: d0 in [0, 2], d1 in [0, 3]"
    assert str(found[b].only) == "(d0, d1) -> (d0), domain: d0 in [0, 2], d1 in [0, 3]"
    assert str(found[p].only) == "(d0, d1) -> (), domain: d0 in [0, 2], d1 in [0, 3]"
    alone = maps_from(module.root.result)
    assert alone[a].only.is_unknown
    assert "inlined" in alone[a].only.unknown.reason


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        ("%i = stablehlo.constant dense<5> : tensor<i32>", "d0 + 5"),
        ("%i = stablehlo.constant dense<500> : tensor<i32>", "d0 + 56"),
        (
            "%t = stablehlo.iota dim = 0 : tensor<9xi32>\n %s = stablehlo.slice %t [3:4] : (tensor<9xi32>) -> tensor<1xi32>\n"
            " %d = stablehlo.add %s, %s : tensor<1xi32>\n %i = stablehlo.reshape %d : (tensor<1xi32>) -> tensor<i32>",
            "d0 + 6",
        ),
        ("%i = stablehlo.negate %n : tensor<i32>", "d0 + rt0"),
    ],
)
def test_runtime_values_that_the_program_tells_are_folded_in(offset: str, text: str) -> None:
    module = hlo.parse(f"""
func.func @main(%a: tensor<64xf32>, %n: tensor<i32>) -> tensor<8xf32> {{
  {offset}
  %r = stablehlo.dynamic_slice %a, %i, sizes = [8] : (tensor<64xf32>, tensor<i32>) -> tensor<8xf32>
  return %r : tensor<8xf32>
}}""")
    maps = output_to_input(module.root)
    assert str(maps[0].only.results[0]) == text
    assert str(maps[1].only) == "(d0) -> (), domain: d0 in [0, 7]"


def test_gather_at_an_iota_is_a_slice() -> None:
    module = hlo.parse("""
func.func @main(%a: tensor<64x4xf32>) -> tensor<8x4xf32> {
  %t = stablehlo.iota dim = 0 : tensor<8x1xi32>
  %c = stablehlo.constant dense<3> : tensor<8x1xi32>
  %i = stablehlo.multiply %t, %c : tensor<8x1xi32>
  %r = "stablehlo.gather"(%a, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 4>}
    : (tensor<64x4xf32>, tensor<8x1xi32>) -> tensor<8x4xf32>
  return %r : tensor<8x4xf32>
}""")
    assert str(output_to_input(module.root)[0].only) == "(d0, d1) -> (d0 * 3, d1), domain: d0 in [0, 7], d1 in [0, 3]"


GROUPS = "replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>"
COLLECTIVES = {
    "all_gather": (f'"stablehlo.all_gather"(%a) {{all_gather_dim = 1 : i64, {GROUPS}}}', "2x6", "2x18"),
    "all_to_all": (
        f'"stablehlo.all_to_all"(%a) {{split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 3 : i64, {GROUPS}}}',
        "2x6",
        "6x2",
    ),
    "all_to_all, one dimension": (
        f'"stablehlo.all_to_all"(%a) {{split_dimension = 1 : i64, concat_dimension = 1 : i64, split_count = 3 : i64, {GROUPS}}}',
        "2x6",
        "2x6",
    ),
    "collective_permute": (
        '"stablehlo.collective_permute"(%a) {source_target_pairs = dense<[[0, 1], [1, 2], [2, 0]]> : tensor<3x2xi64>}',
        "2x6",
        "2x6",
    ),
    "collective_broadcast": (f'"stablehlo.collective_broadcast"(%a) {{{GROUPS}}}', "2x6", "2x6"),
    "all_reduce": (
        '"stablehlo.all_reduce"(%a) ({\n ^bb0(%x: tensor<f32>, %y: tensor<f32>):\n  %s = stablehlo.add %x, %y : tensor<f32>\n'
        f"  stablehlo.return %s : tensor<f32>\n }}) {{{GROUPS}}}",
        "2x6",
        "2x6",
    ),
    "reduce_scatter": (
        '"stablehlo.reduce_scatter"(%a) ({\n ^bb0(%x: tensor<f32>, %y: tensor<f32>):\n  %s = stablehlo.add %x, %y : tensor<f32>\n'
        f"  stablehlo.return %s : tensor<f32>\n }}) {{scatter_dimension = 1 : i64, {GROUPS}}}",
        "2x6",
        "2x2",
    ),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_read_the_process_that_the_map_says(name: str) -> None:
    text, source, target = COLLECTIVES[name]
    module = hlo.parse(
        f"func.func @main(%a: tensor<{source}xf32>) -> tensor<{target}xf32> {{\n"
        f" %r = {text} : (tensor<{source}xf32>) -> tensor<{target}xf32>\n return %r : tensor<{target}xf32>\n}}"
    )
    # Powers of two: a sum tells which elements it is of.
    powers = [np.exp2(np.arange(12, dtype=np.float32) % 6 + 7 * k).reshape(2, 6).astype(np.float32) for k in range(3)]
    outputs = interp.run_parallel(module, [["main"]] * 3, *powers)
    (maps,) = exchange_maps(module.root)
    for p, index in product(range(3), np.ndindex(*outputs[0].shape)):
        read: set[tuple[int, ...]] = set()
        for m in maps:
            for s in product(*[range(b.lower, b.upper + 1) for _, b in m.ranges]):
                if m.holds([*map(int, index), p], s):
                    read.add(tuple(m.evaluate([*map(int, index), p], s)))
        assert sum(powers[q][tuple(at)] for q, *at in read) == outputs[p][index]
        (plain,) = output_to_input(module.root)
        assert {tuple(at) for _, *at in read} <= points_of(plain, [int(i) for i in index])


def points_of(maps: Sequence[object], index: list[int]) -> set[tuple[int, ...]]:
    return {q for m in maps for q in m.image(Region.box(index))}  # type: ignore[attr-defined]


def test_a_value_read_in_too_many_ways_says_so() -> None:
    lines = [f" %r{i} = stablehlo.slice %a [{i}:{i + 4}] : (tensor<99xf32>) -> tensor<4xf32>" for i in range(80)]
    lines.append(" %s0 = stablehlo.add %r0, %r1 : tensor<4xf32>")
    lines += [f" %s{i} = stablehlo.add %s{i - 1}, %r{i + 1} : tensor<4xf32>" for i in range(1, 79)]
    module = hlo.parse(
        "func.func @main(%a: tensor<99xf32>) -> tensor<4xf32> {\n" + "\n".join(lines) + "\n return %s78 : tensor<4xf32>\n}"
    )
    (found,) = maps_from(module.root.result)[module.entry.arguments[0]]
    assert "80 ways" in found.unknown.reason


def test_start_maps_come_from_another_space() -> None:
    module = hlo.parse("""
func.func @main(%a: tensor<4x6xf32>) -> tensor<24xf32> {
  %0 = stablehlo.reshape %a : (tensor<4x6xf32>) -> tensor<24xf32>
  return %0 : tensor<24xf32>
}""")
    start = parse_map("(t0)[s0] -> (t0 * 6 + s0), domain: t0 in [0, 3], s0 in [0, 5]")
    found = maps_from(module.root.result, start=start)[module.entry.arguments[0]]
    assert str(found.only) == "(t0)[s0] -> (t0, s0), domain: t0 in [0, 3], s0 in [0, 5]"


def test_an_empty_reduction_reads_its_init_value() -> None:
    module = hlo.parse("""
func.func @main(%a: tensor<0x3xf32>, %z: tensor<f32>) -> tensor<3xf32> {
  %0 = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [0]
    : (tensor<0x3xf32>, tensor<f32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}""")
    data, init = output_to_input(module.root)
    assert str(data.only) == "KNOWN EMPTY"
    assert str(init.only) == "(d0) -> (), domain: d0 in [0, 2]"
    assert str(input_to_output(module.root, 1)[0].only) == "()[s0] -> (s0), domain: s0 in [0, 2]"
