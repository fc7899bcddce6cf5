"""Tokens as arrays of no elements: what they order then runs like any other program.

    %1 = custom_call @f(%token, %x) : (token, tensor<3xf32>) -> token      ->  … : (tensor<0xi1>, tensor<3xf32>) -> tensor<0xi1>
    create_token                                                          ->  a constant of no elements
    after_all %a, %b                                                      ->  concatenate %a, %b

A token says that one effect comes before another. An array that the first makes and the second takes says the same, and custom
calls, the only effects that run here, are made in the program's order besides. Programs that send or receive keep their tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hlo.module import Block, DenseArray, Function, Module, Op, Value, walk
from hlo.registry import definition
from hlo.types import TensorType, TokenType, element_type

__all__ = ["NO_ELEMENTS", "TOKEN_TYPE", "is_token", "results_of", "tokens_as_arrays"]

TOKEN_TYPE = TensorType((0,), element_type("i1"))
NO_ELEMENTS = np.zeros(0, np.bool_)
"""What a token is where it is an array: shared, as nobody can write to it."""

_TRANSFERS = frozenset(f"stablehlo.{name}" for name in ("infeed", "outfeed", "send", "recv"))

_MAKERS = ("stablehlo.create_token", "stablehlo.after_all")


def tokens_as_arrays(module: Module) -> None:
    """Rewrites a module in place; one that is rewritten already stays as it is."""
    if any(op.name in _TRANSFERS for f in module.functions.values() for op in walk(f.body)):
        return
    for function in module.functions.values():
        function.result_types = tuple(TOKEN_TYPE if isinstance(t, TokenType) else t for t in function.result_types)
        for block in _blocks(function.body):
            for value in _values(block):
                if isinstance(value.type, TokenType):
                    value.type = TOKEN_TYPE
            for op in block.ops:
                if op.name in _MAKERS:
                    _replace(op)


def results_of(found: Any, op: Op) -> tuple[Any, ...]:
    """What JAX's function for a callback gives as the op's results: None is a token's, and nothing where there are none."""
    return tuple(
        None if isinstance(r.type, TokenType) else NO_ELEMENTS if x is None else np.asarray(x, r.tensor.dtype)
        for x, r in zip(found or (), op.results, strict=True)
    )


def is_token(function: Function, number: int, is_result: bool = False) -> bool:
    """Whether an argument of a function, or a result, is one of JAX's tokens, also where it is an array already."""
    types = function.result_types if is_result else tuple(v.type for v in function.arguments)
    attributes = function.result_attributes if is_result else function.argument_attributes
    return isinstance(types[number], TokenType) or (number < len(attributes) and "jax.token" in attributes[number])


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for op in block.ops:
        for region in op.regions:
            yield from _blocks(region)


def _values(block: Block) -> Iterator[Value]:
    yield from block.arguments
    for op in block.ops:
        yield from op.results


def _replace(op: Op) -> None:
    """A constant for a new token, a concatenation for joined ones."""
    joins = bool(op.operands)
    op.definition = definition("stablehlo.concatenate" if joins else "stablehlo.constant")
    op.name = op.definition.name
    op.attributes = {"dimension": 0} if joins else {"value": DenseArray(TOKEN_TYPE, NO_ELEMENTS)}
