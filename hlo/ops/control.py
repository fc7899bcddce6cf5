"""Control flow and grouping: while, if, case, sort, map, tuples, optimization_barrier."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.access import AccessBuilder, Index
from hlo.errors import Declined
from hlo.module import Op
from hlo.ops.common import fail, identity_access
from hlo.ops.rules import baseline, input_type, inputs, law, one_shape, returned, same_shapes, within_bounds
from hlo.registry import Attribute, OpDefinition, Operand, Structure, register
from hlo.types import ELEMENT_TYPES, BufferType, TensorType, TokenType, TupleType, Type
from hlo.typesets import ANY, ANY_TYPE, TENSOR, TUPLE, B, TypeSet, tensors

__all__ = ["all_can_be", "can_be", "listed", "types_of"]

_CONTROL = Declined("control flow: which region runs, and how often, is known only at run time")
_BRANCH_VALUE = TypeSet("tensor, token or tuple", lambda t: TENSOR.has(t) or isinstance(t, TokenType | TupleType | BufferType))


def can_be(a: Type, b: Type) -> bool:
    """Can both types describe one value: equal but for unknown dimensions (and quantization parameters)?"""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return same_shapes(a.shape, b.shape) and baseline(a.element) == baseline(b.element) and within_bounds(a, b)
    if isinstance(a, TupleType) and isinstance(b, TupleType):
        return len(a.elements) == len(b.elements) and all(map(can_be, a.elements, b.elements))
    return a == b


def all_can_be(a: Sequence[Type], b: Sequence[Type]) -> bool:
    """Can the types of two lists describe the same values, one by one?"""
    return len(a) == len(b) and all(map(can_be, a, b))


def types_of(values: Sequence[object]) -> list[Type]:
    """The types of some values."""
    return [v.type for v in values]  # type: ignore[attr-defined]


def listed(types: Sequence[Type]) -> str:
    """Types as an error shows them."""
    return "(" + ", ".join(map(str, types)) + ")"


def _is_predicate(t: Type) -> bool:
    return isinstance(t, TensorType) and t.element == ELEMENT_TYPES["i1"] and not t.shape


# ---------------------------------------------------------------- while, if, case


def _while_cond(op: Op) -> bool | str:
    cond, types = op.regions[0], types_of(op.operands)
    if not all_can_be(types_of(cond.arguments), types):
        return f"expected arguments {listed(types)}, found {listed(types_of(cond.arguments))}"
    out = returned(cond)
    return (len(out) == 1 and _is_predicate(out[0])) or f"expected cond to return tensor<i1>, found {listed(out)}"


def _while_body(op: Op) -> bool | str:
    body, types = op.regions[1], types_of(op.operands)
    for what, found in (("arguments", types_of(body.arguments)), ("results", returned(body))):
        if not all_can_be(found, types):
            return f"expected {what} {listed(types)}, found {listed(found)}"
    return True


def _results_are(types: Sequence[Type], op: Op) -> bool | str:
    return all_can_be(types_of(op.results), types) or f"expected results {listed(types)}, found {listed(types_of(op.results))}"


register(
    OpDefinition(
        name="stablehlo.while",
        structure=Structure.LOOP,
        spec="StableHLO: while",
        operands=(Operand("operand", _BRANCH_VALUE, variadic=True),),
        regions=("cond", "body"),
        infer=lambda op: tuple(types_of(op.operands)),
        access=_CONTROL,
        semantics=_CONTROL,
        constraints=(
            law("C1", "cond takes the operands' types and returns tensor<i1>", _while_cond),
            law("C2", "body takes and returns the operands' types", _while_body),
            law("C3", "results have the operands' types", lambda op: _results_are(types_of(op.operands), op), result=True),
        ),
        result_names=("results",),
    )
)


def _no_arguments(op: Op) -> bool | str:
    for r in op.regions:
        if r.arguments:
            return f"found a branch with arguments {listed(types_of(r.arguments))}"
    return True


def _one_output(op: Op) -> bool | str:
    first = returned(op.regions[0])
    for r in op.regions[1:]:
        if not all_can_be(returned(r), first):
            return f"expected {listed(first)} from every branch, found {listed(returned(r))}"
    return True


def _merge(types: Sequence[Type]) -> Type:
    """The most general of types that can be the same: a dimension is known where all know it alike."""
    first = types[0]
    if not all(isinstance(t, TensorType) for t in types) or not isinstance(first, TensorType):
        return first
    columns = zip(*(t.shape for t in types if isinstance(t, TensorType)), strict=True)
    return TensorType(tuple(c[0] if len(set(c)) == 1 else None for c in columns), first.element)


def _infer_branches(op: Op) -> Sequence[Type]:
    rows = [returned(r) for r in op.regions]
    if not rows or any(len(r) != len(rows[0]) for r in rows):
        raise fail(op, "expected branches that return as many values", "C2")
    return tuple(_merge(column) for column in zip(*rows, strict=True))


def _branch_results(op: Op) -> bool | str:
    return _results_are(_infer_branches(op), op)


register(
    OpDefinition(
        name="stablehlo.if",
        structure=Structure.BRANCH,
        spec="StableHLO: if",
        operands=(Operand("pred", tensors(B, rank=0)),),
        regions=("true_branch", "false_branch"),
        infer=_infer_branches,
        access=_CONTROL,
        semantics=_CONTROL,
        constraints=(
            law("C1", "branches take no arguments", _no_arguments),
            law("C2", "branches return the same types", _one_output),
            law("C3", "results have the types that the branches return", _branch_results, result=True),
        ),
        result_names=("results",),
    )
)

_I32_SCALAR = TypeSet(
    "0-dimensional tensor of i32", lambda t: isinstance(t, TensorType) and not t.shape and t.element == ELEMENT_TYPES["i32"]
)
register(
    OpDefinition(
        name="stablehlo.case",
        structure=Structure.BRANCH,
        spec="StableHLO: case",
        operands=(Operand("index", _I32_SCALAR),),
        regions=("branches",),
        has_any_regions=True,
        infer=_infer_branches,
        access=_CONTROL,
        semantics=_CONTROL,
        constraints=(
            law("C1", "at least one branch", lambda op: bool(op.regions) or "found none"),
            law("C2", "branches take no arguments", _no_arguments),
            law("C3", "branches return the same types", _one_output),
            law("C4", "results have the types that the branches return", _branch_results, result=True),
        ),
        result_names=("results",),
    )
)

# ---------------------------------------------------------------- optimization_barrier, tuples

_BARRED = TypeSet(
    "tensor, per-tensor quantized tensor, token or tuple",
    lambda t: tensors(*ANY, quantized="per-tensor").has(t) or isinstance(t, TokenType | TupleType),
)
register(
    OpDefinition(
        name="stablehlo.optimization_barrier",
        structure=Structure.BARRIER,
        spec="StableHLO: optimization_barrier",
        operands=(Operand("operand", _BARRED, variadic=True),),
        infer=lambda op: tuple(types_of(op.operands)),
        access=lambda op, output, d, ix: ix.read(output, d),
        semantics=Declined("a barrier: results are the operands, and nothing moves across"),
        constraints=(
            law(
                "C1",
                "results have the operands' types",
                lambda op: types_of(op.results) == types_of(op.operands),
                "operand",
                "results",
            ),
        ),
        result_names=("results",),
    )
)
_TUPLES = Declined("a tuple holds several values; its elements have maps of their own")
register(
    OpDefinition(
        name="stablehlo.tuple",
        structure=Structure.TUPLE,
        spec="StableHLO: tuple (deprecated)",
        operands=(Operand("val", ANY_TYPE, variadic=True),),
        infer=lambda op: (TupleType(tuple(types_of(op.operands))),),
        access=_TUPLES,
        semantics=_TUPLES,
        constraints=(
            law(
                "C1",
                "the result is the tuple of the operands' types",
                lambda op: TupleType(tuple(types_of(op.operands))) == op.results[0].type,
                "result",
            ),
        ),
    )
)


def _tuple_elements(op: Op) -> tuple[Type, ...]:
    t = op.operands[0].type
    if not isinstance(t, TupleType):
        raise fail(op, f"expected a tuple, found {t}")
    return t.elements


def _element_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    """Index by index the element of the tuple that `index` names."""
    ix.read(0, d)


register(
    OpDefinition(
        name="stablehlo.get_tuple_element",
        structure=Structure.ELEMENT,
        spec="StableHLO: get_tuple_element (deprecated)",
        operands=(Operand("operand", TUPLE),),
        attributes=(Attribute("index", "i32"),),
        infer=lambda op: (_tuple_elements(op)[op.attr("index")],),
        access=_element_access,
        semantics=_TUPLES,
        constraints=(
            law(
                "C1",
                "0 <= index < size(operand)",
                lambda op: 0 <= op.attr("index") < len(_tuple_elements(op)),
                "index",
                "operand",
            ),
            law(
                "C2",
                "the result has the element's type",
                lambda op: can_be(_tuple_elements(op)[op.attr("index")], op.results[0].type),
                "operand",
                "index",
                "result",
            ),
        ),
    )
)

# ---------------------------------------------------------------- sort, map


def _sort_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    """Every element along the sorted dimension can come out at any place of it."""
    axis = op.attr("dimension") % max(1, len(d))
    index = [ix.range(n) if i == axis else x for i, (x, n) in enumerate(zip(d, input_type(op, 0).static_shape, strict=True))]
    for k in range(len(op.operands)):
        ix.read(k, index)


def _comparator(op: Op) -> bool | str:
    body, types = op.regions[0], inputs(op, "inputs")
    expected = [TensorType((), t.element) for t in types for _ in range(2)]
    if not all_can_be(types_of(body.arguments), expected):
        return f"expected arguments {listed(expected)}, found {listed(types_of(body.arguments))}"
    out = returned(body)
    return (len(out) == 1 and _is_predicate(out[0])) or f"expected the comparator to return tensor<i1>, found {listed(out)}"


_VALUE = tensors(*ANY, quantized="per-tensor")
register(
    OpDefinition(
        name="stablehlo.sort",
        spec="StableHLO: sort",
        operands=(Operand("inputs", _VALUE, variadic=True),),
        attributes=(
            Attribute("dimension", "i64", -1),
            Attribute("is_stable", "bool", False),
        ),
        regions=("comparator",),
        infer=lambda op: tuple(types_of(op.operands)),
        access=_sort_access,
        semantics=Declined("the order depends on the values"),
        constraints=(
            law("C1", "at least one input", lambda op: bool(op.operands) or "found none"),
            one_shape("C3", "inputs"),
            law(
                "C4",
                "-R <= dimension < R",
                lambda op: -input_type(op, 0).rank <= op.attr("dimension") < input_type(op, 0).rank,
                "dimension",
                "inputs",
            ),
            law("C5", "the comparator takes two scalars for each input and returns tensor<i1>", _comparator),
            law("C2", "results have the inputs' types", lambda op: _results_are(types_of(op.operands), op), result=True),
        ),
        result_names=("results",),
    )
)


def _computation(op: Op) -> bool | str:
    body, types = op.regions[0], inputs(op, "inputs")
    expected = [TensorType((), t.element) for t in types]
    if not all_can_be(types_of(body.arguments), expected):
        return f"expected arguments {listed(expected)}, found {listed(types_of(body.arguments))}"
    out = returned(body)
    ok = len(out) == 1 and isinstance(out[0], TensorType) and not out[0].shape
    return ok or f"expected one scalar from the computation, found {listed(out)}"


def _infer_map(op: Op) -> Sequence[Type]:
    (t,) = returned(op.regions[0])
    if not isinstance(t, TensorType):
        raise fail(op, f"expected a tensor from the computation, found {t}", "C4")
    shape = [
        next((n for n in column if n is not None), None) for column in zip(*(x.shape for x in inputs(op, "inputs")), strict=True)
    ]
    return (TensorType(tuple(shape), t.element),)


register(
    OpDefinition(
        name="stablehlo.map",
        spec="StableHLO: map (unused)",
        operands=(Operand("inputs", _VALUE, variadic=True),),
        attributes=(Attribute("dimensions", "i64s"),),
        regions=("computation",),
        infer=_infer_map,
        access=identity_access,
        semantics=Declined("the region is applied to each element; inline it first"),
        constraints=(
            law("C2", "at least one input", lambda op: bool(op.operands) or "found none"),
            one_shape("C1", "inputs"),
            law(
                "C3",
                "dimensions are all dimensions in order",
                lambda op: list(op.attr("dimensions")) == list(range(input_type(op, 0).rank)),
                "dimensions",
                "inputs",
            ),
            law("C4", "the computation takes a scalar for each input and returns one", _computation),
        ),
    )
)
