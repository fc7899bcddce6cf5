"""Ops that stand for what is defined elsewhere: composite, whose decomposition is in the module, and custom_call."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hlo.errors import Declined
from hlo.module import Module, Op
from hlo.ops.control import all_can_be, can_be, listed, types_of
from hlo.ops.rules import law
from hlo.registry import Attribute, ModuleConstraint, OpDefinition, Operand, Structure, register
from hlo.types import BufferType, TensorType, TokenType, TupleType, Type
from hlo.typesets import ANY_TYPE

__all__: list[str] = []

_NAMESPACED = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*([.][a-zA-Z0-9_$]+)+\Z", re.ASCII)


def _decomposition(op: Op, module: Module) -> str | None:
    """C2 to C4: the decomposition is a function that takes the inputs' types and returns the results'."""
    name = op.attr("decomposition")
    f = module.functions.get(name)
    if f is None:
        return f"found no function @{name}"
    if not all_can_be(types_of(op.operands), [a.type for a in f.arguments]):
        return f"expected inputs {listed([a.type for a in f.arguments])}, found {listed(types_of(op.operands))} [C3]"
    if not all_can_be(types_of(op.results), f.result_types):
        return f"expected results {listed(f.result_types)}, found {listed(types_of(op.results))} [C4]"
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
    outs = types_of(op.results)
    if len(outs) == 1 and isinstance(outs[0], TupleType):
        outs = list(outs[0].elements)
    for what, layouts, types in (("operand", mine, types_of(op.operands)), ("result", theirs, outs)):
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
    outs = types_of(op.results)
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
    ins, outs = types_of(op.operands), types_of(op.results)
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
        return f"expected no inputs of CreateBuffer, found {listed(ins)}"
    return (len(outs) == 1 and isinstance(outs[0], BufferType)) or f"expected one buffer from CreateBuffer, found {listed(outs)}"


def _matching(tensor: Type, buffer: Type) -> bool:
    return (
        isinstance(tensor, TensorType)
        and isinstance(buffer, BufferType)
        and tensor.shape == buffer.shape
        and tensor.element == buffer.element
    )


def _pin(ins: Sequence[Type], outs: Sequence[Type]) -> bool | str:
    ok = len(ins) == len(outs) == 1 and _matching(ins[0], outs[0])
    return ok or f"expected a tensor and its buffer, found {listed(ins)} -> {listed(outs)}"


def _unpin(ins: Sequence[Type], outs: Sequence[Type]) -> bool | str:
    ok = len(ins) == len(outs) == 1 and _matching(outs[0], ins[0])
    return ok or f"expected a buffer and its tensor, found {listed(ins)} -> {listed(outs)}"


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
