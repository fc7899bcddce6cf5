"""Ops that slide windows: convolution, reduce_window, select_and_scatter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo.access import AccessBuilder, Condition, Index
from hlo.attributes import ConvDimensions
from hlo.errors import Declined
from hlo.module import Op
from hlo.ops.common import fail
from hlo.ops.rules import (
    attributes_size,
    distinct,
    eq,
    input_type,
    inputs,
    is_quantized,
    law,
    num_windows,
    one_element,
    reducer_problem,
    result_type,
    returned,
    same_shapes,
    within,
)
from hlo.registry import Attribute, Constraint, Fold, Operand, OpDefinition, SumOfProducts, register
from hlo.types import ELEMENT_TYPES, QuantizedType, TensorType, Type
from hlo.typesets import ANY, S, U, tensors

__all__: list[str] = []

Pairs = tuple[tuple[int, int], ...]


def _spatial(op: Op) -> int:
    """How many spatial dimensions the convolution's numbers name."""
    return len(_numbers(op).input_spatial)


def _ones(op: Op) -> tuple[int, ...]:
    return (1,) * _spatial(op)


def _numbers(op: Op) -> ConvDimensions:
    numbers: ConvDimensions = op.attr("dimension_numbers")
    return numbers


def _all(name: str, least: int, label: str) -> Constraint:
    """least <= every entry of an attribute."""
    return law(label, f"{least} <= {name}", lambda op: all(n >= least for n in op.attr(name) or ()), name)


def _dims(t: TensorType, *dims: int) -> bool:
    return all(0 <= k < t.rank for k in dims)


def _divides(label: str, text: str, size: Callable[[Op], int | None], by: str) -> Constraint:
    def holds(op: Op) -> bool | str:
        n, k = size(op), op.attr(by)
        return n is None or k <= 0 or n % k == 0 or f"expected a multiple of {k}, found {n}"

    return law(label, text, holds)


def _size(operand: int, which: str) -> Callable[[Op], int | None]:
    """The size of the dimension of lhs (0) or rhs (1) that the dimension numbers call `which`; None when they are out of range."""

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
        return (len(set(v)) == len(v) and all(0 <= k < rank for k in v)) or f"expected distinct dimensions below {rank}, found {list(v)}"

    return law(label, f"{what} dimensions are distinct and within the rank", holds)


def _rank_minus_2(op: Op) -> int:
    return input_type(op, 0).rank - 2


def _per_window(label: str, name: str) -> Constraint:
    return attributes_size(label, name, lambda op: _rank_minus_2(op) if op.attributes.get(name) is not None else len(op.attr(name)),
                           "spatial dimensions")  # fmt: skip


def _conv_result(op: Op) -> TensorType:
    return result_type(op)


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


def _window_shape(op: Op, padding: Sequence[Sequence[int]] | None) -> tuple[int | None, ...]:
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
            shape[k] = num_windows(lhs.shape[n.input_spatial[i]], rhs.shape[n.kernel_spatial[i]], strides[i], low, high, base[i], dilation[i])
    return tuple(shape)


def _padding(op: Op) -> Pairs | None:
    """The padding of a convolution; None where run time decides (dynamic_conv)."""
    return op.attr("padding") if "padding" in op.definition.known_attributes else None


def _conv_shape(op: Op) -> bool | str:
    shape, r = _window_shape(op, _padding(op)), result_type(op)
    return same_shapes(shape, r.shape) or f"expected shape {['?' if x is None else x for x in shape]}, found {r}"


_ACCEPTS = tensors(*ANY, quantized="per-tensor")
_KERNELS = tensors(*ANY, quantized="any")


def _conv_rules() -> tuple[Constraint, ...]:
    return (
        law("C1", "lhs and rhs have the same rank of at least 2", lambda op: input_type(op, 0).rank == input_type(op, 1).rank >= 2, "lhs", "rhs"),
        law("C12", "as many input, kernel and output spatial dimensions as the rank less 2", lambda op: all(
            len(x) == _rank_minus_2(op) for x in (_numbers(op).input_spatial, _numbers(op).kernel_spatial, _numbers(op).output_spatial)),
            "dimension_numbers", "lhs"),
        _number_rules("C13", "input", _INPUT),
        _number_rules("C18", "kernel", _KERNEL),
        _number_rules("C20", "output", _OUTPUT),
        law("C17", "as many kernel spatial dimensions as the rank less 2", lambda op: len(_numbers(op).kernel_spatial) == _rank_minus_2(op)),
        law("C19", "as many output spatial dimensions as the rank less 2", lambda op: len(_numbers(op).output_spatial) == _rank_minus_2(op)),
        _per_window("C2", "window_strides"),
        _all("window_strides", 1, "C3"),
        _per_window("C5", "lhs_dilation"),
        _all("lhs_dilation", 1, "C6"),
        _per_window("C7", "rhs_dilation"),
        _all("rhs_dilation", 1, "C8"),
        _per_window("C9", "window_reversal"),
        law("window", "the kernel's spatial dimensions are not 0", _window_sizes),
        law("C21", "0 < feature_group_count", lambda op: op.attr("feature_group_count") > 0, "feature_group_count"),
        law("C22", "0 < batch_group_count", lambda op: op.attr("batch_group_count") > 0, "batch_group_count"),
        law("C23", "feature_group_count or batch_group_count is 1",
            lambda op: 1 in (op.attr("feature_group_count"), op.attr("batch_group_count")), "feature_group_count", "batch_group_count"),
        _divides("C10", "batch_group_count divides the input batch", _size(0, "input_batch"), "batch_group_count"),
        _divides("C11", "feature_group_count divides the input features", _size(0, "input_feature"), "feature_group_count"),
        law("C14", "the kernel has the input's features of one group", _kernel_features),
        _divides("C15", "batch_group_count divides the output features", _size(1, "kernel_output_feature"), "batch_group_count"),
        _divides("C16", "feature_group_count divides the output features", _size(1, "kernel_output_feature"), "feature_group_count"),
        law("C24", "two precisions, or none", lambda op: len(op.attr("precision_config") or ()) in (0, 2), "precision_config"),
    )  # fmt: skip


def _conv_result_rules(padding_rank: bool) -> tuple[Constraint, ...]:
    del padding_rank
    return (
        law("C26", "the result has the rank of lhs", lambda op: result_type(op).rank == input_type(op, 0).rank, "lhs", "result", result=True),
        law("C25", "the result's shape is batch, features and windows", _conv_shape, result=True),
        law("C27", "plain lhs and rhs have the same element type", lambda op: any(map(is_quantized, _q(op)))
            or input_type(op, 0).element == input_type(op, 1).element, "lhs", "rhs", result=True),
        *_quantized_rules(
            28,
            law("C29", "a per-axis quantized rhs is quantized along its output features", lambda op: _axis(input_type(op, 1)) in
                (None, _numbers(op).kernel_output_feature), "rhs", "dimension_numbers", result=True),
            law("C30", "a per-axis quantized result is quantized along its features", lambda op: _axis(result_type(op)) in
                (None, _numbers(op).output_feature), "result", "dimension_numbers", result=True),
        ),
    )  # fmt: skip


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
            law("C4", "padding holds a pair for each spatial dimension", lambda op: len(op.attr("padding")) == _rank_minus_2(op)
                and all(len(p) == 2 for p in op.attr("padding")), "padding", "lhs"),
            *_conv_result_rules(True),
        ),
    )
)  # fmt: skip

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
            law("C4", "padding holds a pair for each spatial dimension",
                lambda op: same_shapes(input_type(op, 2).shape, (_rank_minus_2(op), 2)), "padding", "lhs"),
            *_conv_result_rules(False),
        ),
    )
)  # fmt: skip


# ---------------------------------------------------------------- reduce_window


def _rank(op: Op) -> int:
    return input_type(op, 0).rank


def _window_ones(op: Op) -> tuple[int, ...]:
    return (1,) * _rank(op)


def _no_padding(op: Op) -> Pairs:
    return ((0, 0),) * _rank(op)


_INPUTS = tensors(*ANY, quantized="per-tensor")


def _reduce_window_shape(op: Op) -> tuple[int | None, ...]:
    t = input_type(op, 0)
    rows = zip(t.shape, op.attr("window_dimensions"), op.attr("window_strides"), op.attr("padding"), op.attr("base_dilations"),
               op.attr("window_dilations"), strict=True)  # fmt: skip
    return tuple(num_windows(n, w, s, low, high, b, k) for n, w, s, (low, high), b, k in rows)


def _infer_reduce_window(op: Op) -> Sequence[Type]:
    shape = _reduce_window_shape(op)
    types: list[Type] = []
    for t in returned(op.regions[0]):
        if not isinstance(t, TensorType):
            raise fail(op, f"expected tensors from the body, found {t}", "C13")
        types.append(TensorType(shape, t.element))
    return types


def _reduce_window_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    shape = input_type(op, 0).static_shape
    index: list[Index] = []
    where: list[Condition] = []
    rows = zip(d, shape, op.attr("window_dimensions"), op.attr("window_strides"), op.attr("padding"), op.attr("base_dilations"),
               op.attr("window_dilations"), strict=True)  # fmt: skip
    for x, n, window, stride, (low, high), base, dilation in rows:
        w: Index = ix.range(window) if window != 1 else 0
        position = x * stride + w * dilation - low
        if low or high or base != 1:
            where.append(Condition(position, 0, (n - 1) * base))
        if base != 1:
            where.append(Condition(position % base, 0, 0))
        index.append(position // base if base != 1 else position)
    count = len(op.segment("inputs"))
    for k in range(count):
        ix.read(k, index, where)
    for k in range(count):
        ix.read(count + k, ())


def _counted(op: Op) -> bool | str:
    n = len(op.operands)
    return (n > 0 and n % 2 == 0) or f"expected as many init values as inputs, found {n} operands"


def _window_body(op: Op) -> bool | str:
    # A body may also work on windows of some of the dimensions, which are those of the window.
    return reducer_problem(op.regions[0], inputs(op, "inputs"), inputs(op, "init_values"), op.attr("window_dimensions")) or True


def _one_for_each(label: str, name: str, operand: str) -> Constraint:
    return attributes_size(label, name, lambda op: input_type(op, 0).rank, f"dimensions of {operand}")


register(
    OpDefinition(
        name="stablehlo.reduce_window",
        spec="StableHLO: reduce_window",
        operands=(Operand("inputs", _INPUTS, variadic=True), Operand("init_values", _INPUTS, variadic=True)),
        attributes=(
            Attribute("window_dimensions", "i64s"),
            Attribute("window_strides", "i64s", _window_ones),
            Attribute("base_dilations", "i64s", _window_ones),
            Attribute("window_dilations", "i64s", _window_ones),
            Attribute("padding", "pairs", _no_padding),
        ),
        regions=("body",),
        infer=_infer_reduce_window,
        access=_reduce_window_access,
        semantics=Fold(inputs=(0,), inits=(1,)),
        constraints=(
            law("C1", "as many init values as inputs, at least one", _counted),
            law("C2", "inputs have one shape", lambda op: same_shapes(*(t.shape for t in inputs(op, "inputs"))), "inputs"),
            law("C3", "inputs and init values have the same element types", lambda op: all(one_element(a, b) for a, b in
                zip(inputs(op, "inputs"), inputs(op, "init_values"), strict=True)), "inputs", "init_values"),
            _one_for_each("C4", "window_dimensions", "the inputs"),
            _all("window_dimensions", 1, "C5"),
            _one_for_each("C6", "window_strides", "the inputs"),
            _all("window_strides", 1, "C7"),
            _one_for_each("C8", "base_dilations", "the inputs"),
            _all("base_dilations", 1, "C9"),
            _one_for_each("C10", "window_dilations", "the inputs"),
            _all("window_dilations", 1, "C11"),
            law("C12", "padding holds a pair for each dimension", lambda op: len(op.attr("padding")) == _rank(op)
                and all(len(p) == 2 for p in op.attr("padding")), "padding", "inputs"),
            law("C13", "the body takes 2N scalars and returns N, of types that inputs and init values are promotable to", _window_body),
            law("C14", "results have one shape", lambda op: same_shapes(*(result_type(op, k).shape for k in range(len(op.results)))), "results",
                result=True),
            law("C15", "the results' shape is the number of windows", lambda op: not op.results or
                same_shapes(result_type(op).shape, _reduce_window_shape(op)), "inputs", "window_dimensions", "result", result=True),
            law("C16", "results have the element types that the body returns", lambda op: [result_type(op, k).element for k in
                range(len(op.results))] == [getattr(t, "element", None) for t in returned(op.regions[0])], "results", result=True),
        ),
        result_names=("results",),
    )
)  # fmt: skip


# ---------------------------------------------------------------- select_and_scatter


def _source_shape(op: Op) -> bool | str:
    t = input_type(op, 0)
    rows = zip(t.shape, op.attr("window_dimensions"), op.attr("window_strides"), op.attr("padding"), strict=True)
    shape = tuple(num_windows(n, w, s, low, high) for n, w, s, (low, high) in rows)
    source = input_type(op, 1)
    return same_shapes(shape, source.shape) or f"expected a source of shape {['?' if n is None else n for n in shape]}, found {source}"


def _select_body(op: Op) -> bool | str:
    body, element = op.regions[0], input_type(op, 0).element
    if len(body.arguments) != 2:
        return f"expected 2 arguments of select, found {len(body.arguments)}"
    for a in body.arguments:
        if not isinstance(a.type, TensorType) or a.type.shape or not one_element(a.type, TensorType((), element)):
            return f"expected a scalar {element} argument of select, found {a.type}"
    out = returned(body)
    ok = len(out) == 1 and isinstance(out[0], TensorType) and not out[0].shape and out[0].element == ELEMENT_TYPES["i1"]
    return ok or f"expected select to return tensor<i1>, found {', '.join(map(str, out))}"


def _infer_select_and_scatter(op: Op) -> Sequence[Type]:
    (t,) = returned(op.regions[1])
    if not isinstance(t, TensorType):
        raise fail(op, f"expected a tensor from scatter, found {t}", "C10")
    return (TensorType(input_type(op, 0).shape, t.element),)


_SCATTERS = Declined("which window chose an element depends on the values")
register(
    OpDefinition(
        name="stablehlo.select_and_scatter",
        spec="StableHLO: select_and_scatter",
        operands=(Operand("operand", _INPUTS), Operand("source", _INPUTS), Operand("init_value", tensors(*ANY, quantized="per-tensor", rank=0))),
        results=(Operand("result", _INPUTS),),
        attributes=(
            Attribute("window_dimensions", "i64s", _window_ones),
            Attribute("window_strides", "i64s", _window_ones),
            Attribute("padding", "pairs", _no_padding),
        ),
        regions=("select", "scatter"),
        infer=_infer_select_and_scatter,
        access=_SCATTERS,
        semantics=_SCATTERS,
        constraints=(
            law("C1", "operand and source have the same element type", lambda op: one_element(input_type(op, 0), input_type(op, 1)), "operand",
                "source"),
            law("C3", "init_value has the operand's element type", lambda op: one_element(input_type(op, 0), input_type(op, 2)), "operand",
                "init_value"),
            _one_for_each("C4", "window_dimensions", "the operand"),
            _all("window_dimensions", 1, "C5"),
            _one_for_each("C6", "window_strides", "the operand"),
            _all("window_strides", 1, "C7"),
            law("C8", "padding holds a pair for each dimension", lambda op: len(op.attr("padding")) == _rank(op)
                and all(len(p) == 2 for p in op.attr("padding")), "padding", "operand"),
            law("C2", "source has an element for each window", _source_shape),
            law("C9", "select takes two scalars of the operand's element type and returns a boolean", _select_body),
            law("C10", "scatter takes two scalars and returns one, of a type that the operand's is promotable to",
                lambda op: reducer_problem(op.regions[1], [input_type(op, 1)], [input_type(op, 2)]) or True),
            law("C11", "operand and result have the same shape", lambda op: same_shapes(input_type(op, 0).shape, result_type(op).shape), "operand",
                "result", result=True),
            law("C12", "the result has the element type that scatter returns", lambda op: [result_type(op).element] ==
                [getattr(t, "element", None) for t in returned(op.regions[1])], "result", result=True),
        ),
    )
)  # fmt: skip

_ = (distinct, eq, within)
