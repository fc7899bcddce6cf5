"""Rules that many ops share, and the small helpers that rules are written with.

A rule states what it expects in its text; when it fails, the message adds what was found. Unknown dimensions agree with
everything:
`eq`, `le` and the shape helpers say "can be".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo.module import Block, Op
from hlo.ops.common import fail
from hlo.registry import Constraint
from hlo.types import ElementType, QuantizedType, TensorType, Type

__all__ = [
    "at_least",
    "attributes_size",
    "baseline",
    "distinct",
    "eq",
    "input_type",
    "inputs",
    "is_quantized",
    "law",
    "le",
    "num_windows",
    "one_element",
    "one_shape",
    "pairs_for_each",
    "promotable",
    "reducer_problem",
    "require",
    "result_is_operand",
    "result_type",
    "results_of_body",
    "same_shapes",
    "sorted_distinct",
    "within",
    "within_bounds",
]

Verdict = bool | str | None


def law(label: str, text: str, holds: Callable[[Op], Verdict], *show: str, result: bool = False) -> Constraint:
    """The constraint `text`, decided by `holds`: True or None when it does, False or a message when not.

    `show` names the operands, attributes or "result" that the message shows. A law that shows the result looks at it; `result`
    says so of others.
    """

    def check(op: Op) -> str | None:
        verdict = holds(op)
        if verdict is True or verdict is None:
            return None
        return verdict if isinstance(verdict, str) else "found " + describe(op, show)

    return Constraint(label, text, check, on_result=result or not {"result", "results"}.isdisjoint(show))


def describe(op: Op, names: Sequence[str]) -> str:
    """`name = value` for operands (their types), attributes and results."""
    parts = []
    operands = {o.name for o in op.definition.operands}
    for n in names:
        if n == "result" or n == "results":
            parts.append("result " + ", ".join(str(r.type) for r in op.results))
        elif n in operands:
            parts.append(f"{n}: " + ", ".join(str(v.type) for v in op.segment(n)))
        else:
            value = op.attr(n)
            parts.append(f"{n} = {list(value) if isinstance(value, tuple) else value}")
    return "; ".join(parts) or ", ".join(str(v.type) for v in op.operands)


def require(op: Op, *rules: Constraint) -> None:
    """Raises VerificationError for the first rule that does not hold: what an inference needs before it can begin."""
    for rule in rules:
        found = rule.check(op)
        if found is not None:
            raise fail(op, f"{rule.text}: {found}", rule.label)


# ---------------------------------------------------------------- accessors


def input_type(op: Op, name: str | int) -> TensorType:
    """The tensor type of a single operand, by name or number. Raises VerificationError when it is no tensor."""
    value = op.operands[name] if isinstance(name, int) else op.segment(name)[0]
    if not isinstance(value.type, TensorType):
        raise fail(op, f"operand {name} must be a tensor, found {value.type}")
    return value.type


def inputs(op: Op, name: str) -> list[TensorType]:
    """The tensor types of a variadic operand."""
    types = []
    for v in op.segment(name):
        if not isinstance(v.type, TensorType):
            raise fail(op, f"operand {name} must be tensors, found {v.type}")
        types.append(v.type)
    return types


def result_type(op: Op, index: int = 0) -> TensorType:
    """The tensor type of a result. Raises VerificationError when there is none."""
    if index >= len(op.results) or not isinstance(op.results[index].type, TensorType):
        raise fail(op, f"result {index} must be a tensor")
    return op.results[index].tensor


# ---------------------------------------------------------------- sizes and elements


def eq(a: int | None, b: int | None) -> bool:
    """Can both be the same?"""
    return a is None or b is None or a == b


def le(a: int | None, b: int | None) -> bool:
    """Can a be at most b?"""
    return a is None or b is None or a <= b


def same_shapes(*shapes: Sequence[int | None]) -> bool:
    """Can all shapes be the same? Unknown dimensions agree, each with all others."""
    ranks = {len(s) for s in shapes}
    if len(ranks) > 1:
        return False
    return all(len({n for n in column if n is not None}) <= 1 for column in zip(*shapes, strict=True))


def shape_stays(op: Op) -> bool:
    """Whether the result may have the first operand's shape."""
    return same_shapes(input_type(op, 0).shape, result_type(op).shape)


def type_stays(op: Op) -> bool:
    """Whether the result may have the first operand's type."""
    return shape_stays(op) and input_type(op, 0).element == result_type(op).element


def entry_each(op: Op) -> bool:
    """Whether the second operand, a row of numbers, has one for each dimension of the result."""
    return eq(input_type(op, 1).shape[0], result_type(op).rank)


def within_bounds(a: TensorType, b: TensorType) -> bool:
    """Do the known dimensions of each lie within the bounds of the other?"""
    for x, y in ((a, b), (b, a)):
        for n, bound in zip(x.shape, y.bounds or (), strict=False):
            if n is not None and bound is not None and n > bound:
                return False
    return True


def is_quantized(t: Type) -> bool:
    """Is it a tensor of quantized elements?"""
    return isinstance(t, TensorType) and isinstance(t.element, QuantizedType)


def baseline(e: ElementType | QuantizedType) -> object:
    """An element type without its quantization parameters."""
    if isinstance(e, ElementType):
        return e
    return (e.storage, e.expressed, e.storage_min, e.storage_max, e.axis, e.blocks)


def one_element(*types: TensorType) -> bool:
    """Do all have one element type, scales and zero points aside?"""
    return len({baseline(t.element) for t in types}) <= 1


def promotable(a: ElementType | QuantizedType, b: ElementType | QuantizedType) -> bool:
    """May an `a` become a `b`: the same kind of number, and no narrower?"""
    if isinstance(a, QuantizedType) or isinstance(b, QuantizedType):
        if not (isinstance(a, QuantizedType) and isinstance(b, QuantizedType)):
            return False
        return a.expressed == b.expressed and a.storage.kind is b.storage.kind and a.storage.bits <= b.storage.bits
    return a.kind is b.kind and a.bits <= b.bits


def num_windows(
    n: int | None, window: int | None, stride: int, low: int, high: int, base: int = 1, dilation: int = 1
) -> int | None:
    """How many windows fit over a dimension of size n after dilation and padding.

    >>> num_windows(10, 3, 2, 1, 1)
    5
    """
    if n is None or window is None:
        return None
    dilated = 0 if n == 0 else (n - 1) * base + 1
    padded = low + dilated + high
    reach = 0 if window == 0 else (window - 1) * dilation + 1
    return 0 if padded <= 0 or reach > padded else (padded - reach) // stride + 1


# ---------------------------------------------------------------- rules on attributes

Get = Callable[[Op], Sequence[int]]


def _getter(name: str | Get) -> Get:
    if callable(name):
        return name
    return lambda op: op.attr(name) or ()


def distinct(label: str, what: str, get: str | Get | None = None) -> Constraint:
    """is_unique(what)."""
    read = _getter(get or what)
    return law(label, f"{what} are distinct", lambda op: len(set(v := tuple(read(op)))) == len(v) or f"found {list(v)}")


def sorted_distinct(label: str, what: str, get: str | Get | None = None, unique: bool = True) -> Constraint:
    """is_sorted(what), and is_unique(what) where asked."""
    read = _getter(get or what)

    def holds(op: Op) -> Verdict:
        v = list(read(op))
        return (v == sorted(v) and (not unique or len(set(v)) == len(v))) or f"found {v}"

    return law(label, f"{what} are in ascending order" + (" and distinct" if unique else ""), holds)


def within(
    label: str, what: str, of: str, limit: Callable[[Op], int], get: str | Get | None = None, low: int = 0, result: bool = False
) -> Constraint:
    """low <= what < limit, for one integer or a list."""
    read = get if callable(get) else (lambda op, n=get or what: op.attr(n))

    def holds(op: Op) -> Verdict:
        value = read(op)
        values = (value,) if isinstance(value, int) else tuple(value or ())
        top = limit(op)
        return (
            all(low <= v < top for v in values)
            or f"expected {low} <= {what} < {top}, found {list(values) if values != (value,) else value}"
        )

    return law(label, f"{what} lie within {of}", holds, result=result)


def at_least(label: str, name: str, least: int) -> Constraint:
    """least <= every entry of an attribute."""
    return law(label, f"{least} <= {name}", lambda op: all(n >= least for n in op.attr(name) or ()), name)


def precisions(label: str) -> Constraint:
    """size(precision_config) is 0 or 2 in the specification; the reference takes one, too, and MLIR's own forms leave it out."""
    return law(label, "at most two precisions", lambda op: len(op.attr("precision_config") or ()) <= 2, "precision_config")


def attributes_size(label: str, what: str, size: Callable[[Op], int], of: str, get: str | Get | None = None) -> Constraint:
    """size(what) = size(op)."""
    read = _getter(get or what)
    return law(
        label, f"as many {what} as {of}", lambda op: len(read(op)) == size(op) or f"expected {size(op)}, found {len(read(op))}"
    )


def pairs_for_each(label: str, name: str, rank: Callable[[Op], int], kind: str, *show: str) -> Constraint:
    """shape(name) = [rank, 2]."""
    return law(
        label,
        f"{name} holds a pair for each {kind}",
        lambda op: len(op.attr(name)) == rank(op) and all(len(p) == 2 for p in op.attr(name)),
        name,
        *show,
    )


# ---------------------------------------------------------------- rules on operands and results


def one_shape(label: str, name: str) -> Constraint:
    """All operands of a variadic name have the same shape."""
    return law(label, f"{name} have one shape", lambda op: same_shapes(*(t.shape for t in inputs(op, name))), name)


def result_is_operand(label: str, text: str) -> Constraint:
    """type(result) = type(operand)."""
    return law(
        label,
        text,
        lambda op: shape_stays(op) and one_element(input_type(op, 0), result_type(op)),
        "operand",
        "result",
    )


def results_of_body(label: str) -> Constraint:
    """element_type(results[k]) = element_type of what the body returns at k."""
    return law(
        label,
        "results have the element types that the body returns",
        lambda op: (
            [result_type(op, k).element for k in range(len(op.results))]
            == [getattr(t, "element", None) for t in returned(op.regions[0])]
        ),
        "results",
    )


# ---------------------------------------------------------------- reducers


def returned(block: Block) -> list[Type]:
    """The types that a region returns."""
    return [v.type for v in block.results]


def reducer_problem(
    block: Block, input_types: Sequence[TensorType], init_types: Sequence[TensorType], kept: Sequence[int | None] = ()
) -> str | None:
    """What is wrong with a body (E0…, E0…) -> (E0…) that folds these inputs; None when nothing is.

    `kept` are the dimensions that the folding leaves: a body may work on tensors of some of them, in order.
    """
    n = len(input_types)
    out = returned(block)
    if len(block.arguments) != 2 * n:
        return f"expected {2 * n} arguments of the body, found {len(block.arguments)}"
    if not out or len(out) != n:
        return f"expected {n} results of the body, found {len(out)}"
    for i in range(n):
        acc, left, right = out[i], block.arguments[i].type, block.arguments[n + i].type
        if not isinstance(acc, TensorType):
            return f"expected tensors from the body, found {acc}"
        for t in (left, right):
            if (
                not isinstance(t, TensorType)
                or not same_shapes(t.shape, acc.shape)
                or baseline(t.element) != baseline(acc.element)
            ):
                return f"expected arguments and results of one type in the body, found {t} and {acc}"
        if not promotable(init_types[i].element, acc.element):
            return f"expected init value {i} ({init_types[i].element}) to be promotable to the body's {acc.element}"
        if not promotable(input_types[i].element, acc.element):
            return f"expected input {i} ({input_types[i].element}) to be promotable to the body's {acc.element}"
        if not same_shapes(init_types[i].shape, acc.shape):
            return f"expected init value {i} to have the shape of the body's {acc}, found {init_types[i]}"
        assert isinstance(right, TensorType)
        rest = iter(kept)
        if not all(any(eq(k, d) for k in rest) for d in right.shape):
            return f"expected the body's argument {n + i} to be a scalar, found {right}"
    return None
