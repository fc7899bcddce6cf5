"""Alignment: no kernel is told of more than every memory has that it can be handed.

    declared    what a kernel's signature says of an address; LLVM makes aligned moves and streaming stores of it
    given       what all addresses have that a call puts there:
                  an argument                      its elements' own alignment: each call looks, and copies what has less
                  a result                         a cache line, from the pool; its elements' own where NumPy makes it
                  constants and what lies between  a cache line: they start at multiples of one
                  two that a loop exchanges        the less of both

Inside a kernel nothing else is assumed: the library's vector moves ask for their elements' own alignment, and what LLVM adds
follows from the declared alignment and the address computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from codegen.call.quick import SMALL_BYTES
from codegen.launcher.memory import ALIGNMENT_BYTES
from codegen.native.signature import KernelSignature
from hlo.module import Value
from hlo.types import ElementType, QuantizedType
from tiling import Buffer, Obligation, Scope
from tiling.proving.proof import Verdict

__all__ = ["declared_alignment", "given_alignments", "kept_alignments", "misplaced", "own_alignment"]


def own_alignment(element: ElementType | QuantizedType) -> int:
    """Bytes that an array's elements are aligned to at least, as NumPy counts it: a complex number as its two parts.

    >>> from hlo.types import element_type
    >>> [own_alignment(element_type(n)) for n in ("f32", "complex<f64>", "bf16", "i4")]
    [4, 8, 2, 1]
    """
    return int(element.dtype.alignment)


def declared_alignment(b: Buffer) -> int:
    """Bytes that a kernel may take a buffer to be aligned to, by what the buffer is."""
    small = b.scope is Scope.RESULT and b.size_bytes <= SMALL_BYTES
    return own_alignment(b.element) if small or b.scope is Scope.ARGUMENT else ALIGNMENT_BYTES


def given_alignments(
    arguments: Sequence[tuple[int | None, Value]],
    results: Sequence[tuple[int | None, Value]],
    exchanges: Iterable[tuple[int, int]] = (),
) -> dict[int, int]:
    """The alignment of memories, by number, that is less than a cache line: arguments, results, what changes places with them.

    `arguments` and `results` are the program's, with the numbers of their memories; `exchanges` two memories each.
    """
    found: dict[int, int] = {}
    # What `QuickCall` takes moves no more: it has NumPy make the results.
    is_short = sum(v.tensor.size_bytes for _, v in (*arguments, *results)) <= SMALL_BYTES
    for slot, v in (*arguments, *(results if is_short else ())):
        if slot is not None:
            found[slot] = min(found.get(slot, ALIGNMENT_BYTES), own_alignment(v.tensor.element))
    pairs = list(exchanges)
    changed = True
    while changed:
        changed = False
        for a, b in pairs:
            least = min(found.get(a, ALIGNMENT_BYTES), found.get(b, ALIGNMENT_BYTES))
            for slot in (a, b):
                if found.get(slot, ALIGNMENT_BYTES) != least:
                    found[slot], changed = least, True
    return found


def kept_alignments(
    name: str, signature: KernelSignature, slots: Sequence[int], given: Mapping[int, int]
) -> tuple[KernelSignature, list[Obligation]]:
    """(the signature with no more declared than is given, what was refuted of it)."""
    params, refuted = [], []
    for p, slot in zip(signature.params, slots, strict=True):
        least = given.get(slot, ALIGNMENT_BYTES)
        if least % p.align:
            witness = f"declared a multiple of {p.align} bytes, memory {slot} has {least}"
            refuted.append(Obligation("aligned", f"{name} {p.name}", Verdict.REFUTED, witness))
        params.append(replace(p, align=least) if least % p.align else p)
    return (replace(signature, params=tuple(params)) if refuted else signature), refuted


def misplaced(places: Iterable[tuple[str, int]]) -> Obligation | None:
    """The first of some places (what lies there, its offset or address) that starts in the middle of a cache line, or None.

    >>> str(misplaced([("x", 64), ("y", 72)]))
    'aligned: y: refuted: it lies at 72, 8 bytes into a cache line'
    """
    for what, at in places:
        if at % ALIGNMENT_BYTES:
            witness = f"it lies at {at}, {at % ALIGNMENT_BYTES} bytes into a cache line"
            return Obligation("aligned", what, Verdict.REFUTED, witness)
    return None
