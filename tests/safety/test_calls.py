"""Functions that call themselves, or one another too often, are named and not waited for."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
from hlo.calls import called_ops

T = "tensor<4xf32>"


def composite(name: str, callee: str) -> str:
    return (f"func.func private @{name}(%x: {T}) -> {T} {{ %0 = stablehlo.composite \"a.b\" %x "
            f"{{decomposition = @{callee}}} : ({T}) -> {T} return %0 : {T} }}\n")  # fmt: skip


@pytest.mark.parametrize(
    ("text", "circle"),
    [
        (composite("f", "f"), "@f -> @f"),
        (composite("f", "g") + composite("g", "f"), "@f -> @g -> @f"),
        (composite("f", "g") + f"func.func private @g(%x: {T}) -> {T} {{ %0 = func.call @f(%x) : ({T}) -> {T} return %0 : {T} }}",
         "@f -> @g -> @f"),
    ],
)  # fmt: skip
def test_a_composite_that_contains_itself_is_refused(text: str, circle: str) -> None:
    main = f"func.func @main(%x: {T}) -> {T} {{ %0 = func.call @f(%x) : ({T}) -> {T} return %0 : {T} }}\n"
    with pytest.raises(hlo.VerificationError, match="calls must not be recursive") as error:
        hlo.verify(hlo.parse(main + text))
    assert circle in str(error.value)
    assert error.value.location is not None


def doubling(count: int) -> str:
    """Functions that each call the next twice."""
    parts = [f"func.func private @f{count}(%x: {T}) -> {T} {{ %0 = stablehlo.negate %x : {T} return %0 : {T} }}\n"]
    for k in reversed(range(count)):
        visible = "@main" if k == 0 else f"private @f{k}"
        parts.append(f"func.func {visible}(%x: {T}) -> {T} {{\n  %0 = func.call @f{k + 1}(%x) : ({T}) -> {T}\n"
                     f"  %1 = func.call @f{k + 1}(%0) : ({T}) -> {T}\n  return %1 : {T}\n}}\n")  # fmt: skip
    return "".join(parts)


def test_thirty_functions_that_call_the_next_twice_are_counted_not_run() -> None:
    module = hlo.parse(doubling(30))
    hlo.verify(module)
    count = called_ops(module)["main"]
    assert count > 2**30
    x = np.ones(4, np.float32)
    for call in (lambda: codegen.compile(module), lambda: interp.evaluate(module, x)):
        with pytest.raises(hlo.TilewrightError, match=f"@main has {count} ops once every call is replaced"):
            call()


def test_few_of_them_run() -> None:
    module = hlo.parse(doubling(6))
    x = np.ones(4, np.float32)
    np.testing.assert_array_equal(interp.evaluate(module, x)[0], x)
    np.testing.assert_array_equal(codegen.compile(module)(x)[0], x)


@pytest.mark.jax
def test_a_traced_function_may_call_itself_on_other_shapes() -> None:
    import jax.numpy as jnp

    import tilewright

    def halves(x):  # type: ignore[no-untyped-def]
        if x.shape[0] == 1:
            return x[0]
        inner = again(np.ones(x.shape[0] // 2, np.float32))
        return jnp.sum(x) + inner

    again = tilewright.jit(halves)
    assert float(again(np.ones(4, np.float32))) == 4 + 2 + 1
