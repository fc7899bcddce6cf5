"""Threefry's rounds are one function of an element, however a program writes them; what is nearly Threefry stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from codegen.lib.random_words import threefry2x32
from interp.rules.random import threefry_2x32
from tiling.elements.code_size import code_size
from tiling.loops.element_ir import all_nodes
from tiling.loops.ir import Nest
from tiling.program.as_module import as_module

Rotations = Sequence[Sequence[int]]
ROTATIONS: Rotations = ((13, 15, 26, 6), (17, 29, 16, 24))
SUM = 0x1BD11BDA


class Text:
    """Lines of a function on words of one shape; what is made has a name of its own."""

    def __init__(self, shape: str) -> None:
        self.type, self.lines = f"tensor<{shape}ui32>", list[str]()

    def line(self, text: str) -> str:
        self.lines.append(f"%v{len(self.lines)} = stablehlo.{text}")
        return f"%v{len(self.lines) - 1}"

    def op(self, name: str, *operands: str) -> str:
        return self.line(f"{name} {', '.join(operands)} : {self.type}")

    def number(self, n: int) -> str:
        return self.line(f"constant dense<{n}> : {self.type}")

    def spread(self, v: str, given: str, dims: str = "") -> str:
        return self.line(f"broadcast_in_dim {v}, dims = [{dims}] : ({given}) -> {self.type}")


def unrolled(
    t: Text, k: Sequence[str], x: Sequence[str], rotations: Rotations = ROTATIONS, number: int = SUM, groups: int = 5,
    combine: str = "xor",
) -> tuple[str, str]:  # fmt: skip
    keys = (k[0], k[1], t.op("xor", t.op("xor", k[0], k[1]), t.number(number)))
    a, b = t.op("add", x[0], keys[0]), t.op("add", x[1], keys[1])
    for group in range(groups):
        for by in rotations[group % 2]:
            a = t.op("add", a, b)
            left, right = t.op("shift_left", b, t.number(by)), t.op("shift_right_logical", b, t.number(32 - by))
            b = t.op(combine, a, t.op("or", left, right))
        a = t.op("add", a, keys[(group + 1) % 3])
        b = t.op("add", t.op("add", b, keys[(group + 2) % 3]), t.number(group + 1))
    return a, b


def module_of(t: Text, given: Sequence[str], results: Sequence[str]) -> hlo.Module:
    names = ("%k0", "%k1", "%x0", "%x1")
    arguments = ", ".join(f"{n}: {g}" for n, g in zip(names, given, strict=True))
    called = f"({', '.join(given)}) -> ({t.type}, {t.type})"
    return hlo.parse(f"""func.func @main({arguments}) -> ({t.type}, {t.type}) {{
  %r:2 = func.call @words({", ".join(names)}) : {called}
  return %r#0, %r#1 : {t.type}, {t.type}
}}
func.func private @words({arguments}) -> ({t.type}, {t.type}) {{
  {chr(10).join(t.lines)}
  return {", ".join(results)} : {t.type}, {t.type}
}}""")


def spread_out(t: Text, given: Sequence[str]) -> list[str]:
    """The arguments in the results' shape, as NumPy spreads them."""
    rank = t.type.count("x")
    found = []
    for name, g in zip(("%k0", "%k1", "%x0", "%x1"), given, strict=True):
        own = g.count("x")
        found.append(name if g == t.type else t.spread(name, g, ", ".join(str(rank - own + k) for k in range(own))))
    return found


def check(module: hlo.Module, is_one: bool) -> None:
    """Kernels, the planned program written out again, and the evaluator agree; and whether the rounds are one function."""
    rng = np.random.default_rng(len(str(module)))
    given = [rng.integers(0, 1 << 32, v.shape, dtype=np.uint32) for v in module.function().arguments]
    expected = interp.evaluate(module, *given)
    plan = tiling.plan(module, supports=codegen.supports)
    assert any(op.name == "random.threefry2x32" for op in plan.program.ops) is is_one
    plain = as_module(plan.program, module)
    hlo.verify(plain)
    for found in (codegen.compile(module)(*given), interp.evaluate(plain, *given)):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)
    if is_one:
        k, m, x, y = (np.atleast_1d(v) for v in given)
        for a, b in zip(expected, threefry_2x32((k, m), (x, y)), strict=True):
            np.testing.assert_array_equal(a, np.broadcast_to(b, a.shape) if a.shape else b[0])


WORD, ROW = "tensor<ui32>", "tensor<7xui32>"


@pytest.mark.parametrize(("shape", "given"), [
    ("7x", (WORD, WORD, ROW, ROW)), ("7x", (ROW, ROW, ROW, ROW)), ("", (WORD, WORD, WORD, WORD)), ("7x", (ROW, ROW, WORD, WORD)),
    ("4x3x", ("tensor<4x1xui32>", "tensor<4x1xui32>", "tensor<1x3xui32>", "tensor<1x3xui32>")),
    ("4x3x", (WORD, WORD, "tensor<3xui32>", "tensor<3xui32>")), ("7x", (WORD, WORD, WORD, WORD)),
])  # fmt: skip
def test_rounds_are_one_function(shape: str, given: Sequence[str]) -> None:
    t = Text(shape)
    a = spread_out(t, given)
    check(module_of(t, given, unrolled(t, a[:2], a[2:])), True)


@pytest.mark.parametrize("change", [
    {"rotations": ((13, 15, 26, 7), (17, 29, 16, 24))}, {"rotations": ((13, 15, 26, 6), (17, 29, 24, 16))},
    {"number": SUM + 1}, {"groups": 4}, {"groups": 6}, {"combine": "or"}, {"combine": "add"},
])  # fmt: skip
def test_what_is_nearly_threefry_is_computed_as_it_is_written(change: dict[str, object]) -> None:
    t = Text("7x")
    a = spread_out(t, (WORD, WORD, ROW, ROW))
    check(module_of(t, (WORD, WORD, ROW, ROW), unrolled(t, a[:2], a[2:], **change)), False)  # type: ignore[arg-type]


@pytest.mark.parametrize("order", [(1, 0, 2, 3), (0, 1, 3, 2), (2, 3, 0, 1)])
def test_arguments_have_their_places(order: Sequence[int]) -> None:
    t = Text("7x")
    names = ("%k0", "%k1", "%x0", "%x1")
    a = [names[k] for k in order]
    check(module_of(t, (ROW,) * 4, unrolled(t, a[:2], a[2:])), False)


def test_results_have_their_order() -> None:
    t = Text("7x")
    first, second = unrolled(t, ("%k0", "%k1"), ("%x0", "%x1"))
    check(module_of(t, (ROW,) * 4, (second, first)), False)


def test_a_spread_along_other_dimensions_is_another_function() -> None:
    t = Text("3x3x")
    given = ("tensor<3xui32>",) * 4
    names = ("%k0", "%k1", "%x0", "%x1")
    a = [t.spread(n, g, "0") for n, g in zip(names, given, strict=True)]
    check(module_of(t, given, unrolled(t, a[:2], a[2:])), False)


def test_the_library_computes_what_the_evaluator_computes() -> None:
    rng = np.random.default_rng(3)
    for k, m, x, y in rng.integers(0, 1 << 32, (20, 4), dtype=np.uint32):
        words = threefry2x32(k, m, x, y)
        found = np.uint32(words & np.uint64(0xFFFFFFFF)), np.uint32(words >> np.uint64(32))
        a, b = (np.array([v]) for v in (k, m)), (np.array([v]) for v in (x, y))
        assert tuple(v[0] for v in threefry_2x32(tuple(a), tuple(b))) == found  # type: ignore[arg-type]


def test_limits_of_code_know_its_rounds() -> None:
    t = Text("7x")
    module = module_of(t, (ROW,) * 4, unrolled(t, ("%k0", "%k1"), ("%x0", "%x1")))
    kernels = tiling.plan(module, supports=codegen.supports).fusions
    nests = [s for k in kernels for p in k.schedule.phases for s in p.steps if isinstance(s, Nest)]
    nodes = list(all_nodes([n for nest in nests for n in nest.each]))
    assert code_size(nodes) > 115 > len(nodes)


def lowered(jax: object, function: Callable[..., object], *given: object) -> hlo.Module:
    return hlo.parse(jax.jit(function).lower(*given).as_text())  # type: ignore[attr-defined]


def test_what_jax_prints_for_the_cpu_has_no_loop() -> None:
    """For the CPU it prints the rounds as a loop over groups of four: each draw was a loop of kernels."""
    jax = pytest.importorskip("jax")
    key = np.array([3, 5], np.uint32)

    def draws(key: object) -> object:
        a, b = jax.random.split(jax.random.wrap_key_data(key))
        return jax.random.bits(a, (5, 3)), jax.vmap(lambda k: jax.random.bits(k, (3,)))(jax.random.split(b, 4))

    module = lowered(jax, draws, key)
    assert "stablehlo.while" in str(module)
    plan = tiling.plan(module, supports=codegen.supports)
    assert not plan.controls and sum(op.name == "random.threefry2x32" for op in plan.program.ops) == 4
    for found in (codegen.compile(plan)(key), interp.evaluate(module, key)):
        for a, b in zip(found, jax.jit(draws)(key), strict=True):
            np.testing.assert_array_equal(a, np.asarray(b))
