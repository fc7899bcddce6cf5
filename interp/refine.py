"""A program of known shapes from one whose text says `?`: shapes go from the arguments to the results, op by op.

    refined(module, [(4, 8)])      tensor<?x8xf32> -> tensor<4x8xf32>, and with it all that follows

What is computed from sizes alone (`get_dimension_size`, sums and products of sizes, shapes made of them) is known then, and
becomes constants; ops whose shape is such a value (`dynamic_broadcast_in_dim`, `dynamic_reshape`, …) become those whose shape is
in their type. Functions with unknown shapes, or that are given sizes, are inlined where they are called, each with its shapes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hlo import Block, Function, Module, Op, Value, verify
from hlo.errors import Declined, VerificationError
from hlo.limits import check_ranks
from hlo.module import DenseArray, walk
from hlo.registry import Elementwise, Fold, Generate, Move, OpDefinition, Structure, SumOfProducts, definition
from hlo.types import ElementType, TensorType, TupleType, Type
from interp.errors import ExecutionError, InputError, at
from interp.refine_rules import IDENTITY, SHAPES, SIZES, STATIC, Rewritten, Rule, key_of
from interp.run import evaluate

__all__ = ["refined"]

MOST_ELEMENTS = 1024  # of a value that is computed beforehand: shapes are short


def refined(module: Module, shapes: Sequence[Sequence[int]], entry: str | None = None) -> Module | Declined:
    """The program with argument k of its entry of shape `shapes[k]`: each type in it is static. The module itself is left alone.

    `Declined`, with the op, where a shape depends on an argument's elements, or an op of unknown shape has no rule here.
    Raises InputError for shapes that do not fit the arguments or each other, KeyError for a name that no function has.
    Specification: "Types" (dynamism), "dynamic_*".

    >>> import hlo
    >>> module = hlo.parse('''func.func @main(%x: tensor<?x2xf32>) -> tensor<?xf32> {
    ...   %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x2xf32>) -> tensor<i32>
    ...   %two = stablehlo.constant dense<2> : tensor<i32>
    ...   %m = stablehlo.multiply %n, %two : tensor<i32>
    ...   %s = stablehlo.reshape %m : (tensor<i32>) -> tensor<1xi32>
    ...   %y = stablehlo.dynamic_reshape %x, %s : (tensor<?x2xf32>, tensor<1xi32>) -> tensor<?xf32>
    ...   return %y : tensor<?xf32>
    ... }''')
    >>> print(*(op for op in refined(module, [(3, 2)]).entry.body.ops), sep="; ")
    <%y = stablehlo.reshape(%x)>; <func.return(%y)>
    """
    function = module.function(entry)
    if function.is_declaration:
        raise InputError(f"@{function.name} is declared only", function.location)
    check_ranks(module)
    refiner = _Refiner(module)
    types = _argument_types(function, shapes)
    body = Block(types, [a.name for a in function.arguments])
    try:
        results = refiner.inline(function.body, list(body.arguments), body)
    except _NotRefined as reason:
        return Declined(str(reason))
    except RecursionError:
        return Declined(f"@{function.name}: regions or calls are nested too deeply")
    end = function.body.terminator
    body.ops.append(Op(end.definition, results, end.attributes, location=end.location))
    _without_unread(body, refiner.folded)
    made = copy.copy(module)
    made.functions = {
        name: f if f is not function else Function(
            f.name, body, f.visibility, f.argument_attributes, f.result_attributes, dict(f.attributes), f.location,
            tuple(v.type for v in results),
        )
        for name, f in module.functions.items() if f is function or not refiner.is_unknown(f)
    }  # fmt: skip
    try:
        verify(made)
    except VerificationError as error:
        shown = ", ".join(str(t) for t in types)
        raise InputError(f"@{function.name} cannot take ({shown}): {error}") from error
    return made


class _NotRefined(Exception):
    """Carries the reason of a `Declined` out of the walk."""


def _argument_types(function: Function, shapes: Sequence[Sequence[int]]) -> list[Type]:
    if len(shapes) != len(function.arguments):
        many = "" if len(function.arguments) == 1 else "s"
        raise InputError(
            f"expected {len(function.arguments)} shape{many}, one for each argument of @{function.name}, found {len(shapes)}"
        )
    found: list[Type] = []
    for k, (a, shape) in enumerate(zip(function.arguments, shapes, strict=True)):
        t = a.type
        if not isinstance(t, TensorType):
            raise InputError(f"argument {k} of @{function.name}: expected a tensor, found {t}", function.location)
        fits = len(shape) == t.rank and all(n >= 0 and m in (None, n) for n, m in zip(shape, t.shape, strict=True))
        if not fits or any(b is not None and n > b for n, b in zip(shape, t.bounds or (), strict=False)):
            label = f"argument {k}{f' (%{a.name})' if a.name else ''} of @{function.name}"
            raise InputError(f"{label}: expected a shape of {t}, found {list(shape)}", function.location)
        found.append(_with_shape(t, tuple(shape)))
    return found


def _with_shape(t: TensorType, shape: Sequence[int]) -> TensorType:
    """The type with a shape that is known (an encoding speaks of dimensions that were not)."""
    return t if t.shape == tuple(shape) else TensorType(tuple(shape), t.element)


def _is_unknown(t: Type) -> bool:
    if isinstance(t, TupleType):
        return any(_is_unknown(e) for e in t.elements)
    return isinstance(t, TensorType) and not t.is_static


class _Refiner:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.known: dict[Value, np.ndarray] = {}
        self.folded: set[Op] = set()  # what was there to compute shapes
        self.unknown: dict[str, bool] = {}

    def is_unknown(self, function: Function) -> bool:
        """Whether a function, or one that it calls, has a value of unknown shape. (Calls do not recurse.)"""
        if function.name not in self.unknown:
            self.unknown[function.name] = any(
                any(_is_unknown(v.type) for v in (*op.operands, *op.results))
                or any(_is_unknown(a.type) for r in op.regions for a in r.arguments)
                or ((callee := self.callee(op)) is not None and self.is_unknown(callee))
                for op in walk(function.body)
            ) or any(_is_unknown(a.type) for a in function.arguments)
        return self.unknown[function.name]

    def callee(self, op: Op) -> Function | None:
        d = op.definition
        if d.structure is not Structure.CALL or not d.calls:
            return None
        return self.module.functions.get(op.attr(d.calls))

    # ------------------------------------------------------------ blocks

    def inline(self, block: Block, arguments: Sequence[Value], to: Block) -> list[Value]:
        """The block's ops on these arguments, appended to `to`; what its terminator returns."""
        environment = dict(zip(block.arguments, arguments, strict=True))
        return self.ops(block, environment, to)

    def ops(self, block: Block, environment: dict[Value, Value], to: Block) -> list[Value]:
        for op in block.ops[:-1]:
            operands = [environment[v] for v in op.operands]
            callee = self.callee(op)
            if callee is not None and (self.is_unknown(callee) or any(v in self.known for v in operands)):
                results: Sequence[Value] = self.inline(callee.body, operands, to)
            else:
                results = self.one(op, operands, environment, to)
            environment.update(zip(op.results, results, strict=True))
        return [environment[v] for v in block.terminator.operands]

    def region(
        self, block: Block, types: Sequence[Type], environment: Mapping[Value, Value], fixed: Mapping[int, Value]
    ) -> Block:
        """A copy of a region whose arguments have these types; `fixed` are those that are the same in each iteration."""
        made = Block(types, [a.name for a in block.arguments])
        for k, outer in fixed.items():
            if outer in self.known:
                self.known[made.arguments[k]] = self.known[outer]
        results = self.ops(block, {**environment, **dict(zip(block.arguments, made.arguments, strict=True))}, made)
        end = block.terminator
        made.ops.append(Op(end.definition, results, end.attributes, location=end.location, extra=end.extra))
        return made

    # ------------------------------------------------------------ ops

    def one(self, op: Op, operands: list[Value], environment: Mapping[Value, Value], to: Block) -> Sequence[Value]:
        """An op on operands of known shapes: its value where sizes alone determine it, else the op with a known type."""
        if self.is_kept_assertion(op, operands):
            return ()
        size = SIZES.get(op.name)
        if size is not None:
            return [self.constant(size(op, operands[0].tensor), op.results[0].tensor, op, to)]
        rewritten = Rewritten(op.name, op.attributes)
        if (rule := STATIC.get(key_of(op))) is not None:
            rewritten, operands = self.rewritten(op, operands, *rule)
        if rewritten.name == IDENTITY:
            return [operands[0]]
        regions = self.regions(op, operands, environment)
        if rewritten.region is not None:
            regions = [self.body_of(op, rewritten.region)]
        d, attributes, extra = definition(rewritten.name), rewritten.attributes, op.extra if rewritten.name == op.name else None
        if rewritten.shapes is not None:
            stated = zip(op.results, rewritten.shapes, strict=True)
            types: list[Type] = [_with_shape(v.tensor, shape) for v, shape in stated]
        elif any(_is_unknown(v.type) for v in op.results):
            types = self.types(op, d, operands, attributes, regions)
        else:
            types = [v.type for v in op.results]
        made = Op(d, operands, attributes, regions, types, op.location, extra, [r.name for r in op.results])
        made.debug = op.debug
        if self.folds(made):
            arrays = evaluated(made, [self.known[v] for v in made.operands])
            return [self.constant(a, v.tensor, op, to) for a, v in zip(arrays, made.results, strict=True)]
        to.ops.append(made)
        if made.name == "stablehlo.constant" and made.results[0].tensor.size_elems <= MOST_ELEMENTS:
            self.known[made.results[0]] = made.attr("value").array
            self.folded.add(made)
        return made.results

    def rewritten(self, op: Op, operands: list[Value], count: int, rule: Rule) -> tuple[Rewritten, list[Value]]:
        """What an op with shapes as its last `count` operands is, and the operands that it keeps."""
        kept = operands[: len(operands) - count]
        values = [self.known.get(v) for v in operands[len(kept) :]]
        found = [v for v in values if v is not None]
        if len(found) < count:
            raise self.declined(op, "its shape is computed from elements of an argument")
        return rule(op, [v.tensor for v in kept], found), kept

    def body_of(self, op: Op, name: str) -> Block:
        """A copy of a function's body as a region."""
        function = self.module.functions.get(name)
        if function is None or function.is_declaration:
            raise self.declined(op, f"there is no function @{name}")
        made = self.region(function.body, [a.type for a in function.arguments], {}, {})
        end = made.ops.pop()
        made.ops.append(Op(definition("stablehlo.return"), end.operands, location=end.location))
        return made

    def declined(self, op: Op, why: str) -> _NotRefined:
        where, line = at(op, self.module)
        place = f" ({where})" if where is not None else ""
        return _NotRefined(f"{op.name}{place}: {why}{f': {line.strip()}' if line else ''}")

    def is_kept_assertion(self, op: Op, operands: Sequence[Value]) -> bool:
        """Whether the op asserts something of sizes, which holds. Raises InputError with its message where it does not."""
        if op.name != "stablehlo.custom_call" or op.attr("call_target_name") != "shape_assertion":
            return False
        if any(v not in self.known for v in operands):
            return False
        try:
            evaluated(op, [self.known[v] for v in operands])
        except ExecutionError as error:
            raise InputError(f"the program does not take these shapes: {error}") from error
        return True

    def regions(self, op: Op, operands: Sequence[Value], environment: Mapping[Value, Value]) -> list[Block]:
        made = []
        for block in op.regions:
            types = [a.type for a in block.arguments]
            fixed: dict[int, Value] = {}
            if op.definition.structure is Structure.LOOP:
                types = [v.type for v in operands]
                body = op.regions[1]
                same = [k for k, v in enumerate(body.results) if v is body.arguments[k]]
                fixed = {k: operands[k] for k in same}
            elif any(_is_unknown(t) for t in types):
                raise self.declined(op, f"a region with an argument of type {next(t for t in types if _is_unknown(t))}")
            made.append(self.region(block, types, environment, fixed))
        return made

    def types(
        self, op: Op, d: OpDefinition, operands: Sequence[Value], attributes: Mapping[str, Any], regions: Sequence[Block]
    ) -> list[Type]:
        """The types of results, where their text does not say them: element types are stated, shapes follow."""
        probe = Op(d, operands, attributes, regions, [r.type for r in op.results], op.location, op.extra)
        try:
            if callable(d.infer):
                found: Sequence[Any] = [t.shape if isinstance(t, TensorType) else t for t in d.infer(probe)]
            elif d.name in SHAPES:
                found = [SHAPES[d.name](probe)]
            elif isinstance(d.semantics, Elementwise):
                found = [operands[0].tensor.shape]
            else:
                found = []
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, VerificationError) as error:
            why = error.message if isinstance(error, VerificationError) else str(error)
            raise InputError(f"these shapes do not fit: {why}", *at(op, self.module)) from error
        stated = [r.type for r in op.results]
        if len(found) != len(stated):
            raise self.declined(op, "no rule says what its result's shape is")
        made: list[Type] = []
        for t, shape in zip(stated, found, strict=True):
            if not isinstance(t, TensorType) or not isinstance(shape, tuple) or len(shape) != t.rank:
                made.append(t if isinstance(shape, tuple) else shape)
                continue
            sizes = [n if n is not None else m for n, m in zip(shape, t.shape, strict=True)]
            if any(n is None for n in sizes):
                raise self.declined(op, f"its operands do not say the shape of its result, {t}")
            made.append(_with_shape(t, [n for n in sizes if n is not None]))
        return made

    # ------------------------------------------------------------ values that sizes determine

    def folds(self, op: Op) -> bool:
        """Whether an op's value is known and is one that shapes are made of."""
        if not op.results or op.name == "stablehlo.constant" or any(v not in self.known for v in op.operands):
            return False
        for v in op.results:
            t = v.type
            if not isinstance(t, TensorType) or not isinstance(t.element, ElementType) or t.dtype.kind not in "iub":
                return False
            if not t.is_static or t.size_elems > MOST_ELEMENTS:
                return False
        if any(u not in b.arguments and u.owner not in b.ops for b in op.regions for o in walk(b) for u in o.operands):
            return False  # (a region that reads from outside)
        return isinstance(op.definition.semantics, Elementwise | Move | Fold | Generate | SumOfProducts)

    def constant(self, array: Any, t: TensorType, op: Op, to: Block) -> Value:
        """A constant in the place of an op; of type `index`, which no constant has, the op's value alone."""
        made_type = _with_shape(t, np.shape(array))
        value = np.asarray(array).astype(made_type.dtype)
        d = definition("stablehlo.constant")
        made = Op(d, (), {"value": DenseArray(made_type, value)}, (), [made_type], op.location, None, [op.results[0].name])
        self.known[made.results[0]] = value
        self.folded.add(made)
        to.ops.append(made)
        return made.results[0]


def evaluated(op: Op, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """An op's results, by the evaluator."""
    block = Block([v.type for v in op.operands])
    own = Op(op.definition, block.arguments, op.attributes, op.regions, [v.type for v in op.results], op.location, op.extra)
    block.ops += [own, Op(definition("func.return"), own.results)]
    alone = Module({"main": Function("main", block, result_types=tuple(v.type for v in own.results))})
    return evaluate(alone, *arrays)


def _without_unread(block: Block, removable: set[Op]) -> None:
    """Takes away what was there to compute shapes, and is read no more."""
    read = {v for op in walk(block) for v in op.operands}
    blocks = [block, *(r for op in walk(block) for r in op.regions)]
    for b in blocks:
        b.ops[:] = [op for op in b.ops if op not in removable or any(v in read for v in op.results)]
