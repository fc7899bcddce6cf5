"""Elementwise ops: out[d] = f(operand_0[d], …). One row each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo.access import AccessFunction
from hlo.errors import Declined
from hlo.module import Op
from hlo.ops.common import broadcast_shapes, fail, identity_access, rule, same_shape, tensor
from hlo.ops.rules import baseline, input_type, is_quantized, law, result_type, same_shapes, shape_stays
from hlo.registry import Attribute, Constraint, Elementwise, InferFunction, OpDefinition, Operand, register
from hlo.types import ELEMENT_TYPES, ElementKind, ElementType, QuantizedType, TensorType, Type
from hlo.typesets import ANY, B, C, F, S, TypeSet, U, tensors

__all__ = ["SHAPE_OF_OPERAND", "special"]

Kinds = tuple[ElementKind, ...]
INTEGER: Kinds = (S, U)
NUMERIC: Kinds = (S, U, F, C)
FLOATING: Kinds = (F, C)
LOGIC: Kinds = (B, S, U)


@rule("C1", "operands and result have the same shape and element type (quantization parameters aside)", result=True)
def _same_type(op: Op) -> str | None:
    first = tensor(op, 0)
    for v in (*op.operands[1:], *op.results):
        t = v.type
        if not isinstance(t, TensorType) or not same_shape(t.shape, first.shape):
            return f"expected the shape of {first} everywhere, found {t}"
        if baseline(t.element) != baseline(first.element):
            return f"expected the element type of {first} everywhere, found {t}"
    return None


def _infer_same(op: Op) -> Sequence[Type]:
    shape = broadcast_shapes([v.type for v in op.operands])
    if shape is None:
        raise fail(op, "expected operands of one shape, found " + ", ".join(str(v.type) for v in op.operands), "C1")
    first = tensor(op, 0)
    return (TensorType(shape, first.element, first.bounds if first.shape == shape else None),)


def _define(
    name: str,
    arity: int,
    kinds: Kinds,
    quantized: str = "per-tensor",
    function: str | None = None,
    constraints: tuple[Constraint, ...] = (_same_type,),
    attributes: tuple[Attribute, ...] = (),
    infer: InferFunction = _infer_same,
) -> None:
    accepts = tensors(*kinds, quantized=quantized)
    names = ("operand",) if arity == 1 else ("lhs", "rhs")
    register(
        OpDefinition(
            name=f"stablehlo.{name}",
            spec=f"StableHLO: {name}",
            operands=tuple(Operand(n, accepts) for n in names),
            results=(Operand("result", accepts),),
            attributes=attributes,
            infer=infer,
            access=identity_access,
            semantics=Elementwise(function or name),
            constraints=constraints,
        )
    )


def _tolerances(op: Op) -> bool | str:
    a = op.attr("result_accuracy")
    if a is None:
        return True
    if a.atol < 0 or a.rtol < 0 or a.ulps < 0:
        return f"expected tolerances of 0 or more, found {a}"
    if a.mode != "TOLERANCE" and (a.atol or a.rtol or a.ulps):
        return f"expected no tolerances in mode {a.mode}, found {a}"
    if a.mode == "TOLERANCE" and not (a.atol or a.rtol or a.ulps):
        return f"expected a tolerance in mode TOLERANCE, found {a}"
    return True


_ACCURATE = (_same_type, law("ResultAccuracy", "tolerances are given in mode TOLERANCE and nowhere else", _tolerances))
_ACCURACY = (Attribute("result_accuracy", "accuracy", None),)
for _name in (
    "cbrt",
    "cosine",
    "exponential",
    "exponential_minus_one",
    "log",
    "log_plus_one",
    "logistic",
    "rsqrt",
    "sine",
    "sqrt",
    "tan",
    "tanh",
):
    _define(_name, 1, FLOATING, attributes=_ACCURACY, constraints=_ACCURATE)
for _name, _kinds, _quantized in (
    ("ceil", (F,), "per-tensor"),
    ("floor", (F,), "per-tensor"),
    ("count_leading_zeros", INTEGER, ""),
    ("negate", NUMERIC, "per-tensor"),
    ("not", LOGIC, ""),
    ("popcnt", INTEGER, ""),
    ("round_nearest_afz", (F,), "per-tensor"),
    ("round_nearest_even", (F,), "per-tensor"),
    ("sign", (S, F, C), "per-tensor"),
):
    _define(_name, 1, _kinds, _quantized)
for _name, _kinds, _quantized in (
    ("and", LOGIC, ""),
    ("atan2", FLOATING, "per-tensor"),
    ("divide", NUMERIC, "per-tensor"),
    ("maximum", ANY, "per-tensor"),
    ("minimum", ANY, "per-tensor"),
    ("multiply", ANY, "per-tensor"),
    ("or", LOGIC, ""),
    ("power", NUMERIC, "per-tensor"),
    ("remainder", NUMERIC, "per-tensor"),
    ("shift_left", INTEGER, ""),
    ("shift_right_arithmetic", INTEGER, ""),
    ("shift_right_logical", INTEGER, ""),
    ("subtract", NUMERIC, "per-tensor"),
    ("xor", LOGIC, ""),
):
    _define(_name, 2, _kinds, _quantized)


# ---------------------------------------------------------------- add: per-axis quantization as well


def _three(op: Op) -> list[TensorType]:
    return [input_type(op, 0), input_type(op, 1), result_type(op)]


def _quants(op: Op) -> list[QuantizedType] | None:
    """The three quantized element types; None when the op is not quantized."""
    found = [t.element for t in _three(op) if isinstance(t.element, QuantizedType)]
    return found if len(found) == 3 else None


def _add_plain(op: Op) -> bool:
    a, b, r = _three(op)
    if not same_shapes(a.shape, b.shape, r.shape):
        return False
    return any(map(is_quantized, (a, b, r))) or a.element == b.element == r.element


def _add_axes(op: Op) -> bool:
    q = _quants(op)
    return q is None or (q[0].axis is not None or q[1].axis is not None) == (q[2].axis is not None)


def _add_axis_of(which: int) -> Callable[[Op], bool]:
    def holds(op: Op) -> bool:
        q = _quants(op)
        return q is None or q[which].axis is None or q[which].axis == q[2].axis

    return holds


def _infer_add(op: Op) -> Sequence[Type]:
    shape = broadcast_shapes([v.type for v in op.operands])
    if shape is None:
        raise fail(op, "expected operands of one shape, found " + ", ".join(str(v.type) for v in op.operands), "C1")
    a, b = tensor(op, 0), tensor(op, 1)
    # A per-axis quantized operand decides the result's axis; the program states the result's scales.
    per_axis = isinstance(b.element, QuantizedType) and b.element.axis is not None
    return (TensorType(shape, b.element if per_axis else a.element, a.bounds if a.shape == shape else None),)


_define(
    "add",
    2,
    ANY,
    "any",
    infer=_infer_add,
    constraints=(
        law(
            "C1",
            "operands and result have the same shape, and the same type where nothing is quantized",
            _add_plain,
            "lhs",
            "rhs",
            "result",
        ),
        law(
            "C2",
            "operands and result are all quantized or none is",
            lambda op: len({is_quantized(t) for t in _three(op)}) == 1,
            "lhs",
            "rhs",
            "result",
        ),
        law(
            "C3",
            "quantized operands and result have one storage type",
            lambda op: (q := _quants(op)) is None or len({x.storage for x in q}) == 1,
            "lhs",
            "rhs",
            "result",
        ),
        law(
            "C4",
            "quantized operands and result have one expressed type",
            lambda op: (q := _quants(op)) is None or len({x.expressed for x in q}) == 1,
            "lhs",
            "rhs",
            "result",
        ),
        law("C5", "the result is per-axis quantized where lhs or rhs is", _add_axes, "lhs", "rhs", "result"),
        law("C6", "a per-axis quantized lhs has the result's quantization dimension", _add_axis_of(0), "lhs", "result"),
        law("C7", "a per-axis quantized rhs has the result's quantization dimension", _add_axis_of(1), "rhs", "result"),
    ),
)


# ---------------------------------------------------------------- those whose result type differs

SHAPE_OF_OPERAND = law("C1", "the result has the operand's shape", shape_stays, "operand", "result")


def special(
    name: str,
    operands: tuple[Operand, ...],
    result: TypeSet,
    infer: InferFunction | Declined,
    constraints: tuple[Constraint, ...],
    attributes: tuple[Attribute, ...] = (),
    access: AccessFunction | Declined = identity_access,
) -> None:
    """Registers an elementwise op whose result's type is another one than its operands'."""
    register(
        OpDefinition(
            name=f"stablehlo.{name}",
            spec=f"StableHLO: {name}",
            operands=operands,
            results=(Operand("result", result),),
            attributes=attributes,
            infer=infer,
            access=access,
            semantics=Elementwise(name),
            constraints=constraints,
        )
    )


def _real_part(e: ElementType | QuantizedType) -> ElementType | QuantizedType:
    return e.real if isinstance(e, ElementType) else e


def _infer_real(op: Op) -> Sequence[Type]:
    t = tensor(op, 0)
    return (TensorType(t.shape, _real_part(t.element), t.bounds),)


_REAL_ELEMENT = law(
    "C2",
    "the result's element type is that of the operand's parts",
    lambda op: baseline(result_type(op).element) == baseline(_real_part(input_type(op, 0).element)),
    "operand",
    "result",
)

special(
    "abs",
    (Operand("operand", tensors(S, F, C, quantized="per-tensor")),),
    tensors(S, F, quantized="per-tensor"),
    _infer_real,
    (SHAPE_OF_OPERAND, _REAL_ELEMENT),
)
for _name in ("real", "imag"):
    special(_name, (Operand("operand", tensors(F, C)),), tensors(F), _infer_real, (SHAPE_OF_OPERAND, _REAL_ELEMENT))


def _infer_boolean(op: Op) -> Sequence[Type]:
    shape = broadcast_shapes([v.type for v in op.operands])
    if shape is None:
        raise fail(op, "expected operands of one shape, found " + ", ".join(str(v.type) for v in op.operands), "C2")
    t = tensor(op, 0)
    return (TensorType(shape, ELEMENT_TYPES["i1"], t.bounds if t.shape == shape else None),)


special(
    "is_finite",
    (Operand("x", tensors(F, quantized="per-tensor")),),
    tensors(B),
    _infer_boolean,
    (law("C1", "x and y have the same shape", shape_stays, "x", "result"),),
)


def _infer_complex(op: Op) -> Sequence[Type]:
    shape = broadcast_shapes([v.type for v in op.operands])
    t = tensor(op, 0)
    if shape is None or t.element not in (ELEMENT_TYPES["f32"], ELEMENT_TYPES["f64"]):
        raise fail(op, f"expected f32 or f64 operands of one shape, found {t}", "C1")
    return (TensorType(shape, ELEMENT_TYPES[f"complex<{t.element}>"], t.bounds if t.shape == shape else None),)


_WIDE = TypeSet("tensor of f32 or f64", lambda t: tensors(F).has(t) and isinstance(t, TensorType) and t.element.bits in (32, 64))
special(
    "complex",
    (Operand("lhs", _WIDE), Operand("rhs", _WIDE)),
    tensors(C),
    _infer_complex,
    (
        law(
            "C1",
            "lhs and rhs have the same type",
            lambda op: (
                same_shapes(input_type(op, 0).shape, input_type(op, 1).shape)
                and input_type(op, 0).element == input_type(op, 1).element
            ),
            "lhs",
            "rhs",
        ),
        law("C2", "the result has the shape of lhs", shape_stays, "lhs", "result"),
        law(
            "C3",
            "the result's element type is complex of that of lhs",
            lambda op: result_type(op).element == ELEMENT_TYPES.get(f"complex<{input_type(op, 0).element}>"),
            "lhs",
            "result",
        ),
    ),
)


@rule("C1", "lhs and rhs have the same element type")
def _compare_elements(op: Op) -> str | None:
    a, b = tensor(op, 0), tensor(op, 1)
    return None if baseline(a.element) == baseline(b.element) else f"expected one element type, found {a} and {b}"


@rule("C2", "lhs, rhs and result have the same shape", result=True)
def _compare_shapes(op: Op) -> str | None:
    shapes = [v.type.shape if isinstance(v.type, TensorType) else () for v in (*op.operands, *op.results)]
    return None if same_shapes(*shapes) else "expected one shape, found " + ", ".join(str(v.type) for v in op.operands)


# The specification's C3 (the compare type that belongs to an element type) is not checked: programs break it, and it changes
# nothing but for floats, where TOTALORDER is the only one that differs.
special(
    "compare",
    (Operand("lhs", tensors(*ANY, quantized="per-tensor")), Operand("rhs", tensors(*ANY, quantized="per-tensor"))),
    tensors(B),
    _infer_boolean,
    (_compare_elements, _compare_shapes),
    (Attribute("comparison_direction", "enum"), Attribute("compare_type", "enum", None, "comparison_type")),
)


@rule("C1", "pred is a scalar or has the shape of on_true")
def _select_pred(op: Op) -> str | None:
    p = tensor(op, 0)
    ok = p.rank == 0 or same_shape(p.shape, tensor(op, 1).shape)
    return None if ok else f"expected a scalar or the shape of {tensor(op, 1)}, found {p}"


@rule("C2", "on_true, on_false and the result have the same type", result=True)
def _select_types(op: Op) -> str | None:
    t = tensor(op, 1)
    types = [v.type for v in (*op.operands[1:], *op.results)]
    for u in types:
        if not isinstance(u, TensorType) or not same_shape(u.shape, t.shape) or baseline(u.element) != baseline(t.element):
            return f"expected {t}, found {u}"
    return None


def _infer_select(op: Op) -> Sequence[Type]:
    t = tensor(op, 1)
    shape = broadcast_shapes([op.operands[1].type, op.operands[2].type])
    if shape is None:
        raise fail(op, f"expected {t}, found {op.operands[2].type}", "C2")
    return (TensorType(shape, t.element, t.bounds if t.shape == shape else None),)


_VALUE = tensors(*ANY, quantized="per-tensor")
special(
    "select",
    (Operand("pred", tensors(B)), Operand("on_true", _VALUE), Operand("on_false", _VALUE)),
    _VALUE,
    _infer_select,
    (_select_pred, _select_types),
)


def _infer_clamp(op: Op) -> Sequence[Type]:
    return (tensor(op, 1),)


def _bound_shape(name: str) -> Callable[[Op], bool]:
    return lambda op: not input_type(op, name).shape or same_shapes(input_type(op, name).shape, input_type(op, "operand").shape)


special(
    "clamp",
    (Operand("min", _VALUE), Operand("operand", _VALUE), Operand("max", _VALUE)),
    _VALUE,
    _infer_clamp,
    (
        law("C1", "min is a scalar or has the operand's shape", _bound_shape("min"), "min", "operand"),
        law("C2", "max is a scalar or has the operand's shape", _bound_shape("max"), "max", "operand"),
        law(
            "C3",
            "min, operand and max have the same element type",
            lambda op: len({baseline(input_type(op, k).element) for k in range(3)}) == 1,
            "min",
            "operand",
            "max",
        ),
        law(
            "C4",
            "the result has the operand's type",
            lambda op: (
                same_shapes(input_type(op, 1).shape, result_type(op).shape)
                and baseline(input_type(op, 1).element) == baseline(result_type(op).element)
            ),
            "operand",
            "result",
        ),
    ),
)

special(
    "convert",
    (Operand("operand", tensors(*ANY)),),
    tensors(*ANY),
    Declined("the result's element type is the program's choice"),
    (SHAPE_OF_OPERAND,),
)


def _precision(name: str, low: int) -> Callable[[Op], bool]:
    return lambda op: op.attr(name) >= low


special(
    "reduce_precision",
    (Operand("operand", tensors(F, quantized="per-tensor")),),
    tensors(F, quantized="per-tensor"),
    _infer_same,
    (
        _same_type,
        law("C2", "1 <= exponent_bits", _precision("exponent_bits", 1), "exponent_bits"),
        law("C3", "0 <= mantissa_bits", _precision("mantissa_bits", 0), "mantissa_bits"),
    ),
    (Attribute("exponent_bits", "i32"), Attribute("mantissa_bits", "i32")),
)
