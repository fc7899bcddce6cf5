"""JAX functions as files: the programs of some signatures, with the trees of their arguments and results."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from codegen.call.as_file import write_file
from hlo.errors import TilewrightError
from tilewright_runtime.trees import is_part

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
        arguments = tree_as_data(jax.tree_util, jax.tree_util.tree_structure((args, kwargs)), "arguments")
        trees.append([arguments, tree_as_data(jax.tree_util, made.lowered.out_tree, "results")])
    write_file(tuple([made.executable for made, _, _ in calls]), path, targets, trees)


def tree_as_data(tree_util: Any, structure: Any, what: str) -> Any:
    """JAX's tree as data (`tilewright_runtime.trees`).

    Named tuples and dataclasses that JAX knows are their parts by name; a dataclass's static fields are the program's own.
    Raises TreeOfFileError for what has other parts.
    """

    def walk(value: Any, where: str) -> Any:
        if value is None or type(value) is int:
            return value
        if type(value) in (tuple, list):
            return [type(value).__name__, [walk(v, f"{where}[{k}]") for k, v in enumerate(value)]]
        if isinstance(value, dict):
            if other := [k for k in value if type(k) not in (str, int)]:
                raise TreeOfFileError(f"{where}: a dictionary with the key {other[0]!r}: keys are text or whole numbers")
            return ["dict", [[k, walk(v, f"{where}[{k!r}]")] for k, v in value.items()]]
        name, parts = type(value).__name__, _parts(tree_util, value)
        if parts is None or not is_part(name):
            raise TreeOfFileError(f"{where}: a {name} is no tuple, list or dictionary, and its parts have no names")
        return ["named", [name, [[p, walk(v, f"{where}.{p}")] for p, v in parts]]]

    return walk(structure.unflatten(range(structure.num_leaves)), what)


def _parts(tree_util: Any, value: Any) -> list[tuple[str, Any]] | None:
    """The parts of a node that are its attributes, by name; None for a node that has others."""
    rows, _ = tree_util.tree_flatten_with_path(value, is_leaf=lambda part: part is not value)
    if not all(len(path) == 1 and isinstance(path[0], tree_util.GetAttrKey) and is_part(path[0].name) for path, _ in rows):
        return None
    return [(path[0].name, part) for path, part in rows]
