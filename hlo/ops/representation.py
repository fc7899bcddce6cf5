"""The same elements in another representation: quantized, dequantized, and their bits as another type."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.access import AccessBuilder, Index
from hlo.errors import Declined
from hlo.module import Op
from hlo.ops.common import fail, tensor
from hlo.ops.elementwise import SHAPE_OF_OPERAND, special
from hlo.ops.rules import input_type, law, result_type, same_shapes
from hlo.registry import Operand
from hlo.types import ElementType, QuantizedType, TensorType, Type
from hlo.typesets import ANY, F, tensors

__all__: list[str] = []

# ---------------------------------------------------------------- quantization


def _infer_dequantize(op: Op) -> Sequence[Type]:
    t = tensor(op, 0)
    if not isinstance(t.element, QuantizedType):
        raise fail(op, f"expected a quantized operand, found {t}")
    return (TensorType(t.shape, t.element.expressed, t.bounds),)


_QUANTIZED = tensors(quantized="block-wise")
special(
    "uniform_dequantize",
    (Operand("operand", _QUANTIZED),),
    tensors(F),
    _infer_dequantize,
    (
        SHAPE_OF_OPERAND,
        law(
            "C2",
            "the result's element type is the operand's expressed type",
            lambda op: isinstance(q := input_type(op, 0).element, QuantizedType) and q.expressed == result_type(op).element,
            "operand",
            "result",
        ),
    ),
)


def _expressed(e: ElementType | QuantizedType) -> ElementType:
    return e.expressed if isinstance(e, QuantizedType) else e


special(
    "uniform_quantize",
    (Operand("operand", tensors(F, quantized="block-wise")),),
    _QUANTIZED,
    Declined("the result's quantization parameters are the program's choice"),
    (
        SHAPE_OF_OPERAND,
        law(
            "C2",
            "the result's expressed type is the operand's element type (or expressed type)",
            lambda op: _expressed(input_type(op, 0).element) == _expressed(result_type(op).element),
            "operand",
            "result",
        ),
    ),
)


# ---------------------------------------------------------------- bitcast_convert


def _storage_bits(t: TensorType) -> int:
    return t.element.bits


def _bitcast_shape(op: Op) -> bool:
    a, r = input_type(op, 0), result_type(op)
    m, n = _storage_bits(a), _storage_bits(r)
    if m == n:
        return same_shapes(a.shape, r.shape)
    wide, narrow, ratio = (a, r, divmod(m, n)) if m > n else (r, a, divmod(n, m))
    if ratio[1] or len(narrow.shape) != len(wide.shape) + 1 or not same_shapes(wide.shape, narrow.shape[:-1]):
        return False
    return narrow.shape[-1] in (None, ratio[0])


def _bitcast_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    """Narrower elements come from one wide element each; a wide one is made of all narrow ones along the last dimension."""
    a, r = tensor(op, 0), op.results[0].tensor
    if a.element.bits == r.element.bits:
        ix.read(0, d)
    elif a.element.bits > r.element.bits:
        ix.read(0, d[:-1])
    else:
        ix.read(0, (*d, ix.range(a.static_shape[-1])))


special(
    "bitcast_convert",
    (Operand("operand", tensors(*ANY, quantized="any")),),
    tensors(*ANY, quantized="any"),
    Declined("the result's element type is the program's choice"),
    (
        law(
            "C1",
            "the shapes agree, but for a last dimension that makes up for different widths",
            _bitcast_shape,
            "operand",
            "result",
        ),
        law(
            "C2",
            "operand and result are both complex or neither is",
            lambda op: (
                len({isinstance(t.element, ElementType) and t.element.is_complex for t in (input_type(op, 0), result_type(op))})
                == 1
            ),
            "operand",
            "result",
        ),
    ),
    access=_bitcast_access,
)
