"""Elementwise ops: out[d] = f(operand_0[d], …). One row each."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.errors import Declined
from hlo.module import Op
from hlo.ops.common import broadcast_shapes, fail, identity_access, rule, same_shape, tensor
from hlo.registry import Attribute, Constraint, Elementwise, Operand, OpDefinition, register
from hlo.types import ELEMENT_TYPES, ElementKind, ElementType, TensorType, Type

__all__: list[str] = []

B, S, U, F, C = (ElementKind.BOOLEAN, ElementKind.SIGNED, ElementKind.UNSIGNED, ElementKind.FLOAT, ElementKind.COMPLEX)
INTEGER = frozenset({S, U})
NUMERIC = frozenset({S, U, F, C})
ANY = frozenset({B, S, U, F, C})
FLOATING = frozenset({F, C})
REAL = frozenset({S, U, F})
LOGIC = frozenset({B, S, U})


def _accepts(kinds: frozenset[ElementKind]) -> str:
    return "tensor of " + " or ".join(sorted(k.value for k in kinds))


def _kinds_rule(kinds: frozenset[ElementKind]) -> Constraint:
    @rule("I1", f"operands are {_accepts(kinds)}")
    def check(op: Op) -> str | None:
        for k in range(len(op.operands)):
            e = tensor(op, k).element
            base = e if isinstance(e, ElementType) else e.expressed
            if base.kind not in kinds:
                return f"operand {k} must be a {_accepts(kinds)}, got {op.operands[k].type}"
        return None

    return check


@rule("C1", "operands and result have the same type")
def _same_type(op: Op) -> str | None:
    types = [v.type for v in (*op.operands, *op.results)]
    first = tensor(op, 0)
    for t in types[1:]:
        if not isinstance(t, TensorType) or not same_shape(t.shape, first.shape):
            return f"expected the shape of {first} everywhere, found {t}"
        if isinstance(t.element, ElementType) and isinstance(first.element, ElementType) and t.element != first.element:
            return f"expected the element type of {first} everywhere, found {t}"
    return None


def _infer_same(op: Op) -> Sequence[Type]:
    shape = broadcast_shapes([v.type for v in op.operands])
    if shape is None:
        raise fail(op, "expected operands of one shape, found " + ", ".join(str(v.type) for v in op.operands), "C1")
    first = tensor(op, 0)
    return (TensorType(shape, first.element, first.bounds),)


def _define(name: str, arity: int, kinds: frozenset[ElementKind], function: str | None = None, dialect: str = "stablehlo",
            attributes: tuple[Attribute, ...] = ()) -> None:  # fmt: skip
    names = ("operand",) if arity == 1 else ("lhs", "rhs")
    register(
        OpDefinition(
            name=f"{dialect}.{name}",
            spec=f"{'StableHLO' if dialect == 'stablehlo' else 'CHLO'}: {name}",
            operands=tuple(Operand(n, _accepts(kinds)) for n in names),
            attributes=attributes,
            infer=_infer_same,
            access=identity_access,
            semantics=Elementwise(function or name),
            constraints=(_kinds_rule(kinds), _same_type),
        )
    )


_ACCURACY = (Attribute("result_accuracy", "any", None),)
for _name, _kinds in {
    "cbrt": frozenset({F}), "cosine": FLOATING, "exponential": FLOATING, "exponential_minus_one": FLOATING, "log": FLOATING,
    "log_plus_one": FLOATING, "logistic": FLOATING, "rsqrt": FLOATING, "sine": FLOATING, "sqrt": FLOATING,
    "tan": FLOATING, "tanh": FLOATING,
}.items():  # fmt: skip
    _define(_name, 1, _kinds, attributes=_ACCURACY)
for _name, _kinds in {
    "ceil": frozenset({F}), "floor": frozenset({F}), "count_leading_zeros": INTEGER, "negate": NUMERIC, "not": LOGIC,
    "popcnt": INTEGER, "round_nearest_afz": frozenset({F}), "round_nearest_even": frozenset({F}),
    "sign": frozenset({S, F, C}),
}.items():  # fmt: skip
    _define(_name, 1, _kinds)
for _name, _kinds in {
    "add": ANY, "and": LOGIC, "atan2": FLOATING, "divide": NUMERIC, "maximum": ANY, "minimum": ANY, "multiply": ANY,
    "or": LOGIC, "power": NUMERIC, "remainder": REAL, "shift_left": INTEGER, "shift_right_arithmetic": INTEGER,
    "shift_right_logical": INTEGER, "subtract": NUMERIC, "xor": LOGIC,
}.items():  # fmt: skip
    _define(_name, 2, _kinds)
for _name in ("erf", "erfc", "square"):
    _define(_name, 1, FLOATING if _name == "square" else frozenset({F}), dialect="chlo")


# ---------------------------------------------------------------- those whose result type differs


def _infer_compare(op: Op) -> Sequence[Type]:
    return (TensorType(tensor(op, 0).shape, ELEMENT_TYPES["i1"]),)


@rule("C1", "lhs and rhs have the same element type")
def _compare_elements(op: Op) -> str | None:
    a, b = tensor(op, 0), tensor(op, 1)
    return None if a.element == b.element else f"expected one element type, found {a} and {b}"


@rule("C2", "lhs, rhs and result have the same shape")
def _compare_shapes(op: Op) -> str | None:
    shapes = [v.type.shape if isinstance(v.type, TensorType) else () for v in (*op.operands, *op.results)]
    ok = all(same_shape(shapes[0], s) for s in shapes[1:])
    return None if ok else "expected one shape, found " + ", ".join(map(str, shapes))


register(
    OpDefinition(
        name="stablehlo.compare",
        spec="StableHLO: compare",
        operands=(Operand("lhs"), Operand("rhs")),
        attributes=(Attribute("comparison_direction", "enum"), Attribute("compare_type", "enum", None, "comparison_type")),
        infer=_infer_compare,
        access=identity_access,
        semantics=Elementwise("compare"),
        constraints=(_compare_elements, _compare_shapes),
    )
)


@rule("C1", "pred is a scalar or has the shape of on_true")
def _select_pred(op: Op) -> str | None:
    p, t = tensor(op, 0), tensor(op, 1)
    ok = p.rank == 0 or same_shape(p.shape, t.shape)
    return None if ok else f"expected a scalar or the shape of {t}, found {p}"


@rule("C2", "on_true, on_false and the result have the same type")
def _select_types(op: Op) -> str | None:
    t = tensor(op, 1)
    for v in (op.operands[2], *op.results):
        if not isinstance(v.type, TensorType) or not same_shape(v.type.shape, t.shape) or v.type.element != t.element:
            return f"expected {t}, found {v.type}"
    return None


def _infer_select(op: Op) -> Sequence[Type]:
    return (tensor(op, 1),)


register(
    OpDefinition(
        name="stablehlo.select",
        spec="StableHLO: select",
        operands=(Operand("pred", "tensor of boolean"), Operand("on_true"), Operand("on_false")),
        infer=_infer_select,
        access=identity_access,
        semantics=Elementwise("select"),
        constraints=(_select_pred, _select_types),
    )
)


@rule("C1", "operand and result have the same shape")
def _convert_shape(op: Op) -> str | None:
    t, r = tensor(op, 0), op.results[0].type
    ok = isinstance(r, TensorType) and same_shape(t.shape, r.shape)
    return None if ok else f"expected the shape of {t}, found {r}"


register(
    OpDefinition(
        name="stablehlo.convert",
        spec="StableHLO: convert",
        operands=(Operand("operand"),),
        infer=Declined("the result's element type is the program's choice"),
        access=identity_access,
        semantics=Elementwise("convert"),
        constraints=(_convert_shape,),
    )
)
