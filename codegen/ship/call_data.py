"""The call of a compiled program as plain data: what a file or a C library holds of it beside its kernels' code."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen.call.alignment import own_alignment
from codegen.call.executable import Executable
from codegen.call.program.layout import LINE_BYTES, literal
from codegen.launcher import launch
from codegen.ship.errors import ExportError
from codegen.ship.objects import CSources, ObjectCode
from codegen.ship.targets import FileTarget
from hlo.module import Value
from hlo.types import TensorType
from tilewright_runtime.container import interface_digest
from tiling import Plan

__all__ = ["CallData", "Tensor", "call_data", "data_of"]


@dataclass(frozen=True)
class Tensor:
    """An argument or a result: dense, row-major, at an address that is a multiple of `alignment`."""

    name: str
    element: str  # as StableHLO spells it
    dtype: str  # NumPy's name of what is stored
    shape: tuple[int, ...]
    item_bytes: int
    alignment: int

    @property
    def size_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.item_bytes

    @property
    def strides_bytes(self) -> tuple[int, ...]:
        steps = [self.item_bytes]
        for n in reversed(self.shape[1:]):
            steps.append(steps[-1] * n)
        return tuple(reversed(steps))[: len(self.shape)] if self.shape else ()


@dataclass(frozen=True)
class CallData:
    """One program for one target.

    `made` says of each result how it comes to be: `direct` in a memory, `again` as a copy of another result, `kept` as a copy of
    an argument or a constant, `literal` as a constant that no step reads. `fixed` are (memory, number of the constant).
    """

    target: FileTarget
    entry: str
    arguments: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    steps: tuple[launch.Instruction, ...]
    names: tuple[str, ...]  # of the steps
    memories: int
    given: tuple[int, ...]
    made: tuple[tuple[str, int], ...]
    constants: tuple[np.ndarray, ...]
    fixed: tuple[tuple[int, int], ...]
    places: tuple[tuple[int, int], ...]
    copies: tuple[tuple[int, int, int], ...]
    arena_bytes: int
    scratch_bytes: int
    parallel: bool
    code: ObjectCode | CSources
    trees: Any = None  # of the arguments and of the results (`tilewright_runtime.trees`)

    @property
    def interface(self) -> dict[str, Any]:
        """What a loader and the code must agree on, down to the constants' and the kernels' digests."""

        def rows(tensors: Sequence[Tensor]) -> list[list[Any]]:
            return [[t.element, t.dtype, list(t.shape), t.item_bytes, t.alignment] for t in tensors]

        return {
            "arguments": rows(self.arguments), "results": rows(self.results), "trees": self.trees,
            "constants": [hashlib.sha256(a.tobytes()).hexdigest() for a in self.constants], "program": self._program_digest(),
            "steps": len(self.steps), "features": list(self.target.features), "architecture": self.target.architecture,
            "system": self.target.system,
        }  # fmt: skip

    def _program_digest(self) -> str:
        """sha256 over the kernels' code and over what the call does with them."""
        digest = hashlib.sha256()
        for part in self.code.parts:
            digest.update(hashlib.sha256(part).digest())
        tables = (
            [(type(s).__name__, s.buffers, getattr(s, "tasks", 0), getattr(s, "target", 0)) for s in self.steps], self.given,
            self.made, self.fixed, self.places, self.copies, self.arena_bytes, self.scratch_bytes,
        )  # fmt: skip
        digest.update(repr(tables).encode())
        return digest.hexdigest()

    @property
    def digest(self) -> str:
        """A name of the interface, which the code holds, too."""
        return interface_digest(self.interface)


def call_data(plan: Plan, target: FileTarget, trees: Any = None) -> CallData:
    """The call of a plan's program, with its kernels made for a target.

    Raises ExportError for a program with a step that only this process can take: the evaluator's, a library's, a function's of
    the caller's.
    """
    code = CSources(target.target) if target.through_c else ObjectCode(target.target)
    return data_of(Executable(plan, None, None, code), target, code, trees)


def data_of(made: Executable, target: FileTarget, code: ObjectCode | CSources, trees: Any = None) -> CallData:
    """The same of an executable that was made with `code` as its target."""
    if made.whole is not None:
        unknown = any(isinstance(v.type, TensorType) and not v.type.is_static for v in made.plan.program.arguments)
        more = "; --shapes, or tilewright.refined, says which shapes a file is for" if unknown else ""
        raise ExportError(f"the evaluator runs the whole program, and a file has none: {made.whole}{more}")
    if made._debug:
        raise ExportError("TILEWRIGHT_DEBUG: kernels between guards are for this process alone; unset it to write files")
    steps = made._launch.steps
    for number, step in enumerate(steps):
        if isinstance(step, launch.Host | launch.Library):
            op = made._evaluated[number][0]
            who = op.library or op.reason or "a function of the caller's"
            if target_name := op.op.attributes.get("call_target_name"):
                who = f"{who} (@{target_name})"
            raise ExportError(f"{op.op.name} (%{op.name}) is not a kernel, and a file holds kernels alone: {who}")
    layout, program = made._layout, made.plan.program
    constants: list[np.ndarray] = []
    numbers: dict[bytes, int] = {}

    def constant(a: np.ndarray) -> int:
        data = np.ascontiguousarray(a).tobytes()
        if data not in numbers:
            numbers[data] = len(constants)
            constants.append(a)
        return numbers[data]

    fixed = [(slot, constant(a)) for slot, a in layout.fixed]
    kept = layout.kept_slots
    rows: list[tuple[str, int]] = []
    first: dict[int, int] = {}
    for k, (known, v) in enumerate(layout.made):
        if known is None:
            rows.append(("literal", constant(literal(v))))
        elif known in kept:
            rows.append(("kept", known))
        elif known in first:
            rows.append(("again", first[known]))
        else:
            first[known] = k
            rows.append(("direct", known))
    names = iter(made.kernels)
    return CallData(
        target, program.name,
        tuple(_tensor(v, v.name or f"argument{k}", own_alignment(v.tensor.element)) for k, v in enumerate(program.arguments)),
        tuple(
            # (Memory from the pool starts with a cache line, and its kernels were told so.)
            _tensor(v, f"result{k}", LINE_BYTES if how == "direct" and s in layout.pooled else own_alignment(v.tensor.element))
            for k, ((s, v), (how, _)) in enumerate(zip(layout.made, rows, strict=True))
        ),
        steps,
        tuple(next(names).name if isinstance(s, launch.Step) else type(s).__name__.lower() for s in steps),
        layout.count,
        tuple(-1 if slot is None else slot for slot, _ in layout.given),
        tuple(rows), tuple(constants), tuple(fixed), tuple(layout.offsets.items()), tuple(layout.copies), layout.arena_bytes,
        made._launch.scratch_stride, made._launch.parallel, code, trees,
    )  # fmt: skip


def _tensor(v: Value, name: str, alignment: int) -> Tensor:
    t = v.tensor
    return Tensor(name, str(t.element), str(t.dtype.name), tuple(v.shape), t.dtype.itemsize, alignment)
