"""Factorisations and triangular systems of one small matrix, written out as loops (`tiling.loops.ir.MatrixStep`).

The matrix is brought into scratch and all inner loops run along its rows there, so that they become vector instructions: an
elimination subtracts multiples of a row from the rows below it. Signs, pivots and the order of results are LAPACK's.
"""

from __future__ import annotations

import textwrap

import numpy as np

from codegen.source.phase import PhaseWriter
from codegen.source.scalars import constant_source
from tiling.loops.ir import Matrix, MatrixStep

__all__ = ["emit_matrices"]


def emit_matrices(phase: PhaseWriter, step: MatrixStep) -> None:
    """Writes what is done to one matrix into the task's loop."""
    writer = _Matrices(phase, step)
    {
        "cholesky": writer.cholesky, "triangular": writer.triangular, "lu": writer.lu, "qr": writer.qr,
        "reflectors": writer.reflectors, "applied": writer.applied,
    }[step.kind]()  # fmt: skip


class _Matrices:
    def __init__(self, phase: PhaseWriter, step: MatrixStep) -> None:
        self.phase, self.step, self.options = phase, step, step.options
        phase.uses(*(m.block.buffer for m in (*step.sources, *step.targets)), *step.scratch)
        self.a, self.out = step.sources[0], step.targets[0]
        self.rows, self.columns = self.a.rows, self.a.columns
        self.work = step.scratch[0].name
        self.bases = {m: phase.fresh("at") for m in (*step.sources, *step.targets)}
        for m, name in self.bases.items():
            phase.out.line(f"{name} = {phase.expr(m.block.base)}")
        self.element = self.a.block.buffer.element
        self.is_complex = self.element.is_complex

    def lines(self, text: str) -> None:
        """Appends lines, indented as they are."""
        self.phase.out.extend([x for x in text.split("\n") if x.strip()])

    def number(self, x: float, is_real: bool = False) -> str:
        """A constant of the matrix' type; with `is_real` of the type that its elements' sizes have."""
        element = self.element.real if is_real and self.is_complex else self.element
        return constant_source(np.dtype(element.dtype).type(x), element)

    def conj(self, x: str) -> str:
        return f"conj({x})" if self.is_complex else x

    def real(self, x: str) -> str:
        return f"real({x})" if self.is_complex else x

    def whole(self, x: str, imaginary: str = "") -> str:
        """A number of the matrix' type, of its parts."""
        return f"make_complex({x}, {imaginary or self.number(0, True)})" if self.is_complex else x

    def over(self, x: str, by: str) -> str:
        """A number of the matrix' type by a real one."""
        return f"make_complex(real({x}) / {by}, imag({x}) / {by})" if self.is_complex else f"{x} / {by}"

    def square(self, x: str, by: str) -> str:
        """The squared size of a number that `by`, a size, divides first."""
        parts = (f"real({x})", f"imag({x})") if self.is_complex else (x,)
        return " + ".join(f"({p} / {by})*({p} / {by})" for p in parts)

    def at(self, m: Matrix, row: str, column: str = "") -> str:
        """An element in memory."""
        b = m.block
        parts = [self.bases[m], f"{b.row_stride}*{row}" if b.row_stride != 1 else row]
        parts += [f"{b.column_stride}*{column}" if b.column_stride != 1 else column] if column else []
        return f"{b.buffer.name}[{' + '.join(parts)}]"

    def kept(self, row: str, column: str) -> str:
        """An element of the matrix in scratch."""
        return f"{self.work}[{self.columns}*{row} + {column}]"

    def load(self) -> None:
        self.lines(f"""
for row in range({self.rows}):
    for column in range({self.columns}):
        {self.kept('row', 'column')} = {self.at(self.a, 'row', 'column')}
""")

    def store(self) -> None:
        self.lines(f"""
for row in range({self.rows}):
    for column in range({self.columns}):
        {self.at(self.out, 'row', 'column')} = {self.kept('row', 'column')}
""")

    # ------------------------------------------------------------ symmetric

    def cholesky(self) -> None:
        """Upper rows in scratch: U with U* U = a. A pivot that is not positive makes the factor NaN."""
        n, kept, lower = self.rows, self.kept, "lower" in self.options
        given = self.conj(self.at(self.a, "column", "row")) if lower else self.at(self.a, "row", "column")
        self.lines(f"""
for row in range({n}):
    for column in range(row, {n}):
        {kept('row', 'column')} = {given}
failed = int64(0)
for step in range({n}):
    pivot = {self.real(kept('step', 'step'))}
    if failed == 0 and not (pivot > {self.number(0, True)}):
        failed = step + 1
    pivot = sqrt(pivot)
    {kept('step', 'step')} = {self.whole('pivot')}
    for column in range(step + 1, {n}):
        {kept('step', 'column')} = {self.over(kept('step', 'column'), 'pivot')}
    for row in range(step + 1, {n}):
        factor = {self.conj(kept('step', 'row'))}
        for column in range(row, {n}):
            {kept('row', 'column')} = {kept('row', 'column')} - factor*{kept('step', 'column')}
""")
        # LAPACK leaves the other triangle as it was; StableHLO's is zero here.
        is_lapack = "lapack" in self.options
        other = self.at(self.a, "row", "column") if is_lapack else self.number(0)
        inside, factor = "column >= row", kept("row", "column")
        if lower:
            inside, factor = "column <= row", self.conj(kept("column", "row"))
        self.lines(f"""
for row in range({n}):
    for column in range({n}):
        value = {other}
        if {inside}:
            value = {factor}
            if failed != 0:
                value = {self.number(np.nan)}
        {self.at(self.out, 'row', 'column')} = value
""")
        if len(self.step.targets) > 1:
            self.lines(f"{self.at(self.step.targets[1], '0')} = to_int32(failed)")

    # ------------------------------------------------------------ triangular systems

    def triangular(self) -> None:
        """x with op(a) x = b; x op(a) = b is the same for the transposed of all three."""
        n, b, left = self.rows, self.step.sources[1], "left" in self.options
        turned = ("transposed" in self.options) is left
        forward = ("lower" in self.options) is not turned
        many = b.columns if left else b.rows
        self.columns = many
        given, found = (self.at(m, "row", "column") if left else self.at(m, "column", "row") for m in (b, self.out))
        kept = self.kept
        factor = self.at(self.a, "step", "row") if turned else self.at(self.a, "row", "step")
        pivot = self.at(self.a, "step", "step")
        if "adjoint" in self.options:
            factor, pivot = self.conj(factor), self.conj(pivot)
        divide = "" if "unit" in self.options else f"""
    pivot = {pivot}
    for column in range({many}):
        {kept('step', 'column')} = {kept('step', 'column')} / pivot"""
        self.lines(f"""
for row in range({n}):
    for column in range({many}):
        {kept('row', 'column')} = {given}
for turn in range({n}):
    step = {'turn' if forward else f'{n - 1} - turn'}{divide}
    for row in range({f'step + 1, {n}' if forward else 'step'}):
        factor = {factor}
        for column in range({many}):
            {kept('row', 'column')} = {kept('row', 'column')} - factor*{kept('step', 'column')}
for row in range({n}):
    for column in range({many}):
        {found} = {kept('row', 'column')}
""")

    # ------------------------------------------------------------ general

    def lu(self) -> None:
        """P a = L U, the greatest element of what is left of a column on the diagonal.

        XLA's call tells the rows' order and pivots from 0, LAPACK's pivots from 1 and the first pivot that is zero.
        """
        m, n, kept, targets = self.rows, self.columns, self.kept, self.step.targets
        is_lapack = "lapack" in self.options
        order = None if is_lapack or len(targets) < 3 else targets[2]

        def size(x: str) -> str:
            # LAPACK takes the greatest sum of both parts' sizes.
            return f"absolute(real({x})) + absolute(imag({x}))" if self.is_complex else f"absolute({x})"

        self.load()
        if order is not None:
            self.lines(f"for row in range({m}):\n    {self.at(order, 'row')} = to_int32(row)")
        told = f"\n    {self.at(targets[1], 'step')} = to_int32(chosen{' + 1' if is_lapack else ''})" if len(targets) > 1 else ""
        moved = "" if order is None else f"""
        place = {self.at(order, 'step')}
        {self.at(order, 'step')} = {self.at(order, 'chosen')}
        {self.at(order, 'chosen')} = place"""
        self.lines(f"""
failed = int64(0)
for step in range({min(m, n)}):
    chosen = to_int64(step)
    most = {size(kept('step', 'step'))}
    for row in range(step + 1, {m}):
        size = {size(kept('row', 'step'))}
        if size > most:
            most = size
            chosen = to_int64(row){told}
    if chosen != step:
        for column in range({n}):
            spare = {kept('step', 'column')}
            {kept('step', 'column')} = {kept('chosen', 'column')}
            {kept('chosen', 'column')} = spare{moved}
    pivot = {kept('step', 'step')}
    if pivot == {self.number(0)}:
        if failed == 0:
            failed = step + 1
        pivot = {self.number(1)}
    for row in range(step + 1, {m}):
        factor = {kept('row', 'step')} / pivot
        {kept('row', 'step')} = factor
        for column in range(step + 1, {n}):
            {kept('row', 'column')} = {kept('row', 'column')} - factor*{kept('step', 'column')}
""")
        self.store()
        if is_lapack and len(targets) > 2:
            self.lines(f"{self.at(targets[2], '0')} = to_int32(failed)")

    def qr(self) -> None:
        """Householder's reflectors below the diagonal, R above it, the reflectors' factors beside."""
        m, n, kept, taus = self.rows, self.columns, self.kept, self.step.targets[1]
        zero, first = self.number(0, True), self.real("first")
        done = f"most == {zero}" + (f" and imag(first) == {zero}" if self.is_complex else "")
        self.load()
        self.lines(f"""
for step in range({min(m, n)}):
    first = {kept('step', 'step')}
    most = {zero}
    for row in range(step + 1, {m}):
        size = absolute({kept('row', 'step')})
        if not (size <= most):
            most = size
    factor = {self.number(0)}
    if not ({done}):
        if absolute(first) > most:
            most = absolute(first)
        total = {self.square('first', 'most')}
        for row in range(step + 1, {m}):
            entry = {kept('row', 'step')}
            total = total + ({self.square('entry', 'most')})
        length = most*sqrt(total)
        if {first} >= {zero}:
            length = -length
        factor = {self.whole(f'(length - {first}) / length', '-imag(first) / length')}
        scale = {self.whole(f'{first} - length', 'imag(first)')}
        for row in range(step + 1, {m}):
            {kept('row', 'step')} = {kept('row', 'step')} / scale
        {kept('step', 'step')} = {self.whole('length')}
        turned = {self.conj('factor')}
{self.reflected(kept('row', 'step'), f"step + 1, {n}", 2, 'turned')}
    {self.at(taus, 'step')} = factor
""")
        self.store()

    def reflected(self, reflector: str, columns: str, depth: int, factor: str = "factor") -> str:
        """Lines that reflect columns of what is kept, from a step's row on, by the reflector below its 1 and its `factor`."""
        kept, sums = self.kept, self.step.scratch[1].name
        lines = f"""
for column in range({columns}):
    {sums}[column] = {kept('step', 'column')}
for row in range(step + 1, {self.rows}):
    entry = {self.conj(reflector)}
    for column in range({columns}):
        {sums}[column] = {sums}[column] + entry*{kept('row', 'column')}
for column in range({columns}):
    {sums}[column] = {sums}[column]*{factor}
    {kept('step', 'column')} = {kept('step', 'column')} - {sums}[column]
for row in range(step + 1, {self.rows}):
    entry = {reflector}
    for column in range({columns}):
        {kept('row', 'column')} = {kept('row', 'column')} - entry*{sums}[column]"""
        return textwrap.indent(lines, "    " * depth)

    def reflectors(self) -> None:
        """The first columns of the product of the reflectors that lie below the diagonal, from the last one on."""
        m, n, kept, taus = self.rows, self.columns, self.kept, self.step.sources[1]
        count = min(taus.rows, n, m)
        self.load()
        self.lines(f"""
for column in range({count}, {n}):
    for row in range({m}):
        {kept('row', 'column')} = {self.number(0)}
    if column < {m}:
        {kept('column', 'column')} = {self.number(1)}
for turn in range({count}):
    step = {count - 1} - turn
    factor = {self.at(taus, 'step')}
{self.reflected(kept('row', 'step'), f"step + 1, {n}", 1)}
        {kept('row', 'step')} = -entry*factor
    {kept('step', 'step')} = {self.number(1)} - factor
    for row in range(step):
        {kept('row', 'step')} = {self.number(0)}
""")
        self.store()

    def applied(self) -> None:
        """Q c, Q* c, c Q or c Q* of the reflectors' product Q; of real numbers a c on the left is the transposed of one on the
        right."""
        m, taus, c, left = self.rows, self.step.sources[1], self.step.sources[2], "left" in self.options
        count, many = min(taus.rows, self.columns, m), c.columns if left else c.rows
        self.columns = many
        kept = self.kept
        given, found = (self.at(x, "row", "column") if left else self.at(x, "column", "row") for x in (c, self.out))
        backward = left != ("transposed" in self.options)
        self.lines(f"""
for row in range({m}):
    for column in range({many}):
        {kept('row', 'column')} = {given}
for turn in range({count}):
    step = {f'{count - 1} - turn' if backward else 'turn'}
    factor = {self.conj(self.at(taus, 'step')) if 'transposed' in self.options else self.at(taus, 'step')}
{self.reflected(self.at(self.a, 'row', 'step'), str(many), 1)}
for row in range({m}):
    for column in range({many}):
        {found} = {kept('row', 'column')}
""")
