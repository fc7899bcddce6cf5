"""Object code for a linker: its parts lie anywhere, together, and call each other by distances, as in shared libraries."""

from __future__ import annotations

from typing import Any

from codegen.forks import compiling
from codegen.native import lower, passes
from codegen.target import Target

__all__ = ["emit_linkable", "linkable_library_object"]


def emit_linkable(module: Any, target: Target) -> bytes:
    """Object code of an optimised module. Its functions, and those of the library, are the linked file's own."""
    for function in module.functions:
        if not function.is_declaration or function.name.startswith("tilewright_"):
            function.visibility = "hidden" if function.linkage.name == "external" else "default"
    with compiling:
        machine = passes.of_this_thread(f"{target.key} linkable", lambda: _target_machine(target))
        return bytes(machine.emit_object(module))


def linkable_library_object(text: str, target: Target, is_written_out: bool = False) -> bytes:
    """The same of a library function's module (`codegen.lib.outline`)."""
    with compiling:
        return emit_linkable(lower.library_module(text, target, is_written_out), target)


def _target_machine(target: Target) -> Any:
    options = {"reloc": "pic", "codemodel": "small", "jit": False}
    return passes.llvm_target(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, **options
    )
