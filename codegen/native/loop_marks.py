"""What LLVM is told of a kernel's loops, so that one pipeline vectorises them and then writes them out.

LLVM writes loops of some dozen turns out before it vectorises what is left; they would stay scalar. So short innermost loops are
marked as not to be written out, and what becomes of one that is vectorised as free to be. A loop around others is marked where it
has so few turns that it would be written out with all that it holds. A mark that is still there at the end is on a loop that was
not vectorised.

Two pipelines remain for kernels in which one would do less: where a short loop has a running value (LLVM makes several of it side
by side, but not where it is told to write nothing out), and where loops of few turns lie around one that is some vectors long (a
window's), or whose ends they say, as all of them had better be written out.

Where many streams lie a multiple of a page apart, as the parts of one large tensor do, their lines share one set of each cache.
A loop over more of them than the set has ways would lose a line between its first vector and the next: it is told to do a whole
line of each in one turn.

Elements of 8 or 16 bits at places that are read from memory have no instruction that loads a vector of them. A loop that
computes nothing else is told to stay scalar: putting the elements into vectors, one by one, takes longer than storing them. So is
a loop that updates elements some way apart, and computes little: a vector of them is loaded and stored one by one.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

from codegen.kernel.typed import (
    Apply,
    Argument,
    Constant,
    First,
    Link,
    Loop,
    Meanwhile,
    Set,
    Test,
    TypedExpression,
    TypedStatement,
    Variable,
)

__all__ = [
    "INNER", "LINES", "OUTER", "SCALAR", "has_innermost", "is_for_one_pipeline", "loops_of_lines", "loops_that_look_up",
    "loops_that_update_apart", "marks", "unmarked", "with_nodes", "without_marks",
]  # fmt: skip

INNER, OUTER, LINES, SCALAR = "tilewright.inner", "tilewright.outer", "tilewright.lines", "tilewright.scalar"
"""Marks of loops: a short innermost one, one of few turns around others, one that does whole lines (also of the first kind), and
a long one that stays scalar."""

_FOR_ONE = "; for one pipeline\n"

FEW_TURNS = 32
"""From which on a loop is too long for LLVM to write it out with the loops in it: it may be 300 instructions then."""

SHORT = 128
"""Turns from which on an innermost loop is too long to be written out before it is vectorised, whatever is in it."""

SOME_VECTORS = 64
"""Turns up to which an innermost loop is written out whole, so that the one around it is the innermost then."""

MUCH = 600
"""Operations in all turns of a loop, addresses apart, from which on LLVM does not write it out: its limit is 300 instructions,
and some of them may be left out."""

LINE_BYTES, PAGE_BYTES, WAYS = 64, 4096, 8
"""Of a first cache: streams a multiple of the second apart share a set, which has room for so many of their lines."""

LITTLE = 2
"""Operations on floats for an element, which are no reason to put it into a vector."""

GATHERED_BYTES = 4
"""Of the shortest elements that a CPU gathers into a vector."""

_READERS = Apply | First | Link | Set | Test

_PLACE = re.compile(r'^!(\d+) = !\{ !"((?:tilewright\.(?:inner|outer|lines|scalar)[+]?)+) \d+" \}$', re.MULTILINE)
_NUMBER = re.compile(r"^!(\d+) = ", re.MULTILINE)
_LOOP = re.compile(r", !llvm\.loop !\d+")
_DISABLE = '!{!"llvm.loop.unroll.disable"}'


def marks(body: Iterable[TypedStatement], direct: frozenset[str]) -> dict[Loop, str] | None:
    """The marks of a kernel's loops, none of them the tasks'. None where two pipelines run.

    Variables that are `direct` (`TypedKernel`) keep no value from turn to turn.
    """
    found: dict[Loop, str] = {}
    for tasks in _loops(body):
        for loop in (x for x in _all_loops(tasks.body) if isinstance(x, Loop)):
            turns = _turns(loop)
            if _is_innermost(loop.body):
                if turns is not None and turns < SHORT:
                    found[loop] = INNER
                    if _runs_on(loop, direct):
                        return None
            elif turns is None or turns < FEW_TURNS:
                found[loop] = OUTER
                inner = [x for x in _all_loops(loop.body) if _is_innermost(x.body)]
                if turns is not None and (any(_is_written_out(x, turns) for x in inner) or _bounds_one(loop)):
                    return None
    return found


def loops_of_lines(body: Iterable[TypedStatement]) -> set[Loop]:
    """The innermost loops that read or write more streams a multiple of a page apart than a set of the first cache has ways.

    None that asks something: of the streams that its branches name an iteration has few.
    """
    innermost = (x for x in _all_loops(body) if isinstance(x, Loop) and _is_innermost(x.body))
    loops = [x for x in innermost if not any(isinstance(s, Test) for s in x.body)]
    return {x for x in loops if _most_in_a_set(x.body) > WAYS}


def loops_that_look_up(body: Iterable[TypedStatement]) -> set[Loop]:
    """The long innermost loops that load short elements at places which they load, and compute no floats."""
    found: set[Loop] = set()
    for loop in (x for x in _all_loops(body) if isinstance(x, Loop) and _is_innermost(x.body)):
        turns = _turns(loop)
        if turns is not None and turns < SHORT:
            continue
        loaded: set[str] = set()
        for s in loop.body:
            if isinstance(s, Set) and (any(_accesses(s.value)) or loaded & _read(s.value)):
                loaded.add(s.name)
        short = [x for x in _accesses(tuple(loop.body)) if x.function is operator.getitem and _is_short(x)]
        looks_up = any(loaded & _read(x.operands[1]) or any(_accesses(x.operands[1])) for x in short)
        if looks_up and not any(map(_is_on_floats, _applied(tuple(loop.body)))):
            found.add(loop)
    return found


def loops_that_update_apart(body: Iterable[TypedStatement]) -> set[Loop]:
    """The long innermost loops that load and store elements of one buffer some way apart, and compute little with each."""
    found: set[Loop] = set()
    for loop in (x for x in _all_loops(body) if isinstance(x, Loop) and _is_innermost(x.body)):
        turns = _turns(loop)
        if (turns is not None and turns < SHORT) or any(isinstance(s, Test) for s in loop.body):
            continue
        accesses = [*_accesses(tuple(loop.body))]
        stores = [x for x in accesses if x.function is operator.setitem]
        loaded = {x.operands[0] for x in accesses if x.function is operator.getitem}
        apart = all(x.operands[0] in loaded and _step(x.operands[1], loop.variable) > 1 for x in stores)
        if stores and apart and sum(map(_is_on_floats, _applied(tuple(loop.body)))) <= LITTLE:
            found.add(loop)
    return found


def _step(index: TypedExpression, variable: str) -> int:
    """By how much an index grows from turn to turn; 0 where that is no number, or where its text does not say."""
    if isinstance(index, Variable):
        return int(index.name == variable)
    if not isinstance(index, Apply) or len(index.operands) != 2:
        return 0
    first, last = index.operands
    if index.function in (operator.add, operator.sub) and variable not in _read(last):
        return _step(first, variable)
    if index.function is operator.add and variable not in _read(first):
        return _step(last, variable)
    by = first.value if index.function is operator.mul and isinstance(first, Constant) else 0
    return int(by) * _step(last, variable)


def _is_short(load: Apply) -> bool:
    buffer = load.operands[0]
    return isinstance(buffer, Argument) and buffer.kind.item_bytes < GATHERED_BYTES


def _is_on_floats(x: Apply) -> bool:
    return x.function not in (operator.getitem, operator.setitem) and str(x.kind).startswith("float")


def _most_in_a_set(body: Iterable[TypedStatement]) -> int:
    """The most places of one buffer that lie a multiple of a page apart."""
    places: dict[tuple[bool, Argument, Any], set[int]] = {}
    for access in _accesses(tuple(body)):
        buffer, index = access.operands[:2]
        if isinstance(buffer, Argument):
            rest, offset = _offset(index)
            is_store = access.function is operator.setitem
            places.setdefault((is_store, buffer, rest), set()).add(offset * buffer.kind.item_bytes)
    return max((max(Counter(p % PAGE_BYTES for p in x).values()) for x in places.values()), default=0)


def _accesses(x: Any) -> Iterator[Apply]:
    """The loads and stores in a statement or an expression."""
    return (a for a in _applied(x) if a.function in (operator.getitem, operator.setitem))


def _applied(x: Any) -> Iterator[Apply]:
    """The operations in a statement or an expression."""
    if isinstance(x, Apply):
        yield x
    if isinstance(x, tuple):
        for y in x:
            yield from _applied(y)
    elif isinstance(x, _READERS):
        for f in fields(x):
            yield from _applied(getattr(x, f.name))


def _offset(index: TypedExpression) -> tuple[TypedExpression | None, int]:
    """An index as something and a number of elements behind it."""
    if isinstance(index, Constant):
        return None, int(index.value)
    if isinstance(index, Apply) and index.function in (operator.add, operator.sub):
        first, last = index.operands
        if isinstance(last, Constant):
            return first, int(last.value) if index.function is operator.add else -int(last.value)
    return index, 0


def _is_written_out(loop: Loop | Meanwhile, turns: int) -> bool:
    """Whether an innermost loop has so few turns that it is written out, and is so little then that one of `turns` around it may
    be, too."""
    own = _turns(loop)
    if own is None or own > SOME_VECTORS:
        return False
    return turns * sum(x.variables is None for x in _applied(tuple(loop.body))) < MUCH


def _bounds_one(loop: Loop) -> bool:
    """Whether a loop in this one begins or ends where its variable says: written out, those are numbers."""
    return any(loop.variable in _read(x.start) | _read(x.stop) for x in _all_loops(loop.body) if isinstance(x, Loop))


def _runs_on(loop: Loop, direct: frozenset[str]) -> bool:
    """Whether a variable that the loop assigns is read before it is assigned, in the turn after."""
    ours = {s.name for s in _statements(loop.body) if isinstance(s, Set)} - direct
    known: set[str] = set()
    for s in loop.body:
        if ours & _read(s) - known:
            return True
        if isinstance(s, Set):
            known.add(s.name)
        elif isinstance(s, Test):
            known |= _assigned(s.then) & _assigned(s.otherwise)
    return False


def _assigned(body: Iterable[TypedStatement]) -> set[str]:
    """The variables that statements assign at their top."""
    return {s.name for s in body if isinstance(s, Set)}


def _statements(body: Iterable[TypedStatement]) -> Iterator[TypedStatement]:
    for s in body:
        yield s
        if isinstance(s, Test):
            yield from _statements((*s.then, *s.otherwise))


def _read(x: Any) -> set[str]:
    """The variables that a statement or an expression reads."""
    if isinstance(x, Variable):
        return {x.name}
    if isinstance(x, tuple):
        return set().union(*map(_read, x))
    return set().union(*(_read(getattr(x, f.name)) for f in fields(x))) if isinstance(x, _READERS) else set()


def _loops(body: Iterable[TypedStatement]) -> Iterator[Loop | Meanwhile]:
    """The outermost loops."""
    for s in body:
        if isinstance(s, Loop | Meanwhile):
            yield s
        elif isinstance(s, Test):
            yield from _loops((*s.then, *s.otherwise))


def _all_loops(body: Iterable[TypedStatement]) -> Iterator[Loop | Meanwhile]:
    for loop in _loops(body):
        yield loop
        yield from _all_loops(loop.body)


def _is_innermost(body: Iterable[TypedStatement]) -> bool:
    """Whether a loop of this body holds no other: functions that are called for what they do have loops."""
    for s in body:
        if isinstance(s, Loop | Meanwhile) or (isinstance(s, Apply) and s.function is not operator.setitem):
            return False
        if isinstance(s, Test) and not _is_innermost((*s.then, *s.otherwise)):
            return False
    return True


def _turns(loop: Loop | Meanwhile) -> int | None:
    """How often a loop turns, where its text says so."""
    if not isinstance(loop, Loop) or not isinstance(loop.start, Constant) or not isinstance(loop.stop, Constant):
        return None
    return max(0, -(-int(loop.stop.value - loop.start.value) // loop.step))


def is_for_one_pipeline(text: str) -> bool:
    """Whether a module's text, as `with_nodes` gave it, is that of a kernel for one pipeline."""
    return text.startswith(_FOR_ONE)


def has_innermost(text: str) -> bool:
    """Whether an optimised module has marks on innermost loops: they were not vectorised."""
    return f'!{{!"{INNER}"}}' in text


def with_nodes(text: str, is_for_one: bool = True, vectors_a_line: int = 1) -> str:
    """The text of a module as llvmlite prints it, with the nodes in it that LLVM knows for those of the marks.

    Loops that do whole lines do `vectors_a_line` of their turns side by side.

    >>> made = with_nodes('br label %head, !llvm.loop !0\\n!0 = !{ !"tilewright.outer 1" }\\n')
    >>> print(*made.splitlines()[2:4], sep="\\n")
    !0 = distinct !{!0, !1, !3}
    !1 = !{!"llvm.loop.unroll.disable"}
    """
    text = _FOR_ONE + text if is_for_one else text
    numbers = [int(n) for n in _NUMBER.findall(text)]
    if not _PLACE.search(text):
        return text
    disable, inner, outer, vectors, rest, is_vector, once, lines, scalar = (max(numbers) + 1 + k for k in range(9))
    told = {INNER: f"!{disable}, !{inner}, !{vectors}, !{rest}", OUTER: f"!{disable}, !{outer}", LINES: f"!{lines}"}
    told[SCALAR] = f"!{scalar}"
    told[f"{INNER}+{LINES}"] = f"{told[INNER]}, {told[LINES]}"
    text = _PLACE.sub(lambda m: f"!{m[1]} = distinct !{{!{m[1]}, {told[m[2]]}}}", text)
    return text + "\n".join((
        f"!{disable} = {_DISABLE}",
        f'!{inner} = !{{!"{INNER}"}}',
        f'!{outer} = !{{!"{OUTER}"}}',
        # what LLVM itself says of vectors' loops, and of those for what is left over
        f'!{vectors} = !{{!"llvm.loop.vectorize.followup_vectorized", !{is_vector}, !{once}}}',
        f'!{rest} = !{{!"llvm.loop.vectorize.followup_epilogue", !{is_vector}, !{once}}}',
        f'!{is_vector} = !{{!"llvm.loop.isvectorized", i32 1}}',
        f'!{once} = !{{!"llvm.loop.unroll.runtime.disable"}}',
        f'!{lines} = !{{!"llvm.loop.interleave.count", i32 {vectors_a_line}}}',
        f'!{scalar} = !{{!"llvm.loop.vectorize.width", i32 1}}',
        "",
    ))  # fmt: skip


def without_marks(text: str) -> str:
    """A module's text, as `with_nodes` gave it, of a kernel that is not for one pipeline after all: no loop is told of anything.

    >>> without_marks(with_nodes('br label %head, !llvm.loop !0\\n!0 = !{ !"tilewright.outer 1" }\\n')).splitlines()[0]
    'br label %head'
    """
    return _LOOP.sub("", text.removeprefix(_FOR_ONE))


def unmarked(text: str) -> str:
    """The optimised module with its marks taken off: what is left of its loops may be written out.

    >>> nodes = '!4 = distinct !{!4, !5, !6}', '!5 = !{!"llvm.loop.unroll.disable"}', '!6 = !{!"tilewright.outer"}'
    >>> print(unmarked("\\n".join(nodes)))
    !4 = distinct !{!4, !6}
    !5 = !{!"llvm.loop.unroll.disable"}
    !6 = !{!"tilewright.outer"}
    """
    marks = set(re.findall(r'^(!\d+) = !\{!"tilewright\.(?:inner|outer)"\}$', text, re.MULTILINE))
    disable = re.search(rf"^(!\d+) = {re.escape(_DISABLE)}$", text, re.MULTILINE)
    if not marks or disable is None:
        return text

    def freed(node: re.Match[str]) -> str:
        operands = node[2].split(", ")
        kept = [x for x in operands if x != disable[1]] if marks & set(operands) else operands
        return f"{node[1]}{', '.join(kept)}}}"

    return re.sub(r"^(!\d+ = distinct !\{)(.*)\}$", freed, text, flags=re.MULTILINE)
