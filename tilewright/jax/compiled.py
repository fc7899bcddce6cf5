"""What a signature of a JAX function has become: a compiled program with its ends, or one that waits to be compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import codegen
from hlo.types import TensorType, TokenType
from tilewright.jax import first_call
from tilewright.jax.calls.results import Results
from tilewright.jax.lowering import Lowered
from tilewright.jax.signatures import array
from tilewright.jax.tokens import NO_ELEMENTS, is_token

__all__ = ["Compiled", "Waiting"]


@dataclass(frozen=True, eq=False)
class Compiled:
    """The program of a signature, compiled, and how arguments go in and results come out."""

    lowered: Lowered
    executable: Any
    dtypes: tuple[np.dtype[Any] | None, ...]  # of each argument; None for a token
    token_results: int
    token: np.ndarray | None  # what the program takes for one
    donated: tuple[int, ...]  # numbers of the leaves
    results: Results

    @classmethod
    def of(cls, lowered: Lowered, executable: Any, results: Results) -> Compiled:
        dtypes: tuple[np.dtype[Any] | None, ...]
        token: np.ndarray | None
        if lowered.kept is not None:
            dtypes, tokens, token = lowered.kept.dtypes, 0, None
        else:
            main = lowered.module.function()
            dtypes = tuple(
                v.type.dtype if isinstance(v.type, TensorType) and not is_token(main, k) else None
                for k, v in enumerate(main.arguments)
            )
            token = None if any(isinstance(v.type, TokenType) for v in main.arguments) else NO_ELEMENTS
            tokens = sum(is_token(main, k, is_result=True) for k in range(len(main.result_types)))
        donated = tuple(k for k, is_donated in enumerate(lowered.donated) if is_donated)
        return cls(lowered, executable, dtypes, tokens, token, donated, results)

    def results_of(self, jax: Any, leaves: Sequence[Any]) -> Sequence[np.ndarray]:
        """The program's results but for tokens. JAX's arrays are immutable: what is packed of one is packed once."""
        given = iter(leaves)
        arrays = [self.token if t is None else array(jax, next(given), t) for t in self.dtypes]
        run = self.executable
        if isinstance(run, codegen.Executable) and len(leaves) == len(arrays):
            return run.call_owned(arrays, self._owner_in(jax, leaves))[self.token_results :]
        results: Sequence[np.ndarray] = run(*arrays)
        return results[self.token_results :]

    def _owner_in(self, jax: Any, leaves: Sequence[Any]) -> Callable[[int], Any]:
        def owner(k: int) -> Any:
            leaf = leaves[k]
            is_lasting = isinstance(leaf, jax.Array) and isinstance(leaf.dtype, np.dtype) and k not in self.donated
            return leaf if is_lasting else None

        return owner

    def delete_donated(self, leaves: Sequence[Any]) -> None:
        """Deletes the arrays of JAX among a call's leaves that JAX could have reused for its results."""
        for k in self.donated:
            if not isinstance(leaves[k], np.ndarray) and hasattr(leaves[k], "delete"):
                leaves[k].delete()


@dataclass(eq=False)
class Waiting:
    """A program that is lowered and not compiled here yet; `later` where its first call was evaluated."""

    lowered: Lowered
    results: Results
    later: first_call.Later | None = None
