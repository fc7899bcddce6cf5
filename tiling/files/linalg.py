"""Loops in MLIR with `linalg.generic` where a nest, or a product, is one: views with strides, indexing maps, iterators, a body.

    as_linalg(schedule, "softmax")    ->  the text of a module; Declined as `as_mlir` is

What a nest reads and writes at places that are sums of multiples of its loops is a view of a buffer: `memref.reinterpret_cast`
with the loops' strides, the rest of the place is its offset. A nest with conditions or numbers of its loops in it, with divisions
in its places, with loops that end where another one says, or that reads other elements of what it writes, stays `affine` loops.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hlo.errors import Declined
from indexing.expr import Const, Expr, Maximum, Minimum, Var, as_expr
from tiling.files.mlir import Printer, placed_out
from tiling.files.mlir_words import NoForm, arguments_of, mlir_type
from tiling.loops.affine import address, linear
from tiling.loops.element_ir import Apply, Load, Node, Scalar, all_nodes, loads
from tiling.loops.ir import Buffer, Contract, Loop, LoopKind, Nest, Schedule

__all__ = ["as_linalg"]


def as_linalg(schedule: Schedule, name: str = "kernel") -> str | Declined:
    """The text of a module with one function: `as_mlir`'s, with its nests and products as `linalg.generic` where they are one.

    >>> import hlo, tiling
    >>> text = '''func.func @main(%x: tensor<4x6xf32>) -> tensor<6x4xf32> {
    ...   %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>
    ...   return %0 : tensor<6x4xf32> }'''
    >>> (fusion,) = tiling.plan(hlo.parse(text), machine=tiling.Machine()).fusions
    >>> for line in as_linalg(fusion.schedule, "turned").splitlines()[2:8]:
    ...     print(line.strip().partition(" : ")[0])
    %0 = memref.reinterpret_cast %b1 to offset: [0], sizes: [6, 4], strides: [1, 6]
    %1 = memref.reinterpret_cast %b0 to offset: [0], sizes: [6, 4], strides: [4, 1]
    linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
        iterator_types = ["parallel", "parallel"]} ins(%0
    outs(%1
    ^bb0(%2: f32, %3: f32):
    linalg.yield %2
    """
    try:
        return _Printer(schedule).text(name)
    except NoForm as reason:
        return Declined(str(reason))


@dataclass(frozen=True)
class _View:
    """Elements of a buffer: `offset` + the sum of `strides[k]` * the number of loop `dims[k]`'s iteration, of `sizes[k]`."""

    buffer: Buffer
    offset: Expr
    dims: tuple[int, ...]
    strides: tuple[int, ...]


class _Printer(Printer):
    def nest(self, nest: Nest) -> None:
        """One op for the stores of a nest, or for its folds, where the nest is one; else loops."""
        if nest.stores and nest.folds and not self.reads_what_it_writes(nest):
            self.nest(replace(nest, folds=()))
            self.nest(replace(nest, stores=()))
            return
        views = self.views_of(nest)
        if views is None:
            super().nest(nest)
            return
        inputs, outputs, taken, again = views
        for f, out in zip(nest.folds, outputs, strict=False):
            if not f.carried:
                start = self.value(f.inits[0], {}) if f.inits else self.zero(f.buffers[0])
                shown, kind = self.view(out, nest.loops)
                self.line(f"linalg.fill ins({start} : {mlir_type(out.buffer.element)}) outs({shown} : {kind})")

        def body(given: Sequence[str], before: Sequence[str]) -> list[str]:
            self.taken = {n.place: v for n, v in zip(taken, given, strict=True)} | {n.place: before[k] for n, k in again}
            memo: dict[Node, str] = {}
            if nest.stores:
                made = [self.value(s.node, memo) for s in nest.stores]
            else:
                nodes = [[self.value(n, memo) for n in f.nodes] for f in nest.folds]
                made = [self.folded(f, own, b) for f, own, b in zip(nest.folds, nodes, before, strict=True)]
            self.taken = {}
            return made

        self.generic(nest.loops, inputs, outputs, body, bool(nest.folds))

    def buffer_of(self, n: Load) -> Buffer:
        return n.buffer or self.by_value[n.value]

    def reads_what_it_writes(self, nest: Nest) -> bool:
        """Whether a nest reads a buffer that it writes, so that what it stores and what it folds are not apart."""
        roots = [s.node for s in nest.stores] + [n for f in nest.folds for n in (*f.nodes, *f.inits)]
        written = {s.buffer for s in nest.stores} | {b for f in nest.folds for b in f.buffers}
        return any(self.buffer_of(n) in written for n in loads(roots))

    def views_of(self, nest: Nest) -> tuple[list[_View], list[_View], list[Load], list[tuple[Load, int]]] | None:
        """(what is read, what is written, the loads of what is read, those of what is written then), or None for a nest that is
        no `linalg.generic`."""
        if not nest.loops or bool(nest.stores) == bool(nest.folds) or any(len(f.buffers) != 1 for f in nest.folds):
            return None
        if any(x.kind is LoopKind.SCAN for x in nest.loops):
            return None
        if any(isinstance(n, Load) or not isinstance(n, Scalar) for f in nest.folds for n in f.inits):
            return None
        roots = [s.node for s in nest.stores] + [n for f in nest.folds for n in f.nodes]
        if not all(isinstance(n, Apply | Load | Scalar) for n in all_nodes(roots)) or not self.is_box(nest.loops):
            return None
        ranges = self.schedule.ranges
        written = [(s.buffer, address(s.buffer, s.index, ranges)) for s in nest.stores]
        written += [(f.buffers[0], address(f.buffers[0], f.index, ranges)) for f in nest.folds]
        taken, again = [], []
        for n in loads(roots):
            place = self.buffer_of(n), address(self.buffer_of(n), n.index, ranges)
            if nest.stores and place in written:
                again.append((n, written.index(place)))
            elif any(b is place[0] for b, _ in written):
                return None
            else:
                taken.append(n)
        read = [(self.buffer_of(n), address(self.buffer_of(n), n.index, ranges)) for n in taken]
        views = [self.view_of(b, at, nest.loops) for b, at in (*read, *written)]
        found = [v for v in views if v is not None]
        inputs, outputs = found[: len(read)], found[len(read) :]
        kept = {k for k, x in enumerate(nest.loops) if nest.stores or x.kind is not LoopKind.REDUCTION}
        if len({b for b, _ in written}) < len(written) or len(found) < len(views):
            return None
        if any(set(v.dims) != kept for v in outputs) or not self.covers(nest.loops, found):
            return None
        return inputs, outputs, taken, again

    def copy(self, loops: Sequence[Loop], source: tuple[Buffer, Expr], target: tuple[Buffer, Expr]) -> None:
        views = [self.view_of(b, at, loops) for b, at in (source, target)] if self.is_box(loops) else [None]
        found = [v for v in views if v is not None]
        if len(found) < 2 or source[0] is target[0] or any(len(v.dims) < len(loops) for v in found):
            super().copy(loops, source, target)
        else:
            self.generic(loops, found[:1], found[1:], lambda given, before: list(given), sums=False)

    def cleared(self, c: Contract, rows: Loop, columns: Loop) -> None:
        view = self.view_of(c.out.buffer, placed_out(c, rows, columns), (rows, columns)) if self.is_box((rows, columns)) else None
        if view is None:
            super().cleared(c, rows, columns)
            return
        zero = self.zero(c.out.buffer)
        shown, kind = self.view(view, (rows, columns))
        self.line(f"linalg.fill ins({zero} : {mlir_type(c.out.buffer.element)}) outs({shown} : {kind})")

    def product(self, c: Contract, loops: Sequence[Loop], left: Expr, right: Expr) -> None:
        """A block of a product: rows, columns (panel by panel where there are several) and what is summed over."""
        rows, columns, *summed = loops
        panels: list[Loop] = []
        first = right
        if c.n > c.columns != c.panel_stride:
            if c.n % c.columns or (columns.lower, columns.upper) != (Const(0), Const(c.n - 1)):
                super().product(c, loops, left, right)
                return
            panel = Loop(Var("contract_panel"), Const(0), Const(c.n // c.columns - 1), c.n // c.columns)
            panels, columns = [panel], Loop(columns.variable, Const(0), Const(c.columns - 1), c.columns)
            first = first + panel.variable * c.panel_stride
        out = c.out.base + rows.variable * c.out.row_stride + columns.variable * c.out.column_stride
        for x in panels:
            out = out + x.variable * (c.columns * c.out.column_stride)
        order = [rows, *panels, columns, *[Loop(x.variable, x.lower, x.upper, x.extent, LoopKind.REDUCTION) for x in summed]]
        sides = ((c.left.buffer, left), (c.right.buffer, first + columns.variable), (c.out.buffer, out))
        views = [self.view_of(b, at, order) for b, at in sides] if self.is_box(order) else [None]
        found = [v for v in views if v is not None]
        if len(found) < 3 or c.out.buffer in (c.left.buffer, c.right.buffer) or not self.covers(order, found):
            super().product(c, loops, left, right)
            return
        self.generic(order, found[:2], found[2:], lambda given, before: [self.summed(c, given, before[0])], sums=True)

    # ------------------------------------------------------------ whether it is one

    def is_box(self, loops: Sequence[Loop]) -> bool:
        """Whether each loop begins at one place and ends at places that no other of the loops moves."""
        own = {x.variable for x in loops}
        for x in loops:
            if any(v in own for e in (x.lower, x.upper) for v in as_expr(e).variables):
                return False
            if len(arguments_of(self.substituted(x.lower), Maximum)) > 1:
                return False
        return True

    def covers(self, loops: Sequence[Loop], views: Sequence[_View]) -> bool:
        """Whether the views' sizes say each loop's."""
        return {d for v in views for d in v.dims} == set(range(len(loops)))

    def view_of(self, b: Buffer, at: Expr, loops: Sequence[Loop]) -> _View | None:
        """The elements at a place for all iterations; None where the place is no sum of multiples of the loops."""
        found = linear(as_expr(at), [x.variable for x in loops])
        if found is None:
            return None
        offset, steps = found
        for x, step in zip(loops, steps, strict=True):
            offset = offset + as_expr(x.lower) * step
        try:
            self.expression(offset)
        except NoForm:
            return None
        dims = tuple(k for k, step in enumerate(steps) if step)
        return _View(b, offset, dims, tuple(steps[k] for k in dims)) if all(n > 0 for n in steps if n) else None

    # ------------------------------------------------------------ text

    def generic(
        self, loops: Sequence[Loop], inputs: Sequence[_View], outputs: Sequence[_View],
        body: Callable[[Sequence[str], Sequence[str]], list[str]], sums: bool,
    ) -> None:  # fmt: skip
        """One `linalg.generic`: `body` makes the outputs' elements from the inputs' and from what the outputs were."""
        shown = [self.view(v, loops) for v in (*inputs, *outputs)]
        dims = ", ".join(f"d{k}" for k in range(len(loops)))
        maps = [f"affine_map<({dims}) -> ({', '.join(f'd{k}' for k in v.dims)})>" for v in (*inputs, *outputs)]
        words = ['"reduction"' if sums and x.kind is LoopKind.REDUCTION else '"parallel"' for x in loops]
        given, made = ([*zip(*part, strict=True)] for part in (shown[: len(inputs)], shown[len(inputs) :]))
        ins = f" ins({', '.join(given[0])} : {', '.join(given[1])})" if given else ""
        self.line(f"linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{', '.join(words)}]}}{ins}")
        names = [self.fresh() for _ in shown]
        kinds = [mlir_type(v.buffer.element) for v in (*inputs, *outputs)]
        self.line(f"    outs({', '.join(made[0])} : {', '.join(made[1])}) {{")
        self.line(f"^bb0({', '.join(f'{n}: {k}' for n, k in zip(names, kinds, strict=True))}):")
        self.depth += 1
        results = body(names[: len(inputs)], names[len(inputs) :])
        self.line(f"linalg.yield {', '.join(results)} : {', '.join(kinds[len(inputs) :])}")
        self.depth -= 1
        self.line("}")

    def view(self, v: _View, loops: Sequence[Loop]) -> tuple[str, str]:
        """Emits a view; its name and its type."""
        offset = self.placed_at([self.expression(v.offset)], "affine.apply")
        sizes = [self.size(loops[k]) for k in v.dims]
        found, element = self.fresh(), mlir_type(v.buffer.element)
        shown = "".join(f"{n if n.isdecimal() else '?'}x" for n in sizes)
        begin = offset if offset.isdecimal() else "?"
        kind = f"memref<{shown}{element}, strided<[{', '.join(map(str, v.strides))}], offset: {begin}>>"
        flat = f"memref<{v.buffer.size_elems}x{element}>"
        self.line(
            f"{found} = memref.reinterpret_cast {self.names[v.buffer]} to offset: [{offset}], sizes: [{', '.join(sizes)}], "
            f"strides: [{', '.join(map(str, v.strides))}] : {flat} to {kind}"
        )
        return found, kind

    def size(self, x: Loop) -> str:
        """How many iterations a loop has: a number, or the name of a value."""
        lower, uppers = self.substituted(x.lower), arguments_of(self.substituted(x.upper), Minimum)
        least = [self.expression(u - lower + 1) for u in uppers]
        size = self.placed_at(least, "affine.min")
        if size.isdecimal() or x.runs_once:
            return size
        return self.placed_at([size, "0"], "affine.max")

    def placed_at(self, shown: Sequence[str], word: str) -> str:
        """An expression's value, or the least or greatest of several: a number, or the name of what the op `word` computes."""
        used = sorted({v for s in shown for v in re.findall(r"%\w+", s)})
        if not used:
            numbers = [int(s) for s in shown]
            return str(max(numbers) if word == "affine.max" else min(numbers))
        dims = {v: f"d{k}" for k, v in enumerate(used)}
        inner = ", ".join(re.sub(r"%\w+", lambda m: dims[m[0]], s) for s in shown)
        found = self.fresh()
        self.line(f"{found} = {word} affine_map<({', '.join(dims.values())}) -> ({inner})>({', '.join(used)})")
        return found
