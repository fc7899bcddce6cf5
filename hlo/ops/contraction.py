"""Ops that run over range variables: reduce and dot_general."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo.access import AccessBuilder, Index
from hlo.attributes import DotAlgorithm, DotDimensions
from hlo.errors import Declined
from hlo.module import Op
from hlo.ops.common import fail, same_shape, tensor
from hlo.ops.rules import (
    distinct,
    eq,
    inputs,
    law,
    one_element,
    one_shape,
    precisions,
    reducer_problem,
    result_type,
    results_of_body,
    returned,
    same_shapes,
    within,
)
from hlo.registry import Attribute, Constraint, Fold, OpDefinition, Operand, SumOfProducts, register
from hlo.types import ElementType, QuantizedType, TensorType, Type
from hlo.typesets import ANY, tensors

__all__ = ["dot_shape", "dot_shape_rules", "scaled_access"]


def _reduce_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    shape, dims = tensor(op, 0).static_shape, op.attr("dimensions")
    kept = iter(d)
    index = [ix.range(n) if i in dims else next(kept) for i, n in enumerate(shape)]
    inputs = len(op.segment("inputs"))
    for k in range(inputs):
        ix.read(k, index)
    for k in range(inputs):
        ix.read(inputs + k, ())


def _infer_reduce(op: Op) -> Sequence[Type]:
    inputs, dims = op.segment("inputs"), op.attr("dimensions")
    first = tensor(op, 0)
    if len(set(dims)) != len(dims):
        raise fail(op, f"expected distinct dimensions, found {list(dims)}", "C5")
    if any(not 0 <= k < first.rank for k in dims):
        raise fail(op, f"expected dimensions of {first}, found {list(dims)}", "C4")
    for k in range(len(inputs)):
        if not same_shape(tensor(op, k).shape, first.shape):
            raise fail(op, f"expected inputs of one shape, found {first} and {tensor(op, k)}", "C1")
    columns = [[tensor(op, k).shape[i] for k in range(len(inputs))] for i in range(first.rank)]
    known = [next((n for n in c if n is not None), None) for c in columns]
    shape = tuple(n for i, n in enumerate(known) if i not in dims)
    bounds = tuple(b for i, b in enumerate(first.bounds) if i not in dims) if first.bounds else None
    # The body's results name the element types: they may be wider than the inputs'.
    types: list[Type] = []
    for t in returned(op.regions[0]):
        if not isinstance(t, TensorType):
            raise fail(op, f"expected tensors from the body, found {t}", "C6")
        types.append(TensorType(shape, t.element, bounds))
    return types


def _counted(op: Op) -> bool | str:
    n = len(op.operands)
    return (n > 0 and n % 2 == 0) or f"expected as many init values as inputs, found {n} operands"


def _reduce_inits(op: Op) -> bool | str:
    for a, b in zip(inputs(op, "inputs"), inputs(op, "init_values"), strict=True):
        if not one_element(a, b):
            return f"expected a scalar {a.element} init value, found {b}"
    return True


def _reduce_body(op: Op) -> bool | str:
    first, dims = tensor(op, 0), op.attr("dimensions")
    kept = [n for i, n in enumerate(first.shape) if i not in dims]
    return reducer_problem(op.regions[0], inputs(op, "inputs"), inputs(op, "init_values"), kept) or True


def _reduced_shapes(op: Op) -> bool | str:
    expected = _infer_reduce(op)
    for t, r in zip(expected, op.results, strict=True):
        if not isinstance(t, TensorType) or not isinstance(r.type, TensorType) or not same_shape(t.shape, r.type.shape):
            return f"expected {t}, found {r.type}"
    return True


_VALUE = tensors(*ANY, quantized="per-tensor")
register(
    OpDefinition(
        name="stablehlo.reduce",
        spec="StableHLO: reduce",
        operands=(Operand("inputs", _VALUE, variadic=True), Operand("init_values", _VALUE, variadic=True)),
        attributes=(Attribute("dimensions", "i64s"),),
        regions=("body",),
        infer=_infer_reduce,
        access=_reduce_access,
        semantics=Fold(inputs=(0,), inits=(1,)),
        constraints=(
            law("C3", "as many init values as inputs, at least one", _counted),
            one_shape("C1", "inputs"),
            law("C2", "inputs and init_values have the same element types", _reduce_inits),
            within("C4", "dimensions", "the inputs' dimensions", lambda op: tensor(op, 0).rank),
            distinct("C5", "dimensions"),
            law(
                "C6",
                "the body takes 2N scalars and returns N, of types that inputs and init values are promotable to",
                _reduce_body,
            ),
            law("C7", "the results lack the reduced dimensions", _reduced_shapes, result=True),
            results_of_body("C8"),
        ),
        result_names=("results",),
    )
)


def _dot_indices(op: Op, d: tuple[Index, ...], ix: AccessBuilder) -> tuple[list[Index], list[Index]]:
    """The indices of lhs and rhs that meet in a product for the result's element d."""
    dims: DotDimensions = op.attr("dot_dimension_numbers")
    lhs, rhs = tensor(op, 0), tensor(op, 1)
    left: dict[int, Index] = {}
    right: dict[int, Index] = {}
    out = iter(d)
    for i, j in zip(dims.lhs_batching, dims.rhs_batching, strict=True):
        left[i] = right[j] = next(out)
    for i in dims.free("lhs", lhs.rank):
        left[i] = next(out)
    for j in dims.free("rhs", rhs.rank):
        right[j] = next(out)
    for i, j in zip(dims.lhs_contracting, dims.rhs_contracting, strict=True):
        left[i] = right[j] = ix.range(lhs.static_shape[i])
    return [left[i] for i in range(lhs.rank)], [right[j] for j in range(rhs.rank)]


def _dot_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    for k, index in enumerate(_dot_indices(op, d, ix)):
        ix.read(k, index)


def scaled_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    """A product reads both factors, and the scales of the blocks that they lie in."""
    for k, index in enumerate(_dot_indices(op, d, ix)):
        ix.read(k, index)
        sizes = zip(index, tensor(op, k).static_shape, tensor(op, k + 2).static_shape, strict=True)
        ix.read(k + 2, [0 if m <= 1 else x if n == m else x // (n // m) for x, n, m in sizes])


def _dims(op: Op) -> DotDimensions:
    dims: DotDimensions = op.attr("dot_dimension_numbers")
    return dims


def dot_shape(op: Op) -> tuple[int | None, ...]:
    dims, lhs, rhs = _dims(op), tensor(op, 0), tensor(op, 1)
    return (
        *(lhs.shape[i] for i in dims.lhs_batching),
        *(lhs.shape[i] for i in dims.free("lhs", lhs.rank)),
        *(rhs.shape[j] for j in dims.free("rhs", rhs.rank)),
    )


def _pairs_fit(kind: str) -> Callable[[Op], bool | str]:
    """C9 and C10: paired dimensions have equal sizes."""

    def holds(op: Op) -> bool | str:
        lhs, rhs = tensor(op, 0), tensor(op, 1)
        for i, j in zip(getattr(_dims(op), f"lhs_{kind}"), getattr(_dims(op), f"rhs_{kind}"), strict=True):
            if not eq(lhs.shape[i], rhs.shape[j]):
                return f"expected equal sizes, found {lhs.shape[i]} (lhs {i}) and {rhs.shape[j]} (rhs {j})"
        return True

    return holds


def dot_shape_rules() -> tuple[Constraint, ...]:
    """What dimension numbers have to be for two factors, whatever their elements."""

    def get(name: str) -> Callable[[Op], tuple[int, ...]]:
        return lambda op: getattr(_dims(op), name)

    def paired(label: str, kind: str) -> Constraint:
        return law(
            label,
            f"as many lhs as rhs {kind} dimensions",
            lambda op: len(getattr(_dims(op), f"lhs_{kind}")) == len(getattr(_dims(op), f"rhs_{kind}")),
            "dot_dimension_numbers",
        )

    def both(side: str) -> Callable[[Op], tuple[int, ...]]:
        return lambda op: getattr(_dims(op), f"{side}_batching") + getattr(_dims(op), f"{side}_contracting")

    left, right = (lambda op: tensor(op, 0).rank), (lambda op: tensor(op, 1).rank)
    return (
        paired("C1", "batching"),
        paired("C2", "contracting"),
        distinct("C3", "lhs batching and contracting dimensions", both("lhs")),
        distinct("C4", "rhs batching and contracting dimensions", both("rhs")),
        within("C5", "lhs_batching_dimensions", "the dimensions of lhs", left, get("lhs_batching")),
        within("C6", "lhs_contracting_dimensions", "the dimensions of lhs", left, get("lhs_contracting")),
        within("C7", "rhs_batching_dimensions", "the dimensions of rhs", right, get("rhs_batching")),
        within("C8", "rhs_contracting_dimensions", "the dimensions of rhs", right, get("rhs_contracting")),
        law("C9", "batching dimensions have equal sizes", _pairs_fit("batching")),
        law("C10", "contracting dimensions have equal sizes", _pairs_fit("contracting")),
        precisions("C11"),
    )


def _element(op: Op, k: int) -> ElementType | QuantizedType:
    return tensor(op, k).element if k < 2 else result_type(op).element


def _quantized_dot(op: Op) -> tuple[QuantizedType | None, QuantizedType | None, QuantizedType | None]:
    found = [_element(op, k) for k in range(3)]
    a, b, r = (e if isinstance(e, QuantizedType) else None for e in found)
    return a, b, r


def _dot_quantized(op: Op) -> bool:
    a, b, r = _quantized_dot(op)
    return (a is None and b is None and r is None) or (b is not None and (a is None) == (r is None))


def _dot_axis(op: Op) -> bool:
    _, b, _ = _quantized_dot(op)
    return b is None or b.axis is None or b.axis not in _dims(op).rhs_contracting


def _dot_expressed(op: Op) -> bool:
    a, b, r = _quantized_dot(op)
    return a is None or b is None or r is None or a.expressed == b.expressed == r.expressed


def _dot_hybrid(op: Op) -> bool:
    a, b, _ = _quantized_dot(op)
    return a is not None or b is None or _element(op, 0) == b.expressed == _element(op, 2)


_TYPES_OF_ALGORITHMS = (
    "f8E4M3FN",
    "f8E5M2",
    "f8E4M3FNUZ",
    "f8E5M2FNUZ",
    "f8E4M3B11FNUZ",
    "f8E3M4",
    "f8E4M3",
    "f8E8M0FNU",
    "f6E2M3FN",
    "f6E3M2FN",
    "f4E2M1FN",
    "bf16",
    "f16",
    "f32",
    "f64",
    "tf32",
)


def _algorithm(op: Op) -> DotAlgorithm | None:
    found: DotAlgorithm | None = op.attr("algorithm")
    return found


def _count(name: str) -> Callable[[Op], bool]:
    return lambda op: (a := _algorithm(op)) is None or getattr(a, name) > 0


_F8 = frozenset(t for t in _TYPES_OF_ALGORITHMS if t.startswith("f8"))
# (operands, accumulation) -> the numbers of primitive operations that are in use
_IN_USE = {
    ("f16", "f16"): (1,),
    ("f16", "f32"): (1,),
    ("bf16", "bf16"): (1,),
    ("bf16", "f32"): (1, 3, 6, 9),
    ("tf32", "f32"): (1, 3),
    ("f32", "f32"): (1,),
    ("f64", "f64"): (1,),
}


def _known_algorithm(op: Op) -> bool:
    a = _algorithm(op)
    if a is None:
        return True
    if a.lhs_component_count != 1 or a.rhs_component_count != 1:
        return False
    if a.lhs_precision_type in _F8 and a.rhs_precision_type in _F8:
        return a.accumulation_type == "f32" and a.num_primitive_operations == 1
    counts = _IN_USE.get((a.lhs_precision_type, a.accumulation_type), ()) if a.lhs_precision_type == a.rhs_precision_type else ()
    return a.num_primitive_operations in counts and not a.allow_imprecise_accumulation


def _known_types(op: Op) -> bool:
    a = _algorithm(op)
    return a is None or all(t in _TYPES_OF_ALGORITHMS for t in (a.lhs_precision_type, a.rhs_precision_type, a.accumulation_type))


_DOT_RESULT = (
    law(
        "C12",
        "the result's shape is batching, free lhs and free rhs dimensions in order",
        lambda op: same_shapes(dot_shape(op), result_type(op).shape),
        "lhs",
        "rhs",
        "dot_dimension_numbers",
        "result",
    ),
    law(
        "C14", "lhs and result are both quantized or neither is, and rhs is where any is", _dot_quantized, "lhs", "rhs", "result"
    ),
    law(
        "C15",
        "zero points of rhs are 0",
        lambda op: (b := _quantized_dot(op)[1]) is None or not any(b.zero_points),
        "rhs",
        result=True,
    ),
    law("C16", "rhs is not quantized along a contracting dimension", _dot_axis, "rhs", "dot_dimension_numbers", result=True),
    law(
        "C17",
        "quantized lhs and rhs have one storage type",
        lambda op: (q := _quantized_dot(op))[0] is None or q[1] is None or q[0].storage == q[1].storage,
        "lhs",
        "rhs",
        result=True,
    ),
    law("C18", "quantized operands and result have one expressed type", _dot_expressed, "lhs", "rhs", "result"),
    law(
        "C19",
        "the result is per-tensor quantized where rhs is",
        lambda op: (
            (q := _quantized_dot(op))[0] is None or q[1] is None or q[2] is None or q[1].axis is not None or q[2].axis is None
        ),
        "rhs",
        "result",
    ),
    law("C20", "plain lhs and result have rhs's expressed type", _dot_hybrid, "lhs", "rhs", "result"),
    law(
        "C21",
        "precisions are DEFAULT where an algorithm is given",
        lambda op: _algorithm(op) is None or all(p == "DEFAULT" for p in op.attr("precision_config") or ()),
        "precision_config",
    ),
    law("C22", "0 < lhs_component_count", _count("lhs_component_count"), "algorithm"),
    law("C23", "0 < rhs_component_count", _count("rhs_component_count"), "algorithm"),
    law("C24", "0 < num_primitive_operations", _count("num_primitive_operations"), "algorithm"),
    law("I8", "an algorithm names floating-point types", _known_types, "algorithm"),
    law("algorithm", "the algorithm is one that hardware knows", _known_algorithm, "algorithm"),
)

register(
    OpDefinition(
        name="stablehlo.dot_general",
        spec="StableHLO: dot_general",
        operands=(Operand("lhs", _VALUE), Operand("rhs", tensors(*ANY, quantized="any"))),
        results=(Operand("result", tensors(*ANY, quantized="any")),),
        attributes=(
            Attribute("dot_dimension_numbers", "dot"),
            Attribute("precision_config", "enums", (), "precision"),
            Attribute("algorithm", "algorithm", None),
        ),
        infer=Declined("the result's element type is the program's choice"),
        access=_dot_access,
        semantics=SumOfProducts(),
        constraints=(*dot_shape_rules(), *_DOT_RESULT),
    )
)
