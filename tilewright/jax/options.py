"""What a call through `tilewright.jit` looks at beside its arguments: JAX's settings for debugging, options that place arrays."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

__all__ = ["PLACING", "Settings", "elsewhere", "no_number", "take_in"]

PLACING = ("in_shardings", "out_shardings", "keep_unused", "inline")
"""Options that make no difference to what is compiled."""


class Settings:
    """Settings of JAX's own `config`, each with its `value` in this thread."""

    def __init__(self, config: Any) -> None:
        self.disabled, self.nans, self.infs = config.disable_jit, config.debug_nans, config.debug_infs
        self.guard = config.transfer_guard_host_to_device


def elsewhere(jax: Any, shardings: Any) -> Any:
    """The first of a tree of shardings that is not on the one device that there is, or None."""

    def is_sharding(s: Any) -> bool:
        return isinstance(s, jax.sharding.Sharding)

    own = set(jax.devices()[:1])
    found = jax.tree_util.tree_leaves(shardings, is_leaf=is_sharding)
    return next((s for s in found if not is_sharding(s) or s.device_set != own), None)


@functools.cache
def _unchanged(jax: Any) -> Any:
    return jax.jit(lambda *leaves: leaves)


def take_in(jax: Any, leaves: Any) -> None:
    """Has JAX take a call's arguments to its device: `jax.transfer_guard` tells of those that are not there, or raises."""
    _unchanged(jax)(*[x for x in leaves if not isinstance(x, jax.Array)])


def no_number(jax: Any, results: Any, checks_nans: bool, checks_infs: bool) -> str | None:
    """What a tree of results has and must not have, `nan` or `inf`; None where all is well, and for what is traced."""
    jnp = jax.numpy
    leaves = [x for x in jax.tree_util.tree_leaves(results) if isinstance(x, (np.ndarray, jax.Array))]
    inexact = [x for x in leaves if jnp.issubdtype(x.dtype, np.inexact) and not isinstance(x, jax.core.Tracer)]
    if checks_nans and any(bool(jnp.isnan(x).any()) for x in inexact):
        return "nan"
    return "inf" if checks_infs and any(bool(jnp.isinf(x).any()) for x in inexact) else None
