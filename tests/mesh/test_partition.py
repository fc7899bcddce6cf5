# ruff: noqa: E501  (programs are written as they are printed)
"""Programs in the global view: partitioned, they compute on a simulated grid what they compute whole, and send what is needed."""

from __future__ import annotations

import itertools
import json
import pathlib
import re

import numpy as np
import pytest

import hlo
import interp
from tests.mesh.global_programs import PROGRAMS, GlobalProgram, module_text
from tests.mesh.place_programs import PLACE_PROGRAMS
from tilewright import cli
from tilewright.check import compare
from tilewright.inputs import random_arrays
from tiling.mesh.annotations import AnnotationError, sharding_of
from tiling.mesh.mesh import Mesh
from tiling.mesh.moves import moves_between
from tiling.mesh.network import Network
from tiling.mesh.partition import Partitioned, partition
from tiling.mesh.relations import Loops, loops_of
from tiling.mesh.shardings import Digit, Sharding

BYTES_ALONE = Network(latency_seconds=0, work_per_second=1e18)  # values of this size are else gathered at once
X, Y = Digit(2, 2, "x"), Digit(1, 2, "y")


def on_a_grid(made: Partitioned, arrays: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """The results of a partitioned program on the simulated grid, put together."""
    n = made.mesh.size
    given = [np.array(s.shard(a, p), order="C") for p in range(n) for s, a in zip(made.arguments, arrays, strict=True)]
    found = interp.run_parallel(made.module, [["main"] * n], *given)
    k = len(made.results)
    rows = [[np.asarray(found[p * k + i]) for p in range(n)] for i in range(k)]
    return [s.joined(r, t.static_shape) for s, r, t in zip(made.results, rows, made.result_types, strict=True)]


@pytest.mark.parametrize("program", [*PROGRAMS, *PLACE_PROGRAMS], ids=lambda p: p.name)
def test_a_partitioned_program_is_the_program_and_sends_no_more_than_is_needed(program: GlobalProgram) -> None:
    module = hlo.parse(program.text)
    hlo.verify(module)
    made = partition(module, network=BYTES_ALONE)
    arrays = random_arrays(module.entry, 3, module)
    expected = interp.evaluate(module, *arrays)
    for found, whole in zip(on_a_grid(made, arrays), expected, strict=True):
        assert compare(found, np.asarray(whole)).passed
    assert tuple(c.kind for c in made.communications) == program.kinds, made.explain()
    assert made.sent_bytes == program.sent
    assert not made.kept_whole
    again = hlo.parse(str(made.module))
    hlo.verify(again)


def test_a_body_for_one_process_is_taken_as_it_is() -> None:
    text = """module { sdy.mesh @m = <["x"=2, "y"=2]>
      func.func @main(%a: tensor<8x16xf32>) -> tensor<8x8xf32> {
        %0 = sdy.manual_computation(%a) in_shardings=[<@m, [{"x"}, {"y"}]>] out_shardings=[<@m, [{"x"}, {}]>] manual_axes={"x", "y"}
          (%b: tensor<4x8xf32>) {
          %1 = "stablehlo.all_reduce"(%b) ({ ^bb0(%p: tensor<f32>, %q: tensor<f32>): %s = stablehlo.add %p, %q : tensor<f32>
            stablehlo.return %s : tensor<f32> }) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
            replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids} : (tensor<4x8xf32>) -> tensor<4x8xf32>
          %2 = func.call @twice(%1) : (tensor<4x8xf32>) -> tensor<4x8xf32>
          sdy.return %2 : tensor<4x8xf32>
        } : (tensor<8x16xf32>) -> tensor<8x8xf32>
        return %0 : tensor<8x8xf32> }
      func.func private @twice(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
        %0 = stablehlo.add %a, %a : tensor<4x8xf32>
        return %0 : tensor<4x8xf32> } }"""
    made = partition(hlo.parse(text))
    x = np.arange(128, dtype=np.float32).reshape(8, 16)
    (found,) = on_a_grid(made, (x,))
    assert np.array_equal(found, 2 * (x[:, :8] + x[:, 8:]))
    assert [str(s) for s in made.results] == ["[{x}, {}]"]


PARTLY_OWN = """module { sdy.mesh @m = <["x"=2, "y"=2]>
  func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {}]>},
                  %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@m, [{}, {"y"}]>})
      -> (tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@m, [{}, {"y"}]>}) {
    %0:2 = sdy.manual_computation(%a, %b) in_shardings=[<@m, [{"x", ?}, {?}]>, <@m, [{?}, {?}]>]
        out_shardings=[<@m, [{?}, {?}]>, <@m, [{?}, {?}]>] manual_axes={"x"} (%c: tensor<4x8xf32>, %d: tensor<8x8xf32>) {
      %1 = stablehlo.dot_general %c, %d, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
      %2 = sdy.sharding_constraint %1 <@m, [{?}, {?}]> : tensor<4x8xf32>
      %3 = "stablehlo.all_reduce"(%2) ({ ^bb0(%p: tensor<f32>, %q: tensor<f32>): %s = stablehlo.add %p, %q : tensor<f32>
        stablehlo.return %s : tensor<f32> }) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
        replica_groups = dense<GROUPS> : tensor<2x2xi64>, use_global_device_ids} : (tensor<4x8xf32>) -> tensor<4x8xf32>
      %4 = "stablehlo.all_gather"(%c) {all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 2, type = 1>,
        replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, use_global_device_ids} : (tensor<4x8xf32>) -> tensor<8x8xf32>
      sdy.return %3, %4 : tensor<4x8xf32>, tensor<8x8xf32>
    } : (tensor<8x8xf32>, tensor<8x8xf32>) -> (tensor<4x8xf32>, tensor<8x8xf32>)
    return %0#0 : tensor<4x8xf32> } }"""


@pytest.mark.parametrize(
    ("groups", "sent"),
    [
        ("[[0, 2], [1, 3]]", ["all_reduce along x: each process sends 64 bytes"]),
        # Partners that differ in y hold different tiles: they get whole shards.
        ("[[0, 3], [1, 2]]", ["all_gather along y: each process sends 64 bytes", "all_reduce along x, y: each process sends 128 bytes"]),
    ],
)  # fmt: skip
def test_axes_that_a_body_leaves_are_the_partitioners(groups: str, sent: list[str]) -> None:
    """The product is in columns along y; a result that nobody reads is not gathered."""
    made = partition(hlo.parse(PARTLY_OWN.replace("GROUPS", groups)))
    a, b = (np.arange(k, k + 64, dtype=np.float32).reshape(8, 8) for k in (0, 7))
    (found,) = on_a_grid(made, (a, b))
    assert np.array_equal(found, a[:4] @ b + a[4:] @ b)
    assert [re.sub(r" of \S+ ", " ", str(c)).split(";")[0] for c in made.communications] == sent


def test_a_constraint_leaves_open_dimensions_as_they_are() -> None:
    text = """module { sdy.mesh @m = <["x"=2, "y"=2]>
      func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {"y"}]>}) -> tensor<8x8xf32> {
        %0 = sdy.sharding_constraint %a <@m, [{?}, {}]> : tensor<8x8xf32>
        return %0 : tensor<8x8xf32> } }"""
    made = partition(hlo.parse(text))
    assert [str(s) for s in made.results] == ["[{x}, {}]"]
    assert [(c.kind, c.sent_bytes) for c in made.communications] == [("all_gather", 64)]


def test_xlas_calls_into_a_part_for_one_process_and_out_of_it() -> None:
    """As JAX printed `shard_map` before Shardy."""
    text = """module attributes {mhlo.num_partitions = 4 : i32} {
      func.func @main(%a: tensor<8x16xf32> {mhlo.sharding = "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"}) -> tensor<8x8xf32> {
        %0 = stablehlo.custom_call @Sharding(%a) {mhlo.sharding = "{devices=[2,2]<=[4]}"} : (tensor<8x16xf32>) -> tensor<8x16xf32>
        %1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {mhlo.sharding = "{manual}"} : (tensor<8x16xf32>) -> tensor<4x8xf32>
        %2 = stablehlo.constant dense<2.0> : tensor<4x8xf32>
        %3 = stablehlo.multiply %1, %2 : tensor<4x8xf32>
        %4 = "stablehlo.all_reduce"(%3) ({ ^bb0(%p: tensor<f32>, %q: tensor<f32>): %s = stablehlo.add %p, %q : tensor<f32>
          stablehlo.return %s : tensor<f32> }) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
          replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids} : (tensor<4x8xf32>) -> tensor<4x8xf32>
        %5 = stablehlo.custom_call @Sharding(%4) {mhlo.sharding = "{manual}"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
        %6 = stablehlo.custom_call @SPMDShardToFullShape(%5) {mhlo.sharding = "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"}
          : (tensor<4x8xf32>) -> tensor<8x8xf32>
        %7 = stablehlo.negate %6 : tensor<8x8xf32>
        %8 = stablehlo.custom_call @Sharding(%7) {mhlo.sharding = "{replicated}"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
        return %8 : tensor<8x8xf32> } }"""
    made = partition(hlo.parse(text))
    x = np.arange(128, dtype=np.float32).reshape(8, 16)
    (found,) = on_a_grid(made, (x,))
    assert np.array_equal(found, -2 * (x[:, :8] + x[:, 8:]))
    assert [c.kind for c in made.communications] == ["all_reduce", "all_gather"]  # the body's own is counted, too


@pytest.mark.parametrize(("dimensions", "expected"), [("[1]", True), ("[0, 1]", False), ("[0]", False)])
def test_an_op_on_tiles_that_reads_something_else_is_refuted(dimensions: str, expected: bool) -> None:
    text = "func.func @main(%a: tensor<NxKxf32>) -> tensor<NxKxf32> {{ %r = stablehlo.reverse %a, dims = {} : tensor<NxKxf32> return %r : tensor<NxKxf32> }}"
    whole = hlo.parse(text.replace("N", "8").replace("K", "8").format("[1]")).root
    local = hlo.parse(text.replace("N", "4").replace("K", "8").format(dimensions)).root
    loops = loops_of(whole)
    assert isinstance(loops, Loops)
    assert loops.proved(local, {loops.dims[0]: (Y,)}, (Sharding(((Y,), ())),), {}) is expected


@pytest.mark.parametrize("seed", range(40))
def test_moves_lead_from_one_sharding_to_another(seed: int) -> None:
    """Any two shardings over three axes, by a program of one identity that is wanted otherwise; also of sizes that none divides."""
    shape = (8, 8, 8) if seed < 20 else (5, 6, 3)
    t = "x".join(map(str, shape)) + "xi32"
    chance = np.random.default_rng(seed)
    digits = [Digit(4, 2, "x"), Digit(2, 2, "y"), Digit(1, 2, "z")]

    def any_sharding() -> str:
        dims: list[list[str]] = [[], [], []]
        for d in chance.permutation(3):
            k = int(chance.integers(4))
            if k < 3:
                dims[k].append(f'"{digits[d].name}"')
        return "[" + ", ".join("{" + ", ".join(dim) + "}" for dim in dims) + "]"

    source, target = any_sharding(), any_sharding()
    text = f"""module {{ sdy.mesh @m = <["x"=2, "y"=2, "z"=2]>
      func.func @main(%a: tensor<{t}> {{sdy.sharding = #sdy.sharding<@m, {source}>}})
        -> (tensor<{t}> {{sdy.sharding = #sdy.sharding<@m, {target}>}}) {{ return %a : tensor<{t}> }} }}"""
    made = partition(hlo.parse(text))
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    (found,) = on_a_grid(made, (x,))
    assert np.array_equal(found, x)


@pytest.mark.parametrize(
    ("source", "target", "kinds"),
    [
        (((X,), ()), ((X,), (Y,)), ["slice"]),
        (((X, Y), ()), ((X,), (Y,)), ["all_to_all"]),
        (((X,), ()), ((Y,), ()), ["slice", "all_gather"]),
        (((X,), (Y,)), ((Y,), (X,)), ["permute"]),
        (((X, Y), ()), ((), ()), ["all_gather"]),
    ],
)
def test_which_moves(source: tuple[tuple[Digit, ...], ...], target: tuple[tuple[Digit, ...], ...], kinds: list[str]) -> None:
    found = [m.kind for m in moves_between(Sharding(source), Sharding(target))]
    if kinds == ["slice", "all_gather"]:  # a digit cannot be put in front of another: all of it is gathered first
        kinds = ["all_gather", "slice"]
    assert found == kinds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('#sdy.sharding<@m, [{"x", ?}, {?}], replicated={"y"}>', "[{x}, {}]"),
        ('#sdy.sharding<@m, [{"y":(1)2}p1, {"x"}]>', "[{y:(1)2}, {x}]"),
        ("{devices=[4,2]<=[8]}", "[{2:4}, {1:2}]"),
        ("{devices=[1,8]<=[2,4]T(1,0)}", "[{}, {1:4, 4:2}]"),
        ("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", "[{4:2}, {}]"),
        ("{devices=[2,1,4]0,1,2,3,4,5,6,7 last_tile_dim_replicate}", "[{4:2}, {}]"),
        ("{devices=[1,8]0,4,1,5,2,6,3,7}", "[{}, {2:2, 1:2, 4:2}]"),
    ],
)
def test_shardings_as_they_are_written(text: str, expected: str) -> None:
    assert str(sharding_of(text, {"m": Mesh({"x": 2, "y": 4})})) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('#sdy.sharding<@n, [{"x"}]>', "found no mesh @n"),
        ('#sdy.sharding<@m, [{"z"}]>', "the mesh has no axis 'z'; it has 'x', 'y'"),
        ("{devices=[2]1,0}", "only devices that digits of their tiles number are read"),
        ("{devices=[4]0,1}", "expected 4 devices, found 2"),
    ],
)
def test_shardings_that_mean_nothing(text: str, message: str) -> None:
    with pytest.raises(AnnotationError) as e:
        sharding_of(text, {"m": Mesh({"x": 2, "y": 4})})
    assert message in str(e.value)


@pytest.mark.parametrize(
    ("sharding", "message"),
    [
        ('#sdy.sharding<@m, [{"x"}, {"x"}]>', r"sharding \[\{x\}, \{x\}\]: expected each axis once"),
        ("{devices=[4,1]<=[4]}", "the shardings are for 4 processes or more, found the mesh x=2"),
    ],
)
def test_shardings_that_do_not_go_with_the_mesh(sharding: str, message: str) -> None:
    name = "mhlo.sharding" if sharding[0] == "{" else "sdy.sharding"
    given = f'"{sharding}"' if sharding[0] == "{" else sharding
    text = f"""module {{ sdy.mesh @m = <["x"=2]>
      func.func @main(%a: tensor<8x8xf32> {{{name} = {given}}}) -> tensor<8x8xf32> {{ return %a : tensor<8x8xf32> }} }}"""
    with pytest.raises(AnnotationError, match=message):
        partition(hlo.parse(text))


def test_devices_in_an_order_of_their_own_are_told() -> None:
    text = 'module { sdy.mesh @m = <["x"=2], device_ids=[1, 0]> func.func @main() { return } }'
    with pytest.raises(AnnotationError, match=r"sdy.mesh @m: expected devices in their order, found \[1, 0\]"):
        partition(hlo.parse(text))


def test_a_mesh_of_one_process_holds_everything() -> None:
    program = next(p for p in PROGRAMS if p.name == "MLP, data and tensor parallel")
    made = partition(hlo.parse(program.text), mesh=Mesh({"x": 1, "y": 1}))
    assert made.mesh.size == 1 and not made.communications and all(s.is_whole for s in (*made.arguments, *made.results))


def test_what_was_dearer_is_told_and_the_network_decides() -> None:
    """A product whose factors are both in parts of what is summed: a sum of results, or the factors gathered."""
    text = """module { sdy.mesh @m = <["x"=4]>
      func.func @main(%a: tensor<64x64xf32> {sdy.sharding = #sdy.sharding<@m, [{}, {"x"}]>},
                      %b: tensor<64x4xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {}]>})
          -> (tensor<64x4xf32> {sdy.sharding = #sdy.sharding<@m, [{}, {}]>}) {
        %r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x4xf32>) -> tensor<64x4xf32>
        return %r : tensor<64x4xf32> } }"""
    module = hlo.parse(text)
    (sum_of_results,) = partition(module, network=Network(1e-6, 1e9)).communications
    assert sum_of_results.kind == "all_reduce" and "all_gather of %a" in sum_of_results.alternative
    assert "\n    dearer by " in str(sum_of_results)
    slow = partition(module, network=Network(0.0, 1e3)).communications
    assert [c.kind for c in slow] == ["all_reduce"] and "dearer by" in str(slow[0])


def test_memory_is_a_limit() -> None:
    program = next(p for p in PROGRAMS if p.name == "MLP, tensor parallel")
    made = partition(hlo.parse(program.text))
    held = 4 * (8 * 16 + 16 * 8 + 8 * 16)
    assert made.peak_bytes == held + 4 * (8 * 16 + 8 * 16)  # with the partial sums and the sums
    assert partition(hlo.parse(program.text), memory_bytes=made.peak_bytes).peak_bytes <= made.peak_bytes
    with pytest.raises(AnnotationError, match=r"expected at most 1000 bytes for each process, found .* at least"):
        partition(hlo.parse(program.text), memory_bytes=1000)


def test_a_mesh_of_thousands_is_planned_for_without_it(capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    """Data and tensor parallel layers on 64 x 64 processes: what each holds and sends, and how that grows."""
    text = """module { sdy.mesh @m = <["x"=2, "y"=2]>
      func.func @main(%a: tensor<4096x1024xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {}]>},
                      %b: tensor<1024x4096xf32> {sdy.sharding = #sdy.sharding<@m, [{}, {"y"}]>},
                      %c: tensor<4096x1024xf32> {sdy.sharding = #sdy.sharding<@m, [{"y"}, {}]>})
          -> (tensor<4096x1024xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {}]>}) {
        %h = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<4096x1024xf32>, tensor<1024x4096xf32>) -> tensor<4096x4096xf32>
        %t = stablehlo.tanh %h : tensor<4096x4096xf32>
        %r = stablehlo.dot_general %t, %c, contracting_dims = [1] x [0] : (tensor<4096x4096xf32>, tensor<4096x1024xf32>) -> tensor<4096x1024xf32>
        return %r : tensor<4096x1024xf32> } }"""
    (tmp_path / "a.mlir").write_text(text)
    assert cli.main(["plan", "--mesh", "x=64,y=64", "--json", str(tmp_path / "a.mlir")]) == 0
    document = json.loads(capsys.readouterr().out)
    last = document["growth"][-1]
    rows = 4096 // 64 * 1024 * 4
    assert last["processes"] == 4096 and last["held_bytes"] == 2 * rows + 2 * (1024 * 4096 // 64 * 4)
    assert [c["kind"] for c in document["communications"]] == ["all_reduce"] and last["sent_bytes"] == 2 * rows * 63 // 64
    assert [row["processes"] for row in document["growth"]] == [2**k for k in range(1, 13)]
    assert cli.main(["plan", "--mesh", "x=64,z=64", str(tmp_path / "a.mlir")]) == cli.USAGE
    assert "the module is for the mesh @m of x=2,y=2, found x=64,z=64" in capsys.readouterr().err


@pytest.mark.parametrize("n", [15, 16])
def test_elements_along_a_dimension_however_they_are_spread(n: int) -> None:
    """`take_along_axis`: a table that is spread along one batch, and numbers along another one, meet on both."""
    gather = f"""%r = "stablehlo.gather"(%a, %i) <{{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
      operand_batching_dims = [1, 2], start_indices_batching_dims = [1, 2], start_index_map = [0], index_vector_dim = 3>,
      slice_sizes = array<i64: 1, 1, 1>}}> : (tensor<2x{n}x8xi32>, tensor<1x{n}x8x1xi32>) -> tensor<1x{n}x8xi32>"""
    table = np.arange(16 * n, dtype=np.int32).reshape(2, n, 8)
    numbers = (np.arange(8 * n, dtype=np.int32) * 7 % 2).reshape(1, n, 8, 1)
    expected = np.take_along_axis(table, numbers[..., 0], 0)
    ways = list(itertools.product(["{}", '{"y"}'], ["{}", '{"x"}']))
    for of_table, of_numbers, of_result in itertools.product(ways, repeat=3):
        given = [(f"2x{n}x8xi32", f"[{{}}, {', '.join(of_table)}]"), (f"1x{n}x8x1xi32", f"[{{}}, {', '.join(of_numbers)}, {{}}]")]
        text = module_text(
            '"x"=2, "y"=3', given, f"{gather}\n return %r : tensor<1x{n}x8xi32>".replace("%a,", "%a0,").replace("%i)", "%a1)"),
            [(f"1x{n}x8xi32", f"[{{}}, {', '.join(of_result)}]")],
        )  # fmt: skip
        (found,) = on_a_grid(partition(hlo.parse(text)), (table, numbers))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("function", "start", "in_parts"), [("add", "(0.0, 0.0)", True), ("multiply", "(1.0, 0.0)", False)])
def test_parts_of_complex_sums_alone_are_combined(function: str, start: str, in_parts: bool) -> None:
    """A part of a product that begins with 1 changes an infinity: (1 + 0i) (inf + 0i) has a NaN."""
    text = module_text(
        '"x"=4', [("8x4xcomplex<f32>", '[{"x"}, {}]')],
        f"""  %z = stablehlo.constant dense<{start}> : tensor<complex<f32>>
  %r = stablehlo.reduce(%a0 init: %z) applies stablehlo.{function} across dimensions = [0]
       : (tensor<8x4xcomplex<f32>>, tensor<complex<f32>>) -> tensor<4xcomplex<f32>>
  return %r : tensor<4xcomplex<f32>>""", [("4xcomplex<f32>", "[{}]")],
    )  # fmt: skip
    module = hlo.parse(text)
    made = partition(module, network=BYTES_ALONE)
    assert ("all_reduce" in [c.kind for c in made.communications]) == in_parts
    x = np.random.default_rng(0).integers(-2, 3, (2, 8, 4)).astype(np.float32)
    z = x[0] + 1j * x[1]
    (found,), (expected,) = on_a_grid(made, (z,)), interp.evaluate(module, z)
    np.testing.assert_array_equal(found, np.asarray(expected))
