"""Convolutions and contractions as XlaBuilder names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlo.attributes import ConvDimensions, DotDimensions
from hlo.builder.core import BuilderCore, _caller
from hlo.errors import VerificationError
from hlo.module import Value
from hlo.ops.rules import num_windows
from hlo.types import ElementType, TensorType, Type

__all__ = ["Contractions"]

Pairs = Sequence[tuple[int, int]]


def default_conv_dimensions(rank: int) -> ConvDimensions:
    """Batch, feature, spatial…; kernels output feature, input feature, spatial….

    >>> default_conv_dimensions(4).kernel_spatial
    (2, 3)
    """
    spatial = tuple(range(2, rank))
    return ConvDimensions(0, 1, spatial, 1, 0, spatial, 0, 1, spatial)


class Contractions(BuilderCore):
    """conv and its general forms, dot, dot_general."""

    def conv(self, lhs: Value, rhs: Value, window_strides: Sequence[int], padding: str | Pairs, **more: Any) -> Value:
        """Padding by name: "VALID" pads nothing; "SAME" gives ceil(input / stride) outputs, the odd element at the end."""
        dims = more.get("dimension_numbers") or default_conv_dimensions(lhs.rank)
        pairs = self._padding(lhs, rhs, window_strides, padding, dims, more.get("lhs_dilation"), more.get("rhs_dilation"))
        return self.conv_general_dilated(lhs, rhs, window_strides, pairs, **{**more, "dimension_numbers": dims})

    def conv_with_general_padding(
        self, lhs: Value, rhs: Value, window_strides: Sequence[int], padding: Pairs, **more: Any
    ) -> Value:
        """A convolution with (low, high) padding for each spatial dimension, in the default order of dimensions."""
        return self.conv_general_dilated(lhs, rhs, window_strides, padding, **more)

    def conv_with_general_dimensions(
        self, lhs: Value, rhs: Value, window_strides: Sequence[int], padding: str | Pairs, dimension_numbers: ConvDimensions,
        **more: Any,
    ) -> Value:  # fmt: skip
        """`conv` with the order of dimensions given."""
        return self.conv(lhs, rhs, window_strides, padding, dimension_numbers=dimension_numbers, **more)

    def conv_general(
        self,
        lhs: Value,
        rhs: Value,
        window_strides: Sequence[int],
        padding: Pairs,
        dimension_numbers: ConvDimensions,
        **more: Any,
    ) -> Value:
        """Padding in numbers and dimensions in any order."""
        return self.conv_general_dilated(lhs, rhs, window_strides, padding, dimension_numbers=dimension_numbers, **more)

    def conv_general_dilated(
        self, lhs: Value, rhs: Value, window_strides: Sequence[int], padding: Pairs, lhs_dilation: Sequence[int] | None = None,
        rhs_dilation: Sequence[int] | None = None, dimension_numbers: ConvDimensions | None = None, feature_group_count: int = 1,
        batch_group_count: int = 1, window_reversal: Sequence[bool] | None = None, precision_config: Sequence[str] | None = None,
        element_type: ElementType | None = None,
    ) -> Value:  # fmt: skip
        """The convolution that all others are cases of. The result's element type is lhs's unless given."""
        dims = dimension_numbers or default_conv_dimensions(lhs.rank)
        n = len(dims.input_spatial)
        attributes: dict[str, Any] = {
            "window_strides": tuple(window_strides), "padding": tuple((a, b) for a, b in padding), "dimension_numbers": dims,
            "lhs_dilation": tuple(lhs_dilation or (1,) * n), "rhs_dilation": tuple(rhs_dilation or (1,) * n),
            "window_reversal": tuple(window_reversal or (False,) * n), "feature_group_count": feature_group_count,
            "batch_group_count": batch_group_count, "precision_config": tuple(precision_config or ()),
        }  # fmt: skip
        result = self._conv_type(lhs, rhs, attributes, dims, element_type)
        return self.emit("stablehlo.convolution", (lhs, rhs), attributes, (), [result])[0]

    @staticmethod
    def _conv_type(lhs: Value, rhs: Value, a: dict[str, Any], dims: ConvDimensions, element: ElementType | None) -> Type:
        x, k = lhs.tensor, rhs.tensor
        n = len(dims.input_spatial)
        sizes = {len(a[key]) for key in ("window_strides", "padding", "lhs_dilation", "rhs_dilation", "window_reversal")}
        if sizes != {n} or x.rank != n + 2 or k.rank != n + 2 or any(s < 1 for s in a["window_strides"]):
            raise VerificationError(
                f"expected operands of rank {n + 2} and {n} positive strides, dilations and paddings, found {x} and {k}, strides "
                f"{list(a['window_strides'])}, padding {list(a['padding'])}",
                _caller(), op="stablehlo.convolution", constraint="window",
            )  # fmt: skip
        shape: list[int | None] = [None] * x.rank
        batch = x.shape[dims.input_batch]
        shape[dims.output_batch] = None if batch is None else batch // max(1, a["batch_group_count"])
        shape[dims.output_feature] = k.shape[dims.kernel_output_feature]
        for i in range(n):
            low, high = a["padding"][i]
            size, window = x.shape[dims.input_spatial[i]], k.shape[dims.kernel_spatial[i]]
            stride, base, dilation = a["window_strides"][i], a["lhs_dilation"][i], a["rhs_dilation"][i]
            shape[dims.output_spatial[i]] = num_windows(size, window, stride, low, high, base, dilation)
        return TensorType(tuple(shape), element or x.element)

    @staticmethod
    def _padding(
        lhs: Value, rhs: Value, strides: Sequence[int], padding: str | Pairs, dims: ConvDimensions,
        lhs_dilation: Sequence[int] | None, rhs_dilation: Sequence[int] | None,
    ) -> Pairs:  # fmt: skip
        if not isinstance(padding, str):
            return padding
        n = len(dims.input_spatial)
        word = padding.upper()
        if word not in ("SAME", "VALID") or len(strides) != n or any(s < 1 for s in strides):
            raise VerificationError(
                f"expected padding SAME or VALID and {n} positive strides, found {padding!r} and {list(strides)}", _caller(),
                op="stablehlo.convolution", constraint="padding",
            )  # fmt: skip
        if word == "VALID":
            return ((0, 0),) * n
        x, k = lhs.shape, rhs.shape
        pairs = []
        for i in range(n):
            base = (lhs_dilation or (1,) * n)[i]
            size = max(0, (x[dims.input_spatial[i]] - 1) * base + 1)
            reach = max(0, k[dims.kernel_spatial[i]] - 1) * (rhs_dilation or (1,) * n)[i] + 1
            total = max(0, (-(-size // strides[i]) - 1) * strides[i] + reach - size)
            pairs.append((total // 2, total - total // 2))
        return pairs

    def dot(self, lhs: Value, rhs: Value, precision_config: Sequence[str] = (), element_type: ElementType | None = None) -> Value:
        """Vector or matrix times vector or matrix: the last dimension of lhs with the first of rhs, as a dot_general."""
        if lhs.rank not in (1, 2) or rhs.rank not in (1, 2):
            raise VerificationError(
                f"expected vectors or matrices, found {lhs.type} and {rhs.type}", _caller(), op="stablehlo.dot", constraint="C1"
            )
        dims = DotDimensions((), (), (lhs.rank - 1,), (0,))
        return self.dot_general(lhs, rhs, dims, precision_config, element_type=element_type)

    def dot_general(
        self, lhs: Value, rhs: Value, dot_dimension_numbers: DotDimensions, precision_config: Sequence[str] = (),
        algorithm: Any = None, element_type: ElementType | None = None,
    ) -> Value:  # fmt: skip
        """Sum of products over the contracting dimensions: [batching, free lhs, free rhs]. Elements are lhs's unless given."""
        d, x, y = dot_dimension_numbers, lhs.tensor, rhs.tensor
        used = ((d.lhs_batching + d.lhs_contracting, x), (d.rhs_batching + d.rhs_contracting, y))
        if any(not 0 <= k < t.rank for dims, t in used for k in dims):
            raise VerificationError(
                f"expected dimensions of {x} and {y}, found {d}", _caller(), op="stablehlo.dot_general", constraint="C5"
            )
        shape = (
            *(x.shape[k] for k in d.lhs_batching), *(x.shape[k] for k in d.free("lhs", x.rank)),
            *(y.shape[k] for k in d.free("rhs", y.rank)),
        )  # fmt: skip
        attributes = {"dot_dimension_numbers": d, "precision_config": tuple(precision_config), "algorithm": algorithm}
        result = TensorType(shape, element_type or x.element)
        return self.emit("stablehlo.dot_general", (lhs, rhs), attributes, (), [result])[0]
