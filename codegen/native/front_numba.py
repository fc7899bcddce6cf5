"""Source that the walk does not take (`codegen.native.front_walk`), which is written by hand, by numba's own pipeline.

The library's rules (`codegen.lib.register`) are told to numba in numba's own types; nothing else imports numba. Numba's passes
optimise nothing: LLVM sees the module once, as a whole.
"""

from __future__ import annotations

import builtins
import dis
import importlib
import operator
from collections.abc import Sequence
from typing import Any

from numba.core import compiler
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.core.typing import templates
from numba.extending import lower_builtin, models, register_model

from codegen.kernel import types
from codegen.kernel.types import Signature, Type
from codegen.lib import threads  # (it and the package register what kernels and the launcher call)
from codegen.lib.buffer import Buf
from codegen.lib.register import CONTEXT, RULES, Rule

__all__ = ["compile_function"]

numba_types: Any = importlib.import_module("numba.core.types")  # (made of what its parts export, which mypy does not see)

# ---------------------------------------------------------------- the library, in numba's terms


class NumbaBuf(numba_types.Type):  # type: ignore[misc]
    """A buffer's type as numba's."""

    def __init__(self, kind: Buf) -> None:
        self.kind = kind
        super().__init__(name=kind.name)


@register_model(NumbaBuf)
class _BufModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: NumbaBuf) -> None:
        super().__init__(manager, kind, CONTEXT.get_value_type(kind.kind))


def _to_numba(kind: Type) -> Any:
    """Numba's type of the same name."""
    if isinstance(kind, Buf):
        return NumbaBuf(kind)
    if isinstance(kind, types.IntegerLiteral | types.BooleanLiteral):
        return numba_types.literal(kind.literal_value)
    return numba_types.boolean if isinstance(kind, types.Boolean) else getattr(numba_types, kind.name)


def _from_numba(kind: Any) -> Type | None:
    """The type that a type of numba's stands for; None for one that kernels do not have."""
    if isinstance(kind, NumbaBuf):
        return kind.kind
    if isinstance(kind, numba_types.IntegerLiteral | numba_types.BooleanLiteral):
        return types.literal(kind.literal_value)
    found = getattr(types, "boolean" if isinstance(kind, numba_types.Boolean) else str(kind), None)
    return found if isinstance(found, Type) else None


def _tell_numba(function: Any, rule: Rule) -> None:
    def generic(self: Any, args: Any, kws: Any) -> Any:
        own = [_from_numba(a) for a in args]
        found = None if kws or None in own else rule.typer(*own)
        return None if found is None else templates.signature(_to_numba(found.return_type), *map(_to_numba, found.args))

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        result, *operands = [_from_numba(k) for k in (sig.return_type, *sig.args)]
        assert result is not None
        made = rule.lower(CONTEXT, builder, Signature(result, tuple(k for k in operands if k is not None)), args)
        return context.get_dummy_value() if isinstance(result, types.NoneType) else made

    body = {"key": function, "generic": generic, "prefer_literal": True}
    template = type(f"{function.__name__}_template", (templates.AbstractTemplate,), body)
    templates.infer_global(function, numba_types.Function(template))
    if function in (operator.getitem, operator.setitem):  # numba has others: of tuples, of arrays
        rest = (numba_types.Integer,) if function is operator.getitem else (numba_types.Integer, numba_types.Any)
        lower_builtin(function, NumbaBuf, *rest)(lower)
    else:
        lower_builtin(function, numba_types.VarArg(numba_types.Any))(lower)


assert threads.NAMESPACE  # imported for what it registers
for _function, _rule in RULES.items():
    _tell_numba(_function, _rule)

# ---------------------------------------------------------------- source


def compile_function(function: Any, arguments: Sequence[Any], name: str) -> tuple[Any, Any]:
    """(numba's result for ``function`` of ``arguments``, the context it was made in): a descriptor, unoptimised modules.

    Raises NameError for a name that the library has not, else whatever numba raises, with file and line.
    """
    known = {*function.__globals__, *vars(builtins)}
    for i in dis.get_instructions(function):
        if i.opname == "LOAD_GLOBAL" and i.argval not in known:
            place = f"{function.__code__.co_filename}:{i.positions.lineno if i.positions else 0}"
            raise NameError(f"{place}: expected a name of codegen.lib.NAMESPACE, found {i.argval!r}", name=i.argval)
    flags = compiler.Flags()
    flags.no_compile = True
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = True
    flags.error_model = "numpy"
    flags.boundscheck = False
    flags.nrt = False
    with global_compiler_lock:
        types_known, context = cpu_target.typing_context, cpu_target.target_context
        types_known.refresh()
        context.refresh()
        library = context.codegen().create_library(name)
        # The linked module is optimised once, as a whole: numba's passes would unroll loops before they are vectorised.
        library._optimize_functions = lambda module: None
        library._optimize_final_module = lambda: None
        given = tuple(map(_to_numba, arguments))
        made = compiler.compile_extra(types_known, context, function, given, numba_types.none, flags, {}, library)
    return made, context
