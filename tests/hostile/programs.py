"""Whole programs by their seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hlo.types import ELEMENT_TYPES, default_storage_range
from tests.hostile import elementwise as e
from tests.hostile import folds as f
from tests.hostile import structured as s
from tests.hostile.writer import COMPLEX, Declines, Val, Writer
from tilewright.check import float_info

Step = Callable[[Writer], Val]
INSIDE: tuple[Step, ...] = (
    e.unary, e.unary, e.binary, e.binary, e.binary, e.integer, e.convert, e.choose, e.clamp, e.bitcast, e.parts,
    e.transpose, e.reshape,
    e.broadcast, e.slices, e.pad, e.reverse, e.concatenate, e.iota, f.reduce, f.windows, f.dot, s.dynamic_slice,
    s.dynamic_update_slice, s.gather,
)  # fmt: skip
KINDS: tuple[Step, ...] = (
    *INSIDE, f.reduce, f.reduce, f.arg_reduce, f.windows, f.dot, f.dot, f.convolution, f.convolution, f.sort, s.gather, s.scatter,
    s.scatter, s.select_and_scatter, s.dynamic_update_slice, s.branches, s.loop, s.loop,
)  # fmt: skip
TRIES = 40


def one(w: Writer, kinds: Sequence[Step]) -> bool:
    """Draws steps until one fits; whether one did. What a step that declined has written is taken back."""
    for _ in range(TRIES):
        lines, values, arguments = len(w.lines), len(w.values), len(w.arguments)
        try:
            made = w.random.choice(kinds)(w)
        except Declines:
            del w.lines[lines:], w.values[values:], w.arguments[arguments:]
            continue
        if made.elems > 2 * w.most_elems:
            del w.lines[lines:], w.values[values:], w.arguments[arguments:]
            continue
        w.values.append(made)
        return True
    return False


@dataclass(frozen=True)
class Program:
    """A program's text, its arguments with how each is drawn, and its results."""

    seed: int
    text: str
    arguments: tuple[tuple[Val, str], ...]
    results: tuple[Val, ...]
    coarsest: str | None  # of the float types that something was rounded to: what is computed from it is no more precise

    def arrays(self, draw: int = 0) -> list[np.ndarray]:
        """One array for each argument."""
        return [drawn(v, how, np.random.default_rng([self.seed, k, draw])) for k, (v, how) in enumerate(self.arguments)]


def program(seed: int) -> Program:
    """The program of a seed: three to fourteen steps and one to four results."""
    w = Writer(seed, lambda writer: one(writer, INSIDE))
    for _ in range(w.random.randint(1, 2)):
        w.argument(w.shape(), w.element())
    for _ in range(w.random.randint(2, 14)):
        one(w, KINDS)
    inputs = {v.name for v, _ in w.arguments}
    made = [v for v in w.values if v.name not in inputs] or w.values
    results = list(dict.fromkeys([made[-1], *w.random.sample(made, min(len(made), w.random.randint(0, 3)))]))
    return Program(seed, w.program(results), tuple(w.arguments), tuple(results), coarsest(w.rounded))


def coarsest(elements: set[str]) -> str | None:
    """The float type with the largest unit in the last place, complex types by their parts."""
    reals = [COMPLEX.get(e, e) for e in elements]
    return max(reals, key=lambda e: float(float_info(ELEMENT_TYPES[e].dtype).eps), default=None)


def drawn(v: Val, how: str, rng: np.random.Generator) -> np.ndarray:
    """Numbers of a value's type (see `Writer.argument`)."""
    element = ELEMENT_TYPES[v.element]
    dtype = element.dtype
    if v.element == "i1":
        return rng.integers(0, 2, v.shape).astype(bool)
    if v.is_complex:
        return (rng.normal(size=v.shape) + 1j * rng.normal(size=v.shape)).clip(-4, 4).astype(dtype)
    if v.is_integer:
        low, high = default_storage_range(element)
        if how == "index":
            return rng.integers(max(low, -3), min(high, 20), v.shape, endpoint=True).astype(dtype)
        if how == "small":
            return rng.integers(max(low, -4), min(high, 4), v.shape, endpoint=True).astype(dtype)
        storage = dtype if element.bits >= 8 else np.dtype(np.int8)
        anywhere = rng.integers(low, high, v.shape, storage.type, endpoint=True)
        ends = np.array([low, low + 1, high - 1, high, 0, 1], storage)
        return np.where(rng.random(v.shape) < 0.5, ends[rng.integers(0, len(ends), v.shape)], anywhere).astype(dtype)
    if how == "small":
        return rng.integers(-3, 4, v.shape).astype(dtype)
    found = rng.normal(size=v.shape).clip(-4, 4)
    if how in ("special", "ends"):
        info = float_info(dtype)
        tiny, least = float(info.smallest_normal), float(info.smallest_subnormal)
        odd = [np.nan, np.inf, -np.inf, 0.0, -0.0, tiny, -tiny, least, -least, 3 * least, 1.0]
        if how == "ends":
            odd += [float(info.max), float(info.min)] * 3
        found = np.where(rng.random(v.shape) < 0.4, np.array(odd)[rng.integers(0, len(odd), v.shape)], found)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        return found.astype(dtype)


def machine_choice(seed: int) -> random.Random:
    """The choices about a program that are not the program."""
    return random.Random(f"machine {seed}")
