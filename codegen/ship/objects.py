"""Kernels as object code that a linker takes: position-independent, for a CPU that need not be this one.

    ObjectCode(target).compile(kernels)    as `codegen.native.jit.MachineCode`, but nothing is loaded: entries are 0
    CSources(target).compile(kernels)      the same with the kernels' C in the place of object code

Both are what an `Executable` is made with whose call is written to a file and never run here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from codegen.c.compile import entry_source
from codegen.c.source import c_source
from codegen.kernel.ir import Kernel
from codegen.kernel.print_numba import print_numba
from codegen.native import lower, object_cache
from codegen.native.jit import CompiledKernel, kernel_key, stamp
from codegen.native.signature import KernelSignature
from codegen.outlined import Functions
from codegen.ship.errors import ExportError
from codegen.ship.linkable import emit_linkable, linkable_library_object
from codegen.target import Target
from hlo.errors import Declined

__all__ = ["CSources", "ObjectCode", "symbol_of"]


def symbol_of(key: str) -> str:
    """The name of a kernel's function in a file."""
    return f"tilewright_{key[:24]}"


@dataclass
class ObjectCode:
    """LLVM's object code; `objects` has that of each kernel by its key, and of each library function by its name."""

    target: Target
    objects: dict[str, bytes] = field(default_factory=dict)

    @property
    def parts(self) -> list[bytes]:
        """The code, piece by piece."""
        return list(self.objects.values())

    def compile(self, kernels: Sequence[tuple[Kernel, KernelSignature]]) -> list[CompiledKernel]:
        """The kernels, equal ones once; their code is in `objects`, from the disk cache where it was made before."""
        out = []
        for kernel, signature in kernels:
            key = kernel_key(kernel, signature, self.target)
            source = print_numba(kernel)
            if key not in self.objects:
                self._add(key, source, kernel, signature)
            out.append(CompiledKernel(key, source, "", signature, self.target, 0, None))
        return out

    def _add(self, key: str, source: str, kernel: Kernel, signature: KernelSignature) -> None:
        kept = _recalled(_key(key))
        if kept is not None:
            names = kept[0]
            found = {name: _recalled(_key(name)) for name in names}
            if all(x is not None for x in found.values()):
                self.objects[key] = kept[1]
                self.objects.update({name: x[1] for name, x in found.items() if x is not None})
                return
        functions: Functions = {}
        module = lower.build(source, "<kernel>", signature, symbol_of(key), self.target, functions, kernel)
        code = emit_linkable(module, self.target)
        for name, function in functions.items():
            if name not in self.objects:
                held = _recalled(_key(name))
                made = held[1] if held else linkable_library_object(function.text(), self.target, function.is_written_out)
                if held is None:
                    object_cache.write(_key(name), object_cache.packed({"functions": []}, made))
                self.objects[name] = made
        object_cache.write(_key(key), object_cache.packed({"functions": list(functions)}, code))
        self.objects[key] = code


def _key(name: str) -> str:
    return hashlib.sha256(f"linkable {name} {stamp()}".encode()).hexdigest()


def _recalled(key: str) -> tuple[list[str], bytes] | None:
    payload = object_cache.read(key)
    if payload is None:
        return None
    document, code = object_cache.unpacked(payload)
    return document["functions"], code


@dataclass
class CSources:
    """The kernels as C: `sources` has each one's text by its key, a file that a C compiler takes by itself.

    Raises ExportError for a kernel that has no form in C.
    """

    target: Target
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def parts(self) -> list[bytes]:
        """The code, piece by piece."""
        return [text.encode() for text in self.sources.values()]

    def compile(self, kernels: Sequence[tuple[Kernel, KernelSignature]]) -> list[CompiledKernel]:
        """The kernels, equal ones once; their C is in `sources`."""
        out = []
        for kernel, signature in kernels:
            key = kernel_key(kernel, signature, self.target)
            if key not in self.sources:
                named = replace(kernel, name=f"{symbol_of(key)}_tasks")
                text = c_source(named, self.target)
                if isinstance(text, Declined):
                    raise ExportError(f"{kernel.title}: no form in C: {text.reason}")
                self.sources[key] = f"{text}\n{entry_source(named, signature, symbol_of(key))}"
            out.append(CompiledKernel(key, print_numba(kernel), "", signature, self.target, 0, None))
        return out
