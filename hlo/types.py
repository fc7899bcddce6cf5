"""Types of values: tensors, tokens, tuples, functions; element types and their NumPy storage."""

from __future__ import annotations

import enum
from collections.abc import Hashable
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from hlo.display import facts_as_html
from hlo.lazy import cached_property

__all__ = [
    "ELEMENT_TYPES",
    "BufferType",
    "ElementKind",
    "ElementType",
    "FunctionType",
    "Layout",
    "OpaqueType",
    "QuantizedType",
    "TensorType",
    "TokenType",
    "TupleType",
    "Type",
    "element_type",
    "named_element",
    "with_layout",
]


class ElementKind(enum.Enum):
    """What arithmetic an element type has."""

    BOOLEAN = "boolean"
    SIGNED = "signed integer"
    UNSIGNED = "unsigned integer"
    FLOAT = "float"
    COMPLEX = "complex"
    INDEX = "index"


def _without_hash(state: dict[str, object]) -> dict[str, object]:
    """What is pickled of a type: strings have other hashes in another process."""
    return {k: v for k, v in state.items() if k != "_hash"}


@dataclass(frozen=True)
class ElementType:
    """A scalar type: its StableHLO name, arithmetic kind, width in bits and NumPy storage type.

    >>> element_type("bf16").bits, element_type("ui8").dtype
    (16, dtype('uint8'))
    """

    name: str
    kind: ElementKind
    bits: int
    storage: str  # the name of a NumPy or ml_dtypes scalar type

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.bits, self.storage))

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, object]:
        return _without_hash(self.__dict__)

    @cached_property
    def dtype(self) -> np.dtype:
        return np.dtype(getattr(ml_dtypes, self.storage, None) or self.storage)

    @property
    def itemsize_bytes(self) -> int:
        """Bytes of one element in NumPy storage (sub-byte types are stored one to a byte)."""
        return self.dtype.itemsize

    @property
    def is_boolean(self) -> bool:
        return self.kind is ElementKind.BOOLEAN

    @property
    def is_integer(self) -> bool:
        return self.kind in (ElementKind.SIGNED, ElementKind.UNSIGNED)

    @property
    def is_signed(self) -> bool:
        return self.kind is ElementKind.SIGNED

    @property
    def is_unsigned(self) -> bool:
        return self.kind is ElementKind.UNSIGNED

    @property
    def is_float(self) -> bool:
        return self.kind is ElementKind.FLOAT

    @property
    def is_complex(self) -> bool:
        return self.kind is ElementKind.COMPLEX

    @property
    def real(self) -> ElementType:
        """The type of a complex type's parts; any other type is its own."""
        return {"complex<f32>": ELEMENT_TYPES["f32"], "complex<f64>": ELEMENT_TYPES["f64"]}.get(self.name, self)

    def _repr_html_(self) -> str:
        """Its kind and its bits."""
        return facts_as_html(str(self), [("kind", self.kind.name.lower()), ("bits", self.bits), ("stored as", self.storage)])

    def __str__(self) -> str:
        return self.name


def _table() -> dict[str, ElementType]:
    rows: list[ElementType] = [ElementType("i1", ElementKind.BOOLEAN, 1, "bool")]
    for bits, signed in ((2, "int2"), (4, "int4"), (8, "int8"), (16, "int16"), (32, "int32"), (64, "int64")):
        rows.append(ElementType(f"i{bits}", ElementKind.SIGNED, bits, signed))
        rows.append(ElementType(f"ui{bits}", ElementKind.UNSIGNED, bits, "u" + signed))
    small = {
        "f4E2M1FN": 4, "f6E2M3FN": 6, "f6E3M2FN": 6, "f8E3M4": 8, "f8E4M3": 8, "f8E4M3FN": 8, "f8E4M3FNUZ": 8,
        "f8E4M3B11FNUZ": 8, "f8E5M2": 8, "f8E5M2FNUZ": 8, "f8E8M0FNU": 8,
    }  # fmt: skip
    for name, bits in small.items():
        storage = f"float{name[1]}_" + name[2:].lower()
        rows.append(ElementType(name, ElementKind.FLOAT, bits, storage))
    for name, bits, storage in (("bf16", 16, "bfloat16"), ("f16", 16, "float16"), ("f32", 32, "float32"),
                                ("f64", 64, "float64")):  # fmt: skip
        rows.append(ElementType(name, ElementKind.FLOAT, bits, storage))
    rows.append(ElementType("complex<f32>", ElementKind.COMPLEX, 64, "complex64"))
    rows.append(ElementType("complex<f64>", ElementKind.COMPLEX, 128, "complex128"))
    rows.append(ElementType("index", ElementKind.INDEX, 64, "int64"))
    return {t.name: t for t in rows}


ELEMENT_TYPES: dict[str, ElementType] = _table()


def named_element(name: str) -> ElementType | None:
    """The element type that a text calls `name`; None for a name that is none.

    Signed integers have two spellings: the specification's `si8` and the dialect's `i8`, which is the one printed.
    """
    return ELEMENT_TYPES.get(name) or _SIGNED.get(name)


_SIGNED = {f"s{t.name}": t for t in ELEMENT_TYPES.values() if t.is_signed}


def element_type(name: str) -> ElementType:
    """The element type called `name` in StableHLO text. Raises KeyError for a name that is none."""
    found = named_element(name)
    if found is None:
        raise KeyError(name)
    return found


@dataclass(frozen=True)
class QuantizedType:
    """A quantized element type: real = (stored - zero_point) * scale, per tensor, along one axis or by blocks.

    `axis` is None and both tuples hold one entry for the per-tensor form. The block-wise (sub-channel) form has a `grid`: how
    many blocks each dimension of the tensor has, one scale and zero point for each block in row-major order, and `blocks`,
    the pairs of a dimension and its block's size; a dimension without a pair is one block.
    Specification: "Quantized element types"; the block-wise form: MLIR's quant dialect.
    """

    storage: ElementType
    expressed: ElementType
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    storage_min: int
    storage_max: int
    axis: int | None = None
    blocks: tuple[tuple[int, int], ...] = ()
    grid: tuple[int, ...] | None = None

    @property
    def dtype(self) -> np.dtype:
        return self.storage.dtype

    @property
    def bits(self) -> int:
        return self.storage.bits

    @property
    def name(self) -> str:
        return str(self)

    @property
    def is_blockwise(self) -> bool:
        return self.grid is not None

    def __str__(self) -> str:
        lo, hi = default_storage_range(self.storage)
        bounds = "" if (self.storage_min, self.storage_max) == (lo, hi) else f"<{self.storage_min}:{self.storage_max}>"
        pairs = [f"{s!r}" + (f":{z}" if z else "") for s, z in zip(self.scales, self.zero_points, strict=True)]
        if self.grid is not None:
            for n in reversed(self.grid):
                pairs = ["{" + ", ".join(pairs[k : k + n]) + "}" for k in range(0, len(pairs), n)]
            sizes = ", ".join(f"{a}:{b}" for a, b in self.blocks)
            return f"!quant.uniform<{self.storage}{bounds}:{self.expressed}:{{{sizes}}}, {pairs[0]}>"
        if self.axis is None:
            return f"!quant.uniform<{self.storage}{bounds}:{self.expressed}, {pairs[0]}>"
        return f"!quant.uniform<{self.storage}{bounds}:{self.expressed}:{self.axis}, {{{', '.join(pairs)}}}>"


def default_storage_range(t: ElementType) -> tuple[int, int]:
    """The least and greatest value of an integer type, as a closed interval."""
    return (-(1 << (t.bits - 1)), (1 << (t.bits - 1)) - 1) if t.is_signed else (0, (1 << t.bits) - 1)


@dataclass(frozen=True)
class Layout:
    """A physical layout: the logical dimensions from the fastest varying one to the slowest (XLA's `{1,0}`)."""

    minor_to_major: tuple[int, ...]
    suffix: str = ""  # tiling and memory space, kept as they were written

    def __str__(self) -> str:
        return "{" + ",".join(map(str, self.minor_to_major)) + self.suffix + "}"


@dataclass(frozen=True)
class TensorType:
    """A ranked tensor: `shape` with None for an unknown dimension, `bounds` with an upper bound for some of those.

    >>> str(TensorType((2, None), element_type("f32")))
    'tensor<2x?xf32>'
    """

    shape: tuple[int | None, ...]
    element: ElementType | QuantizedType
    bounds: tuple[int | None, ...] | None = None
    encoding: str | None = None  # another dialect's encoding attribute, kept as text
    layout: Layout | None = field(default=None, compare=False)

    @cached_property
    def _hash(self) -> int:
        return hash((self.shape, self.element, self.bounds, self.encoding))

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, object]:
        return _without_hash(self.__dict__)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return None not in self.shape

    @cached_property
    def static_shape(self) -> tuple[int, ...]:
        """The shape when every dimension is known. Raises ValueError otherwise."""
        if None in self.shape:
            raise ValueError(f"{self} has an unknown dimension")
        return tuple(d for d in self.shape if d is not None)

    @property
    def size_elems(self) -> int:
        n = 1
        for d in self.static_shape:
            n *= d
        return n

    @property
    def size_bytes(self) -> int:
        return self.size_elems * self.dtype.itemsize

    @property
    def dtype(self) -> np.dtype:
        return self.element.dtype

    def _repr_html_(self) -> str:
        """Its dimensions, its element type, and its size where that is fixed."""
        facts: list[tuple[str, object]] = [("dimensions", list(self.shape)), ("element", self.element)]
        if self.is_static:
            facts += [("elements", self.size_elems), ("bytes", self.size_bytes)]
        return facts_as_html(str(self), facts)

    def __str__(self) -> str:
        dims = "".join("?x" if d is None else f"{d}x" for d in self.shape)
        extra = ""
        if self.bounds is not None:
            extra = ", #stablehlo.bounds<" + ", ".join("?" if b is None else str(b) for b in self.bounds) + ">"
        elif self.encoding is not None:
            extra = f", {self.encoding}"
        return f"tensor<{dims}{self.element}{extra}>"


@dataclass(frozen=True)
class BufferType:
    """A `memref` as the specification's buffer type: a shape and an element type."""

    shape: tuple[int | None, ...]
    element: ElementType | QuantizedType

    def __str__(self) -> str:
        return "memref<" + "".join("?x" if d is None else f"{d}x" for d in self.shape) + f"{self.element}>"


@dataclass(frozen=True)
class TokenType:
    """Orders effects; carries no data."""

    def __str__(self) -> str:
        return "!stablehlo.token"


@dataclass(frozen=True)
class TupleType:
    """A heterogeneous list of types."""

    elements: tuple[Type, ...]

    def __str__(self) -> str:
        return "tuple<" + ", ".join(map(str, self.elements)) + ">"


@dataclass(frozen=True)
class FunctionType:
    """Inputs -> results of a function."""

    inputs: tuple[Type, ...]
    results: tuple[Type, ...]

    def _repr_html_(self) -> str:
        """Its inputs and results."""
        facts = [(f"input {n}", t) for n, t in enumerate(self.inputs)] + [(f"result {n}", t) for n, t in enumerate(self.results)]
        return facts_as_html(str(self), facts)

    def __str__(self) -> str:
        out = ", ".join(map(str, self.results))
        one = len(self.results) == 1 and not isinstance(self.results[0], FunctionType)
        return "(" + ", ".join(map(str, self.inputs)) + ") -> " + (out if one else f"({out})")


@dataclass(frozen=True)
class OpaqueType:
    """A type of another dialect, kept as its text."""

    text: str

    def __str__(self) -> str:
        return self.text


Type = TensorType | BufferType | TokenType | TupleType | FunctionType | OpaqueType


def with_layout(t: Type) -> Hashable:
    """A type as a part of a key: types that differ in their layout alone are equal, but a bitcast reads by layouts."""
    return (t, t.layout) if isinstance(t, TensorType) and t.layout is not None else t
