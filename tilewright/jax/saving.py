"""JAX functions as files: the programs of some signatures, with the trees of their arguments and results."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from codegen.call.as_file import write_file
from hlo.errors import TilewrightError

__all__ = ["TreeOfFileError", "save_with_trees", "tree_as_data"]


class TreeOfFileError(TilewrightError):
    """Arguments or results of a structure that a file cannot name."""


def save_with_trees(
    jax: Any,
    path: str | os.PathLike[str],
    calls: Sequence[tuple[Any, tuple[Any, ...], dict[str, Any]]],
    targets: Sequence[str],
) -> None:
    """Writes the programs (`compiled.Compiled`) of calls, each with its arguments, an entry of the file each.

    Raises TreeOfFileError for tokens, and for types of containers that are not Python's own.
    """
    trees = []
    for made, args, kwargs in calls:
        if made.token_results or any(t is None for t in made.dtypes):  # NumPy's float64 is equal to None
            raise TreeOfFileError("a function with ordered effects passes tokens, which a file does not have")
        arguments = tree_as_data(jax.tree_util.tree_structure((args, kwargs)), "arguments")
        trees.append([arguments, tree_as_data(made.lowered.out_tree, "results")])
    write_file(tuple([made.executable for made, _, _ in calls]), path, targets, trees)


def tree_as_data(structure: Any, what: str) -> Any:
    """JAX's tree as data (`tilewright_runtime.trees`)."""

    def walk(value: Any, where: str) -> Any:
        if value is None or type(value) is int:
            return value
        if type(value) in (tuple, list):
            return [type(value).__name__, [walk(v, f"{where}[{k}]") for k, v in enumerate(value)]]
        if isinstance(value, dict) and all(type(k) in (str, int) for k in value):
            return ["dict", [[k, walk(v, f"{where}[{k!r}]")] for k, v in value.items()]]
        name = type(value).__name__
        raise TreeOfFileError(f"{where}: a {name} is no tuple, list or dictionary by names: files have no other")

    return walk(structure.unflatten(range(structure.num_leaves)), what)
