"""Tokens, transfers and random numbers: ops with effects or state."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.errors import Declined
from hlo.module import Op
from hlo.ops.dynamic import constant_of
from hlo.ops.rules import eq, input_type, law, result_type, same_shapes, type_stays
from hlo.registry import Attribute, Constraint, OpDefinition, Operand, register
from hlo.types import ELEMENT_TYPES, ElementType, TokenType
from hlo.typesets import DIMENSIONS, TENSOR, TOKEN, B, F, S, TypeSet, U, tensors

__all__: list[str] = []

_ORDER = Declined("a token orders effects; it carries no elements")
_TRANSFER = Declined("elements come from, or go to, outside of the program")

register(
    OpDefinition(
        name="stablehlo.after_all",
        spec="StableHLO: after_all",
        operands=(Operand("inputs", TOKEN, variadic=True),),
        results=(Operand("result", TOKEN),),
        infer=lambda op: (TokenType(),),
        access=_ORDER,
        semantics=_ORDER,
    )
)
register(
    OpDefinition(
        name="stablehlo.create_token",
        spec="StableHLO: create_token (deprecated)",
        operands=(),
        results=(Operand("result", TOKEN),),
        infer=lambda op: (TokenType(),),
        access=_ORDER,
        semantics=_ORDER,
        result_names=("output",),
    )
)


def _tensors_then_token(first: int) -> tuple[Constraint, ...]:
    """0 < size(results); all but the last are tensors; the last is a token."""
    return (
        law(f"C{first}", "at least one result", lambda op: bool(op.results) or "found none", result=True),
        law(
            f"C{first + 1}",
            "all results but the last are tensors",
            lambda op: all(TENSOR.has(r.type) for r in op.results[:-1]),
            "results",
        ),
        law(f"C{first + 2}", "the last result is a token", lambda op: isinstance(op.results[-1].type, TokenType), "results"),
    )


def _layout(op: Op) -> bool | str:
    layout = op.attr("layout")
    if layout is None:
        return True
    tensors_ = [r.type for r in op.results[:-1]]
    if not isinstance(layout, tuple) or len(layout) != len(tensors_):
        return f"expected {len(tensors_)} layouts, found {len(layout) if isinstance(layout, tuple) else layout}"
    for entry in layout:
        if not isinstance(entry, tuple):
            return "expected a list of lists of integers"
        if any(type(getattr(n, "value", None)) is not int for n in entry):
            return "expected integers in a layout"
    return True


register(
    OpDefinition(
        name="stablehlo.infeed",
        spec="StableHLO: infeed",
        operands=(Operand("token", TOKEN),),
        attributes=(Attribute("infeed_config", "string", ""), Attribute("layout", "any", None)),
        infer=Declined("the results' types are the program's choice"),
        access=_TRANSFER,
        semantics=_TRANSFER,
        constraints=(*_tensors_then_token(1), law("layout", "a list of integers for each tensor", _layout, result=True)),
        is_pure=False,
        result_names=("results",),
    )
)
register(
    OpDefinition(
        name="stablehlo.outfeed",
        spec="StableHLO: outfeed",
        operands=(Operand("inputs", TENSOR, variadic=True), Operand("token", TOKEN)),
        results=(Operand("result", TOKEN),),
        attributes=(Attribute("outfeed_config", "string", ""),),
        infer=lambda op: (TokenType(),),
        access=_TRANSFER,
        semantics=_TRANSFER,
        is_pure=False,
    )
)

_CHANNEL = Attribute("channel_handle", "channel")
_HOST = Attribute("is_host_transfer", "bool", False)
_PAIRS = Attribute("source_target_pairs", "pairs", None)


def _channel_type(host: int) -> Constraint:
    def holds(op: Op) -> bool | str:
        kind, expected = op.attr("channel_handle").type, host if op.attr("is_host_transfer") else 1
        return (
            kind == expected
            or f"expected channel type {expected} with is_host_transfer = {op.attr('is_host_transfer')}, found {kind}"
        )

    return law("C1", "the channel's type fits is_host_transfer", holds)


register(
    OpDefinition(
        name="stablehlo.send",
        spec="StableHLO: send",
        operands=(Operand("inputs", TENSOR, variadic=True), Operand("token", TOKEN)),
        results=(Operand("result", TOKEN),),
        attributes=(_CHANNEL, _HOST, _PAIRS),
        infer=lambda op: (TokenType(),),
        access=_TRANSFER,
        semantics=_TRANSFER,
        constraints=(_channel_type(2),),
        is_pure=False,
    )
)
register(
    OpDefinition(
        name="stablehlo.recv",
        spec="StableHLO: recv",
        operands=(Operand("token", TOKEN),),
        attributes=(_CHANNEL, _HOST, _PAIRS),
        infer=Declined("the results' types are the program's choice"),
        access=_TRANSFER,
        semantics=_TRANSFER,
        constraints=(_channel_type(3), *_tensors_then_token(2)),
        is_pure=False,
        result_names=("results",),
    )
)

# ---------------------------------------------------------------- random numbers

_RANDOM = Declined("random numbers depend on a state, not on elements of an operand")


def _rng_elements(op: Op) -> bool:
    a, b, r = input_type(op, 0).element, input_type(op, 1).element, result_type(op).element
    return a == b == r


def _rng_shape(op: Op) -> bool | str:
    shape, r = constant_of(op, 2), result_type(op)
    if not eq(input_type(op, 2).shape[0], r.rank):
        return f"expected {r.rank} entries of shape, found {input_type(op, 2)}"
    return shape is None or same_shapes(shape, r.shape) or f"expected shape {list(shape)}, found {r}"


_SCALAR = tensors(B, S, U, F, rank=0)
register(
    OpDefinition(
        name="stablehlo.rng",
        spec="StableHLO: rng (deprecated)",
        operands=(Operand("a", _SCALAR), Operand("b", _SCALAR), Operand("shape", DIMENSIONS)),
        results=(Operand("result", tensors(B, S, U, F)),),
        attributes=(Attribute("rng_distribution", "enum"),),
        infer=Declined("the result's shape is a value of the program"),
        access=_RANDOM,
        semantics=_RANDOM,
        constraints=(
            law(
                "C2",
                "a normal distribution has floating-point parameters",
                lambda op: (
                    op.attr("rng_distribution") != "NORMAL"
                    or (isinstance(e := input_type(op, 0).element, ElementType) and e.is_float)
                ),
                "a",
                "rng_distribution",
            ),
            law("C1", "a, b and result have the same element type", _rng_elements, "a", "b", "result"),
            law("C3", "the result has the shape that is asked for", _rng_shape, result=True),
        ),
        is_pure=False,
    )
)


def _state_size(op: Op) -> bool | str:
    allowed: dict[str, Sequence[int]] = {"THREE_FRY": (2,), "PHILOX": (2, 3)}
    sizes = allowed.get(op.attr("rng_algorithm"))
    t = input_type(op, 0)
    if sizes is None or t.rank != 1 or t.element != ELEMENT_TYPES["ui64"]:
        return True  # other states are the implementation's own
    return t.shape[0] is None or t.shape[0] in sizes or f"expected a state of {' or '.join(map(str, sizes))} elements, found {t}"


_STATE = TypeSet("tensor of integer or float", tensors(S, U, F).has)
register(
    OpDefinition(
        name="stablehlo.rng_bit_generator",
        spec="StableHLO: rng_bit_generator",
        operands=(Operand("initial_state", _STATE),),
        results=(Operand("output_state", _STATE), Operand("output", tensors(S, U, F, static=True))),
        attributes=(Attribute("rng_algorithm", "enum"),),
        infer=Declined("the output's shape is the program's choice"),
        access=_RANDOM,
        semantics=_RANDOM,
        constraints=(
            law("C2", "the state has the size that the algorithm asks for", _state_size),
            law("C1", "initial_state and output_state have the same type", type_stays, "initial_state", "result"),
        ),
        result_names=("output_state", "output"),
    )
)
