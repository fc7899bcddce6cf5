"""Rewrites an entry function into the form that is planned: one block, no calls, nothing dead, nothing twice.

    call @f(x)                 ->  the ops of @f at the call
    two ops alike              ->  one
    splat constants            ->  follow broadcasts and reshapes, so that they are scalars wherever they are read
    an op nobody reads         ->  gone
    results without elements   ->  empty constants
    moves that put a value back ->  the value, where their index maps compose to the identity
    a test that the program tells  ->  true or false, and what it selects (tiling.program.known_tests)
    a product only read turned ->  the product of the swapped factors (tiling.program.swap_products)
    between convolutions       ->  channels lie last (tiling.program.images.channels_last)
    convolutions of 3 x 3      ->  16 products and transforms, where that pays (tiling.program.images.winograd)
    loops given spread scalars ->  are given the scalars (tiling.program.spread_inside)
    short loops over elements  ->  their iterations, one after the other (tiling.program.unroll_short_loops)
    tuples                     ->  their parts, also around control flow (tiling.program.untuple)
    a product of bytes in i32  ->  one of the bytes (tiling.program.promotion)
    products of chosen rows    ->  one choice each, of 16 bits in f32 and rounded (tiling.program.promotion)
    XLA's fusions              ->  what is in them
    an op without a kernel     ->  the ops with kernels that it is made of (tiling.program.expand)
    quantized tensors          ->  stored integers

The program's meaning is unchanged; ops keep their locations.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hlo.attributes import freeze_attributes
from hlo.calls import check_size
from hlo.clone import captured_values, clone_block
from hlo.decompositions.quantized import has_quantized, stored
from hlo.module import Block, DenseArray, Function, Module, Op, Value, walk
from hlo.registry import Generate, Literal, Structure, definition
from hlo.types import ElementType, TensorType, with_layout
from indexing.deriving.derive import output_to_input
from indexing.map import IndexingMap, compose
from tiling.passing import runs
from tiling.program.expand import Supports, expansion, keeps_quantized, kept_quantized
from tiling.program.images.channels_last import channels_last
from tiling.program.images.winograd import winograd_convolutions
from tiling.program.known_tests import known_result, splat
from tiling.program.look_up_functions import look_up_functions
from tiling.program.promotion import factors_as_bytes, products_of_choices
from tiling.program.random.recognized import is_threefry
from tiling.program.random.threefry import words_of_call
from tiling.program.spread_inside import Scalars, spread_inside
from tiling.program.swap_products import turn_products
from tiling.program.unroll_short_loops import times_written_out
from tiling.program.untuple import has_tuples, part_of, without_tuples
from tiling.program.updates.scatter_onto import scatter_onto

__all__ = [
    "Program",
    "Region",
    "flatten",
    "flatten_region",
    "given_away",
    "is_rebuilt",
    "live_ops",
    "region_key",
]


@dataclass(frozen=True)
class Program:
    """A flattened entry: `arguments` -> `ops` in dependency order -> `results` (values of arguments, or of ops)."""

    name: str
    arguments: tuple[Value, ...]
    ops: tuple[Op, ...]
    results: tuple[Value, ...]


def given_away(program: Program, function: Function) -> dict[Value, int]:
    """The arguments of a flattened function that its caller gives away, with the numbers of the results that may lie there."""
    if len(program.arguments) != len(function.arguments) or len(program.results) != len(function.result_types):
        return {}  # tuples were taken apart
    return {program.arguments[k]: number for k, number in function.donations.items()}


@dataclass(frozen=True)
class Region:
    """A region as a program of its own: its arguments come first, then what it reads from outside, `captured` out there."""

    program: Program
    captured: tuple[Value, ...]

    @property
    def arguments(self) -> tuple[Value, ...]:
        """The region's own arguments."""
        return self.program.arguments[: len(self.program.arguments) - len(self.captured)]

    @property
    def outside(self) -> tuple[tuple[Value, Value], ...]:
        """(value outside, the argument that stands for it inside)."""
        return tuple(zip(self.captured, self.program.arguments[len(self.arguments) :], strict=True))


def flatten(
    module: Module, entry: str = "main", supports: Supports | None = None, only: Collection[str] | None = None
) -> Program:
    """The entry function with its calls inlined, common subexpressions merged and dead ops removed.

    With `supports`, which tells what code can be generated for, ops are expanded; quantized arguments and results then have the
    type that they are stored in. With `only`, of the passes within this one (`tiling.pipeline`) only those named run.

    Raises KeyError when there is no such function, CalledOpsError for more ops than can be planned.
    Calls do not recurse (the verifier has seen to that).
    """
    function = module.function(entry)
    check_size(module, entry)
    on = _switches() if only is None else only.__contains__
    quantized = supports is None or keeps_quantized(module, function) or not on("quantized")
    types = [a.type if quantized else stored(a.type) for a in function.arguments]
    new_arguments = Block(types, [a.name for a in function.arguments])
    builder = _Builder(module, supports, quantized, on)
    environment: dict[Value, Value] = dict(zip(function.arguments, new_arguments.arguments, strict=True))
    results = builder.inline(function.body, environment)
    return _program(entry, new_arguments, builder.ops, results, on)


def flatten_region(module: Module, block: Block, name: str, supports: Supports | None = None) -> Region:
    """A region of an op of a flattened program, flattened in turn. Constants and iotas from outside are made again inside."""
    captured = list(dict.fromkeys(captured_values(block)))
    given = [v for v in captured if not is_rebuilt(v)]
    outer = [*block.arguments, *given]
    inner = Block([v.type for v in outer], [v.name for v in outer])
    on = _switches()
    builder = _Builder(module, supports, keeps_quantized=True, on=on)
    environment: dict[Value, Value] = dict(zip(outer, inner.arguments, strict=True))
    for v in captured:
        if is_rebuilt(v) and v.op is not None:
            builder.copy(v.op, environment)
    results = builder.inline(block, environment)
    return Region(_program(name, inner, builder.ops, results, on), tuple(given))


def _switches() -> Callable[[str], bool]:
    """Whether a pass runs, asked once for each and not at every op."""
    return functools.cache(runs)


def _program(name: str, block: Block, ops: Sequence[Op], results: Sequence[Value], on: Callable[[str], bool]) -> Program:
    live = live_ops(ops, results)
    made: Sequence[Op]
    found: Sequence[Value]
    made, found = turn_products(live, results) if on("swap_products") else (live, results)
    if on("scatter_onto"):
        made, found = scatter_onto(made, found)
    if on("bound_by_numbers"):
        made, found = products_of_choices(made, found)
    if on("channels_last"):
        ordered, found = channels_last(made, found)
        made = made if ordered is made else live_ops(ordered, found)
    if on("winograd_convolutions"):
        made, found = winograd_convolutions(made, found)
    if on("look_up_functions"):
        ordered, found = look_up_functions(made, found)
        made = made if ordered is made else live_ops(ordered, found)
    return Program(name, tuple(block.arguments), tuple(made), tuple(found))


def is_rebuilt(v: Value) -> bool:
    """True for what costs nothing to compute wherever it is read: one repeated constant, an iota."""
    if v.op is None or v.op.operands:
        return False
    semantics = v.op.definition.semantics
    if isinstance(semantics, Literal):
        dense: DenseArray = v.op.attr("value")
        return dense.is_splat
    return isinstance(semantics, Generate)


class _Builder:
    def __init__(self, module: Module, supports: Supports | None, keeps_quantized: bool, on: Callable[[str], bool]) -> None:
        self.module, self.supports, self.keeps_quantized, self.on = module, supports, keeps_quantized, on
        self.ops: list[Op] = []
        self.known: dict[Hashable, Op] = {}
        self.generators: dict[Block, bool] = {}
        self.merges = on("merge_equal_ops")
        self.scalars = Scalars(self._appended)

    def inline(self, block: Block, environment: dict[Value, Value]) -> list[Value]:
        """Appends the ops of a block with its calls; an explicit stack, so that call depth is no limit."""
        # (block, what its values became, the next op, the op that it stands for, how often it is still to be appended)
        stack: list[tuple[Block, dict[Value, Value], int, Op | None, int]] = [(block, environment, 0, None, 1)]
        while True:
            current, env, position, call, times = stack.pop()
            ops = current.ops
            while position < len(ops):
                op = ops[position]
                position += 1
                copies = self._copies(op, env)
                callee = op.regions[1] if copies else self._called(op) or self._inside(op)
                if callee is not None and not (op.definition.calls and self._is_threefry(callee)):
                    inner = {a: env[v] for a, v in zip(callee.arguments, op.operands, strict=True)}
                    if not op.definition.calls:
                        inner.update({v: env.get(v, v) for v in captured_values(callee)})
                    stack.append((current, env, position, call, times))
                    stack.append((callee, inner, 0, op, max(copies, 1)))
                    break
                if op.definition.is_terminator:
                    returned = [env[v] for v in op.operands]
                    if call is None:
                        return returned
                    if times > 1:
                        following = {**env, **dict(zip(current.arguments, returned, strict=True))}
                        stack.append((current, following, 0, call, times - 1))
                        break
                    env_outer = stack[-1][1]
                    env_outer.update(zip(call.results, returned, strict=True))
                    break
                self._expand(op, env)

    def _called(self, op: Op) -> Block | None:
        """The body of the function that an op stands for."""
        calls = op.definition.calls
        return self.module.functions[op.attr(calls)].body if calls else None

    def _is_threefry(self, callee: Block) -> bool:
        if self.supports is None or len(callee.arguments) != 4 or not self.on("random_bits"):
            return False
        known = self.generators.get(callee)
        if known is None:
            known = self.generators[callee] = is_threefry(callee, self._called)
        return known

    def _inside(self, op: Op) -> Block | None:
        """The region that an op stands for: the plan has its own fusions."""
        return op.regions[0] if op.definition.structure is Structure.CALL and op.regions else None

    def _copies(self, op: Op, env: Mapping[Value, Value]) -> int:
        """How many copies of a loop's body stand for it; 0 for all other ops and loops."""
        if op.definition.structure is not Structure.LOOP or not self.on("unroll_short_loops"):
            return 0
        return times_written_out(op, [env.get(v, v) for v in op.operands], self._called)

    def _expand(self, op: Op, env: dict[Value, Value]) -> None:
        """Appends what an op is made of, or the op."""
        made, further = self._expansion(op, env)
        if made is None:
            self.copy(op, env)
            return
        inner = {a: env.get(v, v) for a, v in zip(made.arguments, op.operands, strict=True)}
        for part in made.ops[:-1]:
            if further and (part.name != op.name or has_tuples(op)):
                self._expand(part, inner)
            else:
                self.copy(part, inner)
        env.update(zip(op.results, (inner[v] for v in made.results), strict=True))

    def _expansion(self, op: Op, env: Mapping[Value, Value]) -> tuple[Block | None, bool]:
        """What an op is made of, or None; and whether its parts may be made of others."""
        if op.definition.calls:  # all others are inlined
            return words_of_call(op), True
        parted = without_tuples(op, env) if self.on("untuple") else None
        if parted is not None:
            return parted, True
        if self.supports is None or (self.keeps_quantized and has_quantized(op)):
            return None, False
        made = expansion(op, self.supports, self.on)
        return (kept_quantized(op), False) if made is None and has_quantized(op) else (made, True)

    def copy(self, op: Op, env: dict[Value, Value]) -> None:
        """Appends an op with its operands replaced, or says what it folds to; `env` then knows its results."""
        if _gives_nothing(op):
            for r in op.results:
                empty = DenseArray(r.tensor, np.empty(r.shape, r.tensor.dtype))
                constant = Op(definition("stablehlo.constant"), (), {"value": empty}, (), [r.type], op.location)
                self.copy(constant, env)
                env[r] = env.pop(constant.results[0])
            return
        operands = list(factors_as_bytes(op, [env.get(v, v) for v in op.operands]))
        folded = _fold(op, operands)
        if isinstance(folded, Value):
            env[op.results[0]] = folded
            return
        attributes = op.attributes
        name = op.name
        source, before = op, operands
        if op.definition.structure is Structure.LOOP and self.on("spread_inside"):
            source, operands = spread_inside(op, operands, self.scalars) or (op, operands)
        if isinstance(folded, DenseArray):
            name, operands, attributes = "stablehlo.constant", [], {"value": folded}
        key: Hashable = None
        regions: Sequence[Block] = source.regions
        if not op.definition.is_control:
            regions = [_with_constants(self._without_calls(b), env) for b in op.regions]
        is_pure = op.definition.is_pure or _is_linear_algebra(op)
        if self.merges and is_pure and not any(captured_values(b) for b in regions):
            bodies_key = tuple(region_key(b) for b in regions)
            types = tuple(with_layout(r.type) for r in source.results)
            told = str(op.extra.get("mhlo.backend_config", "")) if name == "stablehlo.custom_call" else ""
            key = (name, tuple(operands), freeze_attributes(attributes), types, bodies_key, told)
            twin = self.known.get(key)
            if twin is not None:
                self._told(op, before, twin, env)
                return
        bodies = [clone_block(b, env) if captured_values(b) else b for b in regions]
        made = op.definition if name == op.name else definition(name)
        new = Op(made, operands, attributes, bodies, [r.type for r in source.results], op.location, op.extra,
                 [r.name for r in op.results])  # fmt: skip
        self.ops.append(new)
        if key is not None:
            self.known[key] = new
        self._told(op, before, new, env)

    def _told(self, op: Op, operands: Sequence[Value], new: Op, env: dict[Value, Value]) -> None:
        """Enters the results of an op that stands for `op` on these operands."""
        env.update(zip(op.results, new.results, strict=True))
        if op.definition.structure is Structure.LOOP:
            # What the body hands on as it is comes out as it went in.
            body = op.regions[1]
            rows = zip(op.results, operands, body.arguments, body.results, strict=True)
            env.update((r, v) for r, v, a, b in rows if a is b)

    def _appended(self, op: Op) -> Sequence[Value]:
        """The results of an op of values that are known here."""
        env: dict[Value, Value] = {}
        self.copy(op, env)
        return [env[r] for r in op.results]

    def _without_calls(self, block: Block) -> Block:
        """A region with the bodies of the functions that it calls in place of the calls; the region itself where it has none."""
        if not any(op.definition.calls for op in walk(block)):
            return block
        inner = Block([a.type for a in block.arguments], [a.name for a in block.arguments])
        builder = _Builder(self.module, self.supports, True, self.on)
        environment = {v: v for v in captured_values(block)}
        environment.update(zip(block.arguments, inner.arguments, strict=True))
        results = builder.inline(block, environment)
        last = block.ops[-1]
        inner.ops = [*live_ops(builder.ops, results), Op(last.definition, results, last.attributes, [], [], last.location)]
        return inner


def _with_constants(block: Block, env: Mapping[Value, Value]) -> Block:
    """A region with constants of its own in the place of those outside that it reads; the region itself where it reads none.

    Compilers that tidy a program up move constants out of the bodies of sorts and reductions; a body that reads nothing from
    outside is one that kernels have a form of.
    """
    made: dict[Value, Value] = {}
    for v in captured_values(block):
        source = env.get(v, v)
        if source.op is not None and is_rebuilt(source):
            own = Op(source.op.definition, (), source.op.attributes, (), [source.type], source.op.location, None, [source.name])
            made[v] = own.results[0]
    if not made:
        return block
    copy = clone_block(block, made)
    copy.ops[:0] = [v.op for v in made.values() if v.op is not None]
    return copy


def region_key(block: Block) -> Hashable:
    """Equal for regions that compute the same in the same way; one flat tuple, however deep regions nest."""
    number: dict[Value, int] = {}
    parts: list[Hashable] = []

    def enter(b: Block) -> Iterator[Op]:
        parts.append(("region", tuple(with_layout(a.type) for a in b.arguments)))
        for a in b.arguments:
            number[a] = len(number)
        return iter(b.ops)

    stack = [enter(block)]
    while stack:
        op = next(stack[-1], None)
        if op is None:
            stack.pop()
            parts.append("end")
            continue
        operands = tuple(number.get(v, -1) for v in op.operands)
        types = tuple(with_layout(r.type) for r in op.results)
        parts.append((op.name, operands, freeze_attributes(op.attributes), len(op.regions), types))
        for r in op.results:
            number[r] = len(number)
        stack.extend([enter(b) for b in op.regions][::-1])
    return tuple(parts)


def _gives_nothing(op: Op) -> bool:
    """True when no result has an element, so that there is nothing to compute: which formula an op has does not matter then."""
    if not op.definition.is_pure or not op.results or op.definition.is_control or op.name == "stablehlo.custom_call":
        return False
    types = [r.type for r in op.results]
    if isinstance(op.definition.semantics, Literal) or not all(isinstance(t, TensorType) and t.is_static for t in types):
        return False
    return all(isinstance(t, TensorType) and isinstance(t.element, ElementType) and not t.size_elems for t in types)


_LINEAR_ALGEBRA = re.compile(r"LuDecomposition|Qr|ProductOfElementaryHouseholderReflectors|lapack_[sdcz][a-z0-9]+_ffi")


def _is_linear_algebra(op: Op) -> bool:
    """Whether a custom call is linear algebra by XLA's names: a matrix that is solved with and whose determinant is wanted is
    factored once."""
    if op.name != "stablehlo.custom_call" or op.attr("has_side_effect"):
        return False
    return _LINEAR_ALGEBRA.fullmatch(str(op.attr("call_target_name"))) is not None


_SPREADS = {"stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.transpose", "stablehlo.reverse"}


def _fold(op: Op, operands: Sequence[Value]) -> Value | DenseArray | None:
    """What an op folds to without running it: its operand, or a splat constant of the result's type."""
    if op.definition.structure is Structure.ELEMENT:
        return part_of(op, operands)
    if op.name in _SPREADS:
        producer = operands[0].op
        result = op.results[0].type
        if operands[0].type == result and op.name == "stablehlo.reshape":
            return operands[0]
        if producer is not None and isinstance(producer.definition.semantics, Literal) and isinstance(result, TensorType):
            value: DenseArray = producer.attr("value")
            if value.is_splat and result.is_static and result.size_elems:
                return splat(value.array.reshape(-1)[0], result)
    if op.definition.function == "convert" and operands[0].type == op.results[0].type:
        return operands[0]
    return _moved_back(op, operands) or known_result(op, operands) or _number(op, operands)


_REARRANGES = frozenset(f"stablehlo.{name}" for name in ("transpose", "reshape", "reverse"))
MOST_MOVES = 6


def _moved_back(op: Op, operands: Sequence[Value]) -> Value | None:
    """The value that an op puts back as it was before the moves above it: where their index maps compose to the identity."""
    if op.name not in _REARRANGES:
        return None
    result, v = op.results[0].type, operands[0]
    composed: IndexingMap | None = None
    moves = [op]
    while v.op is not None and v.op.name in _REARRANGES and len(moves) < MOST_MOVES:
        moves.append(v.op)
        v = v.op.operands[0]
        if v.type == result and isinstance(result, TensorType) and result.is_static:
            for move in moves:
                (m,) = output_to_input(move)[0]
                composed = m if composed is None else compose(composed, m)
            return v if composed is not None and composed.simplify() == IndexingMap.identity(result.static_shape) else None
    return None


_ARITHMETIC = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}
_FEW_ELEMS = 64


def _number(op: Op, operands: Sequence[Value]) -> DenseArray | None:
    """An integer that is computed from integers in the program: a loop's counter, an element of a short list."""
    function = op.definition.function
    if function not in _ARITHMETIC and function != "convert" and op.name != "stablehlo.slice":
        return None
    producers = [v.op for v in operands]
    if not all(p is not None and isinstance(p.definition.semantics, Literal) for p in producers):
        return None
    arrays = [p.attr("value").array for p in producers if p is not None]
    result = op.results[0].tensor
    if any(a.dtype.kind not in "iu" or a.size > _FEW_ELEMS for a in arrays) or result.dtype.kind not in "iu":
        return None
    if op.name == "stablehlo.slice":
        bounds = zip(op.attr("start_indices"), op.attr("limit_indices"), op.attr("strides"), strict=True)
        return DenseArray(result, arrays[0][tuple(slice(*b) for b in bounds)].copy())
    if result.rank:
        return None
    if function == "convert":
        return DenseArray(result, arrays[0].astype(result.dtype))
    with np.errstate(over="ignore"):
        return DenseArray(result, np.asarray(_ARITHMETIC[function](*arrays), result.dtype))


def live_ops(ops: Sequence[Op], results: Sequence[Value]) -> tuple[Op, ...]:
    needed = set(results)
    kept: list[Op] = []
    for op in reversed(ops):
        if not op.definition.is_pure or any(r in needed for r in op.results):
            kept.append(op)
            needed.update(op.operands)
            needed.update(v for b in op.regions for v in captured_values(b))
    kept.reverse()
    return tuple(kept)
