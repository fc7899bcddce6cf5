"""Ops that move elements, and those whose result type XlaBuilder takes as an argument."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hlo.attributes import GatherDimensions, ScatterDimensions
from hlo.builder.core import BuilderCore, Region, Results, _caller, flat, type_of
from hlo.errors import VerificationError
from hlo.module import DenseArray, Value
from hlo.text.xla.types import HLO_ELEMENTS
from hlo.types import ELEMENT_TYPES, ElementType, TensorType, TokenType, TupleType, Type

__all__ = ["Movement"]


def element(spec: ElementType | str) -> ElementType:
    """An element type by either name: "f32", "s32", "i32", "pred".

    >>> element("pred").name, element("s8").name
    ('i1', 'i8')
    """
    if isinstance(spec, ElementType):
        return spec
    found = ELEMENT_TYPES.get(spec) or HLO_ELEMENTS.get(spec)
    if found is None:
        raise VerificationError(f"expected an element type, found {spec!r}", _caller())
    return found


class Movement(BuilderCore):
    """Shapes, slices, gathers, random numbers, tuples."""

    def broadcast(self, operand: Value, broadcast_sizes: Sequence[int]) -> Value:
        """New dimensions on the left: [*broadcast_sizes, *operand's]."""
        t, sizes = operand.tensor, tuple(broadcast_sizes)
        if any(n < 0 for n in sizes):
            raise VerificationError(
                f"0 <= broadcast_sizes: found {list(sizes)}", _caller(), op="stablehlo.broadcast", constraint="C1"
            )
        dims = tuple(range(len(sizes), len(sizes) + t.rank))
        return self.broadcast_in_dim(operand, (*sizes, *t.shape), dims)

    def broadcast_in_dim(self, operand: Value, out_dim_size: Sequence[int | None], broadcast_dimensions: Sequence[int]) -> Value:
        """operand's dimension i becomes dimension broadcast_dimensions[i] of a result of these sizes."""
        made = TensorType(tuple(out_dim_size), operand.tensor.element)
        return self.emit(
            "stablehlo.broadcast_in_dim", (operand,), {"broadcast_dimensions": tuple(broadcast_dimensions)}, (), [made]
        )[0]

    def reshape(self, operand: Value, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None) -> Value:
        """The elements in row-major order under another shape; `dimensions` first transposes, so that it says the order."""
        if dimensions is not None and tuple(dimensions) != tuple(range(operand.rank)):
            operand = self.one("stablehlo.transpose", operand, permutation=tuple(dimensions))
        made = TensorType(tuple(new_sizes), operand.tensor.element)
        return self.emit("stablehlo.reshape", (operand,), {}, (), [made])[0]

    def collapse(self, operand: Value, dimensions: Sequence[int]) -> Value:
        """Consecutive dimensions as one, of the product of their sizes."""
        dims, t = list(dimensions), operand.tensor
        if not dims or dims != list(range(dims[0], dims[0] + len(dims))) or not 0 <= dims[0] <= dims[-1] < t.rank:
            raise VerificationError(
                f"expected consecutive ascending dimensions of {t}, found {dims}",
                _caller(),
                op="Collapse",
                constraint="dimensions",
            )
        shape = operand.shape
        return self.reshape(operand, (*shape[: dims[0]], math.prod(shape[k] for k in dims), *shape[dims[-1] + 1 :]))

    def convert_element_type(self, operand: Value, new_element_type: ElementType | str) -> Value:
        """Every element converted to another type."""
        made = TensorType(operand.tensor.shape, element(new_element_type))
        return self.emit("stablehlo.convert", (operand,), {}, (), [made])[0]

    convert = convert_element_type

    def bitcast_convert_type(self, operand: Value, new_element_type: ElementType | str) -> Value:
        """The same bits as another type: a narrower one adds a last dimension, a wider one takes it away."""
        t, e = operand.tensor, element(new_element_type)
        old = t.element.bits
        shape = t.shape
        if e.bits < old:
            shape = (*shape, old // e.bits)
        elif e.bits > old:
            shape = shape[:-1]
        return self.emit("stablehlo.bitcast_convert", (operand,), {}, (), [TensorType(shape, e)])[0]

    bitcast_convert = bitcast_convert_type

    def bitcast(self, operand: Value, shape: Type | str) -> Value:
        """The same bytes under another type of as many bytes."""
        return self.emit("xla.bitcast", (operand,), {}, (), [type_of(shape)])[0]

    def iota(self, shape: Type | str, iota_dimension: int = 0) -> Value:
        """out[d] = d[iota_dimension]. A type of one element alone (`iota("f32", 4)`) makes a vector of that length."""
        if isinstance(shape, str) and shape in {*ELEMENT_TYPES, "pred", "s8", "s32", "s64", "u8", "u32", "u64"}:
            shape, iota_dimension = TensorType((iota_dimension,), element(shape)), 0
        return self.emit("stablehlo.iota", (), {"iota_dimension": iota_dimension}, (), [type_of(shape)])[0]

    def concat_in_dim(self, operands: Sequence[Value], dimension: int) -> Value:
        """The operands one after the other along `dimension`."""
        return self.emit("stablehlo.concatenate", flat(operands), {"dimension": dimension})[0]

    def slice(self, operand: Value, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None) -> Value:  # fmt: skip  # noqa: E501
        """operand[start : limit : stride] in every dimension; strides are 1 unless given."""
        return self.one(
            "stablehlo.slice", operand, start_indices=tuple(start_indices), limit_indices=tuple(limit_indices),
            strides=tuple(strides or (1,) * len(start_indices)),
        )  # fmt: skip

    def slice_in_dim(self, operand: Value, start_index: int, limit_index: int, stride: int, dimension: int) -> Value:
        """`slice` along one dimension."""
        low, high, step = [0] * operand.rank, list(operand.shape), [1] * operand.rank
        low[dimension], high[dimension], step[dimension] = start_index, limit_index, stride
        return self.slice(operand, low, high, step)

    def pad(self, operand: Value, padding_value: Value, padding_config: Sequence[tuple[int, ...]]) -> Value:
        """(low, high) or (low, high, interior) padding for each dimension."""
        rows = [(*p, 0)[:3] for p in padding_config]
        low, high, interior = (tuple(r[k] for r in rows) for k in range(3))
        return self.one(
            "stablehlo.pad", operand, padding_value, edge_padding_low=low, edge_padding_high=high, interior_padding=interior
        )

    def _starts(self, operand: Value, start_indices: Value | Sequence[Value]) -> list[Value]:
        if not isinstance(start_indices, Value):
            return list(start_indices)
        if start_indices.rank == 0:
            return [start_indices]
        return [self.reshape(self.slice(start_indices, (k,), (k + 1,)), ()) for k in range(start_indices.shape[0])]

    def dynamic_slice(self, operand: Value, start_indices: Value | Sequence[Value], slice_sizes: Sequence[int]) -> Value:
        """The window of `slice_sizes` at scalars, or at the elements of a vector; starts are clamped."""
        starts = self._starts(operand, start_indices)
        return self.emit("stablehlo.dynamic_slice", (operand, *starts), {"slice_sizes": tuple(slice_sizes)})[0]

    def dynamic_update_slice(self, operand: Value, update: Value, start_indices: Value | Sequence[Value]) -> Value:
        """operand with `update` written at scalars, or at the elements of a vector."""
        return self.one("stablehlo.dynamic_update_slice", operand, update, *self._starts(operand, start_indices))

    def gather(
        self, operand: Value, start_indices: Value, dimension_numbers: GatherDimensions, slice_sizes: Sequence[int],
        indices_are_sorted: bool = False,
    ) -> Value:  # fmt: skip
        """Slices of operand at rows of start_indices."""
        return self.one(
            "stablehlo.gather", operand, start_indices, dimension_numbers=dimension_numbers, slice_sizes=tuple(slice_sizes),
            indices_are_sorted=indices_are_sorted,
        )  # fmt: skip

    def scatter(
        self, inputs: Value | Sequence[Value], scatter_indices: Value, updates: Value | Sequence[Value],
        update_computation: Region, scatter_dimension_numbers: ScatterDimensions, indices_are_sorted: bool = False,
        unique_indices: bool = False,
    ) -> Results:  # fmt: skip
        """inputs with updates combined in by update_computation at rows of scatter_indices."""
        ins, ups = flat((inputs,)), flat((updates,))
        scalars = [TensorType((), v.tensor.element) for v in ins]
        attributes = {
            "scatter_dimension_numbers": scatter_dimension_numbers, "indices_are_sorted": indices_are_sorted,
            "unique_indices": unique_indices,
        }  # fmt: skip
        body = self.region(update_computation, scalars * 2)
        made = self.emit("stablehlo.scatter", (*ins, scatter_indices, *ups), attributes, (body,))
        return made[0] if len(made) == 1 else made

    # ------------------------------------------------------------ random numbers

    def _rng(self, distribution: str, a: Value, b: Value, shape: Type | str) -> Value:
        t = type_of(shape)
        if not isinstance(t, TensorType) or not t.is_static:
            raise VerificationError(f"expected a static tensor type, found {t}", _caller(), op="stablehlo.rng")
        sizes = DenseArray(TensorType((t.rank,), ELEMENT_TYPES["i64"]), np.array(t.static_shape, np.int64))
        return self.emit("stablehlo.rng", (a, b, self.constant(sizes)), {"rng_distribution": distribution}, (), [t])[0]

    def rng_normal(self, mu: Value, sigma: Value, shape: Type | str) -> Value:
        """Random numbers of the normal distribution."""
        return self._rng("NORMAL", mu, sigma, shape)

    def rng_uniform(self, a: Value, b: Value, shape: Type | str) -> Value:
        """Random numbers in [a, b)."""
        return self._rng("UNIFORM", a, b, shape)

    def rng_bit_generator(self, algorithm: str, initial_state: Value, shape: Type | str) -> tuple[Value, ...]:
        """(next state, random bits of type `shape`)."""
        types = [initial_state.type, type_of(shape)]
        return self.emit("stablehlo.rng_bit_generator", (initial_state,), {"rng_algorithm": algorithm}, (), types)

    # ------------------------------------------------------------ tuples and the outside

    def get_tuple_element(self, tuple_data: Value, index: int) -> Value:
        """Element `index` of a tuple."""
        return self.one("stablehlo.get_tuple_element", tuple_data, index=index)

    def infeed(self, shape: Type | str, token: Value | None = None, infeed_config: str = "") -> tuple[Value, ...]:
        """(data, token) from the device's infeed."""
        t = type_of(shape)
        types = t.elements if isinstance(t, TupleType) else (t,)
        after = token if token is not None else self.one("stablehlo.create_token")
        return self.emit("stablehlo.infeed", (after,), {"infeed_config": infeed_config}, (), (*types, TokenType()))

    def custom_call(self, call_target_name: str, operands: Sequence[Value], shape: Type | str, **attributes: Any) -> Results:
        """A call of what the program does not say; `shape` is the type of the result, a tuple type for several."""
        t = type_of(shape)
        types = t.elements if isinstance(t, TupleType) else (t,)
        named = {"call_target_name": call_target_name, **attributes}
        made = self.emit("stablehlo.custom_call", flat(operands), named, (), types)
        return made[0] if len(made) == 1 else made

    def tuple(self, elements: Sequence[Value]) -> Value:
        """One value of several."""
        return self.emit("stablehlo.tuple", flat(elements))[0]
