"""Loops in MLIR: a fusion's schedule as a function of `affine`, `arith`, `math` and `memref`.

    as_mlir(schedule, "softmax")    ->  the text of a module; Declined for a schedule with a step that the dialects cannot say

Buffers are flat memrefs: arguments and results of the function in the schedule's order, scratch inside. Tasks are
`affine.parallel`, folds read and write their buffer. What only makes loops faster (register blocks, rows fetched ahead, parts
left out while a flag holds) is not in it; a micro-kernel is its three loops. Operations are those of the elements' types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from hlo.access import Condition
from hlo.errors import Declined
from hlo.registry import SumOfProducts
from hlo.types import ElementType
from indexing.expr import Const, Expr, Maximum, Minimum, Var, as_expr, maximum, minimum, substitute
from indexing.expressions.terms import FloorDiv, Mod, Product
from tiling.elements.folds import combined_function
from tiling.files.mlir_words import (
    BOOLEANS,
    COMPARED,
    FLOATS,
    INTEGERS,
    ORDERED,
    UNSIGNED,
    NoForm,
    arguments_of,
    atoms_of,
    element_of,
    memref,
    mlir_type,
)
from tiling.loops.accesses import buffers_by_value
from tiling.loops.affine import address
from tiling.loops.element_ir import Apply, Choose, IndexNode, Load, Node, Scalar, Test, runtimes_of
from tiling.loops.ir import (
    Buffer,
    Contract,
    FoldStep,
    Loop,
    LoopKind,
    Measure,
    Nest,
    Phase,
    Schedule,
    Scope,
    Sequential,
    Step,
    Turn,
)
from tiling.loops.limits import in_full

__all__ = ["Printer", "as_mlir", "placed_out"]


def as_mlir(schedule: Schedule, name: str = "kernel") -> str | Declined:
    """The text of a module with one function, or why there is none.

    >>> import hlo, tiling
    >>> text = '''func.func @main(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
    ...   %0 = stablehlo.add %x, %x : tensor<4x6xf32>
    ...   return %0 : tensor<4x6xf32> }'''
    >>> (fusion,) = tiling.plan(hlo.parse(text), machine=tiling.Machine()).fusions
    >>> print(as_mlir(fusion.schedule, "twice"))
    module {
      func.func @twice(%b0: memref<24xf32>, %b1: memref<24xf32>) {
        affine.for %v0 = max affine_map<() -> (0)>() to min affine_map<() -> (4)>() {
          affine.for %v1 = max affine_map<() -> (0)>() to min affine_map<() -> (6)>() {
            %0 = affine.load %b1[%v0 * 6 + %v1] : memref<24xf32>
            %1 = arith.addf %0, %0 : f32
            affine.store %1, %b0[%v0 * 6 + %v1] : memref<24xf32>
          }
        }
        return
      }
    }
    """
    try:
        return Printer(schedule).text(name)
    except NoForm as reason:
        return Declined(str(reason))


class Printer:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule = in_full(schedule)
        self.by_value = buffers_by_value(schedule)
        self.lines: list[str] = []
        self.depth = 2
        self.names: dict[Buffer, str] = {}
        self.variables: dict[Var, Expr | int] = {}
        self.count = self.loops = 0
        self.taken: dict[Hashable, str] = {}  # what a body is given in the place of loads

    # ------------------------------------------------------------ text

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def fresh(self) -> str:
        self.count += 1
        return f"%{self.count - 1}"

    @contextmanager
    def inside(self, head: str) -> Iterator[None]:
        self.line(head + " {")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    def text(self, name: str) -> str:
        given = [b for b in self.schedule.buffers if b.scope in (Scope.ARGUMENT, Scope.RESULT)]
        self.names = {b: f"%b{k}" for k, b in enumerate(self.schedule.buffers)}
        arguments = ", ".join(f"{self.names[b]}: {memref(b)}" for b in given)
        for b in self.schedule.buffers_in(Scope.SHARED):
            self.line(f"{self.names[b]} = memref.alloc() : {memref(b)}")
        for phase in self.schedule.phases:
            self.phase(phase)
        self.line("return")
        symbol = re.sub(r"\W", "_", name, flags=re.ASCII)
        return "\n".join(["module {", f"  func.func @{symbol}({arguments}) {{", *self.lines, "  }", "}"])

    def substituted(self, e: Expr | int) -> Expr:
        """An expression with the loops' names in the text in the place of their variables."""
        return substitute(as_expr(e), self.variables)

    def expression(self, e: Expr | int) -> str:
        """An affine expression over loops' variables. Raises NoForm for another one."""
        made = self.substituted(e)
        for atom in atoms_of(made):
            if isinstance(atom, Product | Minimum | Maximum):
                raise NoForm(f"the index {made}: a {type(atom).__name__.lower()} of variables is not affine")
            if isinstance(atom, FloorDiv | Mod) and not (isinstance(atom.divisor, int) and atom.divisor > 0):
                raise NoForm(f"the index {made} divides by what is no number")
            if isinstance(atom, Var) and not atom.name.startswith("%"):
                raise NoForm(f"the index {made}: {atom} is known at run time alone")
        return str(made)

    def bound(self, e: Expr, word: type[Minimum] | type[Maximum], more: int) -> str:
        """A bound of a loop as a map: the greatest or the least of several expressions."""
        made = substitute(e, self.variables)
        parts = arguments_of(made, word)
        shown = [self.expression(p + more) for p in parts]
        used = sorted({v for s in shown for v in re.findall(r"%\w+", s)})
        dims = {v: f"d{k}" for k, v in enumerate(used)}
        results = ", ".join(re.sub(r"%\w+", lambda m: dims[m[0]], s) for s in shown)
        name = "max" if word is Maximum else "min"
        return f"{name} affine_map<({', '.join(dims.values())}) -> ({results})>({', '.join(used)})"

    # ------------------------------------------------------------ loops

    def phase(self, phase: Phase) -> None:
        if phase.group > 1 and phase.before:
            raise NoForm("tasks of several tiles that share what is made before them")
        # A flag says where nothing need be computed: all of it is.
        self.variables.update({f.variable: 0 for f in phase.flags})
        self.loops += len(phase.tiles)
        names = [f"%v{self.loops - len(phase.tiles) + k}" for k in range(len(phase.tiles))]
        self.variables.update({v: Var(n) for (v, _), n in zip(phase.tiles, names, strict=True)})
        zeros, sizes = ", ".join("0" for _ in names), ", ".join(str(n) for _, n in phase.tiles)
        if not names:
            self.task(phase)
            return
        with self.inside(f"affine.parallel ({', '.join(names)}) = ({zeros}) to ({sizes})"):
            self.task(phase)

    def task(self, phase: Phase) -> None:
        for b in self.schedule.buffers_in(Scope.THREAD):
            self.line(f"{self.names[b]} = memref.alloc() : {memref(b)}")
        for step in (*phase.before, *phase.steps):
            self.step(step)
        if len(self.schedule.phases) > 1:  # each phase has its own
            self.names.update({b: f"{self.names[b]}_" for b in self.schedule.buffers_in(Scope.THREAD)})

    def step(self, step: Step) -> None:
        if isinstance(step, Nest):
            self.nest(step)
        elif isinstance(step, Contract):
            self.contract(step)
        elif isinstance(step, Turn):
            at, to = step.places
            self.copy(step.loops, (step.source.buffer, at), (step.target.buffer, to))
        elif isinstance(step, Sequential):
            with self.over((step.loop,)):
                for inner in step.steps:
                    self.step(inner)
        elif not isinstance(step, Measure):  # (which only finds out what need not be computed)
            raise NoForm(f"a step of kind {type(step).__name__}")

    def copy(self, loops: Sequence[Loop], source: tuple[Buffer, Expr], target: tuple[Buffer, Expr]) -> None:
        """The elements at the places of some loops' iterations."""
        with self.over(loops):
            value = self.fresh()
            self.line(f"{value} = affine.load {self.placed(*source)}")
            self.line(f"affine.store {value}, {self.placed(*target)}")

    @contextmanager
    def over(self, loops: Sequence[Loop]) -> Iterator[None]:
        for x in loops:
            name = f"%v{self.loops}"
            self.loops += 1
            self.line(f"affine.for {name} = {self.bound(x.lower, Maximum, 0)} to {self.bound(x.upper, Minimum, 1)} {{")
            self.variables[x.variable] = Var(name)
            self.depth += 1
        yield
        for _ in loops:
            self.depth -= 1
            self.line("}")

    def nest(self, nest: Nest) -> None:
        """The stores and folds as they were before the innermost loop was cut into segments."""
        scans = any(x.kind is LoopKind.SCAN for x in nest.loops)
        for f in nest.folds:
            if scans:
                raise NoForm("a scan")
            if not f.carried:
                with self.over([x for x in nest.loops if x.kind is not LoopKind.REDUCTION]):
                    self.begin(f)
        with self.over(nest.loops):
            memo: dict[Node, str] = {}
            values = [self.value(s.node, memo) for s in nest.stores]
            taken = [[self.value(n, memo) for n in f.nodes] for f in nest.folds]
            for s, value in zip(nest.stores, values, strict=True):
                self.line(f"affine.store {value}, {self.at(s.buffer, s.index)}")
            for f, nodes in zip(nest.folds, taken, strict=True):
                self.fold(f, nodes)

    def begin(self, f: FoldStep) -> None:
        memo: dict[Node, str] = {}
        starts = [self.value(n, memo) for n in f.inits]
        for b, start in zip(f.buffers, starts or [self.zero(b) for b in f.buffers], strict=True):
            self.line(f"affine.store {start}, {self.at(b, f.index)}")

    def zero(self, b: Buffer) -> str:
        return self.value(Scalar(b.element.dtype.type(0), b.element), {})

    def fold(self, f: FoldStep, nodes: Sequence[str]) -> None:
        before = self.fresh()
        self.line(f"{before} = affine.load {self.at(f.buffers[0], f.index)}")
        self.line(f"affine.store {self.folded(f, nodes, before)}, {self.at(f.buffers[0], f.index)}")

    def folded(self, f: FoldStep, nodes: Sequence[str], before: str) -> str:
        """What a fold makes of the value before and of one iteration's."""
        (b,) = f.buffers if len(f.buffers) == 1 else (None,)
        if b is None:
            raise NoForm("a fold of several values")
        if isinstance(f.op.definition.semantics, SumOfProducts):
            if f.products > 1:
                raise NoForm("a sum of sums of products")
            kinds = [element_of(n) for n in f.nodes]
            terms = [self.converted(v, k or b.element, b.element) for v, k in zip(nodes, kinds, strict=True)]
            value = terms[0]
            for t in terms[1:]:
                value = self.apply("multiply", [value, t], b.element, b.element)
            function = "add"
        else:
            name = combined_function(f.op.regions[0])
            if name is None or len(nodes) != 1:
                raise NoForm("a fold by a body that is no single operation")
            function, value = name, nodes[0]
        return self.apply(function, [before, value], b.element, b.element)

    def contract(self, c: Contract) -> None:
        """The product as loops over rows, columns and the depth, block by block where operands are packed so."""
        kernel = c.kernel
        if kernel.together > 1 or kernel.along or kernel.needs_runs or c.places:
            raise NoForm(f"a contraction by {kernel.routine}, whose operands do not lie as a matrix")
        row, column, k, block = (Var(f"contract_{n}") for n in ("row", "column", "k", "block"))
        rows = Loop(row, Const(0), c.rows_upper, c.m)
        columns = Loop(column, c.columns_lower, c.columns_upper, c.n)
        with self.over(c.loops):
            if not c.accumulate:
                self.cleared(c, rows, columns)
            blocks = -(-c.k // c.k_block)
            self.variables[block] = 0
            with self.over((Loop(block, Const(0), Const(blocks - 1), blocks),) if blocks > 1 else ()):
                first = as_expr(substitute(block, self.variables)) * c.k_block
                self.variables[c.k_start] = first
                for pack in c.pack:
                    self.nest(pack)
                lower = first if c.depth_lower == Const(0) else maximum(first, c.depth_lower)
                upper = minimum(first + (c.k_block - 1), c.last_depth)
                levels = [Loop(Var(f"contract_{n}"), Const(0), Const(r - 1), r) for n, (r, _, _) in enumerate(c.levels)]
                depth = Loop(k, lower, upper, c.k_block, LoopKind.REDUCTION)
                left = c.left.base + row * c.left.row_stride + (k - c.k_start) * c.left.column_stride
                right = c.right.base + k * c.right.row_stride
                for x, (_, one_left, one_right) in zip(levels, c.levels, strict=True):
                    left, right = left + x.variable * one_left, right + x.variable * one_right
                self.product(c, (rows, columns, *levels, depth), left, right)

    def cleared(self, c: Contract, rows: Loop, columns: Loop) -> None:
        """Zero wherever a product goes."""
        with self.over((rows, columns)):
            self.line(f"affine.store {self.zero(c.out.buffer)}, {self.placed(c.out.buffer, placed_out(c, rows, columns))}")

    def product(self, c: Contract, loops: Sequence[Loop], left: Expr, right: Expr) -> None:
        """One block of a product: loops over rows, columns, levels and the depth. `right` is a place in the first panel."""
        rows, columns = loops[:2]
        with self.over(loops):
            panel = (columns.variable // c.columns) * c.panel_stride + columns.variable % c.columns
            values = []
            for side, at in ((c.left.buffer, left), (c.right.buffer, right + panel)):
                values.append(self.fresh())
                self.line(f"{values[-1]} = affine.load {self.placed(side, at)}")
            out = self.placed(c.out.buffer, placed_out(c, rows, columns))
            before = self.fresh()
            self.line(f"{before} = affine.load {out}")
            self.line(f"affine.store {self.summed(c, values, before)}, {out}")

    def summed(self, c: Contract, factors: Sequence[str], before: str) -> str:
        """The sum before and one product more."""
        element, sides = c.out.buffer.element, (c.left.buffer, c.right.buffer)
        terms = [self.converted(v, b.element, element) for v, b in zip(factors, sides, strict=True)]
        return self.apply("add", [before, self.apply("multiply", terms, element, element)], element, element)

    def placed(self, b: Buffer, at: Expr) -> str:
        return f"{self.names[b]}[{self.expression(at)}] : {memref(b)}"

    # ------------------------------------------------------------ elements

    def at(self, b: Buffer, index: Sequence[Expr]) -> str:
        return self.placed(b, address(b, index, self.schedule.ranges))

    def value(self, n: Node, memo: dict[Node, str]) -> str:
        if n not in memo:
            if runtimes_of(n):
                raise NoForm("an element whose place is a value known at run time")
            memo[n] = _NODES[type(n)](self, n, memo)
        return memo[n]

    def load(self, n: Load, memo: dict[Node, str]) -> str:
        if n.place in self.taken:
            return self.taken[n.place]
        found = self.fresh()
        self.line(f"{found} = affine.load {self.at(n.buffer or self.by_value[n.value], n.index)}")
        return found

    def scalar(self, n: Scalar, memo: dict[Node, str]) -> str:
        found, kind = self.fresh(), mlir_type(n.element)
        if kind == "i1":
            shown = "true" if bool(n.value) else "false"
            self.line(f"{found} = arith.constant {shown}")
            return found
        if n.element.is_float:
            bits = np.asarray(n.value, n.element.dtype).tobytes()[::-1].hex().upper()
            self.line(f"{found} = arith.constant 0x{bits} : {kind}")
        else:
            self.line(f"{found} = arith.constant {int(n.value)} : {kind}")
        return found

    def number(self, n: IndexNode, memo: dict[Node, str]) -> str:
        shown = self.expression(n.expression)
        used = sorted(set(re.findall(r"%\w+", shown)))
        dims = {v: f"d{k}" for k, v in enumerate(used)}
        inner = re.sub(r"%\w+", lambda m: dims[m[0]], shown)
        place, whole, found = self.fresh(), self.fresh(), self.fresh()
        self.line(f"{place} = affine.apply affine_map<({', '.join(dims.values())}) -> ({inner})>({', '.join(used)})")
        self.line(f"{whole} = arith.index_cast {place} : index to i64")
        kind = mlir_type(n.element)
        if n.element.is_float:
            self.line(f"{found} = arith.sitofp {whole} : i64 to {kind}")
        elif kind == "i64":
            return whole
        else:
            self.line(f"{found} = arith.trunci {whole} : i64 to {kind}")
        return found

    def test(self, n: Test, memo: dict[Node, str]) -> str:
        return self.chosen(n.conditions, "i1", lambda: self.truth(True), lambda: self.truth(False))

    def truth(self, holds: bool) -> str:
        found = self.fresh()
        self.line(f"{found} = arith.constant {'true' if holds else 'false'}")
        return found

    def choose(self, n: Choose, memo: dict[Node, str]) -> str:
        element = element_of(n)
        if element is None:
            raise NoForm("a choice of no type")
        # What is computed on one side alone is not known on the other, nor afterwards.
        kind = mlir_type(element)
        then, otherwise = (lambda: self.value(n.then, dict(memo))), (lambda: self.value(n.otherwise, dict(memo)))
        return self.chosen(n.conditions, kind, then, otherwise)

    def chosen(self, conditions: Sequence[Condition], kind: str, then: Callable[[], str], otherwise: Callable[[], str]) -> str:
        tests = [t for c in conditions for t in (as_expr(c.expression) - c.lower, c.upper - as_expr(c.expression))]
        shown = [self.expression(t) for t in tests]
        used = sorted({v for s in shown for v in re.findall(r"%\w+", s)})
        dims = {v: f"d{k}" for k, v in enumerate(used)}
        held = ", ".join(re.sub(r"%\w+", lambda m: dims[m[0]], s) + " >= 0" for s in shown)
        found = self.fresh()
        self.line(f"{found} = affine.if affine_set<({', '.join(dims.values())}) : ({held})>({', '.join(used)}) -> {kind} {{")
        self.depth += 1
        self.line(f"affine.yield {then()} : {kind}")
        self.depth -= 1
        self.line("} else {")
        self.depth += 1
        self.line(f"affine.yield {otherwise()} : {kind}")
        self.depth -= 1
        self.line("}")
        return found

    def applied(self, n: Apply, memo: dict[Node, str]) -> str:
        values = [self.value(a, memo) for a in n.arguments]
        own = [element_of(a) for a in n.arguments]
        result = n.op.results[0].tensor.element
        if not isinstance(result, ElementType) or any(e is None for e in own):
            raise NoForm(f"{n.function} of values whose type is not said")
        if n.function == "compare":
            return self.compared(str(n.op.attr("comparison_direction")), values, own[0])
        if n.function == "select":
            found = self.fresh()
            self.line(f"{found} = arith.select {', '.join(values)} : {mlir_type(result)}")
            return found
        if n.function == "convert":
            assert own[0] is not None
            return self.converted(values[0], own[0], result)
        if n.function == "is_finite":
            found = self.fresh()
            self.line(f"{found} = math.isfinite {values[0]} : {mlir_type(own[0] or result)}")
            return found
        if n.function == "square":
            return self.apply("multiply", [values[0], values[0]], result, result)
        return self.apply(n.function, values, own[0] or result, result)

    def apply(self, function: str, values: Sequence[str], of: ElementType, result: ElementType) -> str:
        kind = mlir_type(result)
        if of != result:
            raise NoForm(f"{function} of {of} to {result}")
        if result.is_float:
            name = FLOATS.get(function)
        elif kind == "i1":
            name = f"arith.{BOOLEANS[function]}" if function in BOOLEANS else None
        else:
            word = UNSIGNED.get(function) if str(result).startswith("u") else None
            name = f"arith.{word or INTEGERS[function]}" if function in INTEGERS else None
        if name is None:
            raise NoForm(f"the function {function} of {result}")
        found = self.fresh()
        self.line(f"{found} = {name} {', '.join(values)} : {kind}")
        return found

    def compared(self, direction: str, values: Sequence[str], element: ElementType | None) -> str:
        assert element is not None
        found, kind = self.fresh(), mlir_type(element)
        if element.is_float:
            self.line(f"{found} = arith.cmpf {ORDERED[direction]}, {', '.join(values)} : {kind}")
        else:
            sign = "u" if str(element).startswith("u") or kind == "i1" else "s"
            self.line(f"{found} = arith.cmpi {COMPARED[direction].format(sign)}, {', '.join(values)} : {kind}")
        return found

    def converted(self, value: str, source: ElementType, target: ElementType) -> str:
        a, b = mlir_type(source), mlir_type(target)
        if source == target:
            return value
        if source.is_float and target.is_float:
            if source.bits == target.bits:
                raise NoForm(f"a conversion of {source} to {target}")
            word = "extf" if source.bits < target.bits else "truncf"
        elif target.is_float:
            word = "uitofp" if str(source).startswith("u") or a == "i1" else "sitofp"
        elif source.is_float or b == "i1":
            raise NoForm(f"a conversion of {source} to {target}")
        elif source.bits == target.bits:
            return value
        elif source.bits > target.bits:
            word = "trunci"
        else:
            word = "extui" if str(source).startswith("u") or a == "i1" else "extsi"
        found = self.fresh()
        self.line(f"{found} = arith.{word} {value} : {a} to {b}")
        return found


_NODES: Mapping[type, Callable[..., str]] = {
    Load: Printer.load, Scalar: Printer.scalar, IndexNode: Printer.number, Test: Printer.test, Choose: Printer.choose,
    Apply: Printer.applied,
}  # fmt: skip


def placed_out(c: Contract, rows: Loop, columns: Loop) -> Expr:
    """Where an element of a product goes."""
    return c.out.base + rows.variable * c.out.row_stride + columns.variable * c.out.column_stride
