"""What a call's arguments are: the arrays among them, and the signature that a compiled program depends on."""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["CONFIGURATION", "array", "configuration", "foreign", "is_traced", "meshes", "signature", "static_arguments"]


def _numbers(value: Any) -> tuple[int, ...]:
    return () if value is None else (value,) if isinstance(value, int) else tuple(value)


def _names(value: Any) -> tuple[str, ...]:
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def static_arguments(f: Any, numbers: Any, names: Any) -> tuple[frozenset[int], frozenset[str]]:
    """Static positions and names; where only one of the two is given, the other follows from f's signature, as in JAX."""
    given_numbers, given_names = _numbers(numbers), _names(names)
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        return frozenset(given_numbers), frozenset(given_names)
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if numbers is None and given_names:
        given_numbers = tuple(k for k, n in enumerate(positional) if n in given_names)
    if names is None and given_numbers:
        given_names = tuple(positional[k] for k in given_numbers if -len(positional) <= k < len(positional))
    return frozenset(given_numbers), frozenset(given_names)


CONFIGURATION = (
    "jax_enable_x64", "jax_default_matmul_precision", "jax_default_prng_impl", "jax_threefry_partitionable",
    "jax_numpy_dtype_promotion", "jax_numpy_rank_promotion", "jax_explicit_x64_dtypes",
)  # fmt: skip


_Static = tuple[tuple[tuple[int, type, Any], ...], tuple[tuple[str, type, Any], ...]]
_NO_STATIC: _Static = ((), ())


def signature(
    jax: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], numbers: Collection[int], names: Collection[str],
    is_front: bool = False,
) -> tuple[list[Any], Any]:  # fmt: skip
    """(arrays in order, key): the key holds all that the compiled program depends on; None where JAX is tracing.

    JAX traces for the front, too: then what is traced is the call itself, and the key is the one of its arguments.
    `numbers` and `names` are those of static arguments.
    """
    dynamic: Sequence[Any] = args
    named, static = kwargs, _NO_STATIC
    if numbers or names:
        static_numbers = {n % len(args) if args and n < 0 else n for n in numbers}
        dynamic = [a for k, a in enumerate(args) if k not in static_numbers]
        named = {k: v for k, v in kwargs.items() if k not in names}
        static = (
            tuple((k, type(a), a) for k, a in enumerate(args) if k in static_numbers),
            tuple(sorted(((k, type(v), v) for k, v in kwargs.items() if k in names), key=lambda s: s[0])),
        )
    leaves, tree = jax.tree_util.tree_flatten((tuple(dynamic), named))
    types = []
    is_traced = False
    for k, leaf in enumerate(leaves):
        if type(leaf) in _CONCRETE:
            types.append((leaf.shape, leaf.dtype, leaf.weak_type))
            continue
        leaf = leaves[k] = foreign(jax, leaf)
        is_traced = is_traced or (isinstance(leaf, jax.core.Tracer) and not is_front)
        if not is_traced:
            types.append(_type(jax, leaf))
    if is_traced:
        return leaves, None
    return leaves, (tree, tuple(types), len(args), static, configuration(jax))


def configuration(jax: Any) -> tuple[Any, ...]:
    """JAX's settings that a compiled program depends on."""
    return tuple(getattr(jax.config, name, None) for name in CONFIGURATION)


def foreign(jax: Any, leaf: Any) -> Any:
    """An array of another library as NumPy's, through DLPack or the buffer protocol, not copied; anything else as it is."""
    if isinstance(leaf, np.ndarray | np.generic | jax.Array | jax.core.Tracer | bool | int | float | complex):
        return leaf
    if hasattr(leaf, "__dlpack__"):
        return np.from_dlpack(leaf)
    if isinstance(leaf, str | bytes | bytearray):
        return leaf  # text has bytes, too, but is no array: JAX says so
    try:
        return np.asarray(memoryview(leaf))
    except (TypeError, ValueError):  # no buffer, or of elements that NumPy does not know
        return leaf


_CONCRETE: set[type] = set()
"""The types of JAX's arrays that were seen: asking whether one is an array costs more than all else about it."""


def _type(jax: Any, leaf: Any) -> Any:
    aval = jax.typeof(leaf)
    is_array = isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer)
    if is_array and isinstance(leaf.dtype, np.dtype) and hasattr(leaf, "weak_type"):
        _CONCRETE.add(type(leaf))
    return aval.shape, aval.dtype, aval.weak_type


def array(jax: Any, leaf: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """The elements of an argument; the leaf's own memory where type and layout allow."""
    if not isinstance(getattr(leaf, "dtype", dtype), np.dtype) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    a = np.asarray(leaf)
    return a if a.dtype == dtype else a.astype(dtype)


def is_traced(jax: Any, args: Any, kwargs: Any) -> bool:
    """Whether JAX is tracing through a call with these arguments."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree_util.tree_leaves((args, kwargs)))


def meshes(jax: Any, shardings: Any, given: Any = None) -> list[dict[str, int]]:
    """The axes and sizes of the meshes that a tree of shardings names, and of the one that is given, Tilewright's or JAX's.

    Meshes of a single device are left out, unless one is given: there is nothing to spread over.
    """
    leaves = jax.tree_util.tree_leaves(shardings, is_leaf=lambda s: isinstance(s, jax.sharding.Sharding))
    named = [s.mesh for s in leaves if isinstance(s, jax.sharding.NamedSharding)] + ([] if given is None else [given])
    found = [dict(m.axes) if hasattr(m, "axes") else dict(zip(m.axis_names, m.axis_sizes, strict=True)) for m in named]
    return [axes for axes in found if math.prod(axes.values()) > 1 or given is not None]
