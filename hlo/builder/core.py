"""Building ops one at a time: each is checked against its definition, and its result types inferred, when it is made."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

from hlo.errors import Declined, Location, ParseError, VerificationError
from hlo.module import Block, DenseArray, Function, Module, Op, Source, Value
from hlo.registry import OpDefinition, definition
from hlo.text.lexer import Lexer
from hlo.text.mlir_parser import parse_mlir
from hlo.text.xla.types import parse_type
from hlo.types import ELEMENT_TYPES, ElementType, TensorType, Type
from hlo.verify import check_op, check_structure, type_problem, verify

__all__ = ["BuilderCore", "Results", "type_of"]

Results = Value | tuple[Value, ...]
Region = Callable[..., Any]


def type_of(spec: Type | str) -> Type:
    """A type, given as one or in either notation: "f32[8,16]" or "tensor<8x16xf32>".

    Raises VerificationError for a text that is no type.

    >>> str(type_of("pred[4]")), str(type_of("tensor<2x?xbf16>"))
    ('tensor<4xi1>', 'tensor<2x?xbf16>')
    """
    if not isinstance(spec, str):
        return spec
    try:
        if "<" in spec and "[" not in spec:
            text = f"func.func private @t({spec})"
            (argument,) = parse_mlir(Source(text, "<type>")).functions["t"].arguments
            return argument.type
        made, end = parse_type(Lexer(Source(spec, "<type>")), 0)
    except (ParseError, ValueError) as e:
        raise VerificationError(f"expected a type such as f32[2,3], found {spec!r} ({e})", _caller()) from None
    if spec[end:].strip():
        raise VerificationError(f"expected a type such as f32[2,3], found {spec!r}", _caller())
    return made


def _caller() -> Location:
    """Where the call stands that came into this package."""
    frame: FrameType | None = sys._getframe(1)
    here = __name__.rpartition(".")[0]
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith(here):
        frame = frame.f_back
    if frame is None:
        return Location("<builder>")
    return Location(frame.f_code.co_filename, frame.f_lineno, 1)


def flat(operands: Sequence[Any]) -> list[Any]:
    """Operands with lists of them spread out."""
    out: list[Any] = []
    for v in operands:
        out.extend(v if isinstance(v, tuple | list) else (v,))
    return out


class BuilderCore:
    """Parameters, constants, ops, regions and functions; the methods for single ops are added by the subclasses."""

    def __init__(self, name: str = "main") -> None:
        self.module = Module(name=None, entry_name=name)
        self.name = name
        self._parameters: dict[int, Value] = {}
        self._body = Block()
        self._blocks: list[Block] = [self._body]
        self.place: Location | None = None

    # ------------------------------------------------------------ single ops

    def emit(
        self,
        name: str,
        operands: Sequence[Value] = (),
        attributes: Mapping[str, Any] | None = None,
        regions: Sequence[Block] = (),
        result_types: Sequence[Type] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> tuple[Value, ...]:
        """Appends the op `name` and returns its results; `result_types` are needed where they cannot be inferred.

        Raises VerificationError, with the place of the call, for an op that breaks its definition.
        """
        d = definition(name)
        place = self.place or _caller()
        given = {k: v for k, v in (attributes or {}).items() if v is not None}
        for v in operands:
            if not isinstance(v, Value):
                raise VerificationError(f"expected values as operands, found {v!r}", place, op=name)
        op = Op(d, operands, given, regions, result_types or (), place, extra)
        if callable(d.infer) and result_types is None:
            op = Op(d, operands, given, regions, self._inferred(d, op), place, extra)
        check_op(op)
        for rule in d.module_constraints:
            found = rule.check(op, self.module)
            if found is not None:
                raise VerificationError(f"{rule.text}: {found}", place, op=name, constraint=rule.label)
        self._blocks[-1].ops.append(op)
        return op.results

    def append(self, op: Op) -> tuple[Value, ...]:
        """Appends an op as it is and returns its results."""
        self._blocks[-1].ops.append(op)
        return op.results

    @staticmethod
    def _inferred(d: OpDefinition, op: Op) -> Sequence[Type]:
        assert not isinstance(d.infer, Declined)
        try:
            check_structure(op, d)
            for c in d.constraints:
                found = None if c.on_result else c.check(op)
                if found is not None:
                    raise VerificationError(f"{c.text}: {found}", op.location, op=d.name, constraint=c.label)
            return d.infer(op)
        except VerificationError:
            raise
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as e:
            raise VerificationError(f"malformed ({e})", op.location, op=d.name) from e

    def one(self, name: str, *operands: Value, **attributes: Any) -> Value:
        """`emit` for an op with one inferred result."""
        (result,) = self.emit(name, operands, attributes)
        return result

    # ------------------------------------------------------------ parameters and constants

    def parameter(self, number: int, type: Type | str, name: str | None = None) -> Value:
        """Argument `number` of the function. Raises VerificationError when it is taken or the type is none.

        >>> from hlo.builder import Builder
        >>> Builder("f").parameter(0, "f32[8,16]", "x")
        <%x: tensor<8x16xf32>>
        """
        made = type_of(type)
        problem = type_problem(made)
        if number in self._parameters or number < 0 or problem:
            why = problem or f"expected a parameter number that is free, found {number}"
            raise VerificationError(why, _caller(), op="func.func")
        value = Value(made, self._body, number, name)
        self._parameters[number] = value
        return value

    def constant(self, value: Any, type: Type | str | None = None) -> Value:
        """A constant with the elements of `value` (a number or an array), broadcast to `type` where that is given.

        Python floats are f32, integers i32 unless `type` (or an element type's name) says otherwise. Raises VerificationError.
        """
        if isinstance(value, DenseArray):
            return self.emit("stablehlo.constant", (), {"value": value})[0]
        if isinstance(type, str) and (type in ELEMENT_TYPES):
            element: ElementType | None = ELEMENT_TYPES[type]
            t = None
        else:
            t = None if type is None else type_of(type)
            element = None
        if t is None:
            if element is None:
                element = self._element_of(value)
            t = TensorType(np.shape(value), element)
        if not isinstance(t, TensorType) or not isinstance(t.element, ElementType) or not t.is_static:
            raise VerificationError(f"expected a static tensor type, found {t}", _caller(), op="stablehlo.constant")
        try:
            array = np.broadcast_to(np.asarray(value).astype(t.dtype), t.static_shape)
        except (TypeError, ValueError, OverflowError) as e:
            raise VerificationError(f"expected elements of {t} ({e})", _caller(), op="stablehlo.constant") from None
        return self.emit("stablehlo.constant", (), {"value": DenseArray(t, array)})[0]

    @staticmethod
    def _element_of(value: Any) -> ElementType:
        if isinstance(value, bool | np.bool_):
            return ELEMENT_TYPES["i1"]
        if not isinstance(value, np.ndarray | np.generic):
            kinds = {"b": "i1", "i": "i32", "u": "i32", "f": "f32", "c": "complex<f32>"}
            kind = np.asarray(value).dtype.kind
            if kind in kinds:
                return ELEMENT_TYPES[kinds[kind]]
        dtype = np.asarray(value).dtype
        for e in ELEMENT_TYPES.values():
            if e.dtype == dtype and e.name != "index":
                return e
        raise VerificationError(f"no element type stores {dtype}", _caller(), op="stablehlo.constant")

    def like(self, value: Any, other: Value) -> Value:
        """The number `value` in every element of `other`'s type; an unknown dimension is taken from `other` itself."""
        t = other.tensor
        assert isinstance(t.element, ElementType)
        scalar = TensorType((), t.element)
        if t.is_static:
            return self.constant(value, TensorType(t.shape, t.element))
        return self.emit(
            "stablehlo.dynamic_broadcast_in_dim",
            (self.constant(value, scalar), self.sizes(other)),
            {"broadcast_dimensions": ()},
            (),
            [TensorType(t.shape, t.element, t.bounds)],
        )[0]

    def sizes(self, value: Value) -> Value:
        """The shape of a tensor of rank 1 or more, as a vector of i32."""
        one = TensorType((1,), ELEMENT_TYPES["i32"])
        parts = [self.one("stablehlo.get_dimension_size", value, dimension=k) for k in range(value.rank)]
        rows = [self.emit("stablehlo.reshape", (p,), {}, (), [one])[0] for p in parts]
        return self.one("stablehlo.concatenate", *rows, dimension=0)

    # ------------------------------------------------------------ regions and functions

    @property
    def current(self) -> Block:
        """The block that ops are appended to."""
        return self._blocks[-1]

    @contextmanager
    def into(self, block: Block) -> Iterator[Block]:
        """Ops made inside of the `with` go to the end of `block`."""
        self._blocks.append(block)
        try:
            yield block
        finally:
            self._blocks.pop()

    def region(self, computation: Region | Block, types: Sequence[Type]) -> Block:
        """The region that `computation` builds from arguments of these types; it returns a value, or a sequence of them."""
        if isinstance(computation, Block):
            return computation
        with self.into(Block(types)) as block:
            results = computation(*block.arguments)
            values = list(results) if isinstance(results, tuple | list) else [] if results is None else [results]
            self.emit("stablehlo.return", values)
        return block

    def function(self, computation: Region, types: Sequence[Type | str], name: str | None = None) -> str:
        """A private function of the module that `computation` builds; returns its name."""
        stem = name or getattr(computation, "__name__", "f").strip("<>")
        free, k = stem, 0
        while free in self.module.functions or free == self.name:
            k += 1
            free = f"{stem}_{k}"
        block = Block([type_of(t) for t in types])
        with self.into(block):
            results = computation(*block.arguments)
            values = list(results) if isinstance(results, tuple | list) else [results]
            self.emit("func.return", values)
        self.module.functions[free] = Function(free, block, "private", result_types=tuple(v.type for v in values))
        return free

    def build(self, *roots: Value | Sequence[Value]) -> Module:
        """The verified module whose entry takes the parameters and returns `roots`.

        Raises VerificationError when a parameter number is missing or the module breaks a rule.
        """
        numbers = sorted(self._parameters)
        if numbers != list(range(len(numbers))):
            raise VerificationError(f"expected parameters 0 to {len(numbers) - 1}, found {numbers}", _caller(), op="func.func")
        values = flat(roots)
        self._body.arguments = [self._parameters[k] for k in numbers]
        self.emit("func.return", values)
        entry = Function(self.name, self._body, None, result_types=tuple(v.type for v in values))
        self.module.functions = {self.name: entry, **self.module.functions}
        verify(self.module)
        return self.module
