"""Where the factors of a sum of products lie for the micro-kernel: in place, in a window's tile, or packed.

    left[m, k] at base + m * step + sum over the depth loops of k_v * steps[v]

A window's tile keeps each element of a convolution's input once, its padding as zeros:

    x[i s + w d - p] if it is inside, else 0     ->     tile[q], q = i s + w d        (i and w move the same dimension)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from hlo.module import Value
from hlo.types import ElementType
from indexing.expr import Const, Expr, FloorDiv, Interval, Mod, Var, as_expr, simplify
from tiling.loops.affine import address, linear
from tiling.loops.element_ir import Apply, Load, Node, Renamer, all_nodes, loads, own_expressions
from tiling.loops.ir import Block2D, Buffer, Loop, Nest, Scope, Step
from tiling.loops.staging import row_major, stage_into
from tiling.loops.variables import counted

__all__ = ["Apart", "Place", "copied_element", "expressions", "in_place", "is_narrow", "moved", "split_by_groups", "window_tile"]


@dataclass(frozen=True, eq=False)
class Place:
    """An operand in memory: element at `base` + sum of variable * steps[variable].

    `fill` puts it there, in the task before all products; `fill_block` before each block of k. A right operand lies in panels of
    columns, `panel_stride` apart. A window's tile has the element at `index`.
    """

    buffer: Buffer
    base: Expr
    steps: Mapping[Var, int]
    fill: tuple[Step, ...] = ()
    fill_block: tuple[Nest, ...] = ()
    panel_stride: int = 0
    index: tuple[Expr, ...] = ()


@dataclass(frozen=True, eq=False)
class Apart:
    """Sums that are not made in their place: where they are made, what puts them there, and which element lies at which place."""

    out: Block2D
    store: Nest
    places: tuple[Var, ...]
    element: tuple[Expr, ...]


def is_narrow(element: object) -> bool:
    """Whether a type is of floats of 16 bits: their sums are kept in f32, and so are copies of what is widened anyway."""
    return isinstance(element, ElementType) and element.name in ("bf16", "f16")


def moved(node: Node) -> Load | None:
    """What a node reads where it is no more than one element moved; None where something is computed, or nothing is read."""
    return None if any(isinstance(n, Apply) for n in all_nodes([node])) else next(iter(loads([node])), None)


def copied_element(node: Node, operand: Value, buffer_of: Callable[[Load], Buffer]) -> ElementType | None:
    """The type of a factor's copy: of what is read where the copy only moves it, of the operand where it is computed."""
    read = moved(node)
    element = operand.tensor.element if read is None else buffer_of(read).element
    return element if isinstance(element, ElementType) else None


def in_place(node: Node, buffer: Buffer | None, wanted: Sequence[Var], ranges: Mapping[Var, Interval]) -> Place | None:
    """A node that is a load whose address is linear in the wanted variables; None for any other."""
    if not isinstance(node, Load) or buffer is None:
        return None
    found = linear(address(buffer, node.index, ranges), wanted)
    return None if found is None else Place(buffer, found[0], dict(zip(wanted, found[1], strict=True)))


def _forms(e: Expr, local: frozenset[Var]) -> list[dict[Var, int]] | None:
    """The linear parts in local variables that an expression consists of, those inside of divisions by themselves."""
    own: dict[Var, int] = {}
    found: list[dict[Var, int]] = []
    for atom, k in e.terms:
        if isinstance(atom, Var):
            if atom in local:
                own[atom] = k
        elif any(v in local for v in atom.variables):
            if not isinstance(atom, (FloorDiv, Mod)) or not isinstance(atom.divisor, int):
                return None
            inner = _forms(atom.numerator, local)
            if inner is None:
                return None
            found += inner
    return [own, *found] if own else found


def expressions(root: Node) -> list[Expr]:
    """Every index expression and condition below a node."""
    return [e for n in all_nodes([root]) for e in own_expressions(n)]


def _groups(node: Node, local: Sequence[Var]) -> list[dict[Var, int]] | None:
    """Which variables move the node together, in which proportion; None where that differs from place to place."""
    groups: list[dict[Var, int]] = []
    for e in expressions(node):
        forms = _forms(e, frozenset(local))
        if forms is None:
            return None
        for form in forms:
            common = gcd(*form.values())
            one = {v: k // common for v, k in form.items()}
            if min(one.values()) < 0:
                one = {v: -k for v, k in one.items()}
            same = [g for g in groups if g.keys() & one.keys()]
            if any(g != one for g in same):
                return None
            if not same:
                groups.append(one)
    return groups if all(k > 0 for g in groups for k in g.values()) else None


def window_tile(
    name: str, tag: str, element: ElementType, node: Node, local: Sequence[Loop], buffers: Mapping[Value, Buffer],
    ranges: dict[Var, Interval], pad_elems: int, most_bytes: int, innermost: Var | None = None,
) -> Place | None:  # fmt: skip
    """A tile of thread scratch that holds each element that the local loops read once; None where they do not overlap.

    The loops must begin at 0. `most_bytes` is the largest tile that is made. It lies as the memory does, but that `innermost`
    comes last where one is given: what is read by a division of it is then there for each of its values.
    """
    moving = {x.variable: x for x in local if x.extent > 1}
    groups = _groups(node, list(moving))
    read = next(iter(loads([node])), None)
    if groups is None or read is None or max(map(len, groups), default=0) < 2 or any(1 not in g.values() for g in groups):
        return None
    memory = address(read.buffer or buffers[read.value], read.index, ranges)
    step_of = {v: abs(k) for v, k in memory.terms if isinstance(v, Var)}
    one_of = [next(v for v, k in g.items() if k == 1) for g in groups]
    order = sorted(range(len(groups)), key=lambda i: (innermost in groups[i], -step_of.get(one_of[i], 1 << 62)))
    renaming: dict[Var, Expr] = {x.variable: Const(0) for x in local}
    loops: list[Loop] = []
    for number, i in enumerate(order):
        size = 1 + sum(k * (moving[v].extent - 1) for v, k in groups[i].items())
        last = simplify(sum((k * moving[v].upper for v, k in groups[i].items()), as_expr(0)), ranges)
        loops.append(counted(f"w{number}_{tag}", size, ranges, last=last))
        renaming[one_of[i]] = as_expr(loops[-1].variable)
    layout = row_major(element, [(x.variable, x.extent) for x in loops]).with_rows_apart(pad_elems)
    buffer = layout.buffer(name, Scope.THREAD)
    if buffer.size_bytes > most_bytes:
        return None
    fill = stage_into(buffer, layout, loops, Renamer(renaming, ranges, {}).node(node))
    steps = {v: k * buffer.strides[d] for d, i in enumerate(order) for v, k in groups[i].items()}
    index = tuple(sum((k * as_expr(v) for v, k in groups[i].items()), as_expr(0)) for i in order)
    return Place(buffer, Const(0), {x.variable: steps.get(x.variable, 0) for x in local}, (fill,), index=index)


def split_by_groups(loop: Loop, nodes: Sequence[Node], ranges: dict[Var, Interval]) -> tuple[Loop, Loop] | None:
    """(groups, inside a group) of a loop that nodes divide by a number: i = g * size + j, so that i // size = g."""
    sizes = {
        atom.divisor
        for n in nodes
        for e in expressions(n)
        for atom, _ in e.terms
        if isinstance(atom, FloorDiv) and isinstance(atom.divisor, int) and loop.variable in atom.variables
    }
    if len(sizes) != 1 or not loop.is_whole:
        return None
    size = next(iter(sizes))
    if loop.extent % size or loop.extent == size:
        return None
    return counted(f"g{loop.variable.name}", loop.extent // size, ranges), counted(f"j{loop.variable.name}", size, ranges)
