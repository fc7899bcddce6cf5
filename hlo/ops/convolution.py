"""Convolution, and dynamic_conv with padding that run time knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo.access import AccessBuilder, Condition, Index
from hlo.attributes import ConvDimensions
from hlo.errors import Declined
from hlo.module import Op
from hlo.ops.rules import (
    at_least,
    attributes_size,
    input_type,
    is_quantized,
    law,
    num_windows,
    pairs_for_each,
    precisions,
    result_type,
    same_shapes,
)
from hlo.registry import Attribute, Constraint, OpDefinition, Operand, SumOfProducts, register
from hlo.types import QuantizedType, TensorType
from hlo.typesets import ANY, S, U, tensors

__all__ = ["window_shape"]

Pairs = tuple[tuple[int, int], ...]


def _spatial(op: Op) -> int:
    """How many spatial dimensions the convolution's numbers name."""
    return len(_numbers(op).input_spatial)


def _ones(op: Op) -> tuple[int, ...]:
    return (1,) * _spatial(op)


def _numbers(op: Op) -> ConvDimensions:
    numbers: ConvDimensions = op.attr("dimension_numbers")
    return numbers


def _dims(t: TensorType, *dims: int) -> bool:
    return all(0 <= k < t.rank for k in dims)


def _divides(label: str, text: str, size: Callable[[Op], int | None], by: str) -> Constraint:
    def holds(op: Op) -> bool | str:
        n, k = size(op), op.attr(by)
        return n is None or k <= 0 or n % k == 0 or f"expected a multiple of {k}, found {n}"

    return law(label, text, holds)


def _size(operand: int, which: str) -> Callable[[Op], int | None]:
    """The size of the dimension of lhs (0) or rhs (1) that the dimension numbers call `which`; None when they are out of
    range."""

    def get(op: Op) -> int | None:
        t, k = input_type(op, operand), getattr(_numbers(op), which)
        return t.shape[k] if _dims(t, k) else None

    return get


def _window_sizes(op: Op) -> bool | str:
    t = input_type(op, 1)
    found = [t.shape[k] for k in _numbers(op).kernel_spatial if _dims(t, k)]
    return all(n is None or n > 0 for n in found) or f"found {t}"


def _kernel_features(op: Op) -> bool | str:
    n, k = _size(0, "input_feature")(op), _size(1, "kernel_input_feature")(op)
    groups = op.attr("feature_group_count")
    if n is None or k is None or groups <= 0:
        return True
    return k == n // groups or f"expected {n} / {groups} input features of the kernel, found {k}"


def _listed(first: str, second: str, spatial: str) -> Callable[[Op], tuple[int, ...]]:
    return lambda op: (getattr(_numbers(op), first), *getattr(_numbers(op), spatial), getattr(_numbers(op), second))


_INPUT = _listed("input_batch", "input_feature", "input_spatial")
_KERNEL = _listed("kernel_input_feature", "kernel_output_feature", "kernel_spatial")
_OUTPUT = _listed("output_batch", "output_feature", "output_spatial")


def _number_rules(label: str, what: str, get: Callable[[Op], tuple[int, ...]]) -> Constraint:
    def holds(op: Op) -> bool | str:
        v, rank = get(op), input_type(op, 0).rank
        return (
            len(set(v)) == len(v) and all(0 <= k < rank for k in v)
        ) or f"expected distinct dimensions below {rank}, found {list(v)}"

    return law(label, f"{what} dimensions are distinct and within the rank", holds)


def _rank_minus_2(op: Op) -> int:
    return input_type(op, 0).rank - 2


def _per_window(label: str, name: str) -> Constraint:
    return attributes_size(
        label,
        name,
        lambda op: _rank_minus_2(op) if op.attributes.get(name) is not None else len(op.attr(name)),
        "spatial dimensions",
    )


def _q(op: Op) -> tuple[TensorType, TensorType, TensorType]:
    return input_type(op, 0), input_type(op, 1), result_type(op)


def _axis(t: TensorType) -> int | None:
    return t.element.axis if isinstance(t.element, QuantizedType) else None


def _quantized_rules(first: int, rhs_axis: Constraint, result_axis: Constraint) -> tuple[Constraint, ...]:
    """C27 to C34 of convolution: how quantized and plain operands go together."""

    def both(op: Op) -> bool:
        a, b, r = _q(op)
        if not any(map(is_quantized, (a, b, r))):
            return True
        return is_quantized(b) and is_quantized(a) == is_quantized(r)

    def storage(op: Op) -> bool:
        a, b, _ = _q(op)
        qa, qb = a.element, b.element
        return not (isinstance(qa, QuantizedType) and isinstance(qb, QuantizedType)) or qa.storage == qb.storage

    def expressed(op: Op) -> bool:
        qs = [t.element for t in _q(op) if isinstance(t.element, QuantizedType)]
        return len(qs) != 3 or len({q.expressed for q in qs}) == 1

    def granularity(op: Op) -> bool:
        a, b, r = _q(op)
        if not (is_quantized(a) and is_quantized(b) and is_quantized(r)):
            return True
        return _axis(b) is not None or _axis(r) is None

    def hybrid(op: Op) -> bool:
        a, b, r = _q(op)
        return is_quantized(a) or not isinstance(b.element, QuantizedType) or a.element == b.element.expressed == r.element

    show = ("lhs", "rhs", "result")
    return (
        law(f"C{first}", "lhs and result are both quantized or neither is, and rhs is where any is", both, *show, result=True),
        rhs_axis,
        result_axis,
        law(f"C{first + 3}", "quantized lhs and rhs have one storage type", storage, *show, result=True),
        law(f"C{first + 4}", "quantized operands and result have one expressed type", expressed, *show, result=True),
        law(f"C{first + 5}", "the result is per-tensor quantized where rhs is", granularity, *show, result=True),
        law(f"C{first + 6}", "plain lhs and result have rhs's expressed type", hybrid, *show, result=True),
    )


def window_shape(op: Op, padding: Sequence[Sequence[int]] | None) -> tuple[int | None, ...]:
    """The shape of a convolution's result; unknown spatial sizes where the padding is unknown."""
    n, lhs, rhs = _numbers(op), input_type(op, 0), input_type(op, 1)
    ones = _ones(op)
    strides = op.attr("window_strides") or ones
    base = op.attr("lhs_dilation") or ones
    dilation = op.attr("rhs_dilation") or ones
    shape: list[int | None] = [None] * lhs.rank
    batch = lhs.shape[n.input_batch]
    shape[n.output_batch] = None if batch is None else batch // op.attr("batch_group_count")
    shape[n.output_feature] = rhs.shape[n.kernel_output_feature]
    for i, k in enumerate(n.output_spatial):
        if padding is not None:
            low, high = padding[i]
            shape[k] = num_windows(
                lhs.shape[n.input_spatial[i]], rhs.shape[n.kernel_spatial[i]], strides[i], low, high, base[i], dilation[i]
            )
    return tuple(shape)


def _padding(op: Op) -> Pairs | None:
    """The padding of a convolution; None where run time decides (dynamic_conv)."""
    return op.attr("padding") if "padding" in op.definition.known_attributes else None


def _conv_shape(op: Op) -> bool | str:
    shape, r = window_shape(op, _padding(op)), result_type(op)
    return same_shapes(shape, r.shape) or f"expected shape {['?' if x is None else x for x in shape]}, found {r}"


_ACCEPTS = tensors(*ANY, quantized="per-tensor")
_KERNELS = tensors(*ANY, quantized="any")


def _conv_rules() -> tuple[Constraint, ...]:
    return (
        law(
            "C1",
            "lhs and rhs have the same rank of at least 2",
            lambda op: input_type(op, 0).rank == input_type(op, 1).rank >= 2,
            "lhs",
            "rhs",
        ),
        law(
            "C12",
            "as many input spatial dimensions as the rank less 2",
            lambda op: len(_numbers(op).input_spatial) == _rank_minus_2(op),
            "dimension_numbers",
            "lhs",
        ),
        law(
            "C17",
            "as many kernel spatial dimensions as the rank less 2",
            lambda op: len(_numbers(op).kernel_spatial) == _rank_minus_2(op),
            "dimension_numbers",
            "lhs",
        ),
        law(
            "C19",
            "as many output spatial dimensions as the rank less 2",
            lambda op: len(_numbers(op).output_spatial) == _rank_minus_2(op),
            "dimension_numbers",
            "lhs",
        ),
        _number_rules("C13", "input", _INPUT),
        _number_rules("C18", "kernel", _KERNEL),
        _number_rules("C20", "output", _OUTPUT),
        _per_window("C2", "window_strides"),
        at_least("C3", "window_strides", 1),
        _per_window("C5", "lhs_dilation"),
        at_least("C6", "lhs_dilation", 1),
        _per_window("C7", "rhs_dilation"),
        at_least("C8", "rhs_dilation", 1),
        _per_window("C9", "window_reversal"),
        law("window", "the kernel's spatial dimensions are not 0", _window_sizes),
        law("C21", "0 < feature_group_count", lambda op: op.attr("feature_group_count") > 0, "feature_group_count"),
        law("C22", "0 < batch_group_count", lambda op: op.attr("batch_group_count") > 0, "batch_group_count"),
        law(
            "C23",
            "feature_group_count or batch_group_count is 1",
            lambda op: 1 in (op.attr("feature_group_count"), op.attr("batch_group_count")),
            "feature_group_count",
            "batch_group_count",
        ),
        _divides("C10", "batch_group_count divides the input batch", _size(0, "input_batch"), "batch_group_count"),
        _divides("C11", "feature_group_count divides the input features", _size(0, "input_feature"), "feature_group_count"),
        law("C14", "the kernel has the input's features of one group", _kernel_features),
        _divides("C15", "batch_group_count divides the output features", _size(1, "kernel_output_feature"), "batch_group_count"),
        _divides(
            "C16", "feature_group_count divides the output features", _size(1, "kernel_output_feature"), "feature_group_count"
        ),
        precisions("C24"),
    )


def _conv_result_rules(padding_rank: bool) -> tuple[Constraint, ...]:
    del padding_rank
    return (
        law("C26", "the result has the rank of lhs", lambda op: result_type(op).rank == input_type(op, 0).rank, "lhs", "result"),
        law("C25", "the result's shape is batch, features and windows", _conv_shape, result=True),
        law(
            "C27",
            "plain lhs and rhs have the same element type",
            lambda op: any(map(is_quantized, _q(op))) or input_type(op, 0).element == input_type(op, 1).element,
            "lhs",
            "rhs",
            result=True,
        ),
        *_quantized_rules(
            28,
            law(
                "C29",
                "a per-axis quantized rhs is quantized along its output features",
                lambda op: _axis(input_type(op, 1)) in (None, _numbers(op).kernel_output_feature),
                "rhs",
                "dimension_numbers",
                result=True,
            ),
            law(
                "C30",
                "a per-axis quantized result is quantized along its features",
                lambda op: _axis(result_type(op)) in (None, _numbers(op).output_feature),
                "result",
                "dimension_numbers",
            ),
        ),
    )


def _conv_attributes(with_padding: bool) -> tuple[Attribute, ...]:
    padding = (Attribute("padding", "pairs", lambda op: ((0, 0),) * _spatial(op)),) if with_padding else ()
    return (
        Attribute("window_strides", "i64s", _ones),
        *padding,
        Attribute("lhs_dilation", "i64s", _ones),
        Attribute("rhs_dilation", "i64s", _ones),
        Attribute("window_reversal", "bools", lambda op: (False,) * _spatial(op)),
        Attribute("dimension_numbers", "conv"),
        Attribute("feature_group_count", "i64"),
        Attribute("batch_group_count", "i64"),
        Attribute("precision_config", "enums", (), "precision"),
    )


def _conv_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    """result[b, s…, f] sums over window positions w… and features c of the group that f belongs to."""
    n, lhs, rhs = _numbers(op), input_type(op, 0), input_type(op, 1)
    groups, batches = op.attr("feature_group_count"), op.attr("batch_group_count")
    strides, base, dilation = op.attr("window_strides"), op.attr("lhs_dilation"), op.attr("rhs_dilation")
    left: dict[int, Index] = {}
    right: dict[int, Index] = {}
    where: list[Condition] = []
    features = rhs.static_shape[n.kernel_output_feature]
    f = d[n.output_feature]
    c = ix.range(rhs.static_shape[n.kernel_input_feature])
    per_group, per_batch = features // groups, features // batches
    batch = lhs.static_shape[n.input_batch] // batches
    left[n.input_feature] = c if groups == 1 else f // per_group * rhs.static_shape[n.kernel_input_feature] + c
    left[n.input_batch] = d[n.output_batch] if batches == 1 else f // per_batch * batch + d[n.output_batch]
    right[n.kernel_input_feature] = c
    right[n.kernel_output_feature] = f
    padding = _padding(op) or ()
    for i, out in enumerate(n.output_spatial):
        size, window = lhs.static_shape[n.input_spatial[i]], rhs.static_shape[n.kernel_spatial[i]]
        w = ix.range(window)
        low, high = padding[i]
        position = d[out] * strides[i] + w * dilation[i] - low
        # A position in the dilated input: only every base-th one holds an element.
        if low > 0 or high > 0 or low < 0 or high < 0 or base[i] != 1:
            where.append(Condition(position, 0, (size - 1) * base[i]))
        if base[i] != 1:
            where.append(Condition(position % base[i], 0, 0))
        left[n.input_spatial[i]] = position // base[i] if base[i] != 1 else position
        right[n.kernel_spatial[i]] = window - 1 - w if op.attr("window_reversal")[i] else w
    ix.read(0, [left[k] for k in range(lhs.rank)], where)
    ix.read(1, [right[k] for k in range(rhs.rank)], where)


register(
    OpDefinition(
        name="stablehlo.convolution",
        spec="StableHLO: convolution",
        operands=(Operand("lhs", _ACCEPTS), Operand("rhs", _KERNELS)),
        results=(Operand("result", _KERNELS),),
        attributes=_conv_attributes(True),
        infer=Declined("the result's element type is the program's choice"),
        access=_conv_access,
        semantics=SumOfProducts(),
        constraints=(
            *_conv_rules(),
            pairs_for_each("C4", "padding", _rank_minus_2, "spatial dimension", "lhs"),
            *_conv_result_rules(True),
        ),
    )
)

_RUNTIME_PADDING = Declined("the padding is a value of the program, so where a window begins is known only at run time")
register(
    OpDefinition(
        name="stablehlo.dynamic_conv",
        spec="StableHLO: dynamic_conv",
        operands=(Operand("lhs", _ACCEPTS), Operand("rhs", _KERNELS), Operand("padding", tensors(S, U, rank=2))),
        results=(Operand("result", _KERNELS),),
        attributes=_conv_attributes(False),
        infer=Declined("the result's element type is the program's choice"),
        access=_RUNTIME_PADDING,
        semantics=_RUNTIME_PADDING,
        constraints=(
            *_conv_rules(),
            law(
                "C4",
                "padding holds a pair for each spatial dimension",
                lambda op: same_shapes(input_type(op, 2).shape, (_rank_minus_2(op), 2)),
                "padding",
                "lhs",
            ),
            *_conv_result_rules(False),
        ),
    )
)
