"""Slices, paddings, reversals and concatenations along what is spread: nothing moves but what the readers' tiles lack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import hlo
import interp
from tests.mesh.global_programs import module_text
from tests.mesh.test_partition import BYTES_ALONE, on_a_grid
from tilewright.check import compare
from tilewright.inputs import random_arrays
from tiling.mesh.network import Network
from tiling.mesh.partition import Partitioned, partition

ROWS, BOTH = '[{"x"}, {}]', '[{"x"}, {"y"}]'


def typed(shape: Sequence[int]) -> str:
    return f"tensor<{'x'.join(map(str, shape))}xf32>"


class Text:
    """Lines of a program, with the shape of each value."""

    def __init__(self, shape: Sequence[int]) -> None:
        numbers = (("zero", "0.0"), ("seven", "7.0"))
        self.lines = [f"  %{name} = stablehlo.constant dense<{n}> : tensor<f32>" for name, n in numbers]
        self.shapes: dict[str, tuple[int, ...]] = {"%a0": tuple(shape)}

    def _add(self, line: str, shape: Sequence[int]) -> str:
        name = f"%v{len(self.shapes)}"
        self.lines.append(f"  {name} = {line} -> {typed(shape)}" if " : (" in line else f"  {name} = {line} : {typed(shape)}")
        self.shapes[name] = tuple(shape)
        return name

    def slice(self, v: str, starts: Sequence[int], stops: Sequence[int]) -> str:
        box = ", ".join(f"{a}:{b}" for a, b in zip(starts, stops, strict=True))
        shape = [b - a for a, b in zip(starts, stops, strict=True)]
        return self._add(f"stablehlo.slice {v} [{box}] : ({typed(self.shapes[v])})", shape)

    def pad(self, v: str, low: Sequence[int], high: Sequence[int], fill: str = "%zero") -> str:
        shape = [n + a + b for n, a, b in zip(self.shapes[v], low, high, strict=True)]
        edges = f"low = {list(low)}, high = {list(high)}, interior = {[0] * len(shape)}"
        return self._add(f"stablehlo.pad {v}, {fill}, {edges} : ({typed(self.shapes[v])}, tensor<f32>)", shape)

    def join(self, parts: Sequence[str], axis: int) -> str:
        shape = list(self.shapes[parts[0]])
        shape[axis] = sum(self.shapes[p][axis] for p in parts)
        types = ", ".join(typed(self.shapes[p]) for p in parts)
        return self._add(f"stablehlo.concatenate {', '.join(parts)}, dim = {axis} : ({types})", shape)

    def reverse(self, v: str, axis: int) -> str:
        return self._add(f"stablehlo.reverse {v}, dims = [{axis}]", self.shapes[v])

    def reshape(self, v: str, shape: Sequence[int]) -> str:
        return self._add(f"stablehlo.reshape {v} : ({typed(self.shapes[v])})", shape)

    def add(self, a: str, b: str) -> str:
        return self._add(f"stablehlo.add {a}, {b}", self.shapes[a])

    def sum(self, values: Sequence[str]) -> str:
        made = values[0]
        for v in values[1:]:
            made = self.add(made, v)
        return made

    def module(self, mesh: str, given: str, result: str, made: str) -> hlo.Module:
        shapes = ["x".join(map(str, (*self.shapes[v], "f32"))) for v in ("%a0", result)]
        body = "\n".join([*self.lines, f"  return {result} : {typed(self.shapes[result])}"])
        module = hlo.parse(module_text(mesh, [(shapes[0], given)], body, [(shapes[1], made)]))
        hlo.verify(module)
        return module


def checked(module: hlo.Module, network: Network = BYTES_ALONE) -> Partitioned:
    """The partitioned program, which computes on a grid what the whole one does."""
    made = partition(module, network=network)
    arrays = random_arrays(module.entry, 3, module)
    for found, whole in zip(on_a_grid(made, arrays), interp.evaluate(module, *arrays), strict=True):
        assert compare(found, np.asarray(whole)).passed, made.explain()
    assert not made.kept_whole
    return made


def cross(t: Text, p: str, n: int) -> str:
    """The four neighbors of a padded square."""
    return t.sum([t.slice(p, at, (at[0] + n, at[1] + n)) for at in ((0, 1), (2, 1), (1, 0), (1, 2))])


def test_a_padded_stencil_sends_a_row_each_way() -> None:
    t = Text((16, 6))
    p = t.pad("%a0", (1, 0), (1, 0))
    made = checked(t.module('"x"=4', ROWS, t.add(t.slice(p, (0, 0), (16, 6)), t.slice(p, (2, 0), (18, 6))), ROWS))
    assert [c.kind for c in made.communications] == ["halo", "halo"] and made.sent_bytes == 2 * 6 * 4


def test_a_stencil_of_five_points_sends_no_corners() -> None:
    t = Text((16, 16))
    made = checked(t.module('"x"=4, "y"=4', BOTH, cross(t, t.pad("%a0", (1, 1), (1, 1), "%seven"), 16), BOTH))
    assert made.sent_bytes == 4 * 4 * 4


def test_a_stencil_of_nine_points_sends_corners_along() -> None:
    t = Text((16, 16))
    p = t.pad("%a0", (1, 1), (1, 1))
    around = [t.slice(p, (i, j), (i + 16, j + 16)) for i in range(3) for j in range(3)]
    made = checked(t.module('"x"=4, "y"=4', BOTH, t.sum(around), BOTH))
    assert len(made.communications) == 4 and made.sent_bytes == 2 * 4 * 4 + 2 * (4 + 2) * 4


@pytest.mark.parametrize(("n", "mesh"), [(16, '"x"=2, "y"=2'), (16, '"x"=4, "y"=2'), (18, '"x"=3, "y"=2'), (11, '"x"=4, "y"=2')])
@pytest.mark.parametrize("mode", ["wrap", "edge", "reflect"])
def test_paddings_of_what_is_there(mode: str, n: int, mesh: str) -> None:
    """As `jnp.pad` prints them: rows from the other end, the last row again, rows the other way round."""
    t, v = Text((n, n)), "%a0"
    for axis in (0, 1):
        m = t.shapes[v]

        def part(low: int, high: int, v: str = v, axis: int = axis, m: tuple[int, ...] = m) -> str:
            found = t.slice(v, [low if k == axis else 0 for k in range(2)], [high if k == axis else m[k] for k in range(2)])
            if mode != "edge":
                return found
            shape = t.shapes[found]
            return t.reshape(t.reshape(found, (*shape[:axis], 1, *shape[axis:])), shape)

        before, behind = {"wrap": ((n - 2, n), (0, 2)), "edge": ((0, 1), (n - 1, n)), "reflect": ((1, 3), (n - 3, n - 1))}[mode]
        ends = [part(*before), part(*behind)]
        if mode == "reflect":
            ends = [t.reverse(e, axis) for e in ends]
        v = t.join([ends[0], v, ends[1]], axis)
    made = checked(t.module(mesh, BOTH, cross(t, v, n), BOTH))
    tile = -(-n // 2) * 4
    assert made.sent_bytes <= 12 * tile and {c.kind for c in made.communications} == {"halo"}


def test_a_roll_sends_what_leaves_a_tile() -> None:
    t = Text((16, 6))
    made = checked(t.module('"x"=4', ROWS, t.join([t.slice("%a0", (15, 0), (16, 6)), t.slice("%a0", (0, 0), (15, 6))], 0), ROWS))
    assert [c.kind for c in made.communications] == ["halo"] and made.sent_bytes == 6 * 4


def test_differences_of_the_inside_need_no_padding() -> None:
    t = Text((16, 6))
    inside = [t.slice("%a0", (k, 0), (k + 14, 6)) for k in range(3)]
    made = checked(t.module('"x"=4', ROWS, t.sum(inside), ROWS))
    assert made.sent_bytes == 2 * 6 * 4


def test_a_view_that_is_wanted_whole_is_gathered_small() -> None:
    t = Text((64, 6))
    made = checked(t.module('"x"=4', ROWS, t.slice("%a0", (62, 0), (64, 6)), "[{}, {}]"))
    assert made.sent_bytes < 64 * 6 * 4 // 4


@pytest.mark.parametrize("seed", range(60))
def test_chains_of_views(seed: int) -> None:
    """Slices, paddings, reversals and concatenations one after the other, then a sum of two of them, on several meshes."""
    chance = np.random.default_rng(seed)
    shape = [int(n) for n in chance.integers(6, 14, 2)]
    t, v, seen = Text(shape), "%a0", ["%a0"]
    for _ in range(int(chance.integers(1, 6))):
        n, axis = t.shapes[v], int(chance.integers(2))
        kind = chance.choice(["slice", "pad", "roll", "reverse", "double"])
        if kind == "slice" and n[axis] > 3:
            a = [int(chance.integers(0, 3)) if k == axis else 0 for k in range(2)]
            v = t.slice(v, a, [n[k] - int(chance.integers(0, 2)) for k in range(2)])
        elif kind == "pad":
            v = t.pad(v, chance.integers(-1, 4, 2).tolist(), chance.integers(-1, 4, 2).tolist(), "%seven")
        elif kind == "reverse":
            v = t.reverse(v, axis)
        elif kind in ("roll", "double"):
            at = int(chance.integers(1, n[axis])) if n[axis] > 1 else 0
            stops = [at if k == axis else n[k] for k in range(2)]
            parts = [t.slice(v, [at if k == axis else 0 for k in range(2)], n), t.slice(v, (0, 0), stops)]
            if kind == "double":
                parts = [parts[0], v, parts[1]]
            parts = [p for p in parts if 0 not in t.shapes[p]]
            v = t.join(parts, axis) if len(parts) > 1 else v
        seen.append(v)
    a, b = v, seen[int(chance.integers(len(seen)))]
    n = [min(x, y) for x, y in zip(t.shapes[a], t.shapes[b], strict=True)]
    result = t.add(t.slice(a, (0, 0), n), t.slice(b, (0, 0), n))
    mesh = str(chance.choice(['"x"=2, "y"=2', '"x"=4, "y"=2', '"x"=3, "y"=1']))
    made = str(chance.choice([BOTH, ROWS, "[{}, {}]", '[{"y"}, {"x"}]']))
    partition_of = checked(t.module(mesh, str(chance.choice([BOTH, ROWS, '[{}, {"x"}]'])), result, made), Network())
    assert partition_of.mesh.size in (3, 4, 8)
