"""Size and depth: cost is linear, nesting has no limit where the language nests, and absurd text gets a clear error."""

# ruff: noqa: E501 (programs as they are written)

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest

import hlo
from hlo.text.literals import from_hex
from hlo.text.type_parser import MAX_DEPTH


def chain(n: int) -> str:
    """A function of n additions."""
    lines = ["func.func @main(%arg0: tensor<4x4xf32>) -> tensor<4x4xf32> {"]
    last = "%arg0"
    for i in range(n):
        lines.append(f"  %{i} = stablehlo.add {last}, %arg0 : tensor<4x4xf32>")
        last = f"%{i}"
    return "\n".join([*lines, f"  return {last} : tensor<4x4xf32>\n}}"])


def nested(n: int) -> str:
    """n ifs inside each other."""
    text = ["func.func @main(%p: tensor<i1>, %x: tensor<f32>) -> tensor<f32> {"]
    text += [f'%r{i} = "stablehlo.if"(%p) ({{' for i in range(n)]
    text.append("stablehlo.return %x : tensor<f32>")
    for i in reversed(range(n)):
        text.append("}, { stablehlo.return %x : tensor<f32> }) : (tensor<i1>) -> tensor<f32>")
        text.append(f"stablehlo.return %r{i} : tensor<f32>" if i else "return %r0 : tensor<f32>\n}")
    return "\n".join(text)


def test_cost_is_linear() -> None:
    def seconds(n: int) -> float:
        text = chain(n)
        start = time.process_time()
        hlo.verify(hlo.parse(text))
        return time.process_time() - start

    seconds(500)
    small, large = min(seconds(2500) for _ in range(3)), min(seconds(20_000) for _ in range(2))
    assert large < 4 * 8 * small, f"2500 ops took {small:.3f} s, 20000 ops {large:.3f} s"


@pytest.mark.slow
def test_fifty_thousand_ops_and_a_function_of_a_hundred_thousand() -> None:
    tracemalloc.start()
    start = time.process_time()
    hlo.verify(hlo.parse(chain(50_000)))
    assert time.process_time() - start < 20
    assert tracemalloc.get_traced_memory()[1] < 1 << 30
    tracemalloc.stop()
    module = hlo.parse(chain(100_000))
    hlo.verify(module)
    assert len(module.entry.body.ops) == 100_001
    assert str(module).count("\n") == 100_005


@pytest.mark.parametrize("depth", [1, 2000])
def test_deep_regions(depth: int) -> None:
    module = hlo.parse(nested(depth))
    hlo.verify(module)
    assert str(hlo.parse(str(module))) == str(module)


def test_deep_modules() -> None:
    text = "module {" * 2000 + "func.func @f() { return }" + "}" * 2000
    module = hlo.parse(text)
    hlo.verify(module)
    assert str(hlo.parse(str(module))) == str(module)


@pytest.mark.parametrize(
    "text",
    [
        "func.func private @f(" + "tuple<" * 5000,
        "func.func private @f() attributes {a = " + "[" * 5000,
        "func.func private @f() attributes {a = " + "{a = " * 5000,
        "(" * 5000,
        "ENTRY e { a = " + "(" * 5000,
    ],
    ids=["types", "lists", "dictionaries", "marks", "hlo"],
)
def test_deep_nesting_is_an_error_in_words(text: str) -> None:
    with pytest.raises(hlo.ParseError):
        hlo.parse(text)


def test_aliases_cannot_expand_without_end() -> None:
    lines = ["!a0 = tuple<tensor<f32>, tensor<f32>>"] + [f"!a{i} = tuple<!a{i - 1}, !a{i - 1}>" for i in range(1, 60)]
    with pytest.raises(hlo.ParseError, match="expand to too large a value"):
        hlo.parse("\n".join([*lines, "func.func private @f(!a59)"]))
    lines = ["#a0 = [1, 1]"] + [f"#a{i} = [#a{i - 1}, #a{i - 1}]" for i in range(1, 60)]
    with pytest.raises(hlo.ParseError, match="expand to too large a value"):
        hlo.parse("\n".join(lines))


def test_the_depth_that_is_allowed_works() -> None:
    inner = "tensor<f32>"
    for _ in range(MAX_DEPTH - 1):
        inner = f"tuple<{inner}>"
    module = hlo.parse(f"func.func private @f({inner})")
    assert str(hlo.parse(str(module))) == str(module)


@pytest.mark.slow
def test_a_large_blob_loads_fast() -> None:
    data = np.random.default_rng(0).integers(0, 256, 32 << 20, np.uint8).tobytes()
    digits = data.hex().upper()
    text = f'func.func @f() {{ %0 = stablehlo.constant dense<"0x{digits}"> : tensor<{len(data) // 4}xf32> return }}'
    best = 1e9
    for _ in range(3):
        start = time.process_time()
        module = hlo.parse(text)
        best = min(best, time.process_time() - start)
    assert module.entry.body.ops[0].attr("value").array.tobytes() == data
    assert len(data) / best > 100e6, f"{len(data) / best / 1e6:.0f} MB/s"


def test_chunks_of_a_blob_fit_together() -> None:
    t = hlo.TensorType((300_000,), hlo.element_type("ui8"))
    data = bytes(i * 7 % 256 for i in range(300_000))
    text = "xx" + data.hex() + "yy"
    assert from_hex(text, 2, len(text) - 2, t, lambda m: hlo.ParseError(m)).array.tobytes() == data


def test_computations_of_hlo_that_expand_without_end() -> None:
    parts = ["c0 { p = f32[] parameter(0) ROOT r = f32[] add(p, p) }"]
    for i in range(1, 40):
        parts.append(
            f"c{i} {{ p = f32[] parameter(0) a = f32[] fusion(p), kind=kLoop, calls=c{i - 1} ROOT b = f32[] fusion(a), kind=kLoop, calls=c{i - 1} }}"
        )
    text = (
        "HloModule m\n"
        + "\n".join(parts)
        + "\nENTRY e { p = f32[] parameter(0) ROOT r = f32[] fusion(p), kind=kLoop, calls=c39 }"
    )
    with pytest.raises(hlo.ParseError, match="expand to more than"):
        hlo.parse(text)
