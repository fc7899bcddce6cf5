"""CHLO: the ops above StableHLO that JAX prints, and those with implicit broadcasting."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hlo.access import AccessBuilder, Index
from hlo.attributes import RaggedDotDimensions
from hlo.errors import Declined
from hlo.module import Op
from hlo.ops.common import broadcast_shapes, fail, identity_access, tensor
from hlo.ops.rules import baseline, eq, input_type, inputs, law, result_type, returned, same_shapes, within
from hlo.registry import Attribute, Constraint, Elementwise, OpDefinition, Operand, Semantics, register
from hlo.types import ELEMENT_TYPES, OpaqueType, TensorType, Type
from hlo.typesets import ANY, ANY_TYPE, B, C, F, S, TypeSet, U, tensors

__all__: list[str] = []


def _is_unranked(t: Type) -> bool:
    return isinstance(t, OpaqueType) and t.text.startswith("tensor<*x")


def _loose(accepts: TypeSet) -> TypeSet:
    """The set, and unranked tensors with it: CHLO alone allows them."""
    return TypeSet(str(accepts), lambda t: accepts.has(t) or _is_unranked(t))


def _any_unranked(op: Op) -> bool:
    return any(_is_unranked(v.type) for v in (*op.operands, *op.results))


def _same(op: Op) -> bool | str:
    if _any_unranked(op):
        return True
    types = [v.type for v in (*op.operands, *op.results)]
    first = tensor(op, 0)
    for t in types[1:]:
        if (
            not isinstance(t, TensorType)
            or not same_shapes(t.shape, first.shape)
            or baseline(t.element) != baseline(first.element)
        ):
            return f"expected {first} everywhere, found {t}"
    return True


def _infer_same(op: Op) -> Sequence[Type]:
    if _any_unranked(op):
        return tuple(r.type for r in op.results) or (op.operands[0].type,)
    shape = broadcast_shapes([v.type for v in op.operands])
    if shape is None:
        raise fail(op, "expected operands of one shape, found " + ", ".join(str(v.type) for v in op.operands), "C1")
    t = tensor(op, 0)
    return (TensorType(shape, t.element, t.bounds if t.shape == shape else None),)


_SAME_TYPE = law("C1", "operands and result have the same type", _same, result=True)


def _define(name: str, operands: Sequence[str], accepts: TypeSet, semantics: Semantics | None = None) -> None:
    register(
        OpDefinition(
            name=f"chlo.{name}",
            spec=f"CHLO: {name}",
            operands=tuple(Operand(n, _loose(accepts)) for n in operands),
            infer=_infer_same,
            access=identity_access,
            semantics=Elementwise(name) if semantics is None else semantics,
            constraints=(_SAME_TYPE,),
        )
    )


_FLOATING = tensors(F, C)
for _name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "square", "tan"):
    _define(_name, ("operand",), _FLOATING)
for _name in ("bessel_i1e", "digamma", "erf", "erf_inv", "erfc", "lgamma"):
    _define(_name, ("operand",), tensors(F))
_define("_asin_acos_kernel", ("operand",), _FLOATING, Declined("an inner step of one lowering of asin and acos"))
_define("conj", ("operand",), tensors(*ANY))
_define("next_after", ("x", "y"), tensors(F))
_define("polygamma", ("n", "x"), tensors(F, C))
_define("zeta", ("x", "q"), tensors(F))
_define("mulhi", ("lhs", "rhs"), tensors(S, U))


def _infer_predicate(op: Op) -> Sequence[Type]:
    if _any_unranked(op):
        return tuple(r.type for r in op.results)
    return (TensorType(tensor(op, 0).shape, ELEMENT_TYPES["i1"]),)


for _name in ("is_inf", "is_neg_inf", "is_pos_inf"):
    register(
        OpDefinition(
            name=f"chlo.{_name}",
            spec=f"CHLO: {_name}",
            operands=(Operand("operand", _loose(tensors(F))),),
            infer=_infer_predicate,
            access=identity_access,
            semantics=Elementwise(_name),
        )
    )

# ---------------------------------------------------------------- implicit broadcasting


def broadcast_maps(op: Op) -> tuple[tuple[int | None, ...], list[tuple[int, ...]]]:
    """The result's shape and, for each operand, the result dimension of each of its dimensions.

    `broadcast_dimensions` places the operand of smaller rank; without it, dimensions align at the end. Sizes of 1 stretch.
    Raises VerificationError when the shapes cannot be broadcast.
    """
    types = [tensor(op, k) for k in range(len(op.operands))]
    rank = max(t.rank for t in types)
    dims = op.attr("broadcast_dimensions") if "broadcast_dimensions" in op.definition.known_attributes else None
    maps: list[tuple[int, ...]] = []
    for t in types:
        if dims is not None and t.rank < rank:
            if len(dims) != t.rank or any(not 0 <= k < rank for k in dims) or any(a >= b for a, b in pairwise(dims)):
                raise fail(
                    op, f"expected {t.rank} ascending dimensions below {rank} in broadcast_dimensions, found {list(dims)}", "C2"
                )
            maps.append(tuple(dims))
        else:
            maps.append(tuple(range(rank - t.rank, rank)))
    shape: list[int | None] = [1] * rank
    for t, m in zip(types, maps, strict=True):
        for n, k in zip(t.shape, m, strict=True):
            old = shape[k]
            if n == 1 or n == old:
                continue
            if old == 1:
                shape[k] = n
            elif n is not None and old is not None:
                raise fail(op, f"cannot broadcast {' with '.join(map(str, types))}: {old} and {n} at dimension {k}", "C1")
            elif old is None:
                shape[k] = n  # an unknown size against n: 1 or n, and n is what comes out
    return tuple(shape), maps


def _broadcast_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    _, maps = broadcast_maps(op)
    out = op.results[0].tensor.static_shape
    for k, m in enumerate(maps):
        shape = tensor(op, k).static_shape
        ix.read(k, [0 if n == 1 and out[i] != 1 else d[i] for n, i in zip(shape, m, strict=True)])


def _one_element(op: Op) -> bool | str:
    if _any_unranked(op):
        return True
    return len({baseline(tensor(op, k).element) for k in range(len(op.operands))}) == 1


def _infer_broadcast(op: Op) -> Sequence[Type]:
    if _any_unranked(op):
        return tuple(r.type for r in op.results)
    shape, _ = broadcast_maps(op)
    return (TensorType(shape, tensor(op, 0).element),)


def _infer_broadcast_compare(op: Op) -> Sequence[Type]:
    if _any_unranked(op):
        return tuple(r.type for r in op.results)
    return (TensorType(broadcast_maps(op)[0], ELEMENT_TYPES["i1"]),)


def _infer_broadcast_complex(op: Op) -> Sequence[Type]:
    if _any_unranked(op):
        return tuple(r.type for r in op.results)
    e = tensor(op, 0).element
    if e not in (ELEMENT_TYPES["f32"], ELEMENT_TYPES["f64"]):
        raise fail(op, f"expected f32 or f64 operands, found {tensor(op, 0)}")
    return (TensorType(broadcast_maps(op)[0], ELEMENT_TYPES[f"complex<{e}>"]),)


_DIMENSIONS = Attribute("broadcast_dimensions", "i64s", None)
_ONE_ELEMENT = law("C3", "lhs and rhs have the same element type", _one_element, "lhs", "rhs")
_VALUE = tensors(*ANY, quantized="per-tensor")


def _define_broadcast(name: str, accepts: TypeSet, infer: object = _infer_broadcast, extra: tuple[Attribute, ...] = ()) -> None:
    register(
        OpDefinition(
            name=f"chlo.broadcast_{name}",
            spec=f"CHLO: broadcast_{name}",
            operands=(Operand("lhs", _loose(accepts)), Operand("rhs", _loose(accepts))),
            attributes=(*extra, _DIMENSIONS),
            infer=infer,  # type: ignore[arg-type]
            access=_broadcast_access,
            semantics=Elementwise(name),
            constraints=(_ONE_ELEMENT,),
        )
    )


for _name in (
    "add",
    "atan2",
    "divide",
    "maximum",
    "minimum",
    "multiply",
    "next_after",
    "polygamma",
    "power",
    "remainder",
    "subtract",
    "zeta",
):
    _define_broadcast(_name, _VALUE)
for _name in ("and", "or", "xor"):
    _define_broadcast(_name, tensors(B, S, U))
for _name in ("shift_left", "shift_right_arithmetic", "shift_right_logical"):
    _define_broadcast(_name, _VALUE)
_define_broadcast(
    "compare",
    _VALUE,
    _infer_broadcast_compare,
    (Attribute("comparison_direction", "enum", domain="chlo."), Attribute("compare_type", "enum", None, "chlo.comparison_type")),
)
_define_broadcast("complex", tensors(F), _infer_broadcast_complex)


def _infer_broadcast_select(op: Op) -> Sequence[Type]:
    if _any_unranked(op):
        return tuple(r.type for r in op.results)
    shape, _ = broadcast_maps(op)
    return (TensorType(shape, tensor(op, 1).element),)


register(
    OpDefinition(
        name="chlo.broadcast_select",
        spec="CHLO: broadcast_select",
        operands=(Operand("pred", tensors(B)), Operand("on_true", _loose(_VALUE)), Operand("on_false", _loose(_VALUE))),
        infer=_infer_broadcast_select,
        access=_broadcast_access,
        semantics=Elementwise("select"),
        constraints=(
            law(
                "C1",
                "on_true and on_false have the same element type",
                lambda op: _any_unranked(op) or tensor(op, 1).element == tensor(op, 2).element,
                "on_true",
                "on_false",
            ),
        ),
    )
)

# ---------------------------------------------------------------- constants


def _no_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    """Reads nothing."""


register(
    OpDefinition(
        name="chlo.constant_like",
        spec="CHLO: constant_like",
        operands=(Operand("operand", _loose(tensors(*ANY))),),
        attributes=(Attribute("value", "any"),),
        infer=lambda op: (op.operands[0].type,),
        access=_no_access,
        semantics=Declined("rewritten to a constant of the operand's shape"),
        constraints=(
            law(
                "C1",
                "the value's type is the result's element type",
                lambda op: _any_unranked(op) or getattr(op.attr("value"), "type", None) == str(result_type(op).element),
                "value",
                "result",
            ),
        ),
    )
)
register(
    OpDefinition(
        name="chlo.constant",
        spec="CHLO: constant",
        operands=(),
        attributes=(Attribute("value", "dense"),),
        infer=lambda op: (op.attr("value").type,),
        access=_no_access,
        semantics=Declined("a stablehlo.constant of another dialect"),
        result_names=("output",),
    )
)

# ---------------------------------------------------------------- top_k


def _infer_top_k(op: Op) -> Sequence[Type]:
    if _is_unranked(op.operands[0].type):
        return (op.operands[0].type, OpaqueType("tensor<*xi32>"))
    t, k = tensor(op, 0), op.attr("k")
    if not t.rank:
        raise fail(op, "expected an operand of rank 1 or more", "C1")
    n = t.shape[-1]
    if n is not None and n < k:
        raise fail(op, f"expected a last dimension of at least k = {k}, found {t}", "C2")
    shape = (*t.shape[:-1], k)
    return (TensorType(shape, t.element), TensorType(shape, ELEMENT_TYPES["i32"]))


_SORTS: Semantics = Declined("top_k orders its whole last dimension: an output element depends on all of it, by value")
register(
    OpDefinition(
        name="chlo.top_k",
        spec="CHLO: top_k",
        operands=(Operand("operand", _loose(tensors(S, U, F))),),
        attributes=(Attribute("k", "i64"),),
        infer=_infer_top_k,
        access=lambda op, output, d, ix: ix.read(0, (*d[:-1], ix.range(tensor(op, 0).static_shape[-1]))),
        semantics=_SORTS,
        constraints=(law("C3", "0 <= k", lambda op: op.attr("k") >= 0, "k"),),
        result_names=("values", "indices"),
    )
)

# ---------------------------------------------------------------- ragged_dot


def _ragged(op: Op) -> RaggedDotDimensions:
    dims: RaggedDotDimensions = op.attr("ragged_dot_dimension_numbers")
    return dims


def _mode(op: Op) -> str:
    """Where the one ragged dimension of lhs is: "free", "contracting" or "batch"."""
    r = _ragged(op)
    (m,) = r.lhs_ragged
    return "batch" if m in r.dot.lhs_batching else "contracting" if m in r.dot.lhs_contracting else "free"


def _ragged_problem(op: Op) -> bool | str:
    r, lhs, rhs, sizes = _ragged(op), input_type(op, 0), input_type(op, 1), input_type(op, 2)
    d = r.dot
    if len(r.lhs_ragged) != 1:
        return f"expected one ragged dimension of lhs, found {list(r.lhs_ragged)}"
    if len(d.lhs_batching) != len(d.rhs_batching) or len(d.lhs_contracting) != len(d.rhs_contracting):
        return "expected batching and contracting dimensions in pairs"
    for side, t, used in (("lhs", lhs, d.lhs_batching + d.lhs_contracting), ("rhs", rhs, d.rhs_batching + d.rhs_contracting)):
        if len(set(used)) != len(used) or any(not 0 <= k < t.rank for k in used):
            return f"expected distinct dimensions of {side}, found {list(used)}"
    if not 0 <= r.lhs_ragged[0] < lhs.rank or any(not 0 <= k < rhs.rank for k in r.rhs_group):
        return "expected ragged and group dimensions within the operands"
    taken = [k for k in r.rhs_group if k in d.rhs_batching + d.rhs_contracting]
    if taken:
        return f"expected group dimensions that are neither batching nor contracting, found {taken[0]}"
    for i, j in (*zip(d.lhs_batching, d.rhs_batching, strict=True), *zip(d.lhs_contracting, d.rhs_contracting, strict=True)):
        if not eq(lhs.shape[i], rhs.shape[j]):
            return f"expected equal sizes, found {lhs.shape[i]} (lhs {i}) and {rhs.shape[j]} (rhs {j})"
    mode = _mode(op)
    if mode == "free" and len(r.rhs_group) != 1:
        return "expected one group dimension of rhs where the ragged dimension is free"
    if mode != "free" and r.rhs_group:
        return "expected no group dimension of rhs where the ragged dimension is batching or contracting"
    return _group_sizes(op, mode, lhs, rhs, sizes)


def _group_sizes(op: Op, mode: str, lhs: TensorType, rhs: TensorType, sizes: TensorType) -> bool | str:
    r = _ragged(op)
    m = r.lhs_ragged[0]
    if not sizes.rank:
        return "expected group_sizes of rank 1 or more"
    if mode == "free":
        prefix = [
            *r.dot.lhs_batching,
            *(k for k in range(lhs.rank) if k < m and k not in r.dot.lhs_batching + r.dot.lhs_contracting),
        ]
    elif mode == "contracting":
        prefix = [*r.dot.lhs_batching, *(k for k in r.dot.lhs_contracting[: r.dot.lhs_contracting.index(m)])]
    else:
        prefix = list(r.dot.lhs_batching[: r.dot.lhs_batching.index(m)])
    groups = rhs.shape[r.rhs_group[0]] if mode == "free" else sizes.shape[-1]
    if sizes.rank == 1:
        return eq(sizes.shape[0], groups) or f"expected {groups} group sizes, found {sizes}"
    expected = (*(lhs.shape[k] for k in prefix), groups)
    if sizes.rank != len(expected):
        return f"expected group_sizes of rank {len(expected)} or 1, found {sizes}"
    return same_shapes(expected, sizes.shape) or f"expected group_sizes of shape {list(expected)}, found {sizes}"


def _ragged_shape(op: Op) -> tuple[int | None, ...]:
    r, lhs, rhs = _ragged(op), input_type(op, 0), input_type(op, 1)
    left = [lhs.shape[k] for k in r.dot.free("lhs", lhs.rank)]
    right = [rhs.shape[k] for k in r.dot.free("rhs", rhs.rank) if k not in r.rhs_group]
    groups = (input_type(op, 2).shape[-1],) if _mode(op) == "contracting" else ()
    return (*groups, *(lhs.shape[k] for k in r.dot.lhs_batching), *left, *right)


register(
    OpDefinition(
        name="chlo.ragged_dot",
        spec="CHLO: ragged_dot",
        operands=(Operand("lhs", tensors(*ANY)), Operand("rhs", tensors(*ANY)), Operand("group_sizes", tensors(S, U))),
        attributes=(
            Attribute("ragged_dot_dimension_numbers", "ragged_dot"),
            Attribute("precision_config", "enums", (), "chlo.precision"),
        ),
        infer=Declined("the result's element type is the program's choice"),
        access=Declined("which group an element belongs to depends on group_sizes"),
        semantics=Declined("which group an element belongs to depends on group_sizes"),
        constraints=(
            law("C1", "dimension numbers and group sizes fit the operands", _ragged_problem),
            law(
                "C2",
                "the result has batching, free lhs and free rhs dimensions in order",
                lambda op: (
                    same_shapes(_ragged_shape(op), result_type(op).shape)
                    or f"expected shape {list(_ragged_shape(op))}, found {result_type(op)}"
                ),
                result=True,
            ),
        ),
    )
)

# ---------------------------------------------------------------- scan


def _scan_without(t: TensorType, axis: int) -> tuple[int | None, ...]:
    return t.shape[:axis] + t.shape[axis + 1 :]


def _scan_body(op: Op) -> bool | str:
    axis, body = op.attr("dimension"), op.regions[0]
    ins, inits = inputs(op, "inputs"), inputs(op, "inits")
    if len(body.arguments) != len(ins) + len(inits):
        return f"expected {len(ins) + len(inits)} arguments of the body, found {len(body.arguments)}"
    slices = [TensorType(_scan_without(t, axis), t.element) for t in ins]
    for k, (t, a) in enumerate(zip((*slices, *inits), body.arguments, strict=True)):
        if not isinstance(a.type, TensorType) or not same_shapes(a.type.shape, t.shape) or a.type.element != t.element:
            return f"expected argument {k} of the body to be {t}, found {a.type}"
    out = returned(body)
    outputs = len(op.results) - len(inits)
    if len(out) != len(op.results) or outputs < 0:
        return f"expected {len(op.results)} results of the body, found {len(out)}"
    for k, (made, r) in enumerate(zip(out, op.results, strict=True)):
        if not isinstance(made, TensorType) or not isinstance(r.type, TensorType) or made.element != r.type.element:
            return f"expected result {k} to have the element type that the body returns, found {r.type}"
        if k < outputs and not axis < r.type.rank:
            return f"expected result {k} to have the scanned dimension, found {r.type}"
        shape = _scan_without(r.type, axis) if k < outputs else r.type.shape
        if not same_shapes(made.shape, shape):
            return f"expected result {k} to be made of the body's {made}, found {r.type}"
    return True


_SCAN_RANK = within(
    "C1", "dimension", "the inputs' dimensions", lambda op: min([t.rank for t in inputs(op, "inputs")], default=1 << 62)
)
_SCAN: tuple[Constraint, ...] = (
    _SCAN_RANK,
    law("C2", "the body takes slices and carries and returns slices and carries", _scan_body, result=True),
)
register(
    OpDefinition(
        name="chlo.scan",
        spec="CHLO: scan",
        operands=(Operand("inputs", ANY_TYPE, variadic=True), Operand("inits", ANY_TYPE, variadic=True)),
        attributes=(
            Attribute("dimension", "i64"),
            Attribute("scan_dim_size", "i64", None),
            Attribute("is_reverse", "bool", None),
            Attribute("is_associative", "bool", None),
        ),
        regions=("body",),
        infer=Declined("how many results are outputs and how many are carries is the program's choice"),
        access=Declined("each step reads what the step before it made"),
        semantics=Declined("each step reads what the step before it made"),
        constraints=_SCAN,
        sized_segments=True,
        result_names=("results",),
    )
)
