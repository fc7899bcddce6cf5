"""Library functions that are compiled once for all kernels: a kernel calls them instead of holding a copy.

A block of a matrix product is some thousand instructions, the same ones wherever its literal sizes and element types are the
same. ``outlined`` gives such a lowering a function of its own, named by the hash of all that it depends on; whoever compiles
the kernel collects the functions' modules (``collect``), compiles those that the cache lacks, and links them by name. A
function that computes little is left in line, as are all where nothing collects (for people who look at a whole kernel).

A function's text takes as long to write as to compile. It is written when somebody asks for it: who has the object code does not.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from llvmlite import ir

from codegen.kernel import types
from codegen.kernel.types import signature
from codegen.lib.buffer import Buf, use_scopes
from codegen.lib.emit import I64
from codegen.outlined import PREFIX, Function, Functions
from codegen.target import Target, current_target, use_target

__all__ = ["collect", "outlined"]

Lowering = Callable[[Any, Any, Any, Any], Any]

_found: ContextVar[Functions | None] = ContextVar("tilewright_outlined", default=None)
_LITTLE = 4096
"""Products, or elements, of a call that is worth a function: there are a twentieth of a microsecond in them at least."""
_PARTS = 4
"""Products of real numbers in one of complex ones."""


@contextlib.contextmanager
def collect(found: Functions) -> Iterator[None]:
    """Inside the block, outlined functions are called by name; ``found`` gets each of them."""
    token = _found.set(found)
    try:
        yield
    finally:
        _found.reset(token)


def outlined(
    name: str, lower: Lowering, extents: int, is_written_out: Callable[[Any], bool] = lambda kinds: False,
    alike: Callable[[Sequence[Any]], Sequence[Any]] = lambda kinds: kinds, levels: int | None = None,
) -> Lowering:  # fmt: skip
    """``lower`` in a function of its own, unless the product of the first ``extents`` arguments is known to be small.

    From argument ``levels`` on each third one is an extent, too: a block may be small, and be computed many times in one call.
    ``is_written_out`` tells by the arguments' types which functions leave nothing to vectorise. ``alike`` gives types that calls
    have in common, with some literals as integers that come with the call: such calls share one function.
    """

    def call(context: Any, b: Any, sig: Any, args: Any) -> Any:
        found = _found.get()
        sizes = [*sig.args[:extents], *([] if levels is None else sig.args[levels::3])]
        if found is None or _is_little(sizes, any(isinstance(k, Buf) and k.dtype.startswith("complex") for k in sig.args)):
            return lower(context, b, sig, args)
        exact = _with_numbered_scopes(sig.args)
        kinds = alike(exact)
        target = current_target()
        signature_text = " ".join((name, target.triple, target.key, *(f"{k}" for k in kinds)))
        symbol = PREFIX + hashlib.sha256(signature_text.encode()).hexdigest()[:32]
        given = [ir.Constant(I64, t.literal_value) if t is not k and isinstance(t, types.IntegerLiteral) else a
                 for a, t, k in zip(args, exact, kinds, strict=True)]  # fmt: skip
        passed = [a for a, k in zip(given, kinds, strict=True) if not isinstance(k, types.Literal)]
        kind = ir.FunctionType(ir.VoidType(), [a.type for a in passed])
        if symbol not in found:
            own = signature(sig.return_type, *kinds)
            found[symbol] = Function(
                lambda: _module_text(symbol, kind, target, context, own, given, lower), is_written_out(exact)
            )
        function = b.module.globals.get(symbol) or ir.Function(b.module, kind, symbol)
        b.call(function, passed)
        return context.get_dummy_value()

    return call


def _is_little(sizes: Any, is_complex: bool) -> bool:
    product = _PARTS if is_complex else 1
    for k in sizes:
        if not isinstance(k, types.IntegerLiteral):
            return False
        product *= k.literal_value
    return product < _LITTLE


def _with_numbered_scopes(kinds: Any) -> list[Any]:
    """The argument types with scopes numbered as they appear, aligned as any element is.

    Names and alignments of a kernel's buffers make no difference: blocks begin anywhere in them.
    """
    numbers: dict[str, int] = {}
    return [
        Buf(k.dtype, f"s{numbers.setdefault(k.scope, len(numbers))}", k.item_align) if isinstance(k, Buf) else k for k in kinds
    ]


def _module_text(symbol: str, kind: Any, target: Target, context: Any, sig: Any, args: Any, lower: Lowering) -> str:
    module = ir.Module(symbol)
    module.triple = target.triple
    function = ir.Function(module, kind, symbol)
    function.attributes.add("nounwind")
    builder = ir.IRBuilder(function.append_basic_block())
    given = iter(function.args)
    inner = [
        ir.Constant(a.type, 0) if isinstance(k, types.Literal) else next(given)
        for a, k in zip(args, sig.args, strict=True)
    ]
    scopes = tuple(dict.fromkeys(k.scope for k in sig.args if isinstance(k, Buf)))
    with use_target(target), use_scopes(scopes):
        lower(context, builder, sig, inner)
    builder.ret_void()
    return str(module)
