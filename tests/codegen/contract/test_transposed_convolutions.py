"""Convolutions of dilated inputs, residue by residue: agreement with the evaluator, also where weights are not finite."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest

import codegen
import hlo
import interp
from tests.pairs import fast_cover
from tiling.loops.element_ir import Scalar
from tiling.loops.ir import Contract, LoopKind, Nest, Store
from tiling.planning.model import Fusion
from tiling.planning.plan import plan
from tiling.proving.obligations import prove


@dataclass(frozen=True)
class Transposed:
    """A convolution of x with `holes` - 1 zeros between its elements, channels last or first."""

    size: tuple[int, ...] = (9, 14)
    window: tuple[int, ...] = (3, 3)
    channels: tuple[int, int] = (24, 32)
    holes: tuple[int, ...] = (2, 2)
    stride: tuple[int, ...] = (1, 1)
    spread: tuple[int, ...] = (1, 1)
    pads: tuple[tuple[int, int], ...] = ((1, 2), (1, 2))
    groups: int = 1
    batch: int = 2
    first: bool = False
    reverse: bool = False
    types: tuple[str, str, str] = ("f32", "f32", "f32")

    @property
    def result(self) -> tuple[int, ...]:
        parts = zip(self.size, self.window, self.holes, self.stride, self.spread, self.pads, strict=True)
        return tuple(((n - 1) * h + 1 + sum(p) - ((w - 1) * d + 1)) // s + 1 for n, w, h, s, d, p in parts)

    @property
    def text(self) -> str:
        rank, (cin, cout) = len(self.size), self.channels

        def tensor(lead: int, channels: int, spatial: tuple[int, ...], element: str) -> str:
            shape = (lead, channels, *spatial) if self.first else (lead, *spatial, channels)
            return f"tensor<{'x'.join(map(str, shape))}x{element}>"

        places = ", ".join(map(str, range(rank)))
        data = f"[b, f, {places}]" if self.first else f"[b, {places}, f]"
        kernel = f"[o, i, {places}]" if self.first else f"[{places}, i, o]"
        w = (cout, cin // self.groups, *self.window) if self.first else (*self.window, cin // self.groups, cout)
        a = tensor(self.batch, cin, self.size, self.types[0])
        b = f"tensor<{'x'.join(map(str, w))}x{self.types[1]}>"
        c = tensor(self.batch, cout, self.result, self.types[2])
        numbers = lambda name, values: f"{name} = array<i64: {', '.join(map(str, values))}>"  # noqa: E731
        return f"""func.func @main(%a: {a}, %b: {b}) -> {c} {{
          %r = "stablehlo.convolution"(%a, %b) {{
            {numbers("window_strides", self.stride)}, padding = dense<{[list(p) for p in self.pads]}> : tensor<{rank}x2xi64>,
            {numbers("lhs_dilation", self.holes)}, {numbers("rhs_dilation", self.spread)},
            window_reversal = array<i1: {", ".join([str(self.reverse).lower()] * rank)}>,
            dimension_numbers = #stablehlo.conv<{data}x{kernel}->{data}>,
            feature_group_count = {self.groups} : i64, batch_group_count = 1 : i64
          }} : ({a}, {b}) -> {c}
          return %r : {c} }}"""


def arrays_for(case: Transposed, seed: int = 0) -> tuple[hlo.Module, list[np.ndarray]]:
    module, rng = hlo.parse(case.text), np.random.default_rng(seed)
    found = []
    for v in module.entry.arguments:
        kind = v.tensor.element.dtype
        if kind.kind in "iu":
            found.append(rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, v.shape, kind, endpoint=True))
        else:
            found.append(rng.standard_normal(v.shape).astype(kind))
    return module, found


def agree(case: Transposed, module: hlo.Module, arrays: list[np.ndarray]) -> None:
    executable = codegen.compile(module)
    assert not executable.fallbacks
    (found,), (expected,) = executable(*arrays), interp.evaluate(module, *arrays)
    if expected.dtype.kind in "iu":
        np.testing.assert_array_equal(found, expected)
        return
    finite = expected[np.isfinite(expected.astype(np.float64))].astype(np.float64)
    limit = {"bf16": 1e-2, "f16": 2e-3, "f32": 2e-5, "f64": 1e-12}[case.types[2]]
    atol = limit * np.abs(finite).max(initial=0)
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=0, atol=atol)


def products(module: hlo.Module) -> list[Contract]:
    (fusion,) = (s for s in plan(module).steps if isinstance(s, Fusion))
    return [s for s in fusion.schedule.main.steps if isinstance(s, Contract)]


CASES = {
    "last": Transposed(),
    "first": Transposed(first=True),
    "reversed": Transposed(first=True, reverse=True, channels=(20, 48)),
    "few_columns": Transposed(first=True, channels=(40, 3)),
    "few_channels": Transposed(size=(9, 34), channels=(40, 3), window=(4, 4), pads=((2, 2), (2, 2))),
    "few_channels_of_five": Transposed(size=(33, 18), channels=(40, 8), window=(5, 5), pads=((3, 2), (3, 2)), batch=1),
    "few_channels_line": Transposed((70,), (4,), (48, 3), (2,), (1,), (1,), ((2, 2),)),
    "few_columns_of_five": Transposed(
        size=(33, 34), first=True, channels=(40, 3), window=(5, 5), pads=((3, 2), (3, 2)), batch=1),
    "short_columns": Transposed(size=(8, 8), first=True, channels=(64, 8), window=(4, 4), pads=((2, 2), (2, 2))),
    "window_of_two": Transposed(window=(2, 2), pads=((1, 1), (1, 1))),
    "window_of_four": Transposed(window=(4, 4), pads=((2, 2), (2, 2))),
    "three": Transposed(window=(5, 4), holes=(3, 3), pads=((0, 1), (2, 0))),
    "one_way": Transposed(holes=(1, 2)),
    "different": Transposed(window=(4, 5), holes=(2, 3)),
    "strided": Transposed(holes=(4, 3), stride=(2, 2), window=(5, 5)),
    "spread": Transposed(spread=(3, 2), holes=(2, 3)),
    "spread_as_far": Transposed(spread=(2, 2)),
    "uneven": Transposed(size=(13, 17), window=(3, 5), pads=((0, 0), (3, 1))),
    "large": Transposed(size=(31, 33), batch=1, channels=(32, 64)),
    "line": Transposed((37,), (4,), (32, 48), (2,), (1,), (1,), ((2, 2),)),
    "line_first": Transposed((37,), (4,), (32, 48), (2,), (1,), (1,), ((2, 2),), first=True),
    "space": Transposed((5, 6, 7), (3, 2, 3), (8, 16), (2, 2, 2), (1,) * 3, (1,) * 3, ((1, 1),) * 3, batch=1),
    "groups": Transposed(groups=2, channels=(16, 32)),
    "small_groups": Transposed(size=(14, 14), groups=32, channels=(128, 128)),
    "each_channel": Transposed(groups=24, channels=(24, 24)),
    "each_channel_first": Transposed(groups=24, channels=(24, 24), first=True),
    "no_window": Transposed(window=(1, 1), pads=((0, 1), (1, 0))),
}


@pytest.mark.parametrize("name", CASES)
def test_agreement(name: str) -> None:
    case = CASES[name]
    agree(case, *arrays_for(case))


TYPES = [("bf16",) * 3, ("f16", "f16", "f32"), ("f64",) * 3, ("i8", "i8", "i32"), ("i32",) * 3]


@pytest.mark.parametrize(("types", "first"), fast_cover(itertools.product(TYPES, [False, True]), strength=1))
def test_other_types(types: tuple[str, str, str], first: bool) -> None:
    case = Transposed(types=types, first=first)
    agree(case, *arrays_for(case))


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.machine("avx512")
def test_holes_are_not_multiplied(first: bool) -> None:
    """Each of the four residues sums up its own taps: 1, 2, 2 and 4 of the window's 9."""
    case = Transposed(first=first, size=(16, 16), channels=(32, 64))
    assert sorted(s.depth // 32 for s in products(hlo.parse(case.text))) == [1, 2, 2, 4]
    bytes_too = Transposed(first=first, size=(16, 16), channels=(32, 64), types=("i8", "i8", "i32"))
    assert len(products(hlo.parse(bytes_too.text))) == 4


@pytest.mark.parametrize(
    ("bad", "name", "kind"),
    fast_cover(itertools.product([np.inf, -np.inf, np.nan], ["last", "first", "three", "line", "each_channel"], ["f32", "bf16"])),
)
def test_a_hole_times_a_weight_that_is_not_finite_is_not_a_number(bad: float, name: str, kind: str) -> None:
    """0 inf is NaN also where the zero is a hole: results that a window's hole meets there are NaN, others are not."""
    case = CASES[name]
    case = Transposed(**{**case.__dict__, "types": (kind,) * 3})
    module, (x, w) = arrays_for(case)
    w.reshape(-1)[w.size // 3] = bad
    (expected,) = interp.evaluate(module, x, w)
    missing = np.isnan(expected.astype(np.float32))
    assert missing.any() and not missing.all()
    agree(case, module, [x, w])


def test_inputs_that_are_not_finite_reach_their_windows_only() -> None:
    module, (x, w) = arrays_for(CASES["last"])
    x[0, 4, 5, 6], x[1, 2, 3, 4] = np.inf, np.nan
    agree(CASES["last"], module, [x, w])


@pytest.mark.parametrize("name", ["last", "first", "uneven", "line", "no_window", "few_channels", "few_columns_of_five"])
def test_the_schedules_are_proved(name: str) -> None:
    case = CASES[name]
    small = replace(case, channels=(8, 3 if case.channels[1] == 3 else 16))
    proof = prove(plan(hlo.parse(small.text)))
    assert proof.holds, proof


@pytest.mark.machine("avx512")
def test_what_is_not_finite_runs_in_loops_over_everything() -> None:
    (fusion,) = (s for s in plan(hlo.parse(CASES["large"].text)).steps if isinstance(s, Fusion))
    main = fusion.schedule.main
    assert [f.limits[0][1] for f in main.flags] == [np.finfo(np.float32).max]
    assert sum(isinstance(s, Nest) and bool(s.folds) for s in main.steps) == 1


@pytest.mark.machine("avx512")
def test_a_window_of_one_leaves_zeros_between_its_results() -> None:
    module = hlo.parse(CASES["no_window"].text)
    (fusion,) = (s for s in plan(module).steps if isinstance(s, Fusion))
    assert len(products(module)) == 1
    zeros = [x for s in fusion.schedule.main.steps if isinstance(s, Nest) for x in s.stores if isinstance(x.node, Scalar)]
    assert len(zeros) == 3


@pytest.mark.machine("avx512")
def test_the_weights_are_copied_once_for_all_residues() -> None:
    (fusion,) = (s for s in plan(hlo.parse(CASES["first"].text)).steps if isinstance(s, Fusion))
    packs = [p for p in fusion.schedule.phases[:-1] if any(isinstance(s, Nest) for s in p.steps)]
    assert len(packs) == 1 and len(products(hlo.parse(CASES["first"].text))) == 4


@pytest.mark.parametrize("kind", ["f32", "bf16", "f64"])
@pytest.mark.machine("avx512")
def test_few_channels_are_rows_of_windows_that_lie_as_their_columns(kind: str) -> None:
    """Places of an image fill the vectors that three channels leave empty, and no residue turns what it reads by itself."""
    case = Transposed(size=(32, 32), channels=(64, 3), window=(4, 4), pads=((2, 2), (2, 2)), types=(kind,) * 3)
    found = products(hlo.parse(case.text))
    assert len(found) == 4
    for s in found:
        assert (s.m, s.n) == (3, 32) and not s.pack
        assert s.right.buffer.name.endswith("_window") and s.right.column_stride == 1
    assert len({s.right.buffer for s in found}) == 1
    many = replace(case, channels=(64, 32))
    assert all(s.n == 32 and s.column_dimension == (3,) for s in products(hlo.parse(many.text)))


@pytest.mark.parametrize("channels", [3, 8, 16, 64])
@pytest.mark.machine("avx512")
def test_planes_are_multiplied_in_their_windows_place(channels: int) -> None:
    """Channels first: rows of a window are panels as they lie, and all channels of a result are rows that meet one."""
    case = Transposed(size=(64, 64), channels=(64, channels), window=(4, 4), pads=((2, 2), (2, 2)), batch=1, first=True)
    found = products(hlo.parse(case.text))
    assert len(found) == 4
    assert all(s.m == channels and s.n == 64 and s.right.buffer.name.endswith("_window") and not s.pack for s in found)


@pytest.mark.machine("avx512")
def test_half_a_vector_of_columns_is_better_than_plain_loops() -> None:
    """Neither eight channels nor eight places of a row fill a vector of sixteen, and the result is consecutive along neither."""
    assert [s.n for s in products(hlo.parse(CASES["short_columns"].text))] == [8] * 4


@pytest.mark.parametrize(("window", "pads"), [(5, (3, 2)), (4, (2, 2))])
@pytest.mark.machine("avx512")
def test_one_channel_has_products_of_one_row(window: int, pads: tuple[int, int]) -> None:
    case = Transposed(size=(64, 64), channels=(64, 1), window=(window,) * 2, pads=(pads,) * 2, batch=1, first=True)
    found = products(hlo.parse(case.text))
    assert [(s.m, s.n, s.right.buffer.name.endswith("_window")) for s in found] == [(1, 64, True)] * 4


@pytest.mark.machine("avx512")
def test_groups_of_few_channels_go_lane_by_lane_between_holes() -> None:
    """All groups' members side by side fill the vectors, which a block of a group's four rows would not do better."""
    case = CASES["small_groups"]
    (fusion,) = (s for s in plan(hlo.parse(case.text)).steps if isinstance(s, Fusion))
    sums = [s for s in fusion.schedule.main.steps if isinstance(s, Nest) and s.folds]
    assert not products(hlo.parse(case.text)) and len(sums) == 5  # of four residues, and of everything while the flag is 0
    wide = replace(case, groups=2)
    assert len(products(hlo.parse(wide.text))) == 4


def test_zeros_in_place_of_sums_are_refuted() -> None:
    """Between holes nothing is summed and zeros are stored; where something is summed they are no result."""
    small = Transposed(**{**CASES["no_window"].__dict__, "channels": (8, 16)})
    (fusion,) = plan(hlo.parse(small.text)).fusions
    phases = []
    for p in fusion.schedule.phases:
        steps = []
        for s in p.steps:
            if isinstance(s, Nest) and s.folds:  # all of the result, while the flag is 0
                (f,) = s.folds
                element = f.buffers[0].element
                zero = Store(f.values[0], f.buffers[0], f.index, Scalar(element.dtype.type(0), element))
                s = Nest(tuple(x for x in s.loops if x.kind is not LoopKind.REDUCTION), (zero,))
            steps.append(s)
        phases.append(replace(p, steps=tuple(steps)))
    proof = prove(replace(fusion.schedule, phases=tuple(phases)))
    assert any(o.name == "complete" for o in proof.refuted), proof
