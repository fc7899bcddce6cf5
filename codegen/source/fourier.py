"""Fourier transforms of lines that lie side by side: butterflies as straight lines of arithmetic, one vector wide.

A pass with butterflies of t terms (Stockham's form, which sorts on the way) takes n = t m elements in s interleaved parts:

    to[s (t p + j) + q] = w^(j p) * sum over k of from[s (p + m k) + q] * v^(j k),   0 <= p < m, 0 <= q < s, 0 <= j < t

with w a root of unity of order n, v of order t. Every element is as many numbers as there are lines, so that the loop over q and
the lines is one loop over consecutive numbers.

A length with a large prime factor is a cyclic convolution (`tiling.routines.fourier`): two transforms forwards, the second one of
numbers with their parts exchanged, which makes it the inverse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from codegen.source.phase import PhaseWriter
from codegen.source.scalars import constant_source
from tiling.loops.ir import Block2D, Buffer, Transform
from tiling.routines.fourier import butterflies, convolved, line_roots, pass_roots

__all__ = ["emit_transform"]

Number = tuple[str, str]
"""The names of a complex number's parts."""


def emit_transform(phase: PhaseWriter, t: Transform) -> None:
    """Writes the transform of one group of lines into the task's loop."""
    _Transform(phase, t).run()


class _Arithmetic:
    """Lines of arithmetic on named numbers."""

    def __init__(self, transform: _Transform) -> None:
        self.transform, self.lines, self.count = transform, list[str](), 0

    def name(self, text: str, prefix: str = "c") -> str:
        """A new name of a real number."""
        self.count += 1
        self.lines.append(f"{prefix}{self.count} = {text}")
        return f"{prefix}{self.count}"

    def parts(self, text: str) -> Number:
        """Both parts of a complex number. (Its own name is no real one's in another pass: a name has one type in a kernel.)"""
        z = self.name(text, "z")
        return self.name(f"real({z})"), self.name(f"imag({z})")

    def sum(self, a: Number, b: Number) -> Number:
        return self.name(f"{a[0]} + {b[0]}"), self.name(f"{a[1]} + {b[1]}")

    def difference(self, a: Number, b: Number) -> Number:
        return self.name(f"{a[0]} - {b[0]}"), self.name(f"{a[1]} - {b[1]}")

    def product(self, a: Number, b: Number) -> Number:
        return self.name(f"{a[0]}*{b[0]} - {a[1]}*{b[1]}"), self.name(f"{a[0]}*{b[1]} + {a[1]}*{b[0]}")

    def quarter(self, a: Number, sign: int) -> Number:
        """a turned by a quarter: times i or -i."""
        return (a[1], self.name(f"-{a[0]}")) if sign < 0 else (self.name(f"-{a[1]}"), a[0])

    def butterfly(self, x: Sequence[Number], sign: int) -> list[Number]:
        """The transform of a few numbers."""
        n = len(x)
        if n == 1:
            return list(x)
        if n % 2:
            return self._odd(x, sign)
        even, odd = self.butterfly(x[0::2], sign), self.butterfly(x[1::2], sign)
        turned = [self._turned(odd[k], k, n, sign) for k in range(n // 2)]
        sums = [self.sum(a, b) for a, b in zip(even, turned, strict=True)]
        return sums + [self.difference(a, b) for a, b in zip(even, turned, strict=True)]

    def _turned(self, a: Number, k: int, n: int, sign: int) -> Number:
        """a times the k-th root of unity of order n, 2, 4 or 8: a quarter is free, an eighth takes two products."""
        if 4 * k % n == 0:
            return self.quarter(a, sign) if k else a
        half = self.transform.number(math.sqrt(0.5))
        other = self.quarter(a, sign)
        if 8 * k == n:
            return self.name(f"({a[0]} + {other[0]})*{half}"), self.name(f"({a[1]} + {other[1]})*{half}")
        return self.name(f"({other[0]} - {a[0]})*{half}"), self.name(f"({other[1]} - {a[1]})*{half}")

    def _odd(self, x: Sequence[Number], sign: int) -> list[Number]:
        """Sums and differences of the numbers at k and n - k share the cosines and the sines."""
        n, number = len(x), self.transform.number
        pairs = range(1, (n + 1) // 2)
        sums = [self.sum(x[k], x[n - k]) for k in pairs]
        differences = [self.difference(x[k], x[n - k]) for k in pairs]
        found = [(self.name(" + ".join([x[0][c], *(s[c] for s in sums)])),) * 2 for c in range(2)]
        out: list[Number] = [(found[0][0], found[1][0])] * n
        for j in pairs:
            cosines = [number(math.cos(2 * math.pi * (j * k % n) / n)) for k in pairs]
            sines = [number(sign * math.sin(2 * math.pi * (j * k % n) / n)) for k in pairs]
            a = [self.name(" + ".join([x[0][c], *(f"{w}*{s[c]}" for w, s in zip(cosines, sums, strict=True))])) for c in range(2)]
            b = [self.name(" + ".join(f"{w}*{d[c]}" for w, d in zip(sines, differences, strict=True))) for c in range(2)]
            out[j] = self.name(f"{a[0]} - {b[1]}"), self.name(f"{a[1]} + {b[0]}")
            out[n - j] = self.name(f"{a[0]} + {b[1]}"), self.name(f"{a[1]} - {b[0]}")
        return out


class _Transform:
    def __init__(self, phase: PhaseWriter, t: Transform) -> None:
        self.phase, self.t, self.out = phase, t, phase.out
        self.lanes = t.lanes.extent
        self.halved = t.form != "complex" and t.size % 2 == 0
        self.n = t.size // 2 if self.halved else t.size
        self.lines, self.reals, *self.parts = t.scratch
        phase.uses(t.source.buffer, t.target.buffer)
        if t.roots is not None:
            phase.uses(t.roots)

    def number(self, x: float) -> str:
        return constant_source(self.reals.element.dtype.type(x), self.reals.element)

    def write(self, *lines: str) -> None:
        self.out.extend(list(lines))

    def run(self) -> None:
        t = self.t
        loaded = self.load()
        if t.form == "from half":
            self.join_halves()
            loaded = "parts"
        kept = {"complex": "lines", "from half": "reals", "to half": "parts" if self.halved else "lines"}[t.form]
        last = self.passes(loaded, kept)
        if t.form == "to half" and self.halved:
            self.part_halves(last)
        if t.column is not None:
            self.twist()
        self.store(self.reals if t.form == "from half" else self.lines)

    # ------------------------------------------------------------ in and out

    def load(self) -> str:
        tile = self.reals if self.t.form == "to half" else self.lines
        self.move(self.t.source, self.t.sizes[0], tile, into=True)
        return "reals" if tile is self.reals else "lines"

    def store(self, tile: Buffer) -> None:
        self.move(self.t.target, self.t.sizes[1], tile, into=False)

    def move(self, block: Block2D, size: int, tile: Buffer, into: bool) -> None:
        """The lines of memory into a tile where they lie side by side, or back."""
        self.phase.used[tile] = None
        count, base = self.phase.count(self.t.lanes.upper), self.phase.expr(block.base)
        across = block.row_stride != 1
        stride = block.row_stride if across else block.column_stride
        outside, inside = f"{block.buffer.name}, {base}, {stride}", f"{tile.name}, 0, {self.lanes}"
        name = "transpose" if across else "copy_rows"
        extents = f"{count}, {size}" if across and into else f"{size}, {count}"
        self.write(f"{name}({extents}, {outside}, {inside})" if into else f"{name}({extents}, {inside}, {outside})")

    # ------------------------------------------------------------ passes

    def part(self, k: int, c: int) -> str:
        buffer = self.parts[2 * (k % 2) + c]
        self.phase.used[buffer] = None
        return buffer.name

    def passes(self, loaded: str, kept: str) -> int:
        """Writes every pass; the number of the last one."""
        if convolved(self.n) != self.n:
            return self.convolution(loaded, kept)
        return self.transform(self.n, loaded, kept, self.t.sign, self.t.scale)

    def transform(self, n: int, loaded: str, kept: str, sign: int, scale: float) -> int:
        """Writes the passes of a transform of n elements, whose factors are the first roots; the number of the last pass."""
        terms = butterflies(n)
        assert terms is not None, "other transforms are the library's"
        left, stride, first_root = n, 1, 0
        for k, count in enumerate(terms):
            parts, is_last = left // count, k == len(terms) - 1
            self.one_pass(
                k, count, parts, stride, first_root, loaded if k == 0 else "parts", kept if is_last else "parts", sign,
                scale if is_last else 1.0,
            )  # fmt: skip
            first_root += parts * (count - 1)
            left, stride = parts, stride * count
        return len(terms) - 1

    def convolution(self, loaded: str, kept: str) -> int:
        """Writes a transform as a cyclic convolution of m elements; the number of the pass that its parts lie after."""
        n, m, lanes = self.n, convolved(self.n), self.lanes
        turns = len(pass_roots(m, -1))
        self.from_parts(loaded, 0, turns, n, swapped=False)
        at = f"{lanes}*item + lane"
        for c in range(2):
            self.write(
                f"for item in range({n}, {m}):",
                f"    for lane in range({lanes}):",
                f"        {self.part(1, c)}[{at}] = {self.number(0.0)}",
            )
        last = self.transform(m, "parts", "parts", -1, 1.0)
        self.from_parts("parts", last - 1, turns + n, m, swapped=True)
        self.transform(m, "parts", "parts", -1, 1.0)
        self.scaled_by_turns(last, turns, kept)
        return last

    def from_parts(self, source: str, k: int, first: int, count: int, swapped: bool) -> None:
        """Writes products with `count` roots to where a first pass reads them, their parts exchanged where they are `swapped`.

        What is read lies where pass k would read it.
        """
        a = _Arithmetic(self)
        y = a.product(self.read(a, source, k, f"{self.lanes}*part + spot", 0), ("turn_re", "turn_im"))
        self.keep(a, "parts", 1, y[::-1] if swapped else y, f"{self.lanes}*part + spot", 0)
        self.write(*self.by_roots("part", "spot", first, count), *("        " + x for x in a.lines))

    def scaled_by_turns(self, last: int, first: int, kept: str) -> None:
        """Writes what comes out of the second transform, parts exchanged, times the roots and the scale."""
        a, t = _Arithmetic(self), self.t
        at = f"{self.lanes}*item + lane"
        x = a.name(f"{self.part(last, 1)}[{at}]"), a.name(f"{self.part(last, 0)}[{at}]")
        y = a.product(x, ("turn_re", "turn_im"))
        if t.scale != 1.0:
            y = a.name(f"{y[0]}*{self.number(t.scale)}"), a.name(f"{y[1]}*{self.number(t.scale)}")
        self.keep(a, kept, last, y, at, 0)
        self.write(*self.by_roots("item", "lane", first, self.n), *("        " + x for x in a.lines))

    def by_roots(self, element: str, line: str, first: int, count: int) -> list[str]:
        """Loops over elements, each with its root, and over the lines."""
        assert self.t.roots is not None
        return [
            f"for {element} in range({count}):",
            f"    turn = {self.t.roots.name}[{first} + {element}]",
            "    turn_re = real(turn)",
            "    turn_im = imag(turn)",
            f"    for {line} in range({self.lanes}):",
        ]

    def one_pass(
        self, k: int, terms: int, parts: int, stride: int, first_root: int, source: str, kept: str, sign: int, scale: float
    ) -> None:  # fmt: skip
        a = _Arithmetic(self)
        run = stride * self.lanes
        # Real results are two numbers of each element, one line after the other: the loop over a part is in two then.
        split = kept == "reals" and self.halved
        x = [self.read(a, source, k, f"{run}*part + {run * parts * j} + spot", run * parts * j) for j in range(terms)]
        for j, y in enumerate(a.butterfly(x, sign)):
            if j and parts > 1:
                y = a.product(y, (f"wr{j}", f"wi{j}"))
            if scale != 1.0:
                y = a.name(f"{y[0]}*{self.number(scale)}"), a.name(f"{y[1]}*{self.number(scale)}")
            self.keep(a, kept, k, y, f"{run * terms}*part + {run * j} + spot", stride * j)
        lines = [f"for part in range({parts}):"]
        if parts > 1:
            assert self.t.roots is not None
            for j in range(1, terms):
                at = f"{first_root} + {terms - 1}*part + {j - 1}"
                lines += [f"    root = {self.t.roots.name}[{at}]", f"    wr{j} = real(root)", f"    wi{j} = imag(root)"]
        if split:
            lines += [
                f"    for item in range({stride}):",
                f"        for lane in range({self.lanes}):",
                f"            spot = {self.lanes}*item + lane",
            ]
            lines += ["            " + x for x in a.lines]
        else:
            lines += [f"    for spot in range({run}):", *("        " + x for x in a.lines)]
        self.write(*lines)

    def read(self, a: _Arithmetic, source: str, k: int, at: str, offset: int) -> Number:
        if source == "lines":
            return a.parts(f"{self.lines.name}[{at}]")
        if source == "reals" and self.halved:  # elements 2 k and 2 k + 1 are the parts; only a first pass reads them
            twice = f"{2 * self.lanes}*part + {2 * offset} + spot"
            return a.name(f"{self.reals.name}[{twice}]"), a.name(f"{self.reals.name}[{twice} + {self.lanes}]")
        if source == "reals":
            return a.name(f"{self.reals.name}[{at}]"), self.number(0.0)
        return a.name(f"{self.part(k + 1, 0)}[{at}]"), a.name(f"{self.part(k + 1, 1)}[{at}]")

    def keep(self, a: _Arithmetic, kept: str, k: int, y: Number, at: str, item: int) -> None:
        if kept == "lines":
            a.lines.append(f"{self.lines.name}[{at}] = make_complex({y[0]}, {y[1]})")
        elif kept == "reals" and self.halved:
            self.phase.used[self.reals] = None
            twice = f"{2 * self.lanes}*(item + {item}) + lane"
            a.lines.append(f"{self.reals.name}[{twice}] = {y[0]}")
            a.lines.append(f"{self.reals.name}[{twice} + {self.lanes}] = {y[1]}")
        elif kept == "reals":
            self.phase.used[self.reals] = None
            a.lines.append(f"{self.reals.name}[{at}] = {y[0]}")
        else:
            a.lines += [f"{self.part(k, 0)}[{at}] = {y[0]}", f"{self.part(k, 1)}[{at}] = {y[1]}"]

    # ------------------------------------------------------------ halves of real lines

    def pairs(self, lines: Sequence[str]) -> list[str]:
        """Loops over elements p and m - p below the middle, with the root of p."""
        n = self.n
        if n < 3:
            return []
        assert self.t.roots is not None
        first = len(line_roots(n, self.t.sign))
        return [
            f"for part in range(1, {(n + 1) // 2}):",
            f"    root = {self.t.roots.name}[{first} + part]",
            "    wr1 = real(root)",
            "    wi1 = imag(root)",
            f"    for spot in range({self.lanes}):",
            f"        low = {self.lanes}*part + spot",
            f"        high = {self.lanes * n} - {self.lanes}*part + spot",
            *("        " + x for x in lines),
        ]

    def part_halves(self, last: int) -> None:
        """X[p] = E + w O and X[m - p] = conj(E - w O), with E and O the transforms of the even and the odd elements."""
        n, lanes, half = self.n, self.lanes, self.number(0.5)
        re, im, out = self.part(last, 0), self.part(last, 1), self.lines.name
        self.phase.used[self.lines] = None
        zero = self.number(0.0)
        lines = [
            f"for spot in range({lanes}):",
            f"    {out}[spot] = make_complex({re}[spot] + {im}[spot], {zero})",
            f"    {out}[{lanes * n} + spot] = make_complex({re}[spot] - {im}[spot], {zero})",
        ]
        if n % 2 == 0:
            at = f"{lanes * n // 2} + spot"
            lines.append(f"    {out}[{at}] = make_complex({re}[{at}], -{im}[{at}])")
        a = _Arithmetic(self)
        x = a.name(f"{re}[low]"), a.name(f"{im}[low]")
        y = a.name(f"{re}[high]"), a.name(f"{im}[high]")
        even = a.name(f"({x[0]} + {y[0]})*{half}"), a.name(f"({x[1]} - {y[1]})*{half}")
        odd = a.name(f"({x[1]} + {y[1]})*{half}"), a.name(f"({y[0]} - {x[0]})*{half}")
        odd = a.product(odd, ("wr1", "wi1"))
        a.lines.append(f"{out}[low] = make_complex({even[0]} + {odd[0]}, {even[1]} + {odd[1]})")
        a.lines.append(f"{out}[high] = make_complex({even[0]} - {odd[0]}, {odd[1]} - {even[1]})")
        self.write(*lines, *self.pairs(a.lines))

    def join_halves(self) -> None:
        """Z[p] = E + i O and Z[m - p] = conj(E) + i conj(O): the transform of the even elements plus i times the odd ones'.

        An odd line's is the whole transform, of which the second half is the first one's mirror image. The imaginary parts
        that a real line's transform cannot have are not read.
        """
        n, lanes, half = self.n, self.lanes, self.number(0.5)
        re, im, given = self.part(1, 0), self.part(1, 1), self.lines.name
        if not self.halved:
            self.write(
                f"for spot in range({lanes}):",
                f"    {re}[spot] = real({given}[spot])",
                f"    {im}[spot] = {self.number(0.0)}",
                f"for part in range(1, {(n + 1) // 2}):",
                f"    for spot in range({lanes}):",
                f"        number = {given}[{lanes}*part + spot]",
                f"        {re}[{lanes}*part + spot] = real(number)",
                f"        {im}[{lanes}*part + spot] = imag(number)",
                f"        {re}[{lanes * n} - {lanes}*part + spot] = real(number)",
                f"        {im}[{lanes * n} - {lanes}*part + spot] = -imag(number)",
            )
            return
        lines = [
            f"for spot in range({lanes}):",
            f"    first = real({given}[spot])",
            f"    last = real({given}[{lanes * n} + spot])",
            f"    {re}[spot] = (first + last)*{half}",
            f"    {im}[spot] = (first - last)*{half}",
        ]
        if n % 2 == 0:
            at = f"{lanes * n // 2} + spot"
            lines += [f"    number = {given}[{at}]", f"    {re}[{at}] = real(number)", f"    {im}[{at}] = -imag(number)"]
        a = _Arithmetic(self)
        x, y = ((a.name(f"real({given}[{at}])"), a.name(f"imag({given}[{at}])")) for at in ("low", "high"))
        even = a.name(f"({x[0]} + {y[0]})*{half}"), a.name(f"({x[1]} - {y[1]})*{half}")
        odd = a.name(f"({x[0]} - {y[0]})*{half}"), a.name(f"({x[1]} + {y[1]})*{half}")
        odd = a.product(odd, ("wr1", "wi1"))
        a.lines += [f"{re}[low] = {even[0]} - {odd[1]}", f"{im}[low] = {even[1]} + {odd[0]}"]
        a.lines += [f"{re}[high] = {even[0]} + {odd[1]}", f"{im}[high] = {odd[0]} - {even[1]}"]
        self.write(*lines, *self.pairs(a.lines))

    # ------------------------------------------------------------ lines cut in two

    def twist(self) -> None:
        """Each element of a column is turned by its angle in the whole line."""
        t, column = self.t, self.t.column
        assert t.roots is not None and column is not None
        first = len(line_roots(self.n, t.sign))
        a = _Arithmetic(self)
        x = a.parts(f"{self.lines.name}[{self.lanes}*part + spot]")
        w = a.parts(f"{t.roots.name}[angle + {t.columns}*part + spot]")
        z = a.product(x, w)
        a.lines.append(f"{self.lines.name}[{self.lanes}*part + spot] = make_complex({z[0]}, {z[1]})")
        self.write(
            f"angle = {first} + {self.phase.expr(column)}",
            f"for part in range({self.n}):",
            f"    for spot in range({self.lanes}):",
            *("        " + x for x in a.lines),
        )
