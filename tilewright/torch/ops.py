"""ATen's ops in JAX's terms: torchax's table, and the few that it lacks or takes otherwise than eager mode does.

What is here has the semantics of eager mode: the arguments are ATen's after the module `jax`. `Ops(packages()).call(op, args,
kwargs, random)` finds the op by name in the table of this package, then in torchax's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.torch.layers import layers
from tilewright.torch.packages import Packages, TorchError
from tilewright.torch.tensors import is_shared, numpy_dtype
from tilewright.torch.windows import WINDOWS

__all__ = ["OWN", "Ops", "Random"]


@dataclass(eq=False)
class Random:
    """The keys of a graph's random ops, from the one that a call brings: what torchax calls its environment."""

    jax: Any
    key: Any

    def get_and_rotate_prng_key(self, generator: Any = None) -> Any:
        """The next key. Raises TorchError for a generator of the caller's: its state is torch's."""
        if generator is not None:
            raise TorchError("a random op with a generator of its own: leave it to torch (torch.compiler.disable)")
        self.key, following = self.jax.random.split(self.key)
        return following


# ---------------------------------------------------------------- normalisations


def _accumulated(jax: Any, x: Any) -> Any:
    """The type that means and variances are formed in: ATen widens half precision."""
    return x.astype(np.float32) if x.dtype.itemsize < 4 else x


def _normalised(jax: Any, x: Any, axes: Sequence[int], eps: float) -> tuple[Any, Any, Any]:
    """(normalised, mean, one over the deviation), the latter two with the axes kept."""
    wide = _accumulated(jax, x)
    mean = wide.mean(tuple(axes), keepdims=True)
    rstd = jax.lax.rsqrt(wide.var(tuple(axes), keepdims=True) + eps)
    return (wide - mean) * rstd, mean, rstd


def _layer_norm(jax: Any, x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
    y, mean, rstd = _normalised(jax, x, range(x.ndim - len(shape), x.ndim), eps)
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias).astype(x.dtype), mean, rstd


def _group_norm(
    jax: Any, x: Any, weight: Any, bias: Any, n: int, c: int, hxw: int, groups: int, eps: float
) -> tuple[Any, Any, Any]:
    y, mean, rstd = _normalised(jax, x.reshape(n, groups, -1), [2], eps)
    y = y.reshape(x.shape)
    spread = (-1, *(1,) * (x.ndim - 2))
    y = y if weight is None else y * weight.reshape(spread)
    y = y if bias is None else y + bias.reshape(spread)
    return y.astype(x.dtype), mean.reshape(n, groups), rstd.reshape(n, groups)


def _batch_norm(jax: Any, x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float) -> tuple[Any, ...]:
    """By the running statistics: one factor and one summand for each channel."""
    spread = (-1, *(1,) * (x.ndim - 2))
    factor = jax.lax.rsqrt(_accumulated(jax, var) + eps)
    factor = factor if weight is None else factor * weight
    shift = -mean * factor if bias is None else bias - mean * factor
    nothing = jax.numpy.zeros((0,), x.dtype)
    return (x * factor.reshape(spread) + shift.reshape(spread)).astype(x.dtype), nothing, nothing


# ---------------------------------------------------------------- the others


def _embedding(jax: Any, weight: Any, indices: Any, *_: Any) -> Any:
    """Rows of a table; the padding's index and the like matter in the gradient, which is an op of its own."""
    return jax.numpy.take(weight, indices, axis=0, mode="clip")


def _to_copy(jax: Any, x: Any, *, dtype: Any = None, **_: Any) -> Any:
    return x if dtype is None else x.astype(dtype)


def _converted(jax: Any, x: Any, dtype: Any) -> Any:
    return x.astype(dtype)


def _full(jax: Any, size: Sequence[int], value: Any, *, dtype: Any = None, **_: Any) -> Any:
    return jax.numpy.full(tuple(size), value, dtype)


def _full_like(jax: Any, x: Any, value: Any, *, dtype: Any = None, **_: Any) -> Any:
    return jax.numpy.full(x.shape, value, dtype or x.dtype)


def _empty(jax: Any, size: Sequence[int], *_: Any, dtype: Any = None, **__: Any) -> Any:
    return jax.numpy.zeros(tuple(size), dtype)


def _same(jax: Any, x: Any, *_: Any, **__: Any) -> Any:
    return x


def _nothing(jax: Any, *_: Any, **__: Any) -> None:
    return None


def _size(jax: Any, x: Any, dim: int | None = None) -> Any:
    return x.shape if dim is None else x.shape[dim]


def _elems(jax: Any, x: Any) -> int:
    return int(x.size)


def _iota(jax: Any, length: int, *, start: int, step: int, dtype: Any, **_: Any) -> Any:
    return (jax.numpy.arange(length) * step + start).astype(dtype)


def _sign(jax: Any, x: Any) -> Any:
    """0 for NaN and for both zeros."""
    return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype) if x.dtype != bool else x


def _running(jax: Any, x: Any, dim: int, extreme: Callable[..., Any], holds: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """(the largest or smallest so far, where the last of them is); a NaN is beyond all numbers."""
    if x.ndim == 0:
        return x, jax.numpy.zeros((), np.int64)
    dim %= x.ndim
    found = extreme(x, axis=dim)
    new = jax.numpy.isnan(x) | holds(x, found) if np.issubdtype(x.dtype, np.inexact) else holds(x, found)
    places = jax.lax.broadcasted_iota(np.int64, x.shape, dim)
    return found, jax.lax.cummax(jax.numpy.where(new, places, 0), axis=dim)


def _cummax(jax: Any, x: Any, dim: int) -> tuple[Any, Any]:
    return _running(jax, x, dim, jax.lax.cummax, lambda x, found: x >= found)


def _cummin(jax: Any, x: Any, dim: int) -> tuple[Any, Any]:
    return _running(jax, x, dim, jax.lax.cummin, lambda x, found: x <= found)


def _fma(jax: Any, a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def _index_put(jax: Any, x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, *_: Any) -> Any:
    """Where an array of truth values is the index, each element is chosen: no number of elements depends on values."""
    given: list[Any] = [slice(None) if i is None else i for i in indices]
    if any(i is not None and i.dtype == bool for i in indices):
        if len(given) != 1 or (values.ndim > 0 and values.size != 1):
            raise TorchError("index_put with truth values beside other indices, or with several values")
        chosen = given[0].reshape(*given[0].shape, *(1,) * (x.ndim - given[0].ndim))
        return jax.numpy.where(chosen, x + values.reshape(()) if accumulate else values.reshape(()), x)
    at = x.at[tuple(given)]
    return at.add(values.astype(x.dtype)) if accumulate else at.set(values.astype(x.dtype))


def _native_dropout(random: Random, jax: Any, x: Any, p: float, train: bool | None) -> tuple[Any, Any]:
    if train is False or p == 0:
        return x, jax.numpy.ones(x.shape, bool)
    kept = jax.random.uniform(random.get_and_rotate_prng_key(), x.shape, np.float32) >= p
    return (jax.numpy.where(kept, x / (1 - p), 0) if p < 1 else x * 0), kept


def _uniform(random: Random, jax: Any, size: Sequence[int], *, generator: Any = None, dtype: Any = None, **_: Any) -> Any:
    return _draw(random, jax, jax.random.uniform, tuple(size), dtype, generator)


def _uniform_like(random: Random, jax: Any, x: Any, *, dtype: Any = None, **_: Any) -> Any:
    return _draw(random, jax, jax.random.uniform, x.shape, dtype or x.dtype, None)


def _normal(random: Random, jax: Any, size: Sequence[int], *, generator: Any = None, dtype: Any = None, **_: Any) -> Any:
    return _draw(random, jax, jax.random.normal, tuple(size), dtype, generator)


def _normal_like(random: Random, jax: Any, x: Any, *, dtype: Any = None, **_: Any) -> Any:
    return _draw(random, jax, jax.random.normal, x.shape, dtype or x.dtype, None)


def _bernoulli(random: Random, jax: Any, x: Any, p: Any = None, *, generator: Any = None) -> Any:
    return (_draw(random, jax, jax.random.uniform, x.shape, np.float32, generator) < (x if p is None else p)).astype(x.dtype)


def _draw(random: Random, jax: Any, draw: Callable[..., Any], shape: tuple[int, ...], dtype: Any, generator: Any) -> Any:
    dtype = np.dtype(np.float32 if dtype is None else dtype)
    wide = np.dtype(np.float32) if dtype.itemsize < 4 else dtype
    return draw(random.get_and_rotate_prng_key(generator), shape, wide).astype(dtype)


RANDOM: dict[str, Callable[..., Any]] = {
    "aten.native_dropout": _native_dropout,
    "aten.rand": _uniform,
    "aten.rand_like": _uniform_like,
    "aten.randn": _normal,
    "aten.randn_like": _normal_like,
    "aten.bernoulli": _bernoulli,
}
"""As `OWN`, with the graph's keys before the other arguments."""

OWN: dict[str, Callable[..., Any]] = {
    **WINDOWS,
    "aten.native_layer_norm": _layer_norm,
    "aten.native_group_norm": _group_norm,
    "aten._native_batch_norm_legit_no_training": _batch_norm,
    "aten.embedding": _embedding,
    "aten._to_copy": _to_copy,
    "prims.convert_element_type": _converted,
    "aten.full": _full,
    "aten.full_like": _full_like,
    "aten.empty.memory_format": _empty,
    "aten.empty_strided": _empty,
    "aten.empty_permuted": _empty,
    "aten.clone": _same,
    "aten.alias": _same,
    "aten.detach": _same,
    "aten.lift_fresh_copy": _same,
    "aten.contiguous": _same,
    "aten._assert_scalar": _nothing,
    "aten._assert_async": _nothing,
    "aten._assert_tensor_metadata": _nothing,
    "aten.sym_size": _size,
    "aten.sym_numel": _elems,
    "prims.iota": _iota,
    "prims.fma": _fma,
    "aten.sign": _sign,
    "aten.cummax": _cummax,
    "aten.cummin": _cummin,
    "aten.index_put": _index_put,
    "aten._unsafe_index_put": _index_put,
}
"""ATen's op (or one overload of it) by name -> a function of `jax` and the op's arguments."""


_NO_TABLE = "neither this package nor torchax has the op in JAX's terms"


@dataclass(frozen=True)
class Ops:
    """Which function stands for an op."""

    use: Packages

    def decompositions(self) -> dict[Any, Callable[..., Any]]:
        """The table for the tracer: core ATen, what torchax takes apart, whole layers; without what is taken whole here."""
        torch = self.use.torch
        core, more = torch._decomp.core_aten_decompositions(), self.use.decompositions.DECOMPOSITIONS
        table = {**dict(core.items()), **more, **layers(torch)}
        return {op: rule for op, rule in table.items() if not self._has_own(op)}

    def _has_own(self, op: Any) -> bool:
        names = _names(op)
        return any(name in OWN or name in RANDOM for name in names)

    def why_not(self, node: Any) -> str:
        """Why a node of a graph has no form here, as far as that is known without tracing it; empty where it has one."""
        torch = self.use.torch
        if node.op != "call_function":
            return ""
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return "a graph inside a graph"
        if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace == "_operator":
            return ""
        if not self._has_own(node.target):
            found = self._registered(node.target)
            if found is None or not found.is_jax_function:
                return _NO_TABLE
        values = (n.meta.get("val") for n in (*node.all_input_nodes, node))
        for t in torch.utils._pytree.tree_leaves(list(values)):
            if isinstance(t, torch.Tensor) and (t.layout is not torch.strided or t.is_quantized or not is_shared(t.dtype)):
                return f"a tensor of {t.dtype}, {t.layout}"
        return ""

    def _registered(self, op: Any) -> Any:
        """torchax's entry for the op, or None."""
        return self.use.registry.all_aten_ops.get(op) or self.use.registry.all_aten_ops.get(op.overloadpacket)

    def call(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], random: Random) -> Any:
        """The op's results as JAX's arrays. Raises TorchError for an op that no table has."""
        jax = self.use.jax
        if self._has_own(op):
            torch = self.use.torch
            given, named = torch.utils._pytree.tree_map_only(torch.dtype, numpy_dtype, (tuple(args), dict(kwargs)))
            name = next(name for name in _names(op) if name in RANDOM or name in OWN)
            return RANDOM[name](random, jax, *given, **named) if name in RANDOM else OWN[name](jax, *given, **named)
        found = self._registered(op)
        if found is None or not found.is_jax_function:
            raise TorchError(_NO_TABLE)
        more = {"env": random} if found.needs_env else {}
        return found.func(*args, **kwargs, **more)


def _names(op: Any) -> tuple[str, ...]:
    """`aten.max.dim` and `aten.max`.

    >>> _names("aten.max.dim")
    ('aten.max.dim', 'aten.max')
    """
    name = str(op)
    return (name, ".".join(name.split(".")[:2]))

