"""From a program in the global view to what each process of a mesh runs: local ops and explicit collectives.

    partition(module)  ->  Partitioned: an ordinary module, which the evaluator runs on a simulated grid and MPI on a real one

`tiling.mesh.walk` decides op by op; here are the arguments, the results, and the choice among whole programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from hlo.attributes import TypedInteger
from hlo.calls import callees
from hlo.clone import captured_values
from hlo.module import Block, Function, Module, Op, Value, walk
from hlo.registry import definition
from hlo.types import TensorType
from hlo.verify import verify
from tiling.mesh.annotations import AnnotationError
from tiling.mesh.arrays import Exchange, ShardedArray, ShardingError
from tiling.mesh.emit import Communication, Emitter
from tiling.mesh.mesh import Mesh
from tiling.mesh.network import Network
from tiling.mesh.regions import Held
from tiling.mesh.shardings import Sharding
from tiling.mesh.walk import Walk
from tiling.mesh.written import Written

__all__ = ["Partitioned", "partition"]


@dataclass(frozen=True, eq=False)
class Partitioned:
    """What each process runs, how arguments and results are spread, and every communication with its reason.

    `kept_whole` names the ops that every process computes in whole though their operands were spread, with the reason.
    `seconds` is what a call takes by the network's model, `work_seconds` of them computing; a loop's body counts as
    often as it is known to run.
    """

    module: Module
    mesh: Mesh
    arguments: tuple[Sharding, ...]
    results: tuple[Sharding, ...]
    argument_types: tuple[TensorType, ...]
    result_types: tuple[TensorType, ...]
    communications: tuple[Communication, ...]
    kept_whole: tuple[str, ...]
    seconds: float
    work_seconds: float

    @property
    def held_bytes(self) -> int:
        """The bytes of a process's tiles of arguments and results."""
        rows = [*zip(self.arguments, self.argument_types, strict=True), *zip(self.results, self.result_types, strict=True)]
        return sum(s.local_type(t).size_bytes for s, t in rows)

    @property
    def peak_bytes(self) -> int:
        """The most bytes of values that a process needs at a time, were every op a step of its own."""
        body = self.module.entry.body
        return _needed_bytes(body, sum(_size_bytes(a) for a in body.arguments))

    @property
    def sent_bytes(self) -> int:
        """The bytes that a process sends in a call; what is sent in a loop's body counts once."""
        return sum(c.sent_bytes for c in self.communications)

    def local(self, k: int, given: Any, process: int) -> Any:
        """A process's tile of argument k: of the whole array a view, of a function of the tile's slices what it returns.

        What has the tile's shape already stays as it is. Raises ShardingError for an array that is spread otherwise.
        """
        t, s = self.argument_types[k], self.arguments[k]
        slices = s.slices(t.static_shape, process)
        if isinstance(given, ShardedArray):
            if given.shape != t.static_shape or given.sharding.places != s.places:
                raise ShardingError(f"argument {k}: expected {t} as {s}, found {given!r}")
            return s.filled(given.tile, t.static_shape)
        if callable(given):
            return s.filled(np.asarray(given(slices)), t.static_shape)
        shape = getattr(given, "shape", None)
        if s.is_whole or shape is None:
            return given
        if shape == t.static_shape:
            return s.shard(np.asarray(given), process)
        is_short = shape == tuple([a.stop - a.start for a in slices])  # without what is over an end
        return s.filled(np.asarray(given), t.static_shape) if is_short else given

    def result(self, k: int, tile: np.ndarray, process: int, exchange: Exchange) -> ShardedArray:
        """Result k, of which a process has computed its tile, without what is over an end."""
        t, s = self.result_types[k], self.results[k]
        own = tile[tuple([slice(0, a.stop - a.start) for a in s.slices(t.static_shape, process)])]
        return ShardedArray(own, t.static_shape, s, self.mesh, process, exchange)

    def joined(self, k: int, tiles: Sequence[np.ndarray]) -> np.ndarray:
        """The whole result k, of which process p holds tiles[p]."""
        return self.results[k].joined(tiles, self.result_types[k].static_shape)

    def explain(self) -> str:
        """The mesh, how values are spread, each communication and what is computed in whole."""
        lines = [f"mesh {self.mesh}: {self.mesh.size} processes"]
        for what, shardings, types in (
            ("argument", self.arguments, self.argument_types), ("result", self.results, self.result_types)
        ):  # fmt: skip
            pairs = enumerate(zip(shardings, types, strict=True))
            lines += [f"{what} {k}: {t} as {s}, {s.local_type(t)} each" for k, (s, t) in pairs]
        lines += [str(c) for c in self.communications] or ["nothing is sent"]
        lines += [f"computed whole by every process: {text}" for text in self.kept_whole]
        return "\n".join(lines)


def partition(
    module: Module, entry: str = "main", mesh: Mesh | None = None, network: Network | None = None,
    given: Mapping[int, Sharding] | None = None, memory_bytes: int | None = None,
) -> Partitioned:  # fmt: skip
    """What each process of the module's mesh runs. A mesh that is given takes the place of the module's, of the same axes.

    `given` says how arguments come for which the module says nothing. Of the ways that are tried the quickest is taken whose
    values fit into `memory_bytes` of each process.

    Raises AnnotationError (a TilewrightError) for shardings that mean nothing on the mesh, and where no way fits.

    >>> import hlo
    >>> text = '''module { sdy.mesh @m = <["x"=2]>
    ...   func.func @main(%a: tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@m, [{}, {"x"}]>},
    ...                   %b: tensor<8x2xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {}]>}) -> tensor<4x2xf32> {
    ...     %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    ...       : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
    ...     return %c : tensor<4x2xf32> } }'''
    >>> print(partition(hlo.parse(text)).explain())
    mesh x=2: 2 processes
    argument 0: tensor<4x8xf32> as [{}, {x}], tensor<4x4xf32> each
    argument 1: tensor<8x2xf32> as [{x}, {}], tensor<4x2xf32> each
    result 0: tensor<4x2xf32> as [{}, {}], tensor<4x2xf32> each
    all_reduce of %c along x: each process sends 32 bytes; stablehlo.dot_general folds over a loop that is spread
        dearer by 20.1 us: all_gather of %a, all_gather of %b
    """
    rows = [Written(module, entry, mesh, network or Network(), wishes, given or {}, exchanges) for wishes, exchanges in WAYS]
    made = [_partitioned(whole) for whole in rows]
    fits = [p for p in made if memory_bytes is None or p.peak_bytes <= memory_bytes]
    if not fits:
        least = min(p.peak_bytes for p in made)
        raise AnnotationError(f"expected at most {memory_bytes} bytes for each process, found {least} at least")
    return min(fits, key=lambda p: p.seconds)


WAYS = (
    ("none", True), ("moves", True), ("all", True), ("beside", True), ("none", False), ("moves", False),
)  # fmt: skip
"""The whole programs that are weighed against each other.

How far back it counts how a result is wanted: not at all, through ops that fold nothing, through all, or as the arguments are
spread that it is combined with. And whether digits that number an operand's tiles may come to number something else where that
is the cheapest for an op: what follows may then have to send more.
"""


def _partitioned(whole: Written) -> Partitioned:
    """The program of one way."""
    f, program = whole.function, whole.program
    given = []
    for k, a in enumerate(program.arguments):
        written = whole.of_dictionary(f.argument_attributes[k] if k < len(f.argument_attributes) else None)
        if written is None:
            written = whole.given.get(k)
        given.append(Sharding.whole(a.rank) if written is None else whole.atomic(written, a))
    wanted: list[Sharding | None] = []
    for k, r in enumerate(program.results):
        written = whole.of_dictionary(f.result_attributes[k] if k < len(f.result_attributes) else None)
        wanted.append(None if written is None else whole.atomic(written, r))
    types = [s.local_type(a.tensor) for s, a in zip(given, program.arguments, strict=True)]
    block = Block(types, [a.name for a in program.arguments])
    held = {a: Held(v, s) for a, v, s in zip(program.arguments, block.arguments, given, strict=True)}
    walk = Walk(whole, Emitter(whole.mesh.size, block, whole.told, lambda: next(whole.numbers)), held, program, wanted)
    walk.ops(program.ops)
    results = []
    shardings = []
    for r, s in zip(program.results, wanted, strict=True):
        final = s if s is not None else walk.sharding(r)
        results.append(walk.at(r, final, "the result is wanted so"))
        shardings.append(final)
    block.ops.append(Op(definition("func.return"), results))
    entry = Function("main", block, result_types=tuple(v.type for v in results))
    attributes = {f"mhlo.num_{what}": TypedInteger(n, "i32") for what, n in (("partitions", whole.mesh.size), ("replicas", 1))}
    made = Module({"main": entry, **_called(whole.module, block)}, whole.module.name, attributes)
    verify(made)
    return Partitioned(
        made, whole.mesh, tuple(given), tuple(shardings), tuple([a.tensor for a in program.arguments]),
        tuple([r.tensor for r in program.results]), tuple(whole.told), tuple(whole.kept_whole), _seconds(whole),
        whole.work_seconds,
    )  # fmt: skip


def _size_bytes(v: Value) -> int:
    return v.type.size_bytes if isinstance(v.type, TensorType) and v.type.is_static else 0


def _needed_bytes(block: Block, held_bytes: int) -> int:
    """The most bytes that are in use at a time; `held_bytes` are those that are there all the time."""
    last: dict[Value, int] = {}
    for k, op in enumerate(block.ops):
        for v in (*op.operands, *(v for b in op.regions for v in captured_values(b))):
            last[v] = k
    ends: dict[int, list[Value]] = {}
    for v, k in last.items():
        ends.setdefault(k, []).append(v)
    made: set[Value] = set()
    most = now = held_bytes
    for k, op in enumerate(block.ops):
        made.update(op.results)
        now += sum(map(_size_bytes, op.results))
        inner = [_needed_bytes(b, now + sum(map(_size_bytes, b.arguments))) for b in op.regions if op.definition.is_control]
        most = max([most, now, *inner])
        now -= sum(_size_bytes(v) for v in {*ends.get(k, ()), *(r for r in op.results if r not in last)} if v in made)
    return most


def _called(module: Module, block: Block) -> dict[str, Function]:
    """The functions that bodies for one process, which stay as they are, call."""
    found: dict[str, Function] = {}
    todo = [block]
    while todo:
        names = {name for op in walk(todo.pop()) for name in callees(op)} - found.keys()
        if "main" in names:
            raise AnnotationError("a body for one process calls @main, which is the name of what each process runs")
        found |= {name: module.functions[name] for name in sorted(names)}
        todo += [module.functions[name].body for name in sorted(names) if not module.functions[name].is_declaration]
    return found


def _seconds(whole: Written) -> float:
    sent = [c.times * whole.network.seconds(c.sent_bytes, prod(d.size for d in c.digits)) for c in whole.told]
    return whole.work_seconds + sum(sent)
