"""A program's results as JAX's arrays, all leaves of a call at once.

Turning one array costs JAX some 15 microseconds of Python, and a training step has hundreds. So small leaves go through one
compiled program of JAX's that returns its arguments (3 microseconds a leaf): JAX copies what it is given from NumPy, and as the
copies are donated the program itself has nothing to do. It is made at the second call: programs that run once do not wait for it.
Large leaves are put as they are: JAX takes over aligned memory without a copy and keeps the array that owns it; nobody else has
that one, and nothing writes to it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["Results"]

LARGE_BYTES = 1 << 18
"""From here on copying an array takes longer than `jax.device_put` does."""


class Results:
    """`Results(jax, avals, output)(arrays)` gives the leaves of a call, of the types that JAX says they have.

    `output` is "jax" or "numpy"; with the latter only keys and other extended types become JAX's arrays.
    """

    def __init__(self, jax: Any, avals: Sequence[Any], output: str) -> None:
        self._jax = jax
        self._avals = tuple(avals)
        self._calls = 0
        self._programs: dict[Any, Any] = {}  # what takes the small leaves, by the device that new arrays go to
        self._empty: dict[int, np.ndarray] = {}
        self._alone: list[int] = []
        self._small: list[int] = []
        self._large: list[int] = []
        for k, aval in enumerate(self._avals):
            if aval.dtype == jax.dtypes.float0:
                self._empty[k] = np.zeros(aval.shape, jax.dtypes.float0)
            elif jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended):
                self._alone.append(k)
            elif output == "jax":
                is_large = aval.size * aval.dtype.itemsize >= LARGE_BYTES
                (self._alone if is_large and aval.weak_type else self._large if is_large else self._small).append(k)

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        leaves: list[Any] = list(arrays)
        if len(leaves) != len(self._avals):
            raise ValueError(f"expected {len(self._avals)} results, found {len(leaves)}")
        for k, empty in self._empty.items():
            leaves[k] = empty.copy()
        for k in self._alone:
            leaves[k] = self._one(leaves[k], self._avals[k])
        if self._large:
            for k, made in zip(self._large, self._jax.device_put([leaves[k] for k in self._large]), strict=True):
                leaves[k] = made
        self._calls += 1
        if self._calls == 1:
            weak = {k for k in self._small if self._avals[k].weak_type}
            others = [k for k in self._small if k not in weak]
            for k in weak:
                leaves[k] = self._one(leaves[k], self._avals[k])
            for k, made in zip(others, self._jax.device_put([leaves[k] for k in others]), strict=True):
                leaves[k] = made
        elif self._small:
            for k, made in zip(self._small, self._program()(*[leaves[k] for k in self._small]), strict=True):
                leaves[k] = made
        return leaves

    def _program(self) -> Any:
        device = self._jax.config.jax_default_device
        found = self._programs.get(device)
        if found is None:
            avals = [self._avals[k] for k in self._small]
            wanted = [self._jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in avals]
            everything = tuple(range(len(wanted)))
            program = self._jax.jit(lambda *leaves: leaves, keep_unused=True, donate_argnums=everything)
            found = self._programs[device] = program.lower(*wanted).compile()
        return found

    def _one(self, a: np.ndarray, aval: Any) -> Any:
        made = self._jax.device_put(a)  # `jax.numpy.asarray` compiles a program of JAX's for it
        if not aval.weak_type and not self._jax.dtypes.issubdtype(aval.dtype, self._jax.dtypes.extended):
            return made
        return _as_jax_has_it(made, aval)


def _as_jax_has_it(stored: Any, aval: Any) -> Any:
    """The array that JAX makes of a result's storage: what its own calls do with what comes from the device."""
    from jax._src import core
    from jax._src.interpreters import pxla

    wanted = core.ShapedArray(aval.shape, aval.dtype, weak_type=aval.weak_type)
    return pxla.global_aval_to_result_handler(wanted, stored.sharding, False)([stored])
