"""Channels last between convolutions: where, what is transposed for it, and that nothing else changes."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from codegen.supports import supports
from tests.goldens.prints import MACHINES
from tiling.passing import without
from tiling.program.as_module import as_module
from tiling.program.flatten import Program, flatten
from tiling.program.images.keep_apart import parts_of

Shape = tuple[int, ...]


class Text:
    """A program of f32 tensors with batch, channels, rows and columns, in this order, put together op by op."""

    def __init__(self, **arguments: Shape) -> None:
        self.shapes = {f"%{k}": v for k, v in arguments.items()}
        self.arguments = ", ".join(f"%{k}: {tensor(v)}" for k, v in arguments.items())
        self.lines = ["%zero = stablehlo.constant dense<0.0> : tensor<f32>"]

    def add(self, op: str, operands: list[str], shape: Shape) -> str:
        name = f"%v{len(self.lines)}"
        given = ", ".join(tensor(self.shapes[x]) if x != "%zero" else "tensor<f32>" for x in operands)
        self.lines.append(f"{name} = {op.replace('@', ', '.join(operands))} : ({given}) -> {tensor(shape)}")
        self.shapes[name] = shape
        return name

    def each(self, op: str, *operands: str) -> str:
        return self.add(f"stablehlo.{op} @", list(operands), self.shapes[operands[0]])

    def convolution(self, x: str, w: str, stride: int = 1, groups: int = 1) -> str:
        (b, _, *sides), (o, _, k, _) = self.shapes[x], self.shapes[w]
        shape = (b, o, *((n + 2 * (k // 2) - k) // stride + 1 for n in sides))
        return self.add(
            f"stablehlo.convolution(@) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {{stride = [{stride}, "
            f"{stride}], pad = [[{k // 2}, {k // 2}], [{k // 2}, {k // 2}]]}} {{batch_group_count = 1 : i64, "
            f"feature_group_count = {groups} : i64}}", [x, w], shape,
        )  # fmt: skip

    def largest(self, x: str) -> str:
        b, c, h, w = self.shapes[x]
        name = f"%v{len(self.lines)}"
        shape = (b, c, (h - 1) // 2 + 1, (w - 1) // 2 + 1)
        self.lines.append(f"""{name} = "stablehlo.reduce_window"({x}, %zero) <{{window_dimensions = array<i64: 1, 1, 3, 3>,
            window_strides = array<i64: 1, 1, 2, 2>, padding = dense<[[0, 0], [0, 0], [1, 1], [1, 1]]> : tensor<4x2xi64>}}> ({{
            ^bb0(%a: tensor<f32>, %b: tensor<f32>):
              %m = stablehlo.maximum %a, %b : tensor<f32>
              stablehlo.return %m : tensor<f32>
            }}) : ({tensor(self.shapes[x])}, tensor<f32>) -> {tensor(shape)}""")
        self.shapes[name] = shape
        return name

    def spread(self, x: str, shape: Shape) -> str:
        """A number for each channel, or what was reduced over rows, for every element."""
        dims = "[1]" if len(self.shapes[x]) == 1 else "[0, 1, 3]"
        return self.add(f"stablehlo.broadcast_in_dim @, dims = {dims}", [x], shape)

    def sums(self, x: str, dims: list[int]) -> str:
        shape = tuple(n for k, n in enumerate(self.shapes[x]) if k not in dims)
        op = f"stablehlo.reduce({x} init: %zero) applies stablehlo.add across dimensions = {dims}"
        return self.add(op, [x, "%zero"], shape)

    def module(self, *results: str) -> hlo.Module:
        types = ", ".join(tensor(self.shapes[r]) for r in results)
        body = "\n".join(self.lines)
        return hlo.parse(f"func.func @main({self.arguments}) -> ({types}) {{\n{body}\nreturn {', '.join(results)} : {types} }}")


def tensor(shape: Shape) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}f32>"


def network(side: int = 18) -> hlo.Module:
    """A small network: stem, pooling, a block around a depthwise convolution with a residual, a squeeze and an average."""
    t = Text(x=(1, 3, side, side), v=(16, 3, 3, 3), s=(16,), d=(16, 1, 3, 3), w=(16, 16, 1, 1), e=(24, 16, 3, 3))
    a = t.convolution("%x", "%v", stride=2)
    a = t.each("add", a, t.spread("%s", t.shapes[a]))
    a = t.largest(t.each("abs", a))
    b = t.convolution(a, "%d", groups=16)
    b = t.each("negate", b)
    b = t.convolution(b, "%w")
    b = t.each("add", b, a)
    squeezed = t.each("subtract", b, t.spread(t.sums(b, [2]), t.shapes[b]))
    c = t.each("abs", t.convolution(squeezed, "%e", stride=2))
    return t.module(t.sums(c, [2, 3]))


def integers(module: hlo.Module, seed: int = 0) -> list[np.ndarray]:
    """Arrays of small integers: sums are exact in any order."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-1, 2, v.shape).astype(np.float32) for v in module.entry.arguments]


def programs(module: hlo.Module) -> tuple[Program, Program]:
    """The program without the pass, and with it."""
    with without("channels_last"):
        plain = flatten(module, "main", supports)
    return plain, flatten(module, "main", supports)


def transposed(program: Program) -> int:
    """How many elements are transposed."""
    return sum(op.results[0].tensor.size_elems for op in program.ops if op.name == "stablehlo.transpose")


def agrees(module: hlo.Module, program: Program, arrays: list[np.ndarray]) -> bool:
    made = as_module(program, module)
    hlo.verify(made)
    expected, found = interp.evaluate(module, *arrays), interp.evaluate(made, *arrays)
    return all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def test_a_network_has_channels_last_and_transposes_nothing() -> None:
    module = network()
    plain, program = programs(module)
    convolutions = [op for op in program.ops if op.name == "stablehlo.convolution"]
    assert len(convolutions) == 4 and all(op.attr("dimension_numbers").output_feature == 3 for op in convolutions)
    assert convolutions[0].operands[0] is program.arguments[0]
    assert transposed(program) == 0
    assert all(op.attr("dimension_numbers").output_feature == 1 for op in plain.ops if op.name == "stablehlo.convolution")
    assert agrees(module, program, integers(module))


def test_kernels_of_a_network_are_right_and_proved() -> None:
    module = network()
    plan = tiling.plan(module, machine=MACHINES["avx2"], supports=supports)
    arrays = integers(module)
    (found,), (expected,) = codegen.compile(plan)(*arrays), interp.evaluate(module, *arrays)
    assert np.array_equal(found, expected)
    proof = tiling.prove(plan)
    assert proof.holds, str(proof)


def normed() -> hlo.Module:
    """Channels are normed as the last dimension, turned before and back, around a depthwise convolution with a residual."""
    t = Text(x=(1, 3, 20, 20), v=(16, 3, 3, 3), d=(16, 1, 7, 7), w=(16, 16, 1, 1))

    def norm(a: str) -> str:
        b, c, h, w = t.shapes[a]
        a = t.each("abs", t.add("stablehlo.transpose @, dims = [0, 2, 3, 1]", [a], (b, h, w, c)))
        return t.add("stablehlo.transpose @, dims = [0, 3, 1, 2]", [a], (b, c, h, w))

    a = norm(t.convolution("%x", "%v"))
    b = t.convolution(norm(t.convolution(a, "%d", groups=16)), "%w")
    return t.module(t.sums(t.each("add", a, b), [2, 3]))


def test_transposes_that_turn_back_are_left_out() -> None:
    module = normed()
    _, program = programs(module)
    convolutions = [op for op in program.ops if op.name == "stablehlo.convolution"]
    assert [op.attr("dimension_numbers").output_feature for op in convolutions] == [3, 3, 3]
    used = {v for op in program.ops for v in op.operands} | set(program.results)
    assert not [op for op in program.ops if op.name == "stablehlo.transpose" and op.results[0] in used]
    assert agrees(module, program, integers(module))


def backwards(pixels: int) -> hlo.Module:
    """Gradients of two convolutions, from images that were kept with channels last: by both kernels, and by the first image."""
    n = f"{pixels}x{pixels}"
    kept, image, kernel = f"tensor<2x{n}x16xf32>", f"tensor<2x16x{n}xf32>", "tensor<16x16x3x3xf32>"
    window = "window = {stride = [1, 1], pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
    by_image, by_kernel = "[b, f, 0, 1]x[i, o, 0, 1]->[b, f, 0, 1]", "[f, b, 0, 1]x[i, o, 0, 1]->[f, b, 0, 1]"
    arguments = f"%x: {kept}, %y: {kept}, %g: {image}, %v: {kernel}, %w: {kernel}"
    return hlo.parse(f"""func.func @main({arguments}) -> ({kernel}, {kernel}, {image}) {{
      %zero = stablehlo.constant dense<0.0> : {image}
      %xt = stablehlo.transpose %x, dims = [0, 3, 1, 2] : ({kept}) -> {image}
      %yt = stablehlo.transpose %y, dims = [0, 3, 1, 2] : ({kept}) -> {image}
      %p = stablehlo.compare GT, %yt, %zero : ({image}, {image}) -> tensor<2x16x{n}xi1>
      %wr = stablehlo.reverse %w, dims = [2, 3] : {kernel}
      %gw = stablehlo.convolution(%yt, %g) dim_numbers = {by_kernel}, {window} : ({image}, {image}) -> {kernel}
      %gy = stablehlo.convolution(%g, %wr) dim_numbers = {by_image}, {window} : ({image}, {kernel}) -> {image}
      %s = stablehlo.select %p, %gy, %zero : tensor<2x16x{n}xi1>, {image}
      %gv = stablehlo.convolution(%xt, %s) dim_numbers = {by_kernel}, {window} : ({image}, {image}) -> {kernel}
      %vr = stablehlo.reverse %v, dims = [2, 3] : {kernel}
      %gx = stablehlo.convolution(%s, %vr) dim_numbers = {by_image}, {window} : ({image}, {kernel}) -> {image}
      %sum = stablehlo.add %gx, %xt : {image}
      return %gw, %gv, %sum : {kernel}, {kernel}, {image}
    }}""")


def test_gradients_have_channels_last_though_kernels_have_not() -> None:
    """Kernels are larger than the images: what is turned of their gradients does not count for these."""
    module = backwards(12)
    _, program = programs(module)
    images = [op for op in program.ops if op.name == "stablehlo.convolution" and op.results[0].shape[0] == 2]
    assert [op.attr("dimension_numbers").output_feature for op in images] == [3, 3]
    assert agrees(module, program, integers(module))
    turned = [op.operands[0].shape for op in program.ops if op.name == "stablehlo.transpose"]
    assert turned == [(16, 3, 3, 16), (16, 3, 3, 16), (2, 12, 12, 16)]  # the results: what was kept is read as it lies


def of_tokens() -> hlo.Module:
    """Tokens that a depthwise convolution sees as an image, as between the products of a transformer's feed-forward part."""
    t = Text(x=(2, 36, 16), d=(16, 1, 3, 3))
    a = t.each("abs", "%x")
    a = t.add("stablehlo.transpose @, dims = [0, 2, 1]", [a], (2, 16, 36))
    image = t.add("stablehlo.reshape @", [a], (2, 16, 6, 6))
    a = t.each("add", t.convolution(image, "%d", groups=16), image)
    a = t.add("stablehlo.reshape @", [a], (2, 16, 36))
    return t.module(t.each("negate", t.add("stablehlo.transpose @, dims = [0, 2, 1]", [a], (2, 36, 16))))


def of_heads() -> hlo.Module:
    """Values of an attention's heads without the first token, an image for windows of two sizes; times what has heads first."""
    t = Text(x=(1, 37, 96), y=(1, 4, 37, 8), d=(16, 1, 3, 3), e=(16, 1, 5, 5))
    a = t.add("stablehlo.reshape @", [t.each("abs", "%x")], (1, 37, 3, 4, 8))
    a = t.add("stablehlo.transpose @, dims = [2, 0, 3, 1, 4]", [a], (3, 1, 4, 37, 8))
    a = t.add("stablehlo.slice @ [1:2, 0:1, 0:4, 0:37, 0:8]", [a], (1, 1, 4, 37, 8))
    v = t.add("stablehlo.reshape @", [a], (1, 4, 37, 8))
    a = t.add("stablehlo.slice @ [0:1, 0:4, 1:37, 0:8]", [v], (1, 4, 36, 8))
    a = t.add("stablehlo.transpose @, dims = [0, 1, 3, 2]", [a], (1, 4, 8, 36))
    image = t.add("stablehlo.reshape @", [a], (1, 32, 6, 6))
    image = t.each("add", image, t.add("stablehlo.broadcast_in_dim @, dims = []", ["%zero"], (1, 32, 6, 6)))
    parts = [t.add(f"stablehlo.slice @ [0:1, {k}:{k + 16}, 0:6, 0:6]", [image], (1, 16, 6, 6)) for k in (0, 16)]
    parts = [t.convolution(p, w, groups=16) for p, w in zip(parts, ("%d", "%e"), strict=True)]
    a = t.add("stablehlo.concatenate @, dim = 1", parts, (1, 32, 6, 6))
    a = t.add("stablehlo.reshape @", [a], (1, 4, 8, 36))
    a = t.add("stablehlo.transpose @, dims = [0, 1, 3, 2]", [a], (1, 4, 36, 8))
    a = t.add("stablehlo.pad @, low = [0, 0, 1, 0], high = [0, 0, 0, 0], interior = [0, 0, 0, 0]", [a, "%zero"], (1, 4, 37, 8))
    a = t.add("stablehlo.transpose @, dims = [0, 2, 1, 3]", [t.each("multiply", a, t.each("negate", "%y"))], (1, 37, 4, 8))
    return t.module(t.add("stablehlo.reshape @", [a], (1, 37, 32)), t.each("abs", v))


@pytest.mark.parametrize("make", [of_tokens, of_heads])
def test_tokens_are_images_with_channels_last(make: Callable[[], hlo.Module]) -> None:
    module = make()
    _, program = programs(module)
    convolutions = [op for op in program.ops if op.name == "stablehlo.convolution"]
    assert all(op.attr("dimension_numbers").output_feature == 3 for op in convolutions)
    assert all(op.attr("dimension_numbers").input_feature == 3 for op in convolutions)
    assert agrees(module, program, integers(module))
    plan = tiling.plan(module, machine=MACHINES["avx2"], supports=supports)
    arrays = integers(module, 1)
    for found, expected in zip(codegen.compile(plan)(*arrays), interp.evaluate(module, *arrays), strict=True):
        assert np.array_equal(found, expected)


def alone() -> hlo.Module:
    t = Text(x=(1, 16, 9, 9), w=(16, 16, 3, 3))
    return t.module(t.convolution("%x", "%w"))


def from_and_to_memory() -> hlo.Module:
    t = Text(x=(1, 16, 9, 9), v=(16, 16, 3, 3), w=(16, 16, 3, 3))
    return t.module(t.convolution(t.each("tanh", t.convolution("%x", "%v")), "%w"))


def merged_for_good() -> hlo.Module:
    """What convolutions make is a matrix for all others, whose rows are channels."""
    t = Text(x=(1, 3, 9, 9), v=(16, 3, 3, 3), w=(16, 16, 3, 3))
    a = t.convolution("%x", "%v")
    b = t.convolution(t.each("tanh", a), "%w")
    c = t.add("stablehlo.reshape @", [b], (16, 81))
    return t.module(t.each("tanh", c), t.each("abs", a))


def of_few_channels() -> hlo.Module:
    t = Text(x=(1, 3, 9, 9), v=(4, 3, 3, 3), w=(4, 4, 3, 3))
    return t.module(t.sums(t.convolution(t.convolution("%x", "%v"), "%w"), [2, 3]))


@pytest.mark.parametrize("make", [alone, from_and_to_memory, merged_for_good, of_few_channels])
def test_where_too_much_would_be_transposed_a_program_is_left_alone(make: Callable[[], hlo.Module]) -> None:
    plain, program = programs(make())
    assert str(as_module(plain, make())) == str(as_module(program, make()))


def grouped(t: Text, a: str, groups: int) -> str:
    """A normalisation of groups, whose channels are merged with rows and columns for it and become an image again."""
    b, c, h, w = t.shapes[a]
    rows = t.add("stablehlo.reshape @", [a], (b, groups, c // groups * h * w))
    sums = t.sums(rows, [2])
    mean = t.add("stablehlo.broadcast_in_dim @, dims = [0, 1]", [sums], t.shapes[rows])
    return t.add("stablehlo.reshape @", [t.each("subtract", rows, mean)], t.shapes[a])


@pytest.mark.parametrize("images", [1, 2])
def test_channels_go_on_through_a_normalisation_of_groups(images: int) -> None:
    t = Text(x=(images, 3, 9, 8), v=(16, 3, 3, 3), w=(16, 16, 3, 3))
    a = grouped(t, t.convolution("%x", "%v"), 4)
    b = grouped(t, t.convolution(t.each("abs", a), "%w"), 8)
    module = t.module(t.sums(b, [2, 3]))
    _, program = programs(module)
    assert transposed(program) == 0
    convolutions = [op for op in program.ops if op.name == "stablehlo.convolution"]
    assert [op.attr("dimension_numbers").output_feature for op in convolutions] == [3, 3]
    assert agrees(module, program, integers(module))
    sums = [op for op in program.ops if op.name == "stablehlo.reduce"]
    assert [len(op.attr("dimensions")) for op in sums[:2]] == [2, 1]  # of each channel, all of which are side by side; of a group
    plan = tiling.plan(module, machine=MACHINES["avx2"], supports=supports)
    assert tiling.prove(plan).holds
    (found,), (expected,) = codegen.compile(plan)(*integers(module)), interp.evaluate(module, *integers(module))
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("shape", "fine", "groups"),
    [
        ((1, 32, 4, 5), (1, 8, 4, 4, 5), ((0,), (1, 2), (3,), (4,))),
        ((8, 80), (1, 8, 4, 4, 5), ((0, 1), (2, 3, 4))),
        ((8, 10), (1, 8, 4, 5), None),
        ((1, 1), (1,), ((0,), ())),
        ((6,), (6, 1, 1), ((0, 1, 2),)),
        ((6,), (4, 2), None),
    ],
)
def test_dimensions_and_their_parts(shape: Shape, fine: Shape, groups: tuple[tuple[int, ...], ...] | None) -> None:
    assert parts_of(shape, fine) == groups


def drawn(seed: int) -> hlo.Module:
    """Convolutions with random ops in between that an order goes through, and some that it does not."""
    rng = random.Random(seed)
    t = Text(x=(2, 3, 12, 10), v=(8, 3, 3, 3), w=(8, 8, 3, 3), s=(8,), y=(2, 8, 12, 10))
    a = t.convolution("%x", "%v")

    def turned(a: str) -> str:
        b, c, h, w = t.shapes[a]
        a = t.each("negate", t.add("stablehlo.transpose @, dims = [3, 0, 2, 1]", [a], (w, b, h, c)))
        return t.add("stablehlo.transpose @, dims = [1, 3, 2, 0]", [a], (b, c, h, w))

    def padded(a: str) -> str:
        b, c, h, w = t.shapes[a]
        op = "stablehlo.pad @, low = [0, 0, 1, 2], high = [0, 0, -1, 0], interior = [0, 0, 0, 1]"
        a = t.add(op, [a, "%zero"], (b, c, h, 2 * w + 1))
        return t.add(f"stablehlo.slice @ [0:{b}, 0:{c}, 0:{h}, 1:{2 * w + 1}:2]", [a], (b, c, h, w))

    def side_by_side(a: str) -> str:
        b, c, h, w = t.shapes[a]
        a = t.add("stablehlo.concatenate @, dim = 1", [a, t.each("abs", a)], (b, 2 * c, h, w))
        return t.add(f"stablehlo.slice @ [0:{b}, {c // 2}:{c // 2 + c}, 0:{h}, 0:{w}]", [a], (b, c, h, w))

    def flat(a: str) -> str:
        shape = t.shapes[a]
        a = t.each("negate", t.add("stablehlo.reshape @", [a], (int(np.prod(shape)),)))
        return t.add("stablehlo.reshape @", [a], shape)

    def tokens(a: str) -> str:
        b, c, h, w = t.shapes[a]
        a = t.add("stablehlo.reshape @", [a], (b, 2, c // 2, h * w))
        a = t.each("abs", t.add("stablehlo.transpose @, dims = [0, 3, 1, 2]", [a], (b, h * w, 2, c // 2)))
        a = t.add("stablehlo.transpose @, dims = [0, 2, 3, 1]", [a], (b, 2, c // 2, h * w))
        a = t.each("add", a, a) if rng.random() < 0.5 else a
        return t.add("stablehlo.reshape @", [a], (b, c, h, w))

    steps: list[Callable[[str], str]] = [
        turned, tokens, padded, side_by_side, flat, lambda a: grouped(t, a, 4),
        lambda a: t.add("stablehlo.reverse @, dims = [1, 2]", [a], t.shapes[a]),
        lambda a: t.each("add", a, t.spread("%s", t.shapes[a])),
        lambda a: t.each("maximum", a, "%y"),
        lambda a: t.each("add", a, t.spread(t.sums(a, [2]), t.shapes[a])),
        lambda a: t.each("sign", t.convolution(a, "%w")),
    ]  # fmt: skip
    for _ in range(rng.randrange(2, 5)):
        a = rng.choice(steps)(a)
    a = t.convolution(t.each("sign", t.convolution(a, "%w")), "%w")
    return t.module(*[t.sums(a, [2, 3]), a][: rng.randrange(1, 3)])


def test_random_programs_mean_the_same() -> None:
    changed = 0
    for seed in range(32):
        module = drawn(seed)
        plain, program = programs(module)
        changed += str(as_module(plain, module)) != str(as_module(program, module))
        assert agrees(module, program, integers(module, seed)), seed
    assert changed >= 12
