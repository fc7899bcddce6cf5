"""The rewrite itself: a copy of a module in which every op that has a decomposition is replaced by it."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from hlo.builder import Builder
from hlo.decompositions.registry import decomposition
from hlo.errors import Declined, VerificationError
from hlo.module import Block, Function, Module, Op, Value
from hlo.types import OpaqueType

__all__ = ["Rewriter", "decompose"]


class Rewriter:
    """Copies blocks op by op. `builder` appends to the block that is being made."""

    def __init__(self) -> None:
        self.builder = Builder()
        self._values: dict[Value, Value] = {}

    def function(self, f: Function) -> Function:
        """A copy of a function, its ops decomposed."""
        made = copy.copy(f)
        made.body = self._begin(f.body)
        work = [(f.body, made.body)]
        while work:  # outer blocks first, so that what regions use from outside is there
            old, new = work.pop()
            work.extend(self._fill(old, new))
        return made

    def inline(self, block: Block, arguments: Sequence[Value]) -> tuple[Value, ...]:
        """The block's ops, decomposed, at the builder's place; returns the values of its results."""
        for a, v in zip(block.arguments, arguments, strict=True):
            self._values[a] = v
        new = self.builder.current
        work = self._fill(block, new, without_return=True)
        while work:
            work.extend(self._fill(*work.pop()))
        return tuple(self._values[v] for v in block.results)

    def _begin(self, block: Block) -> Block:
        new = Block([a.type for a in block.arguments], [a.name for a in block.arguments])
        self._values.update(zip(block.arguments, new.arguments, strict=True))
        return new

    def _fill(self, old: Block, new: Block, without_return: bool = False) -> list[tuple[Block, Block]]:
        """Copies the ops of one block; returns the regions that are still to be filled."""
        later: list[tuple[Block, Block]] = []
        with self.builder.into(new):
            for op in old.ops[:-1] if without_return else old.ops:
                operands = tuple(self._values[v] for v in op.operands)
                made = self.decomposed(op, operands)
                if made is None:
                    regions = [self._begin(r) for r in op.regions]
                    later.extend(zip(op.regions, regions, strict=True))
                    kept = self._copied(op, operands, regions)
                    new.ops.append(kept)
                    made = kept.results
                self._values.update(zip(op.results, made, strict=True))
        return later

    @staticmethod
    def _copied(op: Op, operands: Sequence[Value], regions: Sequence[Block]) -> Op:
        types, names = [r.type for r in op.results], [r.name for r in op.results]
        made = Op(op.definition, operands, op.attributes, regions, types, op.location, op.extra, names)
        made.debug = op.debug
        return made

    def decomposed(self, op: Op, operands: tuple[Value, ...]) -> tuple[Value, ...] | None:
        """The op's results computed from `operands` by its decomposition, at the builder's place; None where it has none."""
        rule = decomposition(op.name)
        unranked = any(isinstance(v.type, OpaqueType) for v in (*operands, *op.results))
        if rule is None or isinstance(rule, Declined) or unranked:
            return None
        self.builder.place = op.location
        try:
            made = rule(self, op, operands)
        finally:
            self.builder.place = None
        if isinstance(made, Declined):
            return None
        return tuple(self._as(v, r) for v, r in zip(made, op.results, strict=True))

    def _as(self, value: Value, result: Value) -> Value:
        """The value under the type that the program states, which may know fewer or more of the sizes."""
        if value.type == result.type:
            return value
        return self.builder.emit("stablehlo.convert", (value,), {}, (), [result.type])[0]


def decompose(module: Module) -> Module:
    """The same program without the CHLO ops that StableHLO ops can say: `f(x) == decompose(f)(x)` up to the last bits.

    A CHLO op stays where there is no decomposition (`hlo.decompositions.DECLINED`), where its operands have no rank, or where
    its sizes would have to be known. The module given is not changed. Raises VerificationError for what does not verify.

    >>> import hlo
    >>> line = "%y = chlo.square %x : tensor<f32> -> tensor<f32> return %y : tensor<f32>"
    >>> m = hlo.parse("func.func @main(%x: tensor<f32>) -> tensor<f32> { " + line + " }")
    >>> [op.name for op in decompose(m).entry.body.ops]
    ['stablehlo.multiply', 'func.return']
    """
    made = copy.copy(module)
    try:
        made.functions = {n: Rewriter().function(f) for n, f in module.functions.items()}
        made.nested = [decompose(m) for m in module.nested]
    except RecursionError:
        raise VerificationError("scans are nested too deeply to decompose", op="chlo.scan") from None
    return made
