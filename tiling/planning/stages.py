"""Which values of a program get loops of their own: the stages. Everything else is computed where it is read.

A value is a stage when
  - it runs over a range (reductions, contractions), or only the evaluator can compute it;
  - it is a result of the program;
  - a contraction reads it, and computing it takes arithmetic on another stage (then it is that stage's epilogue), or it lies at
    places known only at run time and each element takes part in several products (the micro-kernel reads fixed places);
  - several stages would compute it again, and that costs more than to keep it: it is expensive (exp, division chains, elements
    that each lie somewhere else), or it takes more bytes to read its inputs again than to read it, or each reader would choose
    among many parts side by side;
  - it is expensive, and is looked up more often than it has elements, or repeated along other dimensions while the innermost
    loop walks through it (angles of positions, for each head; numbers of the columns that a gather picks), so that it cannot be
    moved out of the loops;
  - what is computed in place for one element would be more than `tiling.planning.sizes.MOST_NODES` operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from hlo.clone import captured_values
from hlo.errors import Declined
from hlo.module import Op, Value
from hlo.registry import Elementwise, Fold, Generate, Literal, Move, SumOfProducts
from hlo.types import ElementType, TensorType
from indexing.deriving.derive import Reads
from indexing.deriving.edges import edges_of
from indexing.expr import simplify
from tiling.elements.scalar_functions import scalar_function
from tiling.loops.stage import Stage, is_inlinable
from tiling.planning.sizes import InPlace, below_moves
from tiling.program.flatten import Program
from tiling.program.inputs import op_inputs
from tiling.routines.table import ROUTINES, routine_of

__all__ = ["Stage", "find_stages", "is_inlinable", "ops_of"]

EXPENSIVE = 8.0
NARROW = 8.0  # times that an op on one float of 16 bits takes: it is widened and rounded
WORTH_STORING_BYTES = 1 << 14  # less than that is in the nearest cache anyway
WORTH_REPEATS = 4  # times that an expensive value is repeated,
WORTH_SAVING = 1 << 19  # and the additions' worth of time that it takes then
LEAST_WINDOWS = 4
FAR_LARGER = 256  # times: an operand beside which another one is nothing
MANY_PARTS = 8  # side by side: who reads them chooses among them for each element
_CONCATENATE = "stablehlo.concatenate"
WORTH_STORING_USES = 8  # products or windows that an operand's element at a place known at run time takes part in


def compilable(op: Op) -> Declined | None:
    """None when loops can be made for the op, else why only the evaluator runs it."""
    definition = op.definition
    if routine_of(op) is not None and not any(captured_values(b) for b in op.regions):
        return None
    if any(captured_values(b) for b in op.regions):
        return Declined("its region reads values from outside")
    routine = ROUTINES.get(op.name)
    if routine is not None:
        found = routine.declines(op)
        return found if found is not None else Declined("its routine does not take it")
    if isinstance(definition.semantics, Declined):
        return definition.semantics
    if isinstance(definition.access, Declined):
        return definition.access
    for v in (*op.operands, *op.results):
        if not isinstance(v.type, TensorType) or not v.type.is_static:
            return Declined(f"{v.type} has no fixed shape")
        if not isinstance(v.type.element, ElementType):
            return Declined(f"{v.type} is quantized")
    if isinstance(definition.semantics, Fold):
        for inner in op.regions[0].ops[:-1]:
            if not isinstance(inner.definition.semantics, (Elementwise, Literal)):
                return Declined(f"its body contains {inner.name}, which is no scalar function")
    return None


def find_stages(program: Program, refused: Mapping[Op, Declined]) -> list[Stage]:
    """The stages of a program, in dependency order. Ops in `refused` (by id) are left to the evaluator."""
    declined: dict[Op, Declined | None] = {op: refused.get(op, compilable(op)) for op in program.ops}
    anchors = {
        op
        for op in program.ops
        if declined[op] is not None
        or isinstance(op.definition.semantics, (Fold, SumOfProducts))
        or routine_of(op) is not None
    }
    has_anchor: dict[Value, bool] = {}
    is_placed: set[Value] = set()  # values that, computed in place, are read at places known at run time
    weight: dict[Value, float] = {}
    sources: dict[Value, dict[Value, int]] = {}  # value -> {what it loads when computed in place: bytes}
    in_place = InPlace(program, anchors, _windowed(program))
    for v in program.arguments:
        sources[v] = {v: _bytes(v)}
    for op in program.ops:
        for r in op.results:
            if op in anchors or op in in_place.cut:
                has_anchor[r], weight[r], sources[r] = True, 0.0, {r: _bytes(r)}
                continue
            has_anchor[r] = any(has_anchor.get(v, False) for v in op.operands)
            placed = _is_placed(op, declined[op])
            if placed or any(v in is_placed for v in op.operands):
                is_placed.add(r)
            semantics = op.definition.semantics
            own = scalar_function(semantics.function).cost if isinstance(semantics, Elementwise) else 0.0
            if placed and _bytes(r) >= WORTH_STORING_BYTES and _is_scattered(op):
                own = EXPENSIVE
            weight[r] = own + _weight_of_operands(op, r, weight)
            merged: dict[Value, int] = {}
            for v in op.operands:
                merged.update(sources.get(v, {}))
            sources[r] = merged

    results = set(program.results)
    wanted: set[Value] = set()  # values that a contraction or the evaluator should find in memory
    repeated: set[Value] = set()  # expensive values that are read again and again
    evaluators: dict[Value, set[Op]] = {}
    stages: list[Stage] = []
    for op in reversed(program.ops):
        is_anchor = op in anchors or op in in_place.cut
        users = {r: evaluators.get(r, set()) for r in op.results}
        # A constant is in memory already, whoever reads it.
        cut = is_anchor or (
            any(r in results for r in op.results) and not isinstance(op.definition.semantics, Literal)
        )
        if not cut and not isinstance(op.definition.semantics, Literal):
            cut = any(r in wanted or r in repeated for r in op.results)
        if not cut and not isinstance(op.definition.semantics, (Literal, Generate)):
            r = op.results[0]
            again = len(users[r]) > 1 and isinstance(op.definition.semantics, Elementwise)
            more_bytes = sum(sources[r].values()) > 1.5 * _bytes(r) and _bytes(r) >= WORTH_STORING_BYTES
            cut = again and (weight[r] >= EXPENSIVE or more_bytes)
            cut = cut or (len(users[r]) > 1 and _bytes(r) >= WORTH_STORING_BYTES and _parts(op) >= MANY_PARTS)
        if cut:
            stages.append(Stage(op, op.results, declined[op]))
        for low, times in _repeats(op) if declined[op] is None else ():
            if weight[low] >= EXPENSIVE and (times - 1) * low.tensor.size_elems * weight[low] >= WORTH_SAVING:
                repeated.add(low)
        for v in op_inputs(op):
            here = evaluators.setdefault(v, set())
            here.update({op} if cut else set().union(*users.values()))
        routine = routine_of(op)
        if declined[op] is None and routine is not None:
            wanted.update(routine.in_memory(op))
            if routine.is_one_by_one:  # a nest computes several elements at once
                each = (v for v in _parts_of(op.operands) if _bytes(v) >= WORTH_STORING_BYTES)
                wanted.update(v for v in each if _one_by_one(v, weight) >= EXPENSIVE)
        elif declined[op] is not None:
            wanted.update(op_inputs(op))
        elif isinstance(op.definition.semantics, Fold):
            # Windows over what lies at places known at run time: a running sum is one of what is in memory, without padding.
            for below in map(_below_pads, op.operands):
                if below in is_placed and below.op not in anchors and _uses(op, below) >= WORTH_STORING_USES:
                    wanted.add(below)
        elif isinstance(op.definition.semantics, SumOfProducts):
            for v in op.operands:
                below = below_moves(v)
                if _is_small_and_turned(op, v):
                    wanted.add(v)
                if below.op is None or below.op in anchors:
                    continue
                placed = below in is_placed and _uses(op, v) >= WORTH_STORING_USES
                if has_anchor.get(below, False) or placed or _is_computed_in_parts(below, weight):
                    wanted.add(below)
    stages.reverse()
    return stages


def ops_of(stages: Sequence[Stage], stage_of: Mapping[Value, Stage]) -> set[Op]:
    """The ops of some stages with those that are computed in place for them."""
    inside = {s.op for s in stages}
    todo = [v for s in stages for v in s.op.operands]
    seen: set[Value] = set()
    while todo:
        v = todo.pop()
        if v in seen or v.op is None or v in stage_of:
            continue
        seen.add(v)
        if not isinstance(v.op.definition.semantics, Literal):
            inside.add(v.op)
        todo.extend(v.op.operands)
    return inside


def _below_pads(v: Value) -> Value:
    """What a value is moved and padded from."""
    v = below_moves(v)
    while v.op is not None and v.op.name == "stablehlo.pad":
        v = below_moves(v.op.operands[0])
    return v


def _parts_of(operands: Sequence[Value]) -> Iterator[Value]:
    """What values are moved from, and put side by side of."""
    todo = list(operands)
    while todo:
        v = below_moves(todo.pop())
        if v.op is not None and v.op.name == _CONCATENATE:
            todo += v.op.operands
        elif v.op is not None and not isinstance(v.op.definition.semantics, Literal):
            yield v


def _weight_of_operands(op: Op, result: Value, weight: Mapping[Value, float]) -> float:
    """What an element of an op's operands takes in place. What is broadcast is hoisted out of the loop, so only operands of full
    size weigh in; of operands side by side an element is one of them."""
    if op.name == _CONCATENATE:
        return sum(weight.get(v, 0.0) * _bytes(v) for v in op.operands) / max(_bytes(result), 1)
    return sum(weight.get(v, 0.0) for v in op.operands if _bytes(v) * 2 > _bytes(result))


def _windowed(program: Program) -> set[Value]:
    """Values of which slices read each element several times, at places of their own: windows that are written out."""
    read: dict[Value, list[int]] = {}
    for op in program.ops:
        if op.name != "stablehlo.slice" or not _has_known_shape(op):
            continue
        v = op.operands[0]
        while v.op is not None and v.op.name in ("stablehlo.pad", "stablehlo.reshape"):
            read.setdefault(v, []).append(op.results[0].tensor.size_elems)
            v = v.op.operands[0]
        read.setdefault(v, []).append(op.results[0].tensor.size_elems)
    return {
        v for v, sizes in read.items()
        if len(sizes) >= LEAST_WINDOWS and sum(sizes) >= 2 * v.tensor.size_elems
        and v.op is not None and (isinstance(v.op.definition.semantics, Elementwise) or v.op.name == _CONCATENATE)
    }  # fmt: skip


def _is_small_and_turned(contraction: Op, operand: Value) -> bool:
    """Whether an operand of few rows is turned on its way to a product with a matrix that is much larger: a copy of it costs
    nothing, and the matrix is read along its rows, each of which would meet elements far from each other."""
    larger = max(contraction.operands, key=_bytes)
    if operand is larger or _bytes(operand) * FAR_LARGER > _bytes(larger) or contraction.name != "stablehlo.dot_general":
        return False
    v = operand
    while v.op is not None and v.op.name in ("stablehlo.reshape", "stablehlo.transpose"):
        if v.op.name == "stablehlo.transpose" and v.op.attr("permutation")[-1] != v.rank - 1:
            return True
        v = v.op.operands[0]
    return False


def _is_computed_in_parts(v: Value, weight: Mapping[Value, float]) -> bool:
    """Whether a value is more than two parts side by side that take arithmetic: a loop over all parts reads what they share once
    (`tiling.passes.unrolling.unroll_choices`), a product's operand is packed part by part."""
    return v.op is not None and v.op.name == _CONCATENATE and len(v.op.operands) > 2 and weight.get(v, 0.0) >= 1


def _parts(op: Op) -> int:
    """How many parts lie side by side in what an op gives, with those that they have themselves."""
    if op.name != _CONCATENATE:
        return 1
    return sum(1 if below.op is None else _parts(below.op) for below in map(below_moves, op.operands) if _bytes(below))


def _repeats(op: Op) -> Iterator[tuple[Value, float]]:
    """What an op reads again and again in its innermost loop, and how often it reads each element of it.

    That is what a move repeats along leading dimensions and not along the last one, or looks up; and where a gather looks, if
    that differs along the innermost loop and is the same for other rows.
    """
    for v in _read_again(op):
        low, size = below_moves(v), op.results[0].tensor.size_elems
        computed = low.op is not None and isinstance(low.op.definition.semantics, Elementwise)
        if computed and low.tensor.size_elems and size >= WORTH_REPEATS * low.tensor.size_elems:
            yield low, size / low.tensor.size_elems


def _read_again(op: Op) -> Iterator[Value]:
    if not _has_known_shape(op) or not op.results[0].rank or not _bytes(op.results[0]):
        return
    looks_up = _is_placed(op, None)
    if looks_up:
        places = Reads(op, 0)
        last = places.dims[-1].var
        for r, k in zip(places.runtimes, places.runtime_operands, strict=True):
            if any(last in e.variables for e in r.element):
                yield op.operands[k]
    if isinstance(op.definition.semantics, Move) and (looks_up or (len(op.operands) == 1 and _walks_last(op))):
        yield op.operands[0]


def _walks_last(op: Op) -> bool:
    """Whether the last index of a move's result moves what it reads."""
    edges = edges_of(op)
    if isinstance(edges, Declined):
        return False
    last = edges.dims[-1].var
    return any(last in simplify(x, e.map.variable_ranges).variables for e in edges.reads for x in e.map.results)


def _is_placed(op: Op, declined: Declined | None) -> bool:
    """True for a move whose places are operands of its own: a dynamic slice, a gather."""
    is_move = isinstance(op.definition.semantics, Move) and len(op.operands) > 1 and declined is None
    return is_move and _has_known_shape(op) and bool(Reads(op, 0).runtimes)


def _is_scattered(op: Op) -> bool:
    """Whether neighbours in a placed move's result come each from a place of its own, which is loaded element by element."""
    reads = Reads(op, 0)
    if not reads.dims:
        return False
    last = reads.dims[-1].var
    places = any(last in e.variables for r in reads.runtimes for e in r.element)
    return places and not any(last in e.variables for number, index, _ in reads.reads if number == 0 for e in index)


def _has_known_shape(op: Op) -> bool:
    """Whether all sizes are known that the op's access function may ask for: its result's and its operands'."""
    types = (op.results[0].type, *(x.type for x in op.operands))
    return all(isinstance(t, TensorType) and t.is_static for t in types)


def _uses(op: Op, operand: Value) -> float:
    """How many products, or windows, an element of a contraction's or a fold's operand takes part in."""
    terms = prod(v.interval.size for v in Reads(op, 0).ranges) if _has_known_shape(op) else 1
    return op.results[0].tensor.size_elems * terms / max(operand.tensor.size_elems, 1)


def _one_by_one(v: Value, weight: Mapping[Value, float]) -> float:
    """What an element takes that no vector computes, in additions."""
    is_converted = v.op is not None and v.op.name == "stablehlo.convert"
    narrow = v.op.operands[0] if v.op is not None and is_converted else v
    element = narrow.tensor.element
    is_narrow = isinstance(element, ElementType) and element.is_float and element.bits <= 16
    return max(weight[v], weight.get(narrow, 0.0) * NARROW if is_narrow else 0.0)


def _bytes(v: Value) -> int:
    return v.type.size_bytes if isinstance(v.type, TensorType) and v.type.is_static else 0
