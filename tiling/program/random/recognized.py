"""Which functions of a program are Threefry's rounds: those that compute the same sums, rotations and exclusive ors.

JAX prints the generator as a function of four tensors, for some targets as twenty rounds, for others as a loop over groups of
four whose rotations and keys change places. Its body is followed once, on words as unknowns; numbers are computed. What comes
out is in a form that two functions share only where they are equal for all words:

    word      = number + sum of multiples of atoms, modulo 2^32
    atom      = an argument | exclusive or of words and a number | word rotated by a number
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hlo.module import Block, DenseArray, Op
from hlo.registry import Literal, Structure
from hlo.types import ELEMENT_TYPES, TensorType
from tiling.program.random.threefry import rounds

__all__ = ["is_threefry"]

Called = Callable[[Op], Block | None]
"""The body of the function that an op stands for."""

_SIZE = 1 << 32
_MOST_OPS = 600  # that are followed: the rounds are some 250, with their constants
_WORD = ELEMENT_TYPES["ui32"]


class _OtherError(Exception):
    """The function does something else."""


@dataclass(frozen=True)
class _Word:
    """number + sum over the atoms of how often each is added; an atom by itself is once itself."""

    number: int
    terms: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class _Shifted:
    word: _Word
    by: int
    to_left: bool


_Known = _Word | _Shifted | np.ndarray


def is_threefry(block: Block, called: Called) -> bool:
    """Whether a function of (key, key, x, x) gives both words of Threefry's block for them, whatever they are.

    Arguments are spread to the results' shape as NumPy does it; `called` gives the bodies of the functions that it calls.
    """
    if len(block.arguments) != 4 or not block.ops or len(block.ops[-1].operands) != 2:
        return False
    types = [v.type for v in (*block.arguments, *block.ops[-1].operands)]
    if not all(isinstance(t, TensorType) and t.is_static and t.element == _WORD for t in types) or types[4] != types[5]:
        return False
    words = _Words()
    arguments = [words.atom(("argument", k)) for k in range(4)]
    try:
        found = _Followed(words, called).results(block, arguments)
    except _OtherError:
        return False
    return tuple(found) == rounds(arguments[:2], arguments[2:], words.add, words.xor, words.rotated, _Word)


@dataclass(eq=False)
class _Words:
    """The atoms that words are made of: each has a number of its own; and which words are exclusive ors, of what."""

    atoms: dict[Hashable, int] = field(default_factory=dict)
    combined: dict[_Word, tuple[int, frozenset[_Word]]] = field(default_factory=dict)

    def atom(self, key: Hashable) -> _Word:
        return _Word(0, ((self.atoms.setdefault(key, len(self.atoms)), 1),))

    def add(self, a: _Word, b: _Word) -> _Word:
        terms = dict(a.terms)
        for atom, times in b.terms:
            terms[atom] = (terms.get(atom, 0) + times) % _SIZE
        return _Word((a.number + b.number) % _SIZE, tuple(sorted((k, n) for k, n in terms.items() if n)))

    def xor(self, *parts: _Word) -> _Word:
        number, inside = 0, frozenset[_Word]()
        for part in parts:
            if part.terms:
                own, more = self.combined.get(part, (0, frozenset({part})))
                number, inside = number ^ own, inside ^ more
            else:
                number ^= part.number
        if not inside:
            return _Word(number)
        if len(inside) == 1 and not number:
            return next(iter(inside))
        found = self.atom(("xor", number, inside))
        self.combined[found] = number, inside
        return found

    def rotated(self, word: _Word, by: int) -> _Word:
        return self.atom(("rotated", word, by))


class _Followed:
    """What blocks compute of words and numbers. Raises _OtherError at the first op that Threefry does not have."""

    def __init__(self, words: _Words, called: Called) -> None:
        self.words, self.called, self.left = words, called, _MOST_OPS

    def results(self, block: Block, arguments: Sequence[_Known]) -> list[_Known]:
        known = dict(zip(block.arguments, arguments, strict=True))
        for op in block.ops:
            self.left -= 1
            if self.left < 0 or any(v not in known for v in op.operands):
                raise _OtherError
            operands = [known[v] for v in op.operands]
            if op.definition.is_terminator:
                return operands
            callee = self.called(op)
            if callee is not None:
                made = self.results(callee, operands)
            elif op.definition.structure is Structure.LOOP:
                made = self._turned(op, operands)
            else:
                made = [self._one(op, operands)]
            known.update(zip(op.results, made, strict=True))
        raise _OtherError

    def _turned(self, op: Op, state: list[_Known]) -> list[_Known]:
        """A loop whose condition is about numbers; every turn takes of the ops that are left."""
        while True:
            (goes_on,) = self.results(op.regions[0], state)
            if not isinstance(goes_on, np.ndarray) or goes_on.size != 1:
                raise _OtherError
            if not goes_on.item():
                return state
            state = self.results(op.regions[1], state)

    def _one(self, op: Op, operands: list[_Known]) -> _Known:
        if isinstance(op.definition.semantics, Literal):
            dense: DenseArray = op.attr("value")
            if dense.is_splat or dense.array.size <= 8:
                return np.asarray(dense.array)
            raise _OtherError
        arrays = [x for x in operands if isinstance(x, np.ndarray)]
        if len(arrays) == len(operands):
            return _of_numbers(op, arrays)
        name = op.name.removeprefix("stablehlo.")
        if name == "broadcast_in_dim":
            (x,) = operands
            last = range(op.results[0].rank - op.operands[0].rank, op.results[0].rank)
            if isinstance(x, _Word) and tuple(op.attr("broadcast_dimensions")) == tuple(last):
                return x  # as NumPy spreads it, and so does what spreads that once more
        elif name in ("shift_left", "shift_right_logical"):
            x, by = operands[0], _number(operands[1])
            if isinstance(x, _Word) and 0 < by < 32:
                return _Shifted(x, by, name == "shift_left")
        elif name == "or":
            a, b = operands
            if isinstance(a, _Shifted) and isinstance(b, _Shifted) and a.word == b.word and a.to_left is not b.to_left:
                left = a if a.to_left else b
                if a.by + b.by == 32:
                    return self.words.rotated(left.word, left.by)
        elif name in ("add", "xor") and op.results[0].tensor.element == _WORD:
            a, b = (x if isinstance(x, _Word | _Shifted) else _Word(_number(x)) for x in operands)
            if isinstance(a, _Word) and isinstance(b, _Word):
                return self.words.add(a, b) if name == "add" else self.words.xor(a, b)
        raise _OtherError


def _number(x: _Known) -> int:
    """The number that an array repeats."""
    if not isinstance(x, np.ndarray) or not x.size or (x != x.flat[0]).any():
        raise _OtherError
    return int(x.flat[0])


_ON_NUMBERS: dict[str, Callable[..., np.ndarray]] = {"add": np.add, "subtract": np.subtract}
_COMPARED: dict[str, Callable[..., np.ndarray]] = {"LT": np.less, "NE": np.not_equal}


def _of_numbers(op: Op, arrays: list[np.ndarray]) -> np.ndarray:
    """Counters, rotations and what is made of them: integers that the program has as constants."""
    name, result = op.name.removeprefix("stablehlo."), op.results[0].tensor
    if any(a.dtype.kind not in "iub" for a in arrays) or result.dtype.kind not in "iub" or not result.is_static:
        raise _OtherError
    if name in _ON_NUMBERS:
        with np.errstate(over="ignore"):
            return np.asarray(_ON_NUMBERS[name](*arrays), result.dtype)
    if name == "compare" and op.attr("comparison_direction") in _COMPARED:
        return np.asarray(_COMPARED[str(op.attr("comparison_direction"))](*arrays))
    if name == "convert" and arrays[0].dtype.kind != "b":
        return arrays[0].astype(result.dtype)
    if name == "slice":
        bounds = zip(op.attr("start_indices"), op.attr("limit_indices"), op.attr("strides"), strict=True)
        return arrays[0][tuple(slice(*b) for b in bounds)]
    if name == "reshape":
        return arrays[0].reshape(result.static_shape)
    if name == "broadcast_in_dim":
        return np.broadcast_to(np.asarray(_number(arrays[0]), result.dtype), result.static_shape)
    raise _OtherError
