"""Winograd's convolutions: a 3 x 3 window over 2 x 2 results takes 16 products in place of 36.

    y = convolution(x, w)    ->    y[2i : 2i + 1, 2j : 2j + 1] = A ((G w G^T) * (B d[i, j] B^T)) A^T        (* by elements)

where d[i, j] are the 4 x 4 elements of x from (2i, 2j) on, and A, B, G the tables of S. Winograd, Arithmetic Complexity of
Computations (1980), as A. Lavin and S. Gray use them for F(2 x 2, 3 x 3) (arXiv:1509.09308). The sum over channels goes before
A, so that the products are 16 matrices, [pixels / 4, channels] times [channels, features].

Transforms are additions, and halves of weights: rounding is that of a sum of a few more terms, in proportion to the largest of a
tile's 16 elements. One that is not finite makes all four results not finite where the window would reach some of them:
`precision = HIGHEST` keeps the sum as it stands, as does TILEWRIGHT_SKIP=winograd_convolutions.

It pays where the products that are spared take longer than moving what is transformed, which the shapes tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hlo.attributes import ConvDimensions, DotDimensions
from hlo.builder import Builder
from hlo.clone import with_replaced
from hlo.module import Op, Value
from hlo.types import TensorType

__all__ = ["winograd_convolutions"]

LEAST_FLOPS_A_BYTE = 4.5  # spared for each byte that is moved for it, of which there are fewer where all steps are one kernel
LEAST_OF_ODD = 8.0  # where features fill no two vectors, so that products of few rows are slower than the window's sum
WHOLE_FEATURES = 32
LEAST_CHANNELS = 16

Rows = Sequence[Value]


@dataclass(frozen=True)
class _Sizes:
    """A convolution's sizes: images, rows and columns of tiles, those of results, channels, features, padding."""

    images: int
    tiles: tuple[int, int]
    results: tuple[int, int]
    channels: int
    features: int
    padding: tuple[tuple[int, int], ...]

    @property
    def spared_flops(self) -> int:
        pixels, tiles = self.images * self.results[0] * self.results[1], self.images * self.tiles[0] * self.tiles[1]
        return 2 * self.channels * self.features * (9 * pixels - 16 * tiles)

    @property
    def moved_bytes(self) -> int:
        """What transforms write, and products and transforms read."""
        tiles = self.images * self.tiles[0] * self.tiles[1]
        return 2 * 4 * 16 * (tiles * (self.channels + self.features) + self.channels * self.features)


def winograd_convolutions(ops: Sequence[Op], results: Sequence[Value]) -> tuple[Sequence[Op], Sequence[Value]]:
    """Ops in dependency order and results, with convolutions by Winograd's products where their sizes say that it pays."""
    found = {op: sizes for op in ops if (sizes := _sizes(op)) is not None}
    if not found:
        return ops, results
    env: dict[Value, Value] = {}
    made: list[Op] = []
    for op in ops:
        if op in found:
            builder = Builder()
            builder.place = op.location
            env[op.results[0]] = _Transforms(builder, found[op]).whole(op, [env.get(v, v) for v in op.operands])
            made += builder.current.ops
        else:
            made.append(with_replaced(op, env))
    return made, [env.get(v, v) for v in results]


def _sizes(op: Op) -> _Sizes | None:
    """The sizes of a convolution that is computed so; None for other ops."""
    if op.name != "stablehlo.convolution" or not all(_is_f32(v) for v in (*op.operands, *op.results)):
        return None
    image, kernel, made = op.operands[0], op.operands[1], op.results[0]
    n: ConvDimensions = op.attr("dimension_numbers")
    if image.rank != 4 or (n.input_batch, *n.input_spatial, n.input_feature) != (0, 1, 2, 3):
        return None
    if (n.output_batch, *n.output_spatial, n.output_feature) != (0, 1, 2, 3):
        return None
    ones = all(d == 1 for name in ("window_strides", "lhs_dilation", "rhs_dilation") for d in _all(op, name))
    one_group = op.attr("feature_group_count") == 1 and op.attr("batch_group_count") == 1
    plain = not any(_all(op, "window_reversal")) and all(p == "DEFAULT" for p in op.attr("precision_config") or ())
    window = tuple(kernel.shape[d] for d in n.kernel_spatial)
    padding = tuple((int(low), int(high)) for low, high in op.attr("padding") if op.attr("padding") is not None)
    if not (ones and one_group and plain and window == (3, 3)) or any(p < 0 for pair in padding for p in pair):
        return None
    rows, columns = made.shape[1], made.shape[2]
    sizes = _Sizes(
        made.shape[0], ((rows + 1) // 2, (columns + 1) // 2), (rows, columns), image.shape[3], made.shape[3], padding
    )  # fmt: skip
    if min(sizes.channels, sizes.features) < LEAST_CHANNELS or not made.tensor.size_elems:
        return None
    least = LEAST_OF_ODD if sizes.features % WHOLE_FEATURES else LEAST_FLOPS_A_BYTE
    return sizes if sizes.spared_flops >= least * sizes.moved_bytes else None


def _all(op: Op, name: str) -> Sequence[int]:
    found = op.attr(name)
    return () if found is None else tuple(found)


def _is_f32(v: Value) -> bool:
    return isinstance(v.type, TensorType) and v.type.is_static and str(v.type.element) == "f32"


def _twice(rows: Sequence[Rows], each: Callable[[Rows], Rows]) -> list[Rows]:
    """The table T X T^T, element by element, for X in rows and each(x) = T x."""
    columns = [each([row[k] for row in rows]) for k in range(len(rows[0]))]
    return [each([column[k] for column in columns]) for k in range(len(columns[0]))]


class _Transforms:
    def __init__(self, b: Builder, sizes: _Sizes) -> None:
        self.b, self.sizes = b, sizes

    def __call__(self, word: str, *operands: Value, **attributes: object) -> Value:
        return self.b.emit(f"stablehlo.{word}", operands, attributes)[0]

    def whole(self, op: Op, operands: Sequence[Value]) -> Value:
        n: ConvDimensions = op.attr("dimension_numbers")
        order = (*n.kernel_spatial, n.kernel_input_feature, n.kernel_output_feature)
        weights = operands[1]
        if order != (0, 1, 2, 3):
            weights = self("transpose", weights, permutation=order)
        left, right = self.image(operands[0]), self.weights(weights)
        dimensions = DotDimensions((0,), (0,), (4,), (1,))
        product = self.b.dot_general(left, right, dimensions, op.attr("precision_config") or ())
        return self.results(product)

    def image(self, x: Value) -> Value:
        """B d B^T of every tile: [16, images, rows of tiles, columns of tiles, channels]."""
        s = self.sizes
        after = [2 * t + 2 - d - low for t, d, (low, _) in zip(s.tiles, x.shape[1:3], s.padding, strict=True)]
        zero = self.b.constant(0.0, TensorType((), x.tensor.element))
        around = self(
            "pad", x, zero, edge_padding_low=(0, s.padding[0][0], s.padding[1][0], 0), edge_padding_high=(0, *after, 0),
            interior_padding=(0, 0, 0, 0),
        )  # fmt: skip

        def part(i: int, j: int) -> Value:
            limits = (s.images, i + 2 * s.tiles[0] - 1, j + 2 * s.tiles[1] - 1, s.channels)
            return self("slice", around, start_indices=(0, i, j, 0), limit_indices=limits, strides=(1, 2, 2, 1))

        def each(d: Rows) -> Rows:
            pairs = (("subtract", 0, 2), ("add", 1, 2), ("subtract", 2, 1), ("subtract", 1, 3))
            return [self(word, d[a], d[b]) for word, a, b in pairs]

        return self.stacked(_twice([[part(i, j) for j in range(4)] for i in range(4)], each))

    def weights(self, w: Value) -> Value:
        """G w G^T: [16, channels, features]."""
        s = self.sizes

        def part(i: int, j: int) -> Value:
            limits = (i + 1, j + 1, s.channels, s.features)
            found = self("slice", w, start_indices=(i, j, 0, 0), limit_indices=limits, strides=(1, 1, 1, 1))
            return self.b.reshape(found, (s.channels, s.features))

        def half(x: Value) -> Value:
            scale = self.b.constant(0.5, TensorType((), x.tensor.element))
            return self("multiply", x, self.b.broadcast_in_dim(scale, x.shape, ()))

        def each(w: Rows) -> Rows:
            ends = self("add", w[0], w[2])
            return [w[0], half(self("add", ends, w[1])), half(self("subtract", ends, w[1])), w[2]]

        return self.stacked(_twice([[part(i, j) for j in range(3)] for i in range(3)], each))

    def stacked(self, parts: Sequence[Rows]) -> Value:
        each = [self.b.reshape(v, (1, *v.shape)) for row in parts for v in row]
        return self("concatenate", *each, dimension=0)

    def results(self, m: Value) -> Value:
        """A m A^T of every tile, at its place."""
        s = self.sizes
        tiles = (s.images, *s.tiles, s.features)

        def part(k: int) -> Value:
            found = self("slice", m, start_indices=(k, 0, 0, 0, 0), limit_indices=(k + 1, *tiles), strides=(1, 1, 1, 1, 1))
            return self.b.reshape(found, (s.images, s.tiles[0], 1, s.tiles[1], 1, s.features))

        def each(v: Rows) -> Rows:
            middle, difference = self("add", v[1], v[2]), self("subtract", v[1], v[2])
            return [self("add", v[0], middle), self("subtract", difference, v[3])]

        rows = _twice([[part(4 * i + j) for j in range(4)] for i in range(4)], each)
        whole = self("concatenate", *(self("concatenate", *row, dimension=4) for row in rows), dimension=2)
        found = self.b.reshape(whole, (s.images, 2 * s.tiles[0], 2 * s.tiles[1], s.features))
        if s.results == (2 * s.tiles[0], 2 * s.tiles[1]):
            return found
        limits = (s.images, *s.results, s.features)
        return self("slice", found, start_indices=(0, 0, 0, 0), limit_indices=limits, strides=(1, 1, 1, 1))
