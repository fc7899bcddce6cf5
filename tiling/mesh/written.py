"""A program in the global view as it is written: its ops in one block, its mesh, the shardings that it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from hlo.errors import Declined
from hlo.module import Module, Op, Value
from tiling.mesh.annotations import AnnotationError, atoms_of, meshes_of, open_dims, sharding_of, shardings_in, split
from tiling.mesh.emit import Communication
from tiling.mesh.mesh import Mesh
from tiling.mesh.network import Network
from tiling.mesh.shardings import Sharding
from tiling.program.flatten import flatten

__all__ = ["TO_SHARD", "TO_WHOLE", "Written", "target_of"]

_CONSTRAINTS = ("sdy.sharding_constraint", "sdy.reshard")
TO_SHARD, TO_WHOLE = "SPMDFullToShardShape", "SPMDShardToFullShape"


class Written:
    """What all blocks of a program share while it is partitioned: meshes, digits, costs, and what is noted on the way.

    `wishes` says how far back it counts how a result is wanted, `exchanges` whether an op may have what numbers the tiles of
    its operands number something else (`partition.WAYS`).
    """

    def __init__(
        self, module: Module, entry: str, mesh: Mesh | None, network: Network, wishes: str, given: Mapping[int, Sharding],
        exchanges: bool = True,
    ) -> None:  # fmt: skip
        self.module, self.network, self.wishes, self.given, self.exchanges = module, network, wishes, given, exchanges
        self.work_seconds = 0.0
        self.function = module.function(entry)
        self.program = flatten(module, self.function.name, only=("merge_equal_ops",))
        self.meshes = meshes_of(module)
        if mesh is not None:
            for name, m in self.meshes.items():
                if m.size > 1 and set(dict(m.axes)) != set(dict(mesh.axes)):
                    raise AnnotationError(f"the module is for the mesh @{name} of {m}, found {mesh}")
            self.meshes = dict.fromkeys(self.meshes, mesh)
        found = next((m for m in self.meshes.values() if m.size > 1), mesh)
        self.mesh = found or Mesh({"process": _partitions(module)})
        self.numbers = count(1)
        self.told: list[Communication] = []
        self.kept_whole: list[str] = []
        written = [s for s in self._written() if s is not None]
        outside = next((d for s in written for d in s.digits if self.mesh.size % (d.stride * d.size)), None)
        if outside is not None:
            raise AnnotationError(
                f"the shardings are for {outside.stride * outside.size} processes or more, found the mesh {self.mesh}"
            )
        atoms = atoms_of(written, self.mesh.size)
        if isinstance(atoms, Declined):
            raise AnnotationError(atoms.reason)
        self.atoms = tuple([d for d in atoms if d.size > 1])

    # ------------------------------------------------------------ annotations

    def _written(self) -> Iterator[Sharding | None]:
        for dictionary in (*self.function.argument_attributes, *self.function.result_attributes):
            yield self.of_dictionary(dictionary)
        yield from self.given.values()
        for op in self.program.ops:
            if "sharding" in op.attributes and op.name.startswith("sdy."):
                yield sharding_of(str(op.attr("sharding")), self.meshes)
            elif op.name == "sdy.manual_computation":
                yield from self.per_value(op, "in_shardings")
                yield from self.per_value(op, "out_shardings")
            elif target_of(op) in ("Sharding", TO_WHOLE):
                yield self.of_dictionary(op.extra)

    def of_dictionary(self, dictionary: Mapping[str, Any] | None) -> Sharding | None:
        """The sharding among the attributes of an argument, a result or a call."""
        for name in ("sdy.sharding", "mhlo.sharding"):
            if dictionary and name in dictionary:
                return sharding_of(str(dictionary[name]), self.meshes)
        return None

    def constraint(self, op: Op) -> Sharding | None:
        """The sharding that an op wants its operand in; None of an op that is no such constraint."""
        if op.name in _CONSTRAINTS:
            return self.atomic(sharding_of(str(op.attr("sharding")), self.meshes), op.operands[0])
        if target_of(op) == "Sharding":
            written = self.of_dictionary(op.extra)
            return None if written is None else self.atomic(written, op.operands[0])
        return None

    def open_dims(self, op: Op) -> tuple[int, ...]:
        """The dimensions in which a constraint leaves more axes to the partitioner (`{"x", ?}`)."""
        return open_dims(str(op.attr("sharding"))) if op.name in _CONSTRAINTS else ()

    def opened(self, op: Op, constraint: Sharding, held: Sharding) -> Sharding:
        """A constraint with what the value is spread along already, where the constraint leaves that open."""
        dims = list(constraint.dims)
        for k in self.open_dims(op):
            more = held.dims[k][len(dims[k]) :]
            if held.dims[k][: len(dims[k])] == dims[k] and not set(more) & {d for dim in dims for d in dim}:
                dims[k] = held.dims[k]
        return Sharding(tuple(dims))

    def per_value(self, op: Op, name: str) -> list[Sharding]:
        """The shardings of an attribute that has one for each value."""
        return shardings_in(str(op.attr(name)), self.meshes)

    def atomic(self, s: Sharding, v: Value) -> Sharding:
        """A written sharding in the smallest digits. Raises AnnotationError where it is none of the value."""
        dims = s.dims or ((),) * v.rank
        if len(dims) != v.rank:
            raise AnnotationError(f"sharding {s}: expected {v.rank} dimensions, as {v.type} has, found {len(dims)}")
        made = Sharding(tuple([split(d, self.atoms) for d in dims]))
        if not made.is_sound:
            raise AnnotationError(f"sharding {s}: expected each axis once")
        return made


def _partitions(module: Module) -> int:
    found = module.attributes.get("mhlo.num_partitions", 1)
    number = getattr(found, "value", found)
    return number if isinstance(number, int) else 1


def target_of(op: Op) -> str:
    """The name of what a custom call calls; "" of all other ops."""
    return str(op.attr("call_target_name")) if op.name == "stablehlo.custom_call" else ""
