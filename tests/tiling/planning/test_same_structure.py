"""Sets of stages have one number where they compute the same, and others where what they read is wired otherwise."""

from __future__ import annotations

from collections.abc import Hashable

import hlo
from tiling.loops.names import Names
from tiling.planning.same_structure import Structures
from tiling.planning.stages import find_stages
from tiling.program.flatten import flatten

TEXT = """func.func @main(%a: T, %b: T) -> (T, T, T, T) {
  %inner = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (T, T) -> T
  %first = stablehlo.dot_general %a, %inner, contracting_dims = [1] x [0] : (T, T) -> T
  %second = stablehlo.dot_general %b, %inner, contracting_dims = [1] x [0] : (T, T) -> T
  %other = stablehlo.dot_general %b, %a, contracting_dims = [1] x [0] : (T, T) -> T
  %like_first = stablehlo.dot_general %b, %other, contracting_dims = [1] x [0] : (T, T) -> T
  %less = stablehlo.subtract %a, %b : T
  %more = stablehlo.subtract %b, %less : T
  %same = stablehlo.subtract %less, %b : T
  %x = stablehlo.dot_general %more, %a, contracting_dims = [1] x [0] : (T, T) -> T
  %y = stablehlo.dot_general %same, %a, contracting_dims = [1] x [0] : (T, T) -> T
  %s = stablehlo.add %first, %second : T
  %t = stablehlo.add %s, %like_first : T
  return %t, %x, %y, %inner : T, T, T, T
}""".replace("T", "tensor<8x8xf32>")


def test_what_reads_what_decides() -> None:
    stages = find_stages(flatten(hlo.parse(TEXT)), {})
    of = {s.values[0].name: s for s in stages}
    structures = Structures({v: s for s in stages for v in s.values})

    def number(*names: str, stored: tuple[str, ...] = ()) -> int:
        return structures.number([of[n] for n in names], frozenset(of[n].values[0] for n in stored))

    assert number("inner", "first") != number("inner", "second")  # a (a b) and b (a b)
    assert number("inner", "first") == number("other", "like_first")  # b (b a): the same of other values
    assert number("inner", "first") != number("inner", "first", stored=("inner",))
    assert number("x") != number("y")  # what is computed in place takes its operands in another order
    assert number("inner") == number("other")


def test_what_is_known_of_values_decides() -> None:
    """What a loop passes on, what calls find made, and whether memory counts most: a schedule may differ by each."""
    stages = find_stages(flatten(hlo.parse(TEXT)), {})
    (inner,) = [s for s in stages if s.values[0].name == "inner"]
    (value,), first = inner.values, inner.op.operands[0]
    numbers: dict[Hashable, int] = {}

    def number(**known: object) -> int:
        names = Names([])
        for name, about in known.items():
            setattr(names, name, about)
        return Structures({v: s for s in stages for v in s.values}, numbers, names).number([inner], frozenset([value]))

    plain = number()
    found = [number(carried={value: first}), number(kept=frozenset([first])), number(is_lean=True)]
    assert len({plain, *found}) == 4
    assert number() == plain, "the same in another program"
