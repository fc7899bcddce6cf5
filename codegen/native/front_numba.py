"""The part of numba that kernels need: contexts with the few registries they use, and a short pipeline.

Numba's own target knows NumPy, lists, dictionaries, classes and a runtime with reference counts, and takes 0.3 s to fill its
tables before it compiles a line. A kernel has loops, numbers, buffers and calls of the library; its pipeline is numba's without
the passes that look for anything else, and without an optimisation of its own: LLVM sees the module once, as a whole.
"""

from __future__ import annotations

import builtins
import dis
import functools
import logging
from collections.abc import Sequence
from typing import Any

from numba.core import callconv, compiler, cpu, typing, untyped_passes
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.core.typed_passes import (
    AnnotateTypes,
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
    NoPythonSupportedFeatureValidation,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.typing import templates

__all__ = ["compile_function", "contexts", "entry_contexts"]

_log = logging.getLogger("tilewright.codegen")


class KernelTypes(typing.BaseContext):  # type: ignore[misc]
    """The typing context: numbers, ranges, tuples, and NumPy's scalar types as functions."""

    def _load_builtins(self) -> None:
        from numba.core.typing import builtins, npydecl  # noqa: F401 (imported for what they register)

        for registry in (templates.builtin_registry, npydecl.registry):
            self.install_registry(_declared(registry))


@functools.cache
def _declared(registry: Any) -> Any:
    """A registry without the functions that are written in Python: compiling one would start numba's whole target."""
    kept = templates.Registry()
    kept.functions = [f for f in registry.functions if not _is_overload(f)]
    kept.attributes = [f for f in registry.attributes if not _is_overload(f)]
    kept.globals = [(g, t) for g, t in registry.globals if not all(map(_is_overload, getattr(t, "templates", (None,))))]
    return kept


def _is_overload(template: Any) -> bool:
    return hasattr(template, "_overload_func")


class KernelContext(cpu.CPUContext):  # type: ignore[misc]
    """The lowering context, without a runtime: a kernel allocates nothing and raises nothing."""

    def load_additional_registries(self) -> None:
        from numba.core import optional  # noqa: F401 (imported for what they register)
        from numba.cpython import builtins, iterators, numbers, rangeobj, tupleobj  # noqa: F401
        from numba.misc import literal  # noqa: F401

    def post_lowering(self, module: Any, library: Any) -> None:
        """Nothing: there is no runtime to link."""


class KernelCompiler(compiler.CompilerBase):  # type: ignore[misc]
    """Byte code to LLVM's input, nothing else."""

    def define_pipelines(self) -> list[Any]:
        passes = PassManager("kernel")
        for step in (
            untyped_passes.TranslateByteCode,
            untyped_passes.FixupArgs,
            untyped_passes.IRProcessing,
            untyped_passes.ReconstructSSA,
            NopythonTypeInference,
            PreLowerStripPhis,
            NoPythonSupportedFeatureValidation,
            IRLegalization,
            AnnotateTypes,
            NativeLowering,
            NoPythonBackend,
        ):
            passes.add_pass(step, step.__name__)
        passes.finalize()
        return [passes]


@functools.cache
def contexts() -> tuple[Any, Any]:
    """(typing context, target context), made once; the library must be imported before."""
    from codegen.lib import threads  # noqa: F401 (it and the package register what kernels and the launcher call)

    with global_compiler_lock:
        types = KernelTypes()
        target = KernelContext(types, "cpu")
        types.refresh()
        target.refresh()
    return types, target


@functools.cache
def entry_contexts() -> tuple[Any, Any]:
    """`contexts` for code that is written straight into a module: division behaves as NumPy's."""
    types, target = contexts()
    return types, target.subtarget(error_model=callconv.create_error_model("numpy", target))


@functools.cache
def _full_contexts() -> tuple[Any, Any]:
    """Numba's own contexts, for source that uses more of Python than kernels usually do."""
    from numba.core.registry import cpu_target

    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
    return cpu_target.typing_context, cpu_target.target_context


def compile_function(function: Any, arguments: Sequence[Any], name: str) -> tuple[Any, Any]:
    """(numba's result for ``function`` of ``arguments``, the context it was made in): a descriptor, unoptimised modules.

    What the short pipeline does not take is compiled by numba's own. Raises NameError for a name that the library has not, else
    whatever numba's raises, with file and line.
    """
    known = {*function.__globals__, *vars(builtins)}
    for i in dis.get_instructions(function):
        if i.opname == "LOAD_GLOBAL" and i.argval not in known:
            place = f"{function.__code__.co_filename}:{i.positions.lineno if i.positions else 0}"
            raise NameError(f"{place}: expected a name of codegen.lib.NAMESPACE, found {i.argval!r}", name=i.argval)
    try:
        return _compile(function, arguments, name, contexts(), KernelCompiler)
    except Exception as reason:  # noqa: BLE001 (the short pipeline lacks rules in many ways; the whole one decides)
        _log.debug("%s: numba's whole pipeline is needed: %s", name, reason)
    return _compile(function, arguments, name, _full_contexts(), compiler.Compiler)


def _compile(function: Any, arguments: Sequence[Any], name: str, both: tuple[Any, Any], pipeline: Any) -> tuple[Any, Any]:
    from numba.core import types

    flags = compiler.Flags()
    flags.no_compile = True
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = True
    flags.error_model = "numpy"
    flags.boundscheck = False
    flags.nrt = False
    typing_context, context = both
    library = context.codegen().create_library(name)
    # The linked module is optimised once, as a whole: numba's passes would unroll loops before they are vectorised.
    library._optimize_functions = lambda module: None
    library._optimize_final_module = lambda: None
    result = compiler.compile_extra(typing_context, context, function, arguments, types.none, flags, {}, library, pipeline)
    return result, context
