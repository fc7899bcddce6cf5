"""Linear algebra and normalisation: cholesky, triangular_solve, fft, batch_norm_*; the deprecated dot, einsum and broadcast."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.access import AccessBuilder, Index
from hlo.errors import Declined
from hlo.module import Op
from hlo.ops.common import fail
from hlo.ops.rules import baseline, eq, input_type, law, one_element, precisions, result_type, same_shapes, within
from hlo.registry import Attribute, Constraint, Move, OpDefinition, Operand, SumOfProducts, register
from hlo.types import ELEMENT_TYPES, TensorType, Type
from hlo.typesets import ANY, C, F, tensors

__all__: list[str] = []

_FLOATING = tensors(F, C, quantized="per-tensor")


def _all_but(count: int) -> object:
    """An access function that reads whole trailing dimensions: `count` of them, at the output's leading index."""

    def access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
        for k in range(len(op.operands)):
            shape = input_type(op, k).static_shape
            ix.read(k, [*d[: len(shape) - count], *(ix.range(n) for n in shape[len(shape) - count :])])

    return access


_SOLVES = Declined("an element depends on its whole matrix, through a recurrence")


def _like(label: str, operand: int, what: str) -> Constraint:
    return law(
        label,
        f"the result has the type of {what}",
        lambda op: (
            same_shapes(input_type(op, operand).shape, result_type(op).shape)
            and one_element(input_type(op, operand), result_type(op))
        ),
        what,
        "result",
    )


register(
    OpDefinition(
        name="stablehlo.cholesky",
        spec="StableHLO: cholesky",
        operands=(Operand("a", _FLOATING),),
        results=(Operand("result", _FLOATING),),
        attributes=(Attribute("lower", "bool", False),),
        infer=lambda op: (input_type(op, 0),),
        access=_all_but(2),  # type: ignore[arg-type]
        semantics=_SOLVES,
        constraints=(
            law("C2", "2 <= rank(a)", lambda op: input_type(op, 0).rank >= 2, "a"),
            law(
                "C3",
                "the last two dimensions of a are equal",
                lambda op: eq(input_type(op, 0).shape[-2], input_type(op, 0).shape[-1]),
                "a",
            ),
            _like("C1", 0, "a"),
        ),
    )
)


def _solvable(op: Op) -> bool | str:
    a, b = input_type(op, 0), input_type(op, 1)
    side = b.shape[-2] if op.attr("left_side") else b.shape[-1]
    if not eq(a.shape[-2], a.shape[-1]):
        return f"expected a square matrix, found {a}"
    if not eq(a.shape[-1], side):
        return f"expected {a.shape[-1]} in dimension {-2 if op.attr('left_side') else -1} of b, found {b}"
    return same_shapes(a.shape[:-2], b.shape[:-2]) or f"expected equal leading dimensions, found {a} and {b}"


register(
    OpDefinition(
        name="stablehlo.triangular_solve",
        spec="StableHLO: triangular_solve",
        operands=(Operand("a", _FLOATING), Operand("b", _FLOATING)),
        results=(Operand("result", _FLOATING),),
        attributes=(
            Attribute("left_side", "bool"),
            Attribute("lower", "bool"),
            Attribute("unit_diagonal", "bool"),
            Attribute("transpose_a", "enum", domain="transpose"),
        ),
        infer=lambda op: (input_type(op, 1),),
        access=_all_but(2),  # type: ignore[arg-type]
        semantics=_SOLVES,
        constraints=(
            law(
                "C1", "a and b have the same element type", lambda op: one_element(input_type(op, 0), input_type(op, 1)), "a", "b"
            ),
            law("C2", "2 <= rank(a) = rank(b)", lambda op: 2 <= input_type(op, 0).rank == input_type(op, 1).rank, "a", "b"),
            law("C3", "a holds square matrices that b's fit to", _solvable),
            law(
                "transpose_a",
                "transpose_a is no TRANSPOSE_INVALID",
                lambda op: op.attr("transpose_a") != "TRANSPOSE_INVALID",
                "transpose_a",
            ),
            _like("C4", 1, "b"),
        ),
    )
)

# ---------------------------------------------------------------- fft


def _lengths(op: Op) -> tuple[int, ...]:
    lengths: tuple[int, ...] = op.attr("fft_length")
    return lengths


def _fft_element(op: Op) -> bool:
    e, kind = input_type(op, 0).element, op.attr("fft_type")
    return e in (ELEMENT_TYPES["f32"], ELEMENT_TYPES["f64"]) if kind == "RFFT" else getattr(e, "is_complex", False)


def _fft_sizes(op: Op) -> bool | str:
    t, lengths, kind = input_type(op, 0), _lengths(op), op.attr("fft_type")
    tail = t.shape[t.rank - len(lengths) :]
    if kind == "RFFT":
        return same_shapes(tail, lengths) or f"expected trailing dimensions {list(lengths)}, found {t}"
    if kind == "IRFFT":
        expected = (*lengths[:-1], lengths[-1] // 2 + 1 if lengths[-1] else 0)
        # By the specification an empty line has an empty half; JAX's verifier lets it have one element, and jnp.fft.hfft does.
        of_one = (*lengths[:-1], 1)
        is_empty = lengths[-1] == 0 and same_shapes(tail, of_one)
        return is_empty or same_shapes(tail, expected) or f"expected trailing dimensions {list(expected)}, found {t}"
    return True  # between complex tensors, the lengths are the implementation's hint


def _infer_fft(op: Op) -> Sequence[Type]:
    t, lengths, kind = input_type(op, 0), _lengths(op), op.attr("fft_type")
    if kind == "RFFT":
        last = t.shape[-1]
        element = ELEMENT_TYPES.get(f"complex<{t.element}>")
        if element is None:
            raise fail(op, f"expected f32 or f64, found {t}", "C2")
        return (TensorType((*t.shape[:-1], None if last is None else (last // 2 + 1 if last else 0)), element),)
    if kind == "IRFFT":
        real = getattr(t.element, "real", None)
        if real is None:
            raise fail(op, f"expected complex elements, found {t}", "C2")
        return (TensorType((*t.shape[:-1], lengths[-1]), real),)
    return (t,)


def _fft_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    shape, n = input_type(op, 0).static_shape, len(_lengths(op))
    ix.read(0, [*d[: len(shape) - n], *(ix.range(m) for m in shape[len(shape) - n :])])


register(
    OpDefinition(
        name="stablehlo.fft",
        spec="StableHLO: fft",
        operands=(Operand("operand", tensors(F, C)),),
        results=(Operand("result", tensors(F, C)),),
        attributes=(Attribute("fft_type", "enum"), Attribute("fft_length", "i64s")),
        infer=_infer_fft,
        access=_fft_access,
        semantics=Declined("a sum with complex weights over the transformed dimensions"),
        constraints=(
            law("C3", "1 <= size(fft_length) <= 3", lambda op: 1 <= len(_lengths(op)) <= 3, "fft_length"),
            law(
                "C1",
                "size(fft_length) <= rank(operand)",
                lambda op: len(_lengths(op)) <= input_type(op, 0).rank,
                "fft_length",
                "operand",
            ),
            law("C2", "the element type is the one that fft_type transforms", _fft_element, "operand", "fft_type"),
            law("C4", "the transformed dimensions have the sizes of fft_length", _fft_sizes),
            law(
                "C5",
                "the result has the shape of the transform",
                lambda op: same_shapes(_infer_fft(op)[0].shape, result_type(op).shape),  # type: ignore[union-attr]
                "operand",
                "fft_type",
                "result",
            ),
        ),
    )
)

# ---------------------------------------------------------------- batch normalisation


def _feature(op: Op) -> int:
    k: int = op.attr("feature_index")
    return k


def _batch_norm(
    name: str,
    operands: Sequence[str],
    results: Sequence[str],
    labels: dict[str, str],
    infer: object,
    access: object,
    semantics: object,
) -> None:
    """One of the three; `labels` maps each one-dimensional operand to its constraint."""
    wide, thin = tensors(F, quantized="per-tensor"), tensors(F, quantized="per-tensor", rank=1)
    big = ("operand", "grad_output", "output", "result", "grad_operand")

    def length_rule(operand: str, label: str) -> Constraint:
        return law(
            label,
            f"{operand} has an element for each feature",
            lambda op: eq(input_type(op, operand).shape[0], input_type(op, 0).shape[_feature(op)]),
            operand,
            "operand",
        )

    one_thin = [o for o in operands if o not in big]
    extra: list[Constraint] = []
    if "grad_output" in operands:
        extra.append(
            law(
                "C3",
                "operand and grad_output have the same shape",
                lambda op: same_shapes(input_type(op, 0).shape, input_type(op, "grad_output").shape),
                "operand",
                "grad_output",
            )
        )
        extra.append(
            law(
                "C4",
                "scale, mean and variance have the same shape",
                lambda op: same_shapes(*(input_type(op, o).shape for o in one_thin)),
                *one_thin,
            )
        )
    register(
        OpDefinition(
            name=f"stablehlo.{name}",
            spec=f"StableHLO: {name}",
            operands=tuple(Operand(o, wide if o in big else thin) for o in operands),
            results=tuple(Operand(r, wide if r in big else thin) for r in results),
            attributes=(Attribute("epsilon", "f32"), Attribute("feature_index", "i64")),
            infer=infer,  # type: ignore[arg-type]
            access=access,  # type: ignore[arg-type]
            semantics=semantics,  # type: ignore[arg-type]
            constraints=(
                within("C1", "feature_index", "the operand's dimensions", lambda op: input_type(op, 0).rank),
                law(
                    "C2",
                    "operands have the same element type",
                    lambda op: len({baseline(input_type(op, k).element) for k in range(len(op.operands))}) == 1,
                    *operands,
                ),
                *extra,
                *(length_rule(o, label) for o, label in labels.items()),
            ),
            result_names=tuple(results),
        )
    )


def _thin(op: Op) -> TensorType:
    t = input_type(op, 0)
    return TensorType((t.shape[_feature(op)],), t.element)


def _infer_training(op: Op) -> Sequence[Type]:
    return (input_type(op, 0), _thin(op), _thin(op))


def _inference_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    ix.read(0, d)
    for k in range(1, 5):
        ix.read(k, (d[_feature(op)],))


_REDUCES = Declined("several reductions over all but the feature dimension; rewritten to plain ops first")
_batch_norm(
    "batch_norm_inference",
    ("operand", "scale", "offset", "mean", "variance"),
    ("result",),
    {"scale": "C3", "offset": "C4", "mean": "C5", "variance": "C6"},
    lambda op: (input_type(op, 0),),
    _inference_access,
    Declined("(operand - mean) * scale / sqrt(variance + epsilon) + offset; rewritten to plain ops first"),
)
_batch_norm(
    "batch_norm_training",
    ("operand", "scale", "offset"),
    ("output", "batch_mean", "batch_var"),
    {"scale": "C3", "offset": "C4"},
    _infer_training,
    _REDUCES,
    _REDUCES,
)
_batch_norm(
    "batch_norm_grad",
    ("operand", "scale", "mean", "variance", "grad_output"),
    ("grad_operand", "grad_scale", "grad_offset"),
    {"scale": "C5"},
    _infer_training,
    _REDUCES,
    _REDUCES,
)

# ---------------------------------------------------------------- dot, einsum, broadcast (deprecated)


def _dot_shape(op: Op) -> tuple[int | None, ...]:
    a, b = input_type(op, 0), input_type(op, 1)
    return (*a.shape[:-1], *b.shape[1:])


def _dot_fits(op: Op) -> bool | str:
    a, b = input_type(op, 0), input_type(op, 1)
    if not (1 <= a.rank <= 2 and 1 <= b.rank <= 2):
        return f"expected vectors and matrices, found {a} and {b}"
    return eq(a.shape[-1], b.shape[0]) or f"expected equal sizes, found {a} and {b}"


def _dot_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    a = input_type(op, 0)
    k = ix.range(a.static_shape[-1])
    ix.read(0, (*d[: a.rank - 1], k))
    ix.read(1, (k, *d[a.rank - 1 :]))


_PRECISION = Attribute("precision_config", "enums", (), "precision")
register(
    OpDefinition(
        name="stablehlo.dot",
        spec="StableHLO: dot (deprecated)",
        operands=(Operand("lhs", tensors(*ANY, quantized="any")), Operand("rhs", tensors(*ANY, quantized="any"))),
        attributes=(_PRECISION,),
        infer=Declined("the result's element type is the program's choice"),
        access=_dot_access,
        semantics=SumOfProducts(),
        constraints=(
            law("C1", "lhs and rhs are vectors or matrices with an inner dimension in common", _dot_fits),
            precisions("C3"),
            law(
                "C2",
                "the result has the outer dimensions",
                lambda op: same_shapes(_dot_shape(op), result_type(op).shape),
                "lhs",
                "rhs",
                "result",
            ),
        ),
    )
)


def _einsum_parts(op: Op) -> tuple[list[str], str]:
    left, _, right = op.attr("einsum_config").replace(" ", "").partition("->")
    return left.split(","), right


def _einsum_problem(op: Op) -> bool | str:
    config: str = op.attr("einsum_config")
    ins, out = _einsum_parts(op)
    if "->" not in config or len(ins) != len(op.operands):
        return f"expected {len(op.operands)} operands before '->', found {config!r}"
    sizes: dict[str, int | None] = {}
    for k, letters in enumerate(ins):
        t = input_type(op, k)
        if "." in letters or not all(c.isalpha() for c in letters):
            return True  # an ellipsis: shapes are not judged
        if len(letters) != t.rank:
            return f"expected {t.rank} letters for {t}, found {letters!r}"
        for c, n in zip(letters, t.shape, strict=True):
            if c in sizes and not eq(sizes[c], n):
                return f"expected one size for {c!r}, found {sizes[c]} and {n}"
            sizes[c] = n if sizes.get(c) is None else sizes[c]
    if len(set(out)) != len(out) or any(c not in sizes for c in out):
        return f"expected distinct letters of the operands after '->', found {out!r}"
    shape = tuple(sizes[c] for c in out)
    return same_shapes(shape, result_type(op).shape) or f"expected shape {list(shape)}, found {result_type(op)}"


def _einsum_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    ins, out = _einsum_parts(op)
    at: dict[str, Index] = dict(zip(out, d, strict=True))
    for k, letters in enumerate(ins):
        for c, n in zip(letters, input_type(op, k).static_shape, strict=True):
            if c not in at:
                at[c] = ix.range(n)
    for k, letters in enumerate(ins):
        ix.read(k, [at[c] for c in letters])


for _name, _operands in (("einsum", ("lhs", "rhs")), ("unary_einsum", ("operand",))):
    register(
        OpDefinition(
            name=f"stablehlo.{_name}",
            spec=f"StableHLO: {_name} (deprecated)",
            operands=tuple(Operand(o, tensors(*ANY, quantized="per-tensor")) for o in _operands),
            attributes=(Attribute("einsum_config", "string"),),
            infer=Declined("the result's element type is the program's choice"),
            access=_einsum_access,
            semantics=SumOfProducts() if _name == "einsum" else Declined("a sum over the letters that the result lacks"),
            constraints=(
                law(
                    "C1", "letters name dimensions of one size, and the result's are the operands'", _einsum_problem, result=True
                ),
            ),
        )
    )


def _broadcast_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    ix.read(0, d[len(op.attr("broadcast_sizes")) :])


register(
    OpDefinition(
        name="stablehlo.broadcast",
        spec="StableHLO: broadcast (deprecated)",
        operands=(Operand("operand", tensors(*ANY, quantized="per-tensor")),),
        attributes=(Attribute("broadcast_sizes", "i64s"),),
        infer=lambda op: (TensorType((*op.attr("broadcast_sizes"), *input_type(op, 0).shape), input_type(op, 0).element),),
        access=_broadcast_access,
        semantics=Move(),
        constraints=(
            law("C1", "0 <= broadcast_sizes", lambda op: all(n >= 0 for n in op.attr("broadcast_sizes")), "broadcast_sizes"),
        ),
    )
)
