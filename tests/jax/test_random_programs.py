"""Random JAX programs on small whole numbers: kernels give what `jax.jit` gives, to the last bit.

Sums and products of such numbers are exact in any order, so nothing has to be tolerated. Sizes lie on both sides of those from
which loops are cut, split or written out, up to rows of 1,000 elements, which programs written by hand for tests seldom have.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import tilewright
import tiling
from tests.machines import any_machine

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax

SIZES = [1, 2, 3, 5, 7, 8, 12, 16, 17, 31, 33, 64, 100, 128, 255, 256, 257, 300, 513, 1000]
MOST_ELEMS = 60_000
MOST_MADE_ELEMS = 250_000
Array = Any


class Maker:
    """Makes a program of random steps: each takes a value that is there, and gives another one."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.steps: list[Callable[[Array], Array]] = [
            self.unary, self.binary, self.binary, self.rolled, self.flipped, self.padded, self.cropped, self.transposed,
            self.reshaped, self.sliced, self.joined, self.taken, self.taken_along, self.looked_up, self.looked_up,
            self.sliced_somewhere, self.written_somewhere, self.updated, self.updated, self.scanned, self.sorted, self.folded,
            self.normed, self.product, self.masked, self.windows, self.loop, self.carried, self.branch, self.gradient,
            self.rows_somewhere, self.greatest, self.converted, self.repeated, self.one_hot, self.two_results, self.segments,
            self.rows_written, self.ordered, self.bits, self.complex_numbers, self.convolution, self.until, self.interleaved,
        ]  # fmt: skip

    def shape(self) -> tuple[int, ...]:
        while True:
            found = tuple(self.choose.choice(SIZES) for _ in range(self.choose.choice([1, 1, 2, 2, 2, 3])))
            if prod(found) <= MOST_ELEMS:
                return found

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        source = np.random.default_rng(self.choose.randrange(1 << 30))
        first = self.shape()
        shapes = [first, *(self.choose.choice([first, self.shape()]) for _ in range(self.choose.randint(0, 2)))]
        types = [np.float32, np.float32, np.int32, np.float16]
        return [source.integers(-9, 9, s).astype(self.choose.choice(types)) for s in shapes]

    def program(self, *arguments: Array) -> tuple[Array, ...]:
        self.values = list(arguments)
        for _ in range(self.choose.randint(3, 9)):
            made = self.choose.choice(self.steps)(self.one())
            made = jnp.clip(made, -50, 50)
            if 0 < made.size <= MOST_MADE_ELEMS:
                self.values.append(made)
        last = self.values[len(arguments) :] or self.values
        return tuple(last[-self.choose.randint(1, 3) :])

    # ---------------------------------------------------------------- operands

    def one(self, rank: int = 0) -> Array:
        found = [v for v in self.values[-6:] if rank in (0, v.ndim)]
        return self.choose.choice(found) if found else jnp.arange(prod((5,) * rank), dtype=jnp.float32).reshape((5,) * rank)

    def like(self, x: Array) -> Array:
        """Another value of the same shape and type."""
        found = [v for v in self.values if v.shape == x.shape and v.dtype == x.dtype]
        if found and self.choose.random() < 0.7:
            return self.choose.choice(found)
        steps = lax.broadcasted_iota(jnp.int32, x.shape, self.axis(x)) % self.choose.randint(2, 9)
        return steps.astype(x.dtype) + self.choose.randint(-3, 3)

    def axis(self, x: Array) -> int:
        return self.choose.randrange(x.ndim)

    def places(self, x: Array, n: int) -> Array:
        """Numbers of [0, n), one for each element."""
        return (jnp.abs(x.astype(jnp.int32)) * 7 + 3) % n

    def place(self, n: int) -> Array:
        return self.places(jnp.sum(self.one().astype(jnp.int32)), n)

    def wide(self, x: Array) -> Array:
        """Of a type in which what is summed up stays exact."""
        return x if x.dtype in (jnp.int32, jnp.float32) else x.astype(jnp.float32)

    # ---------------------------------------------------------------- elements and where they lie

    def unary(self, x: Array) -> Array:
        return self.choose.choice([jnp.abs, jnp.negative, lambda v: v * 2 + 1, lambda v: jnp.maximum(v, 0), jnp.sign])(x)

    def binary(self, x: Array) -> Array:
        return self.choose.choice([jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum])(x, self.like(x))

    def rolled(self, x: Array) -> Array:
        return jnp.roll(x, self.choose.randint(-5, 5), self.axis(x))

    def flipped(self, x: Array) -> Array:
        return jnp.flip(x, self.axis(x))

    def padded(self, x: Array) -> Array:
        axis = self.axis(x)
        most = min(3, x.shape[axis] - 1)
        widths = [(0, 0)] * x.ndim
        widths[axis] = self.choose.randint(0, most), self.choose.randint(0, most)
        return jnp.pad(x, widths, mode=self.choose.choice(["constant", "edge", "wrap", "reflect", "symmetric"]))

    def cropped(self, x: Array) -> Array:
        axis = self.axis(x)
        most = min(2, (x.shape[axis] - 1) // 2)
        config = [(0, 0, 0)] * x.ndim
        config[axis] = self.choose.randint(-most, 3), self.choose.randint(-most, 3), self.choose.choice([0, 0, 1])
        return lax.pad(x, jnp.array(2, x.dtype), config)

    def transposed(self, x: Array) -> Array:
        return jnp.transpose(x, self.choose.sample(range(x.ndim), x.ndim))

    def reshaped(self, x: Array) -> Array:
        if x.ndim > 1:
            return x.reshape(self.choose.choice([(-1,), (-1, x.shape[-1])]))
        parts = [n for n in (2, 3, 4, 5, 8) if x.shape[0] % n == 0]
        n = self.choose.choice(parts or [1])
        return x.reshape(self.choose.choice([(n, -1), (-1, n)]))

    def sliced(self, x: Array) -> Array:
        ends = [sorted((self.choose.randrange(n), self.choose.randrange(n))) for n in x.shape]
        return x[tuple(slice(a, b + 1, self.choose.choice([1, 1, 1, 2, 3])) for a, b in ends)]

    def joined(self, x: Array) -> Array:
        return jnp.concatenate(self.choose.choice([[x, self.like(x)], [self.like(x), x, x]]), self.axis(x))

    def interleaved(self, x: Array) -> Array:
        axis = self.axis(x)
        return jnp.stack([x, self.like(x)], axis + 1).reshape(*x.shape[:axis], -1, *x.shape[axis + 1 :])

    def bits(self, x: Array) -> Array:
        x = x.astype(jnp.int32)
        y = self.like(x)
        return self.choose.choice([lambda: x ^ y, lambda: x & y, lambda: x << 2, lambda: x >> 1, lambda: lax.population_count(x),
                                   lambda: x // 3, lambda: x % -5, lambda: lax.clz(x)])()  # fmt: skip

    def masked(self, x: Array) -> Array:
        i = lax.broadcasted_iota(jnp.int32, x.shape, self.axis(x))
        inside = (i >= self.choose.randint(0, 5)) & (i < self.choose.randint(3, x.shape[-1] + 4))
        return jnp.where(inside, x, self.like(x))

    def repeated(self, x: Array) -> Array:
        return jnp.repeat(x, self.choose.choice([2, 3]), self.axis(x))

    def one_hot(self, x: Array) -> Array:
        return jax.nn.one_hot(self.places(x.reshape(-1)[:300], 20), 20, axis=self.choose.choice([0, -1]), dtype=x.dtype)

    def converted(self, x: Array) -> Array:
        return x.astype(self.choose.choice([jnp.int32, jnp.float32, jnp.float32, jnp.int8, jnp.bfloat16, jnp.float16]))

    # ---------------------------------------------------------------- places known at run time

    def taken(self, x: Array) -> Array:
        axis = self.axis(x)
        at = self.places(self.one().reshape(-1)[: self.choose.choice([5, 64, 300, 1000])], x.shape[axis])
        at = self.choose.choice([lambda v: v, lambda v: jnp.roll(v, 1), lambda v: jnp.pad(v, (1, 2), mode="wrap")])(at)
        if x.size // x.shape[axis] * at.size > MOST_MADE_ELEMS:
            return x
        return jnp.take(x, at, axis, mode=self.choose.choice(["clip", "wrap"]))

    def taken_along(self, x: Array) -> Array:
        axis = self.axis(x)
        return jnp.take_along_axis(x, self.places(self.rolled(self.like(x)), x.shape[axis]), axis)

    def looked_up(self, x: Array) -> Array:
        """t[i], where i asks for its neighbours or where it is."""
        table, axis = self.one(1), self.axis(x)
        around = jnp.roll(x, 1, axis) + jnp.roll(x, -2, axis) + x
        half = lax.broadcasted_iota(jnp.int32, x.shape, axis) < x.shape[axis] // 2
        return table[self.places(self.choose.choice([x, around, around, jnp.where(half, x, 0)]), table.shape[0])]

    def sliced_somewhere(self, x: Array) -> Array:
        axis = self.axis(x)
        return lax.dynamic_slice_in_dim(x, self.place(x.shape[axis]), self.choose.randint(1, x.shape[axis]), axis)

    def written_somewhere(self, x: Array) -> Array:
        axis = self.axis(x)
        part = lax.slice_in_dim(self.like(x), 0, self.choose.randint(1, x.shape[axis]), axis=axis)
        return lax.dynamic_update_slice_in_dim(x, part, self.place(x.shape[axis]), axis)

    def rows_somewhere(self, x: Array) -> Array:
        rows = x.reshape(x.shape[0], -1)
        n = self.choose.randint(1, rows.shape[1])
        return jax.vmap(lambda row, at: lax.dynamic_slice_in_dim(row, at, n))(rows, self.places(rows[:, 0], rows.shape[1]))

    def rows_written(self, x: Array) -> Array:
        rows, other = x.reshape(x.shape[0], -1), self.like(x).reshape(x.shape[0], -1)
        n = self.choose.randint(1, rows.shape[1])
        at = self.places(other[:, 0], rows.shape[1])
        return jax.vmap(lambda row, new, i: lax.dynamic_update_slice_in_dim(row, new[:n], i, 0))(rows, other, at)

    def updated(self, x: Array) -> Array:
        x = self.wide(x)
        y, method = self.like(x), self.choose.choice(["set", "add", "max", "min"])
        kind = self.choose.choice(["slice", "row", "steps", "places"])
        if kind == "slice":
            a, b = sorted((self.choose.randint(0, x.shape[0]), self.choose.randint(0, x.shape[0])))
            return getattr(x.at[a:b], method)(y[a:b])
        if kind == "row":
            return getattr(x.at[self.choose.randrange(x.shape[0])], method)(y[0])
        if kind == "steps":
            return getattr(x.at[..., :: self.choose.choice([2, 3])], method)(self.choose.randint(-3, 3))
        at = self.places(self.one().reshape(-1)[: self.choose.choice([3, 40, 300])], x.shape[0])
        if method == "set":  # which of two is there in the end is nobody's to say
            at = jnp.unique(at, size=at.size, fill_value=x.shape[0] + 5)
        if x.size // x.shape[0] * at.size > MOST_MADE_ELEMS:
            return x
        return getattr(x.at[at], method)(jnp.take(y, at * 3 % x.shape[0], 0), mode="drop")

    # ---------------------------------------------------------------- folds, scans and orders

    def scanned(self, x: Array) -> Array:
        x, axis = self.wide(x), self.axis(x)
        reverse = self.choose.random() < 0.5
        return self.choose.choice([lax.cumsum, lax.cummax, lax.cummin])(x, axis=axis, reverse=reverse)

    def sorted(self, x: Array) -> Array:
        x, axis = self.wide(x), self.axis(x)
        if self.choose.random() < 0.5:
            return jnp.sort(x, axis=axis)
        return jnp.argsort(x, axis=axis, stable=True).astype(x.dtype)

    def folded(self, x: Array) -> Array:
        x, axis = self.wide(x), self.axis(x)
        fold = self.choose.choice([jnp.sum, jnp.max, jnp.min, jnp.argmax, jnp.argmin])
        return jnp.atleast_1d(fold(x, axis=axis, keepdims=self.choose.random() < 0.6).astype(x.dtype))

    def normed(self, x: Array) -> Array:
        x, axis = self.wide(x), self.axis(x)
        return x - jnp.max(x, axis=axis, keepdims=True) + jnp.clip(jnp.sum(x, axis=axis, keepdims=True), -9, 9)

    def greatest(self, x: Array) -> Array:
        values, at = lax.top_k(self.wide(x), self.choose.randint(1, min(8, x.shape[-1])))
        return values + at.astype(values.dtype)

    def product(self, x: Array) -> Array:
        if x.ndim != 2 or max(x.shape) > 600:
            return x
        a, b = (jnp.clip(self.wide(v), -3, 3) for v in (x, self.like(x)))
        return self.choose.choice([lambda: a @ b.T, lambda: a.T @ b])()

    def windows(self, x: Array) -> Array:
        x, axis = self.wide(x), self.axis(x)
        sizes, steps = [1] * x.ndim, [1] * x.ndim
        sizes[axis], steps[axis] = min(x.shape[axis], self.choose.choice([2, 3, 5])), self.choose.choice([1, 1, 2])
        fold, start = self.choose.choice([(lax.max, -100), (lax.add, 0), (lax.min, 100)])
        return lax.reduce_window(x, jnp.array(start, x.dtype), fold, sizes, steps, self.choose.choice(["SAME", "VALID"]))

    def two_results(self, x: Array) -> Array:
        """A maximum and its place, as one reduction with a body of its own, added up."""
        x, axis = lax.stop_gradient(self.wide(x)), self.axis(x)  # JAX cannot differentiate it where places have no tangents

        def later(p: tuple[Array, Array], q: tuple[Array, Array]) -> tuple[Array, Array]:
            takes = (q[0] > p[0]) | ((q[0] == p[0]) & (q[1] < p[1]))
            return jnp.where(takes, q[0], p[0]), jnp.where(takes, q[1], p[1])

        places = lax.broadcasted_iota(x.dtype, x.shape, axis)
        value, at = lax.reduce((x, places), (jnp.array(-1000, x.dtype), jnp.array(0, x.dtype)), later, (axis,))
        return jnp.atleast_1d(value + at)

    def segments(self, x: Array) -> Array:
        x, n = self.wide(x), self.choose.choice([3, 17, 100])
        fold = self.choose.choice([jax.ops.segment_sum, jax.ops.segment_max, jax.ops.segment_min])
        return fold(x, self.places(self.like(x).reshape(x.shape[0], -1)[:, 0], n), n)

    def ordered(self, x: Array) -> Array:
        x, axis = self.wide(x), self.axis(x)
        keys, values = lax.sort((x, self.like(x)), dimension=axis, is_stable=True, num_keys=self.choose.choice([1, 2]))
        return values - keys

    def convolution(self, x: Array) -> Array:
        if x.ndim != 2 or min(x.shape) < 5:
            return x
        image = jnp.clip(self.wide(x), -5, 5)[None, :, :, None]
        kernel = (jnp.arange(18).reshape(3, 3, 1, 2) % 5 - 2).astype(image.dtype)
        steps, padding = (self.choose.choice([1, 2]), 1), self.choose.choice(["SAME", "VALID"])
        found = lax.conv_general_dilated(image, kernel, steps, padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return found[0, :, :, self.choose.randrange(2)]

    def complex_numbers(self, x: Array) -> Array:
        x = self.wide(x).astype(jnp.float32)
        z = x + 1j * self.like(x)
        w = jnp.roll(z, 1, self.axis(x)).conj()
        made = self.choose.choice([
            lambda: z * w, lambda: jnp.cumsum(z, self.axis(x)), lambda: jnp.where(x > 0, z, w), lambda: jnp.flip(z, 0) - w,
            lambda: z @ w.T if x.ndim == 2 and max(x.shape) < 300 else z,
        ])()  # fmt: skip
        return self.choose.choice([jnp.real, jnp.imag, lambda v: jnp.clip(v.real, -50, 50) - jnp.clip(v.imag, -50, 50)])(made)

    # ---------------------------------------------------------------- control flow, and gradients

    def until(self, x: Array) -> Array:
        """Steps while a sum is above a bound that falls, six at the most."""
        x = self.wide(x)

        def goes_on(c: tuple[Array, Array]) -> Array:
            return (jnp.sum(c[0]) > -c[1]) & (c[1] < 6)

        return lax.while_loop(goes_on, lambda c: (jnp.clip(jnp.roll(c[0], 1, 0) - 1, -50, 50), c[1] + 1), (x, 0))[0]

    def carried(self, x: Array) -> Array:
        if x.ndim != 2 or x.shape[0] > 300:
            return x
        x, kind = self.wide(x), self.choose.choice(["sum", "choice", "table"])

        def body(c: Array, row: Array) -> tuple[Array, Array]:
            if kind == "sum":
                c = jnp.clip(c + row, -50, 50)
                return c, jnp.roll(c, 1)
            if kind == "choice":
                c = jnp.where(row > c, row, c - 1)
                return c, c * row
            return jnp.clip(c[self.places(row, c.shape[0])] + row, -20, 20), c

        last, rows = lax.scan(body, self.like(x)[0], x, reverse=self.choose.random() < 0.3)
        return jnp.clip(rows, -50, 50) + last

    def loop(self, x: Array) -> Array:
        x = self.wide(x)
        y, kind = self.like(x), self.choose.choice(["roll", "row", "choice"])

        def body(i: Array, v: Array) -> Array:
            if kind == "roll":
                return jnp.clip(jnp.roll(v, 1, 0) + y - i.astype(v.dtype), -50, 50)
            if kind == "row":
                return v.at[i % v.shape[0]].set(y[i * 2 % v.shape[0]])
            return jnp.where(v > i.astype(v.dtype), v - 1, jnp.flip(v, 0) + 1)

        return lax.fori_loop(0, self.choose.randint(2, 6), body, x)

    def branch(self, x: Array) -> Array:
        return lax.cond(self.place(2) == 0, self.rolled, lambda v: v * 2, x)

    def gradient(self, x: Array) -> Array:
        if x.dtype != jnp.float32:
            return x
        of = self.choose.choice([self.rolled, self.sliced, self.transposed, self.taken, self.padded, self.masked, self.looked_up])
        state = self.choose.getstate()

        def total(v: Array) -> Array:
            self.choose.setstate(state)  # it may be traced more than once
            made = of(v).astype(jnp.float32)
            return jnp.sum(made * (lax.broadcasted_iota(jnp.int32, made.shape, 0) % 3).astype(made.dtype))

        return jax.grad(total)(x)


def program(seed: int) -> Callable[..., tuple[Array, ...]]:
    return lambda *arguments: Maker(seed + 1).program(*arguments)


def check(made: Callable[..., Any], arrays: Sequence[Array], monkeypatch: pytest.MonkeyPatch) -> None:
    """What kernels give of a program is what `jax.jit` gives."""
    monkeypatch.setenv("TILEWRIGHT_FIRST_CALL", "compiled")
    expected = jax.tree.leaves(jax.jit(made)(*arrays))
    for found, want in zip(jax.tree.leaves(tilewright.jit(made)(*arrays)), expected, strict=True):
        assert found.dtype == want.dtype
        np.testing.assert_array_equal(np.asarray(found, np.float64), np.asarray(want, np.float64))


@pytest.mark.parametrize("seed", range(0, 120, 2))
def test_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check(program(seed), Maker(seed).arrays(), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 3000, 2))
def test_more_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check(program(seed), Maker(seed).arrays(), monkeypatch)


def check_hlo(seed: int) -> None:
    """The same program as XLA's HLO text, before and after XLA's optimizer: with fusions, and with ops that JAX does not make."""
    arrays = Maker(seed).arrays()
    lowered = jax.jit(program(seed), keep_unused=True).lower(*arrays)
    compiled = lowered.compile()
    expected = compiled(*arrays)
    for text in (lowered.as_text(dialect="hlo"), compiled.as_text()):
        for found, want in zip(codegen.compile(hlo.parse(text))(*map(np.asarray, arrays)), expected, strict=True):
            np.testing.assert_array_equal(np.asarray(found, np.float64), np.asarray(want, np.float64))


@pytest.mark.parametrize("seed", [*range(700002, 700026, 2), 700270, 700574, 700684])  # the last three had refuted schedules
def test_random_programs_as_hlo(seed: int) -> None:
    check_hlo(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(710000, 710600, 2))
def test_more_random_programs_as_hlo(seed: int) -> None:
    check_hlo(seed)


def check_proofs(seed: int) -> None:
    """No plan is refuted, on a machine drawn by lot: of JAX's own text, and of what XLA's optimizer makes of it."""
    lowered = jax.jit(program(seed), keep_unused=True).lower(*Maker(seed).arrays())
    for text in (lowered.as_text(), lowered.compile().as_text()):
        for fusion in tiling.plan(hlo.parse(text), supports=codegen.supports, machine=any_machine(seed)).fusions:
            proof = tiling.prove(fusion)
            assert not proof.refuted, (fusion.schedule, proof.refuted)


# The last ones had right schedules that were refuted, or questions that could not be asked.
@pytest.mark.parametrize("seed", [*range(800001, 800021), 720192, 720782, 730180, 730218, 750045, 750199, 750218, 810023])
def test_plans_of_random_programs_are_proved(seed: int) -> None:
    check_proofs(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(810001, 810601))
def test_more_plans_of_random_programs_are_proved(seed: int) -> None:
    check_proofs(seed)


class Lookups:
    """A program of elements looked up at places that are chosen, shifted and looked up themselves, side by side in some way."""

    def __init__(self, seed: int) -> None:
        self.choose, self.source = random.Random(seed), np.random.default_rng(seed)
        self.rows, self.columns = self.choose.choice([3, 8, 64, 70, 300]), self.choose.choice([7, 16, 64, 130, 256])
        self.size = self.choose.choice([50, 50, 5, 1])
        self.state = self.choose.getstate()

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        tables = [self.source.integers(-9, 9, s).astype(np.float32) for s in ((self.size, self.size), (self.size, self.columns))]
        shapes = [(self.rows,), (self.rows,), (self.rows,), (self.rows, self.columns), (self.rows, self.columns)]
        return [*tables, *(self.source.integers(-3, self.size + 4, s).astype(np.int32) for s in shapes)]

    def program(self, square: Array, table: Array, *places: Array) -> Array:
        self.choose.setstate(self.state)
        self.square, self.table, self.given = square, table, [self.wide(p) for p in places]
        parts = [self.value() for _ in range(self.choose.randint(2, 4))]
        beside = [lambda: jnp.stack(parts, -1).reshape(self.rows, -1), lambda: jnp.stack(parts, 1), lambda: jnp.stack(parts)]
        made = self.choose.choice([*beside, lambda: jnp.concatenate(parts, 1)])()
        made = self.choose.choice([lambda: made, lambda: -made * 2, lambda: made.at[..., 0].add(1.0)])()
        return self.choose.choice([lambda: made, lambda: jnp.concatenate([made, made[..., ::-1]], -1)])()

    def wide(self, p: Array) -> Array:
        return p if p.ndim == 2 else jnp.broadcast_to(p[:, None], (self.rows, self.columns))

    def place(self, depth: int = 0) -> Array:
        kind = self.choose.choice(["given", "given", "chosen", "looked up", "counted", "shifted", "next"])
        if depth > 2 or kind == "given":
            return self.choose.choice(self.given)
        if kind == "counted":
            return lax.broadcasted_iota(jnp.int32, (self.rows, self.columns), self.choose.choice([0, 1]))
        a = self.place(depth + 1)
        if kind == "chosen":
            return jnp.where(self.choose.choice(self.given) > 2, a, self.place(depth + 1))
        if kind == "looked up":
            return self.square.at[a, self.place(depth + 1)].get(mode="clip").astype(jnp.int32) + 5
        if kind == "shifted":
            k = self.choose.randrange(self.columns)
            return jnp.concatenate([a[:, k:], self.place(depth + 1)[:, :k]], 1)
        return a + 1

    def value(self, depth: int = 0) -> Array:
        kind = self.choose.choice(["pair", "pair", "column", "rows", "slice", "both"])
        if kind == "column":
            return self.table.at[self.place(), lax.broadcasted_iota(jnp.int32, (self.rows, self.columns), 1)].get(mode="clip")
        if kind == "rows":
            return self.table.at[self.choose.choice(self.given)[:, 0]].get(mode="clip")
        if kind == "slice":
            long = jnp.concatenate([self.table] * (self.rows // self.size + 2))
            return lax.dynamic_slice(long, (self.choose.choice(self.given)[0, 0], 0), (self.rows, self.columns))
        if kind == "both" and depth < 2:
            return self.choose.choice([jnp.add, jnp.subtract, jnp.maximum])(self.value(depth + 1), self.value(depth + 1))
        return self.square.at[self.place(), self.place()].get(mode=self.choose.choice(["clip", "fill"]), fill_value=0)


def check_lookups(seed: int) -> None:
    made = Lookups(seed)
    arrays, lowered = made.arrays(), jax.jit(made.program, keep_unused=True).lower(*Lookups(seed).arrays())
    executable = codegen.compile(hlo.parse(lowered.as_text()))
    np.testing.assert_array_equal(executable(*arrays)[0], lowered.compile()(*arrays))
    for fusion in executable.plan.fusions:
        assert not tiling.prove(fusion).refuted, fusion.schedule


@pytest.mark.parametrize("seed", [*range(8), 1001, 1009, 1013])  # the last three were wrong, or refuted
def test_random_lookups(seed: int) -> None:
    check_lookups(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1020, 1400))
def test_more_random_lookups(seed: int) -> None:
    check_lookups(seed)
