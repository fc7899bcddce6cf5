"""``Buf``: a raw typed pointer, the only container that generated kernels know.

``buf[i]`` and ``buf[i] = v`` become one load and one store of element i: no bounds, no reference counts, and no handling
of negative indices, which would keep LLVM from vectorising.  Each access carries the alias scope of its buffer: accesses
through different scopes of one kernel are declared not to overlap.  When a kernel is stepped through in plain Python, a
flat NumPy array plays the part of a ``Buf``.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from llvmlite import ir

from codegen.kernel import types
from codegen.kernel.types import Signature, signature
from codegen.lib import convert, narrow
from codegen.lib.emit import I8, I32, Value, intrinsic_function, packed, unpacked
from codegen.lib.register import CONTEXT, PointerType, register

# name (as NumPy's dtype.name): (type of a value, type of the storage)
ELEMENTS: dict[str, tuple[Any, Any]] = {
    "bool": (types.boolean, types.uint8),
    "int8": (types.int8, types.int8),
    "int16": (types.int16, types.int16),
    "int32": (types.int32, types.int32),
    "int64": (types.int64, types.int64),
    "uint8": (types.uint8, types.uint8),
    "uint16": (types.uint16, types.uint16),
    "uint32": (types.uint32, types.uint32),
    "uint64": (types.uint64, types.uint64),
    "float16": (types.float32, types.uint16),
    "bfloat16": (types.float32, types.uint16),
    "float32": (types.float32, types.float32),
    "float64": (types.float64, types.float64),
    "complex64": (types.complex64, types.float32),
    "complex128": (types.complex128, types.float64),
    **dict.fromkeys((*narrow.NARROW_FLOATS, narrow.POWER_OF_TWO), (types.float32, types.uint8)),
    **{name: (types.int8 if signed else types.uint8,) * 2 for name, (_, signed) in narrow.NARROW_INTEGERS.items()},
}


class Buf(PointerType):
    """The type of a pointer to elements of ``dtype`` (a NumPy dtype name), aligned to ``align`` bytes at element 0.

    A float of 16 bits or less is read and written as a float32 value, rounded to nearest even when stored, an integer of 2 or
    4 bits as an (u)int8, wrapped when stored; two elements of ``scope`` may overlap, elements of different scopes may not.
    """

    __slots__ = ("align", "dtype", "scope")

    def __init__(self, dtype: str, scope: str, align: int) -> None:
        if dtype not in ELEMENTS:
            raise ValueError(f"no element type {dtype!r}: expected one of {', '.join(ELEMENTS)}")
        self.dtype = dtype
        self.scope = scope
        self.align = align
        super().__init__(f"Buf({dtype}, {scope}, {align})")

    @property
    def value_type(self) -> Any:
        """The type of ``buf[i]``."""
        return ELEMENTS[self.dtype][0]

    @property
    def element_type(self) -> Any:
        """LLVM's type of what is stored."""
        storage = CONTEXT.get_value_type(ELEMENTS[self.dtype][1])
        return ir.LiteralStructType([storage, storage]) if self.dtype.startswith("complex") else storage

    @property
    def item_bytes(self) -> int:
        """Bytes between two elements."""
        value, storage = ELEMENTS[self.dtype]
        return int(2 * storage.bitwidth if isinstance(value, types.Complex) else storage.bitwidth) // 8

    @property
    def item_align(self) -> int:
        """What every element is aligned to: a complex number as its two parts."""
        return int(ELEMENTS[self.dtype][1].bitwidth) // 8


class _Scopes:
    """Scopes whose accesses never overlap, and the lists that say so of the modules that are written meanwhile."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.nodes: dict[Any, dict[str, Any]] = {}  # by module: a node for each scope
        self.lists: dict[tuple[Any, str], tuple[Any, Any]] = {}

    def lists_of(self, module: Any, scope: str) -> tuple[Any, Any]:
        """(the scope an access is in, those it is not in) as metadata of a module; the second is None where there are none."""
        found = self.lists.get((module, scope))
        if found is None:
            nodes = self.nodes.get(module)
            if nodes is None:
                domain = module.add_metadata(["tilewright"])
                nodes = {name: module.add_metadata([f"tilewright.{name}", domain]) for name in self.names}
                self.nodes[module] = nodes
            own = module.add_metadata([nodes[scope]])
            others = [nodes[name] for name in self.names if name != scope]
            found = self.lists[module, scope] = (own, module.add_metadata(others) if others else None)
        return found


_scopes: ContextVar[_Scopes | None] = ContextVar("tilewright_scopes", default=None)


@contextlib.contextmanager
def use_scopes(scopes: tuple[str, ...]) -> Iterator[None]:
    """Declare, for kernels lowered inside the block, that accesses through these scopes never overlap."""
    token = _scopes.set(_Scopes(scopes))
    try:
        yield
    finally:
        _scopes.reset(token)


def tag(module: Any, access: Any, scope: str) -> Any:
    """Attach alias.scope / noalias metadata to a load or store."""
    known = _scopes.get()
    if known is not None and scope in known.names:
        own, others = known.lists_of(module, scope)
        access.set_metadata("alias.scope", own)
        if others is not None:
            access.set_metadata("noalias", others)
    return access


def _load_raw(b: Any, kind: Buf, pointer: Any, align: int | None = None) -> Any:
    access = b.load(pointer)
    access.align = align or kind.item_align
    return tag(b.module, access, kind.scope)


def load_element(context: Any, b: Any, kind: Buf, pointer: Any) -> Any:
    """The value at ``pointer``, as the data model of ``kind.value_type`` holds it."""
    if kind.dtype.startswith("complex"):
        parts = []
        for k in range(2):
            access = b.load(b.gep(pointer, [ir.Constant(I32, 0), ir.Constant(I32, k)]))
            access.align = kind.item_align
            parts.append(tag(b.module, access, kind.scope))
        return packed(b, parts)
    raw = _load_raw(b, kind, pointer)
    if kind.dtype == "bool":
        return b.icmp_unsigned("!=", raw, ir.Constant(I8, 0))
    if kind.dtype == "bfloat16":
        return convert.widen_bf16(Value(b, raw)).v
    if kind.dtype == "float16":
        return convert.widen_f16(Value(b, raw)).v
    if kind.dtype in narrow.NARROW_INTEGERS:
        return narrow.wrap_bits(kind.dtype, Value(b, raw)).v
    if kind.value_type is types.float32 and kind.dtype != "float32":
        return narrow.widen_code(kind.dtype, Value(b, raw)).v
    return raw


def store_element(context: Any, b: Any, kind: Buf, pointer: Any, value: Any) -> None:
    """Write ``value`` (of ``kind.value_type``) at ``pointer``."""
    if kind.dtype.startswith("complex"):
        for k, part in enumerate(unpacked(b, value)):
            address = b.gep(pointer, [ir.Constant(I32, 0), ir.Constant(I32, k)])
            tag(b.module, b.store(part, address, align=kind.item_align), kind.scope)
        return
    if kind.dtype == "bool":
        value = b.zext(value, I8)
    elif kind.dtype == "bfloat16":
        value = convert.narrow_bf16(Value(b, value)).v
    elif kind.dtype == "float16":
        value = convert.narrow_f16(Value(b, value)).v
    elif kind.dtype in narrow.NARROW_INTEGERS:
        value = (Value(b, value) & ((1 << narrow.NARROW_INTEGERS[kind.dtype][0]) - 1)).v
    elif kind.value_type is types.float32 and kind.dtype != "float32":
        value = narrow.narrow_code(kind.dtype, Value(b, value)).v
    tag(b.module, b.store(value, pointer, align=kind.item_align), kind.scope)


def _type_getitem(*args: Any) -> Signature | None:
    if len(args) == 2 and isinstance(args[0], Buf) and isinstance(args[1], types.Integer):
        return signature(args[0].value_type, args[0], types.int64)
    return None


def _type_setitem(*args: Any) -> Signature | None:
    if len(args) == 3 and isinstance(args[0], Buf) and isinstance(args[1], types.Integer):
        return signature(types.none, args[0], types.int64, args[0].value_type)
    return None


def _lower_getitem(context: Any, b: Any, sig: Any, args: Any) -> Any:
    return load_element(context, b, sig.args[0], b.gep(args[0], [args[1]], inbounds=True))


def _lower_setitem(context: Any, b: Any, sig: Any, args: Any) -> Any:
    store_element(context, b, sig.args[0], b.gep(args[0], [args[1]], inbounds=True), args[2])
    return context.get_dummy_value()


register(operator.getitem, _type_getitem, _lower_getitem)
register(operator.setitem, _type_setitem, _lower_setitem)


def at(buf: Any, offset: Any) -> Any:
    """``buf`` shifted: at(buf, o)[i] is buf[o + i].

    >>> at([0, 1, 2, 3, 4], 2)[1]
    3
    """
    return buf[int(offset) :]


def _type_at(*args: Any) -> Signature | None:
    if len(args) == 2 and isinstance(args[0], Buf) and isinstance(args[1], types.Integer):
        return signature(args[0], args[0], types.int64)
    return None


def _lower_at(context: Any, b: Any, sig: Any, args: Any) -> Any:
    return b.gep(args[0], [args[1]], inbounds=True)


register(at, _type_at, _lower_at)


def unknown_address(b: Any, pointer: Any) -> Any:
    """``pointer``, which LLVM does not know to be the same."""
    return b.asm(ir.FunctionType(pointer.type, [pointer.type]), "", "=r,0", [pointer], side_effect=False)


def again(buf: Any) -> Any:
    """``buf`` at an address that the compiler does not know to be the same: what is read through both is read twice.

    A vector that several instructions need is loaded once and kept in a register; a load that one alone needs is a part of it.
    Where memory is waited for, fewer instructions let more loads be under way.

    >>> again([0, 1, 2])[1]
    1
    """
    return buf


def _type_again(*args: Any) -> Signature | None:
    # (A scope that is not the kernel's: loads carry none.)
    if len(args) == 1 and isinstance(args[0], Buf):
        return signature(Buf(args[0].dtype, "", args[0].align), args[0])
    return None


def _lower_again(context: Any, b: Any, sig: Any, args: Any) -> Any:
    return unknown_address(b, args[0])


register(again, _type_again, _lower_again)


def least(a: int, b: int) -> int:
    """The smaller of two indices; kernels call it ``min``.

    >>> least(3, 5)
    3
    """
    return min(a, b)


def greatest(a: int, b: int) -> int:
    """The larger of two indices; kernels call it ``max``.

    >>> greatest(3, 5)
    5
    """
    return max(a, b)


def _index_choice(smaller: bool) -> tuple[Any, Any]:
    def typer(*args: Any) -> Any:
        if len(args) != 2 or not all(isinstance(t, types.Integer) for t in args):
            return None
        wide = any(t.bitwidth == 64 and not t.signed for t in args)
        kind = types.uint64 if wide else types.int64
        return signature(kind, kind, kind)

    def lower(context: Any, b: Any, sig: Any, args: Any) -> Any:
        compare = b.icmp_signed if sig.return_type.signed else b.icmp_unsigned
        return b.select(compare("<" if smaller else ">", args[0], args[1]), args[0], args[1])

    return typer, lower


register(least, *_index_choice(smaller=True))
register(greatest, *_index_choice(smaller=False))


def prefetch(buf: Any, index: Any) -> None:
    """Hint that buf[index] is read soon."""


def _type_prefetch(*args: Any) -> Signature | None:
    return signature(types.none, args[0], types.int64) if len(args) == 2 and isinstance(args[0], Buf) else None


def _lower_prefetch(context: Any, b: Any, sig: Any, args: Any) -> Any:
    pointer = b.bitcast(b.gep(args[0], [args[1]]), I8.as_pointer())
    fn = intrinsic_function(b.module, "llvm.prefetch.p0", ir.VoidType(), [I8.as_pointer(), I32, I32, I32])
    b.call(fn, [pointer, ir.Constant(I32, 0), ir.Constant(I32, 3), ir.Constant(I32, 1)])
    return context.get_dummy_value()


register(prefetch, _type_prefetch, _lower_prefetch)
