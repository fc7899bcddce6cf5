"""JAX functions over a mesh: each process traces and lowers alike, the program is partitioned, and MPI runs it.

A mesh is that of the shardings (an AbstractMesh, or a Mesh of as many virtual devices as there are processes), or one that is
given for a function that names its shardings inside. Devices are processes: the first device of a mesh is process 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import codegen
from codegen.call.processes import Processes
from codegen.mpi.mesh import Mesh
from codegen.remembered.network import calibrated_network
from hlo.module import Module
from tilewright.jax.lowering import lower_all
from tilewright.jax.signatures import array, foreign
from tiling import Plan
from tiling.mesh.arrays import ShardedArray
from tiling.mesh.mesh import Mesh as Axes
from tiling.mesh.partition import Partitioned, partition
from tiling.mesh.shardings import Sharding

__all__ = ["SpreadFunction", "one_mesh"]


def one_mesh(found: Sequence[Mapping[str, int]]) -> Mesh:
    """The mesh that all axes of `found`, one mapping at least, are of. Raises ValueError where they are not of one mesh."""
    if any(list(axes.items()) != list(found[0].items()) for axes in found):
        raise ValueError(f"shardings: expected one mesh, found {' and '.join(str(Axes(dict(a))) for a in found)}")
    return Mesh(dict(found[0]))


@dataclass(frozen=True)
class _Global:
    """A mesh whose programs are in the global view, whatever they say; `given` is how arguments come."""

    mesh: Mesh
    given: Mapping[int, Sharding]

    def partitioned(self, module: Module, entry: str) -> Partitioned:
        return partition(module, entry, self.mesh, calibrated_network(), self.given)

    def join(
        self, plan: Plan, compile: Callable[[Module], Callable[..., Any]], is_partitioned: bool = False,
        infeed: Sequence[str] = (),
    ) -> Processes:  # fmt: skip
        return self.mesh.join(plan, compile, is_partitioned, infeed)


@dataclass(frozen=True, eq=False)
class _Made:
    executable: codegen.Executable
    out_tree: Any
    dtypes: tuple[np.dtype[Any], ...]


class SpreadFunction:
    """A function of trees of arrays on all processes of a mesh, each of which calls it alike.

    Arguments are whole arrays, of which each process takes its tile, or `ShardedArray`s; results are `ShardedArray`s, in the
    function's own tree. Where nothing says how an argument is spread, a `ShardedArray` stays as it is.
    """

    def __init__(
        self, function: Any, platforms: tuple[str, ...] | None, mesh: Mesh, numbers: Collection[int], names: Collection[str],
        threads: int | None, custom_calls: Mapping[str, Callable[..., Any]],
    ) -> None:  # fmt: skip
        self._function, self._platforms, self.mesh = function, platforms, mesh
        self._numbers, self._names = numbers, names
        self._threads, self._custom_calls = threads, custom_calls
        self._made: dict[Any, _Made] = {}

    def __call__(self, jax: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The tree of results."""
        made, leaves = self.compiled(jax, args, kwargs)
        rows = zip(leaves, made.dtypes, strict=True)
        given = [a if isinstance(a, ShardedArray) else array(jax, a, t) for a, t in rows]
        return jax.tree_util.tree_unflatten(made.out_tree, made.executable(*given))

    def compiled(self, jax: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[_Made, list[Any]]:
        """The program of a call's signature, and the call's arrays."""
        fixed = {n % len(args) if n < 0 else n for n in self._numbers} if args else set()
        dynamic = [a for k, a in enumerate(args) if k not in fixed]
        named = {k: v for k, v in kwargs.items() if k not in self._names}
        leaves, tree = jax.tree_util.tree_flatten((tuple(dynamic), named))
        leaves = [leaf if isinstance(leaf, ShardedArray) else foreign(jax, leaf) for leaf in leaves]
        structs = [_struct(jax, leaf) for leaf in leaves]
        static = tuple((k, args[k]) for k in sorted(fixed)), tuple(sorted((k, kwargs[k]) for k in self._names if k in kwargs))
        spread = {k: leaf.sharding for k, leaf in enumerate(leaves) if isinstance(leaf, ShardedArray)}
        types = tuple((s.shape, s.dtype, getattr(s, "weak_type", False)) for s in structs)
        key = tree, types, static, tuple((k, s.places) for k, s in spread.items())
        made = self._made.get(key)
        if made is None:
            inner, inner_named = jax.tree_util.tree_unflatten(tree, structs)
            positional = iter(inner)
            given = tuple(args[k] if k in fixed else next(positional) for k in range(len(args)))
            others = {k: kwargs[k] for k in kwargs if k in self._names}
            lowered = lower_all(jax, self._function, self._platforms, given, {**inner_named, **others})
            module = lowered.module
            calls = {**lowered.custom_calls, **self._custom_calls}
            executable = codegen.compile(
                module, module.function().name, threads=self._threads, custom_calls=calls, mesh=_Global(self.mesh, spread)
            )
            dtypes = tuple(v.tensor.dtype for v in module.function().arguments)
            made = self._made[key] = _Made(executable, lowered.out_tree, dtypes)
        return made, leaves


def _struct(jax: Any, leaf: Any) -> Any:
    """What JAX traces with, of a leaf."""
    if isinstance(leaf, ShardedArray):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    aval = jax.typeof(leaf)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
