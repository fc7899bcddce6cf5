"""Control flow and grouping: while, if, case, sort, map, composite, custom_call, tuples, optimization_barrier."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hlo.access import AccessBuilder, Index
from hlo.errors import Declined
from hlo.module import Module, Op
from hlo.ops.common import fail, identity_access
from hlo.ops.rules import baseline, input_type, inputs, law, one_shape, returned, same_shapes, within_bounds
from hlo.registry import Attribute, ModuleConstraint, OpDefinition, Operand, Structure, register
from hlo.types import ELEMENT_TYPES, BufferType, TensorType, TokenType, TupleType, Type
from hlo.typesets import ANY, ANY_TYPE, TENSOR, TUPLE, B, TypeSet, tensors

__all__ = ["can_be"]

_CONTROL = Declined("control flow: which region runs, and how often, is known only at run time")
_BRANCH_VALUE = TypeSet("tensor, token or tuple", lambda t: TENSOR.has(t) or isinstance(t, TokenType | TupleType | BufferType))


def can_be(a: Type, b: Type) -> bool:
    """Can both types describe one value: equal but for unknown dimensions (and quantization parameters)?"""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return same_shapes(a.shape, b.shape) and baseline(a.element) == baseline(b.element) and within_bounds(a, b)
    if isinstance(a, TupleType) and isinstance(b, TupleType):
        return len(a.elements) == len(b.elements) and all(map(can_be, a.elements, b.elements))
    return a == b


def _all_can_be(a: Sequence[Type], b: Sequence[Type]) -> bool:
    return len(a) == len(b) and all(map(can_be, a, b))


def _types(values: Sequence[object]) -> list[Type]:
    return [v.type for v in values]  # type: ignore[attr-defined]


def _listed(types: Sequence[Type]) -> str:
    return "(" + ", ".join(map(str, types)) + ")"


def _is_predicate(t: Type) -> bool:
    return isinstance(t, TensorType) and t.element == ELEMENT_TYPES["i1"] and not t.shape


# ---------------------------------------------------------------- while, if, case


def _while_cond(op: Op) -> bool | str:
    cond, types = op.regions[0], _types(op.operands)
    if not _all_can_be(_types(cond.arguments), types):
        return f"expected arguments {_listed(types)}, found {_listed(_types(cond.arguments))}"
    out = returned(cond)
    return (len(out) == 1 and _is_predicate(out[0])) or f"expected cond to return tensor<i1>, found {_listed(out)}"


def _while_body(op: Op) -> bool | str:
    body, types = op.regions[1], _types(op.operands)
    for what, found in (("arguments", _types(body.arguments)), ("results", returned(body))):
        if not _all_can_be(found, types):
            return f"expected {what} {_listed(types)}, found {_listed(found)}"
    return True


def _results_are(types: Sequence[Type], op: Op) -> bool | str:
    return _all_can_be(_types(op.results), types) or f"expected results {_listed(types)}, found {_listed(_types(op.results))}"


register(
    OpDefinition(
        name="stablehlo.while",
        structure=Structure.LOOP,
        spec="StableHLO: while",
        operands=(Operand("operand", _BRANCH_VALUE, variadic=True),),
        regions=("cond", "body"),
        infer=lambda op: tuple(_types(op.operands)),
        access=_CONTROL,
        semantics=_CONTROL,
        constraints=(
            law("C1", "cond takes the operands' types and returns tensor<i1>", _while_cond),
            law("C2", "body takes and returns the operands' types", _while_body),
            law("C3", "results have the operands' types", lambda op: _results_are(_types(op.operands), op), result=True),
        ),
        result_names=("results",),
    )
)


def _no_arguments(op: Op) -> bool | str:
    for r in op.regions:
        if r.arguments:
            return f"found a branch with arguments {_listed(_types(r.arguments))}"
    return True


def _one_output(op: Op) -> bool | str:
    first = returned(op.regions[0])
    for r in op.regions[1:]:
        if not _all_can_be(returned(r), first):
            return f"expected {_listed(first)} from every branch, found {_listed(returned(r))}"
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
        infer=lambda op: tuple(_types(op.operands)),
        access=lambda op, output, d, ix: ix.read(output, d),
        semantics=Declined("a barrier: results are the operands, and nothing moves across"),
        constraints=(
            law(
                "C1",
                "results have the operands' types",
                lambda op: _types(op.results) == _types(op.operands),
                "operand",
                "results",
                result=True,
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
        infer=lambda op: (TupleType(tuple(_types(op.operands))),),
        access=_TUPLES,
        semantics=_TUPLES,
        constraints=(
            law(
                "C1",
                "the result is the tuple of the operands' types",
                lambda op: TupleType(tuple(_types(op.operands))) == op.results[0].type,
                "result",
                result=True,
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
                result=True,
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
    if not _all_can_be(_types(body.arguments), expected):
        return f"expected arguments {_listed(expected)}, found {_listed(_types(body.arguments))}"
    out = returned(body)
    return (len(out) == 1 and _is_predicate(out[0])) or f"expected the comparator to return tensor<i1>, found {_listed(out)}"


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
        infer=lambda op: tuple(_types(op.operands)),
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
            law("C2", "results have the inputs' types", lambda op: _results_are(_types(op.operands), op), result=True),
        ),
        result_names=("results",),
    )
)


def _computation(op: Op) -> bool | str:
    body, types = op.regions[0], inputs(op, "inputs")
    expected = [TensorType((), t.element) for t in types]
    if not _all_can_be(_types(body.arguments), expected):
        return f"expected arguments {_listed(expected)}, found {_listed(_types(body.arguments))}"
    out = returned(body)
    ok = len(out) == 1 and isinstance(out[0], TensorType) and not out[0].shape
    return ok or f"expected one scalar from the computation, found {_listed(out)}"


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

# ---------------------------------------------------------------- composite, custom_call

_NAMESPACED = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*([.][a-zA-Z0-9_$]+)+\Z", re.ASCII)


def _decomposition(op: Op, module: Module) -> str | None:
    """C2 to C4: the decomposition is a function that takes the inputs' types and returns the results'."""
    name = op.attr("decomposition")
    f = module.functions.get(name)
    if f is None:
        return f"found no function @{name}"
    if not _all_can_be(_types(op.operands), [a.type for a in f.arguments]):
        return f"expected inputs {_listed([a.type for a in f.arguments])}, found {_listed(_types(op.operands))} [C3]"
    if not _all_can_be(_types(op.results), f.result_types):
        return f"expected results {_listed(f.result_types)}, found {_listed(_types(op.results))} [C4]"
    return None


_COMPOSITE = Declined("a composite stands for its decomposition, which is inlined before analysis")
register(
    OpDefinition(
        name="stablehlo.composite",
        structure=Structure.CALL,
        calls="decomposition",
        spec="StableHLO: composite",
        operands=(Operand("inputs", ANY_TYPE, variadic=True),),
        attributes=(
            Attribute("name", "string"),
            Attribute("composite_attributes", "dictionary", None),
            Attribute("decomposition", "symbol"),
            Attribute("version", "i32", 0),
        ),
        regions=(),
        has_any_regions=True,
        infer=Declined("the decomposition's type, which the module knows"),
        access=_COMPOSITE,
        semantics=_COMPOSITE,
        constraints=(
            law(
                "C1",
                "name is a dialect and a name: letters, digits and underscores around dots",
                lambda op: bool(_NAMESPACED.match(op.attr("name"))),
                "name",
            ),
        ),
        module_constraints=(
            ModuleConstraint("C2", "the decomposition is a function of the inputs' and results' types", _decomposition),
        ),
        result_names=("results",),
    )
)

_CUSTOM = Declined("what a custom call does is known to its target only")
API_VERSIONS = (
    "API_VERSION_UNSPECIFIED",
    "API_VERSION_ORIGINAL",
    "API_VERSION_STATUS_RETURNING",
    "API_VERSION_STATUS_RETURNING_UNIFIED",
    "API_VERSION_TYPED_FFI",
)


def _backend_config(op: Op) -> bool | str:
    config, version = op.attr("backend_config"), op.attr("api_version")
    if config is None or version is None:
        return True
    if version == 4:
        return isinstance(config, dict) or "expected a dictionary for API_VERSION_TYPED_FFI"
    return isinstance(config, str) or f"expected a string for api_version {version}"


def _layouts(op: Op) -> bool | str:
    """Operand and result layouts come together, one permutation for each tensor."""
    mine, theirs = op.attr("operand_layouts"), op.attr("result_layouts")
    if mine is None and theirs is None:
        return True
    if mine is None or theirs is None:
        return "expected layouts for both operands and results"
    outs = _types(op.results)
    if len(outs) == 1 and isinstance(outs[0], TupleType):
        outs = list(outs[0].elements)
    for what, layouts, types in (("operand", mine, _types(op.operands)), ("result", theirs, outs)):
        if not isinstance(layouts, tuple) or len(layouts) != len(types):
            return f"expected {len(types)} {what} layouts, found {len(layouts)}"
        for layout, t in zip(layouts, types, strict=True):
            problem = _layout_problem(layout, t)
            if problem:
                return problem
    return True


def _layout_problem(layout: object, t: Type) -> str | None:
    array = getattr(layout, "array", None)
    if array is None or array.ndim != 1 or array.size > 4096:
        return f"expected a list of dimensions as the layout of {t}"
    dims = array.tolist()
    if isinstance(t, TensorType):
        return None if sorted(dims) == list(range(t.rank)) else f"expected a permutation of the dimensions of {t}, found {dims}"
    if isinstance(t, TupleType):
        return f"expected no layout for {t}"
    if isinstance(t, TokenType):
        return None if not dims else f"expected an empty layout for {t}, found {dims}"
    return None


def _part(t: Type, path: Sequence[int]) -> Type | None:
    for i in path:
        if not isinstance(t, TupleType) or not 0 <= i < len(t.elements):
            return None
        t = t.elements[i]
    return t


def _aliases(op: Op) -> bool | str:
    outs = _types(op.results)
    for a in op.attr("output_operand_aliases") or ():
        if not 0 <= a.operand_index < len(op.operands):
            return f"expected an operand index in [0, {len(op.operands)}), found {a.operand_index}"
        mine = _part(op.operands[a.operand_index].type, a.operand_tuple_indices)
        path = a.output_tuple_indices
        whole: Type = TupleType(tuple(outs)) if len(outs) > 1 else (outs[0] if outs else TupleType(()))
        theirs = _part(whole, path)
        if mine is None or theirs is None:
            return f"found tuple indices that lead nowhere: {a}"
        if not can_be(mine, theirs):
            return f"expected operand and output parts of one type, found {mine} and {theirs}"
    return True


def _buffers(types: Sequence[Type]) -> list[int]:
    return [i for i, t in enumerate(types) if isinstance(t, BufferType)]


def _buffer_aliases(op: Op) -> bool | str:
    """Every buffer operand and result of a custom call takes part in exactly one alias; pins and buffer makers are exempt."""
    aliases = op.attr("output_operand_aliases") or ()
    ins, outs = _types(op.operands), _types(op.results)
    target = op.attr("call_target_name")
    special = {"CreateBuffer": _create_buffer, "Pin": _pin, "Unpin": _unpin}.get(target)
    has_buffers = _buffers(ins) or _buffers(outs)
    if special is not None:
        return special(ins, outs)
    if not has_buffers:
        return True
    used_in = [a.operand_index for a in aliases]
    used_out = [(a.output_tuple_indices or (0,))[0] for a in aliases]
    for which, used, buffers in (("operand", used_in, _buffers(ins)), ("output", used_out, _buffers(outs))):
        for k in buffers:
            n = used.count(k)
            if n != 1:
                return f"expected buffer {which} {k} in one alias, found it in {n}"
    return True


def _create_buffer(ins: Sequence[Type], outs: Sequence[Type]) -> bool | str:
    if ins:
        return f"expected no inputs of CreateBuffer, found {_listed(ins)}"
    return (len(outs) == 1 and isinstance(outs[0], BufferType)) or f"expected one buffer from CreateBuffer, found {_listed(outs)}"


def _matching(tensor: Type, buffer: Type) -> bool:
    return (
        isinstance(tensor, TensorType)
        and isinstance(buffer, BufferType)
        and tensor.shape == buffer.shape
        and tensor.element == buffer.element
    )


def _pin(ins: Sequence[Type], outs: Sequence[Type]) -> bool | str:
    ok = len(ins) == len(outs) == 1 and _matching(ins[0], outs[0])
    return ok or f"expected a tensor and its buffer, found {_listed(ins)} -> {_listed(outs)}"


def _unpin(ins: Sequence[Type], outs: Sequence[Type]) -> bool | str:
    ok = len(ins) == len(outs) == 1 and _matching(outs[0], ins[0])
    return ok or f"expected a buffer and its tensor, found {_listed(ins)} -> {_listed(outs)}"


register(
    OpDefinition(
        name="stablehlo.custom_call",
        spec="StableHLO: custom_call",
        operands=(Operand("inputs", ANY_TYPE, variadic=True),),
        attributes=(
            Attribute("call_target_name", "string"),
            Attribute("has_side_effect", "bool", False),
            Attribute("backend_config", "any", None),
            Attribute("api_version", "i32", 1),
            Attribute("called_computations", "symbols", ()),
            Attribute("operand_layouts", "any", None),
            Attribute("result_layouts", "any", None),
            Attribute("output_operand_aliases", "aliases", ()),
        ),
        infer=Declined("the results' types are the program's choice"),
        access=_CUSTOM,
        semantics=_CUSTOM,
        constraints=(
            law(
                "backend_config",
                "the configuration has the form that the API version asks for",
                _backend_config,
                "backend_config",
            ),
            law("layouts", "operand and result layouts come together, and are permutations", _layouts, result=True),
            law("output_operand_aliases", "aliases join parts of one type", _aliases, result=True),
            law("buffers", "every buffer takes part in one alias", _buffer_aliases, result=True),
        ),
        is_pure=False,
        result_names=("results",),
    )
)
