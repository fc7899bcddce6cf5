"""Collectives: what processes of a grid exchange. Every process runs the same program; groups come from replica_groups."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.attributes import ReplicaGroupMesh
from hlo.errors import Declined
from hlo.module import Module, Op
from hlo.ops.common import fail
from hlo.ops.control import can_be
from hlo.ops.rules import eq, input_type, inputs, law, reducer_problem, result_type, returned, same_shapes, within
from hlo.registry import Attribute, Constraint, ModuleConstraint, OpDefinition, Operand, register
from hlo.types import ELEMENT_TYPES, TensorType, Type
from hlo.typesets import ANY, tensors

__all__ = ["EXCHANGE"]

_VALUE = tensors(*ANY, quantized="per-tensor")
EXCHANGE = Declined("elements come from other processes of the grid")


def groups(op: Op) -> tuple[tuple[int, ...], ...] | None:
    """The rows of replica_groups; None when a mesh's axes give them."""
    value = op.attr("replica_groups")
    return None if isinstance(value, ReplicaGroupMesh) else value


def _members(op: Op) -> list[int]:
    return [m for row in groups(op) or () for m in row]


def _unique(op: Op) -> bool | str:
    seen: set[int] = set()
    for m in _members(op):
        if m != -1 and m in seen:
            return f"found {m} more than once"
        seen.add(m)
    return True


def _bounded(op: Op) -> bool | str:
    for m in _members(op):
        if m < -1:  # -1 fills up groups of different sizes
            return f"found {m}"
    found = sorted(m for m in _members(op) if m != -1)
    missing = next((k for k, m in enumerate(found) if k != m), None)
    return missing is None or f"expected the ids 0 to {len(found) - 1}, found no {missing}"


def _even(op: Op) -> bool | str:
    return -1 not in _members(op) or "expected groups of one size, found -1"


def _global_ids(op: Op) -> bool | str:
    handle = op.attr("channel_handle")
    if not op.attr("use_global_device_ids"):
        return True
    return (handle is not None and handle.handle > 0) or "expected a positive channel id with use_global_device_ids"


def _mesh(op: Op, module: Module) -> str | None:
    value = op.attr("replica_groups")
    if not isinstance(value, ReplicaGroupMesh):
        return None
    known = value.mesh in module.functions or any(f"@{value.mesh}" in text.split("=")[0] for text in module.foreign)
    return None if known else f"found no mesh @{value.mesh}"


def _group_rules(unique: str, sizes: str, bounds: str, even: bool = False) -> tuple[Constraint, ...]:
    return (
        law(unique, "ids in replica_groups are distinct", _unique, "replica_groups"),
        law(bounds, "replica_groups hold the ids from 0 on (-1 fills short groups up)", _bounded, "replica_groups"),
        *((law(sizes, "groups have one size", _even, "replica_groups"),) if even else ()),
    )


_MESH = (ModuleConstraint("mesh", "the mesh of replica_groups is declared", _mesh),)
_GROUPS = Attribute("replica_groups", "groups")
_CHANNEL = Attribute("channel_handle", "channel", None)
_GLOBAL = Attribute("use_global_device_ids", "unit", False)


def _group_size(op: Op) -> int | None:
    rows = groups(op)
    return len(rows[0]) if rows else None


def _processes(op: Op) -> int | None:
    """How many processes are in a group; None where that depends on the number of partitions too."""
    handle = op.attr("channel_handle")
    both = handle is not None and handle.handle > 0 and not op.attr("use_global_device_ids")
    return None if both else _group_size(op)


# ---------------------------------------------------------------- gathering and exchanging


def _gathered(op: Op) -> bool | str:
    dim = op.attr("all_gather_dim")
    if len(op.results) != len(op.operands):
        return f"expected {len(op.operands)} results, found {len(op.results)}"
    for k, t in enumerate(inputs(op, "operands")):
        r = result_type(op, k)
        if r.rank != t.rank or r.element != t.element:
            return f"expected the rank and element type of {t}, found {r}"
        for i, (a, b) in enumerate(zip(t.shape, r.shape, strict=True)):
            if i != dim and not eq(a, b):
                return f"expected {a} in dimension {i}, found {r}"
        a, b, n = t.shape[dim], r.shape[dim], _processes(op)
        if a is not None and b is not None and ((a == 0 and b != 0) or (a and b % a)):
            return f"expected a multiple of {a} in dimension {dim}, found {r}"
        if a is not None and b is not None and n is not None and b != a * n:
            return f"expected {a * n} in dimension {dim}, found {r}"
    return True


register(
    OpDefinition(
        name="stablehlo.all_gather",
        spec="StableHLO: all_gather",
        operands=(Operand("operands", _VALUE, variadic=True),),
        attributes=(Attribute("all_gather_dim", "i64"), _GROUPS, _CHANNEL, _GLOBAL),
        infer=Declined("how many processes there are is known only when the program runs"),
        access=EXCHANGE,
        semantics=EXCHANGE,
        constraints=(
            within("C1", "all_gather_dim", "the operands' dimensions", lambda op: min(t.rank for t in inputs(op, "operands"))),
            *_group_rules("C2", "C3", "C4", even=True),
            law("C5", "use_global_device_ids needs a positive channel id", _global_ids, "replica_groups"),
            law("C6", "results are the operands, longer in all_gather_dim", _gathered, result=True),
        ),
        module_constraints=_MESH,
        result_names=("results",),
    )
)


def _to_all_shape(t: TensorType, op: Op) -> tuple[int | None, ...]:
    split, concat, n = op.attr("split_dimension"), op.attr("concat_dimension"), op.attr("split_count")
    shape = list(t.shape)
    if split != concat:
        a, b = shape[split], shape[concat]
        shape[split] = None if a is None else a // n
        shape[concat] = None if b is None else b * n
    return tuple(shape)


def _splits(op: Op) -> bool | str:
    n, dim = op.attr("split_count"), op.attr("split_dimension")
    for t in inputs(op, "operands"):
        size = t.shape[dim]
        if size is not None and n > 0 and size % n:
            return f"expected a multiple of {n} in dimension {dim}, found {t}"
    return True


register(
    OpDefinition(
        name="stablehlo.all_to_all",
        spec="StableHLO: all_to_all",
        operands=(Operand("operands", _VALUE, variadic=True),),
        attributes=(
            Attribute("split_dimension", "i64"),
            Attribute("concat_dimension", "i64"),
            Attribute("split_count", "i64"),
            _GROUPS,
            _CHANNEL,
        ),
        infer=lambda op: tuple(TensorType(_to_all_shape(t, op), t.element) for t in inputs(op, "operands")),
        access=EXCHANGE,
        semantics=EXCHANGE,
        constraints=(
            within("C1", "split_dimension", "the operands' dimensions", lambda op: min(t.rank for t in inputs(op, "operands"))),
            within("C3", "concat_dimension", "the operands' dimensions", lambda op: min(t.rank for t in inputs(op, "operands"))),
            law("C4", "0 < split_count", lambda op: op.attr("split_count") > 0, "split_count"),
            law("C2", "split_count divides the split dimension", _splits, "operands", "split_count"),
            *_group_rules("C5", "C6", "C7", even=True),
            law(
                "C8",
                "groups have split_count members",
                lambda op: eq(_group_size(op), op.attr("split_count")),
                "replica_groups",
                "split_count",
            ),
            law(
                "C9",
                "results are the operands, split and concatenated",
                lambda op: (
                    len(op.results) == len(op.operands)
                    and all(
                        same_shapes(_to_all_shape(t, op), result_type(op, k).shape) and t.element == result_type(op, k).element
                        for k, t in enumerate(inputs(op, "operands"))
                    )
                ),
                "operands",
                "results",
            ),
        ),
        module_constraints=_MESH,
        result_names=("results",),
    )
)

# ---------------------------------------------------------------- reducing


def _computed(op: Op) -> bool | str:
    for t in inputs(op, op.definition.operands[0].name):
        scalar = TensorType((), t.element)
        problem = reducer_problem(op.regions[0], [scalar], [scalar])
        if problem:
            return problem
    return True


def _element_of_body(op: Op) -> object:
    out = returned(op.regions[0])
    return getattr(out[0], "element", None) if out else None


def _infer_all_reduce(op: Op) -> Sequence[Type]:
    e = _element_of_body(op)
    if e is None:
        raise fail(op, "expected a tensor from the computation", "C5")
    return tuple(TensorType(t.shape, e, t.bounds) for t in inputs(op, "operands"))  # type: ignore[arg-type]


_REDUCED = (
    law(
        "C6",
        "results have the operands' shapes",
        lambda op: (
            len(op.results) == len(op.operands)
            and all(same_shapes(t.shape, result_type(op, k).shape) for k, t in enumerate(inputs(op, "operands")))
        ),
        "operands",
        "results",
    ),
    law(
        "C7",
        "results have the element type that the computation returns",
        lambda op: all(result_type(op, k).element == _element_of_body(op) for k in range(len(op.results))),
        "results",
    ),
)
register(
    OpDefinition(
        name="stablehlo.all_reduce",
        spec="StableHLO: all_reduce",
        operands=(Operand("operands", _VALUE, variadic=True),),
        attributes=(_GROUPS, _CHANNEL, _GLOBAL),
        regions=("computation",),
        infer=_infer_all_reduce,
        access=EXCHANGE,
        semantics=EXCHANGE,
        constraints=(
            *_group_rules("C1", "C2", "C3"),
            law("C4", "use_global_device_ids needs a positive channel id", _global_ids, "replica_groups"),
            law(
                "C5",
                "the computation takes two scalars and returns one, of a type that the operands' is promotable to",
                _computed,
            ),
            *_REDUCED,
        ),
        module_constraints=_MESH,
        result_names=("results",),
    )
)
_ROOT = Attribute("has_dynamic_root", "unit", False)


def _data_and_root(op: Op) -> bool | str:
    if not op.attr("has_dynamic_root"):
        return True
    if len(op.operands) < 2:
        return f"expected data and a root, found {len(op.operands)} operands"
    root = input_type(op, len(op.operands) - 1)
    ok = isinstance(root.element, type(ELEMENT_TYPES["i32"])) and root.element.is_integer and root.rank == 1
    if not ok:
        return f"expected a one-dimensional integer root, found {root}"
    data = len(op.operands) - 1
    return eq(root.shape[0], data) or f"expected {data} roots, found {root}"


def _data(op: Op) -> list[TensorType]:
    types = inputs(op, op.definition.operands[0].name)
    return types[:-1] if op.attr("has_dynamic_root") else types


def _infer_collective_reduce(op: Op) -> Sequence[Type]:
    e = _element_of_body(op)
    if e is None:
        raise fail(op, "expected a tensor from the computation", "C6")
    return tuple(TensorType(t.shape, e, t.bounds) for t in _data(op))  # type: ignore[arg-type]


def _reduced_data(op: Op) -> bool:
    data = _data(op)
    return len(op.results) == len(data) and all(
        same_shapes(t.shape, result_type(op, k).shape) and result_type(op, k).element == _element_of_body(op)
        for k, t in enumerate(data)
    )


def _unchanged(t: TensorType, r: TensorType) -> bool:
    """type(r) = type(t), quantization parameters too: what processes exchange are stored elements."""
    return can_be(t, r) and t.element == r.element


def _same_as_data(op: Op) -> bool:
    data = _data(op)
    return len(op.results) == len(data) and all(_unchanged(t, result_type(op, k)) for k, t in enumerate(data))


register(
    OpDefinition(
        name="stablehlo.collective_reduce",
        spec="StableHLO: collective_reduce",
        operands=(Operand("operands", _VALUE, variadic=True),),
        attributes=(_GROUPS, _CHANNEL, _GLOBAL, _ROOT),
        regions=("computation",),
        infer=_infer_collective_reduce,
        access=EXCHANGE,
        semantics=EXCHANGE,
        constraints=(
            *_group_rules("C1", "C2", "C3"),
            law("C4", "use_global_device_ids needs a positive channel id", _global_ids, "replica_groups"),
            law("C5", "a dynamic root comes after the data, one entry for each", _data_and_root),
            law(
                "C6",
                "the computation takes two scalars and returns one",
                lambda op: next(
                    (
                        p
                        for t in _data(op)
                        if (p := reducer_problem(op.regions[0], [TensorType((), t.element)], [TensorType((), t.element)]))
                    ),
                    True,
                ),
            ),
            law(
                "C7",
                "results have the data's shapes and the element type that the computation returns",
                _reduced_data,
                "operands",
                "results",
            ),
        ),
        module_constraints=_MESH,
        result_names=("results",),
    )
)


def _scattered(op: Op) -> bool | str:
    dim, t, r = op.attr("scatter_dimension"), input_type(op, 0), result_type(op)
    if r.rank != t.rank:
        return f"expected the rank of {t}, found {r}"
    for i, (a, b) in enumerate(zip(t.shape, r.shape, strict=True)):
        if i != dim and not eq(a, b):
            return f"expected {a} in dimension {i}, found {r}"
    a, b, n = t.shape[dim], r.shape[dim], _group_size(op)
    if b == 0 or (a == 0 and b is not None):
        return f"expected a scattered dimension that is not 0, found {t} and {r}"
    if a is not None and b is not None and (a % b or (n is not None and n > 0 and a != b * n)):
        return f"expected {a} / {n} in dimension {dim}, found {r}"
    return True


def _scatter_divides(op: Op) -> bool | str:
    t, n = input_type(op, 0), _group_size(op)
    size = t.shape[op.attr("scatter_dimension")]
    return size is None or not n or size % n == 0 or f"expected a multiple of {n}, found {t}"


register(
    OpDefinition(
        name="stablehlo.reduce_scatter",
        spec="StableHLO: reduce_scatter",
        operands=(Operand("operand", _VALUE),),
        attributes=(Attribute("scatter_dimension", "i64"), _GROUPS, _CHANNEL, _GLOBAL),
        regions=("computation",),
        infer=Declined("how many processes there are is known only when the program runs"),
        access=EXCHANGE,
        semantics=EXCHANGE,
        constraints=(
            within("C2", "scatter_dimension", "the operand's dimensions", lambda op: input_type(op, 0).rank),
            *_group_rules("C3", "C4", "C5", even=True),
            law("C1", "the group's size divides the scattered dimension", _scatter_divides),
            law("C6", "use_global_device_ids needs a positive channel id", _global_ids, "replica_groups"),
            law(
                "C7",
                "the computation takes two scalars and returns one, of a type that the operand's is promotable to",
                _computed,
            ),
            law("C8", "the result is the operand, shorter in scatter_dimension", _scattered, result=True),
            law(
                "C9",
                "the result has the element type that the computation returns",
                lambda op: result_type(op).element == _element_of_body(op),
                "result",
            ),
        ),
        module_constraints=_MESH,
    )
)

# ---------------------------------------------------------------- broadcasting and permuting

register(
    OpDefinition(
        name="stablehlo.collective_broadcast",
        spec="StableHLO: collective_broadcast",
        operands=(Operand("operand", _VALUE, variadic=True),),
        attributes=(_GROUPS, _CHANNEL, _ROOT),
        infer=lambda op: tuple(TensorType(t.shape, t.element, t.bounds) for t in _data(op)),
        access=EXCHANGE,
        semantics=EXCHANGE,
        constraints=(
            law("operands", "at least one operand", lambda op: bool(op.operands) or "found none"),
            law("C1", "ids in replica_groups are distinct", _unique, "replica_groups"),
            law("C2", "0 <= replica_groups", lambda op: all(m >= 0 for m in _members(op)), "replica_groups"),
            law("root", "a dynamic root comes after the data, one entry for each", _data_and_root),
            law("C3", "the result has the operand's type", _same_as_data, "operand", "result"),
        ),
        module_constraints=_MESH,
    )
)


def _pairs(op: Op, which: int) -> list[int]:
    return [p[which] for p in op.attr("source_target_pairs")]


register(
    OpDefinition(
        name="stablehlo.collective_permute",
        spec="StableHLO: collective_permute",
        operands=(Operand("operand", _VALUE),),
        attributes=(Attribute("source_target_pairs", "pairs"), _CHANNEL),
        infer=lambda op: (input_type(op, 0),),
        access=EXCHANGE,
        semantics=EXCHANGE,
        constraints=(
            law(
                "C1",
                "source_target_pairs are pairs",
                lambda op: all(len(p) == 2 for p in op.attr("source_target_pairs")),
                "source_target_pairs",
            ),
            law("C2", "sources are distinct", lambda op: len(set(_pairs(op, 0))) == len(_pairs(op, 0)), "source_target_pairs"),
            law("C3", "targets are distinct", lambda op: len(set(_pairs(op, 1))) == len(_pairs(op, 1)), "source_target_pairs"),
            law(
                "C4",
                "0 <= source_target_pairs",
                lambda op: all(m >= 0 for p in op.attr("source_target_pairs") for m in p),
                "source_target_pairs",
            ),
            law(
                "C5",
                "the result has the operand's type",
                lambda op: _unchanged(input_type(op, 0), result_type(op)),
                "operand",
                "result",
            ),
        ),
    )
)
register(
    OpDefinition(
        name="stablehlo.cross-replica-sum",
        spec="StableHLO: cross-replica-sum (deprecated)",
        operands=(Operand("operand", _VALUE),),
        attributes=(_GROUPS,),
        infer=lambda op: (input_type(op, 0),),
        access=EXCHANGE,
        semantics=EXCHANGE,
        constraints=(*_group_rules("C1", "C2", "C3"),),
    )
)

_GRID = Declined("a number of the process grid")
for _name in ("replica_id", "partition_id"):
    register(
        OpDefinition(
            name=f"stablehlo.{_name}",
            spec=f"StableHLO: {_name}",
            operands=(),
            infer=lambda op: (TensorType((), ELEMENT_TYPES["ui32"]),),
            access=lambda op, output, d, ix: None,
            semantics=_GRID,
        )
    )
