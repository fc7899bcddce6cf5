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

    def lines(self, text: str) -> None:
        """Appends lines, indented as they are."""
        self.phase.out.extend([x for x in text.split("\n") if x.strip()])

    def number(self, x: float) -> str:
        return constant_source(np.dtype(self.a.block.buffer.element.dtype).type(x), self.a.block.buffer.element)

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
for i in range({self.rows}):
    for j in range({self.columns}):
        {self.kept('i', 'j')} = {self.at(self.a, 'i', 'j')}
""")

    def store(self) -> None:
        self.lines(f"""
for i in range({self.rows}):
    for j in range({self.columns}):
        {self.at(self.out, 'i', 'j')} = {self.kept('i', 'j')}
""")

    # ------------------------------------------------------------ symmetric

    def cholesky(self) -> None:
        """Upper rows in scratch: U with U^T U = a. A pivot that is not positive makes the factor NaN."""
        n, kept, lower = self.rows, self.kept, "lower" in self.options
        given = self.at(self.a, "j", "i") if lower else self.at(self.a, "i", "j")
        self.lines(f"""
for i in range({n}):
    for j in range(i, {n}):
        {kept('i', 'j')} = {given}
failed = int64(0)
for k in range({n}):
    pivot = {kept('k', 'k')}
    if failed == 0 and not (pivot > {self.number(0)}):
        failed = k + 1
    pivot = sqrt(pivot)
    {kept('k', 'k')} = pivot
    for j in range(k + 1, {n}):
        {kept('k', 'j')} = {kept('k', 'j')} / pivot
    for i in range(k + 1, {n}):
        factor = {kept('k', 'i')}
        for j in range(i, {n}):
            {kept('i', 'j')} = {kept('i', 'j')} - factor*{kept('k', 'j')}
""")
        # LAPACK leaves the other triangle as it was; StableHLO's is zero here.
        is_lapack = "lapack" in self.options
        other = self.at(self.a, "i", "j") if is_lapack else self.number(0)
        inside, factor = ("j <= i", kept("j", "i")) if lower else ("j >= i", kept("i", "j"))
        self.lines(f"""
for i in range({n}):
    for j in range({n}):
        value = {other}
        if {inside}:
            value = {factor}
            if failed != 0:
                value = {self.number(np.nan)}
        {self.at(self.out, 'i', 'j')} = value
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
        given, found = (self.at(m, "i", "j") if left else self.at(m, "j", "i") for m in (b, self.out))
        kept = self.kept
        factor = self.at(self.a, "i", "k") if not turned else self.at(self.a, "k", "i")
        divide = "" if "unit" in self.options else f"""
    pivot = {self.at(self.a, 'k', 'k')}
    for j in range({many}):
        {kept('k', 'j')} = {kept('k', 'j')} / pivot"""
        self.lines(f"""
for i in range({n}):
    for j in range({many}):
        {kept('i', 'j')} = {given}
for turn in range({n}):
    k = {'turn' if forward else f'{n - 1} - turn'}{divide}
    for i in range({f'k + 1, {n}' if forward else 'k'}):
        factor = {factor}
        for j in range({many}):
            {kept('i', 'j')} = {kept('i', 'j')} - factor*{kept('k', 'j')}
for i in range({n}):
    for j in range({many}):
        {found} = {kept('i', 'j')}
""")

    # ------------------------------------------------------------ general

    def lu(self) -> None:
        """P a = L U, the greatest element of what is left of a column on the diagonal.

        XLA's call tells the rows' order and pivots from 0, LAPACK's pivots from 1 and the first pivot that is zero.
        """
        m, n, kept, targets = self.rows, self.columns, self.kept, self.step.targets
        is_lapack = "lapack" in self.options
        order = None if is_lapack or len(targets) < 3 else targets[2]
        self.load()
        if order is not None:
            self.lines(f"for i in range({m}):\n    {self.at(order, 'i')} = to_int32(i)")
        told = f"\n    {self.at(targets[1], 'k')} = to_int32(chosen{' + 1' if is_lapack else ''})" if len(targets) > 1 else ""
        moved = "" if order is None else f"""
        place = {self.at(order, 'k')}
        {self.at(order, 'k')} = {self.at(order, 'chosen')}
        {self.at(order, 'chosen')} = place"""
        self.lines(f"""
failed = int64(0)
for k in range({min(m, n)}):
    chosen = to_int64(k)
    most = absolute({kept('k', 'k')})
    for i in range(k + 1, {m}):
        size = absolute({kept('i', 'k')})
        if size > most:
            most = size
            chosen = to_int64(i){told}
    if chosen != k:
        for j in range({n}):
            spare = {kept('k', 'j')}
            {kept('k', 'j')} = {kept('chosen', 'j')}
            {kept('chosen', 'j')} = spare{moved}
    pivot = {kept('k', 'k')}
    if pivot == {self.number(0)}:
        if failed == 0:
            failed = k + 1
        pivot = {self.number(1)}
    for i in range(k + 1, {m}):
        factor = {kept('i', 'k')} / pivot
        {kept('i', 'k')} = factor
        for j in range(k + 1, {n}):
            {kept('i', 'j')} = {kept('i', 'j')} - factor*{kept('k', 'j')}
""")
        self.store()
        if is_lapack and len(targets) > 2:
            self.lines(f"{self.at(targets[2], '0')} = to_int32(failed)")

    def qr(self) -> None:
        """Householder's reflectors below the diagonal, R above it, the reflectors' factors beside."""
        m, n, kept, taus = self.rows, self.columns, self.kept, self.step.targets[1]
        self.load()
        self.lines(f"""
for k in range({min(m, n)}):
    first = {kept('k', 'k')}
    most = {self.number(0)}
    for i in range(k + 1, {m}):
        size = absolute({kept('i', 'k')})
        if not (size <= most):
            most = size
    factor = {self.number(0)}
    if not (most == {self.number(0)}):
        if absolute(first) > most:
            most = absolute(first)
        total = (first / most)*(first / most)
        for i in range(k + 1, {m}):
            size = {kept('i', 'k')} / most
            total = total + size*size
        length = most*sqrt(total)
        if first >= {self.number(0)}:
            length = -length
        factor = (length - first) / length
        size = first - length
        for i in range(k + 1, {m}):
            {kept('i', 'k')} = {kept('i', 'k')} / size
        {kept('k', 'k')} = length
{self.reflected(kept('i', 'k'), f"k + 1, {n}", 2)}
    {self.at(taus, 'k')} = factor
""")
        self.store()

    def reflected(self, reflector: str, columns: str, depth: int) -> str:
        """Lines that reflect columns of what is kept, from row k on, by the reflector below its 1 in row k, and its `factor`."""
        kept, sums = self.kept, self.step.scratch[1].name
        lines = f"""
for j in range({columns}):
    {sums}[j] = {kept('k', 'j')}
for i in range(k + 1, {self.rows}):
    size = {reflector}
    for j in range({columns}):
        {sums}[j] = {sums}[j] + size*{kept('i', 'j')}
for j in range({columns}):
    {sums}[j] = {sums}[j]*factor
    {kept('k', 'j')} = {kept('k', 'j')} - {sums}[j]
for i in range(k + 1, {self.rows}):
    size = {reflector}
    for j in range({columns}):
        {kept('i', 'j')} = {kept('i', 'j')} - size*{sums}[j]"""
        return textwrap.indent(lines, "    " * depth)

    def reflectors(self) -> None:
        """The first columns of the product of the reflectors that lie below the diagonal, from the last one on."""
        m, n, kept, taus = self.rows, self.columns, self.kept, self.step.sources[1]
        count = min(taus.rows, n, m)
        self.load()
        self.lines(f"""
for j in range({count}, {n}):
    for i in range({m}):
        {kept('i', 'j')} = {self.number(0)}
    if j < {m}:
        {kept('j', 'j')} = {self.number(1)}
for turn in range({count}):
    k = {count - 1} - turn
    factor = {self.at(taus, 'k')}
{self.reflected(kept('i', 'k'), f"k + 1, {n}", 1)}
        {kept('i', 'k')} = -size*factor
    {kept('k', 'k')} = {self.number(1)} - factor
    for i in range(k):
        {kept('i', 'k')} = {self.number(0)}
""")
        self.store()

    def applied(self) -> None:
        """Q c, Q^T c, c Q or c Q^T of the reflectors' product Q; a c on the left is the transposed of one on the right."""
        m, taus, c, left = self.rows, self.step.sources[1], self.step.sources[2], "left" in self.options
        count, many = min(taus.rows, self.columns, m), c.columns if left else c.rows
        self.columns = many
        kept = self.kept
        given, found = (self.at(x, "i", "j") if left else self.at(x, "j", "i") for x in (c, self.out))
        backward = left != ("transposed" in self.options)
        self.lines(f"""
for i in range({m}):
    for j in range({many}):
        {kept('i', 'j')} = {given}
for turn in range({count}):
    k = {f'{count - 1} - turn' if backward else 'turn'}
    factor = {self.at(taus, 'k')}
{self.reflected(self.at(self.a, 'i', 'k'), str(many), 1)}
for i in range({m}):
    for j in range({many}):
        {found} = {kept('i', 'j')}
""")
