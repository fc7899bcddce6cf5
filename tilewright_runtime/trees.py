"""Trees of arguments and results as data: dictionaries, lists, tuples, objects with named parts, None, and leaves by number.

    0                                a leaf: the argument or result of that number
    None                             nothing
    ["tuple", [tree, …]]             a tuple; "list" is a list
    ["dict", [[key, tree], …]]       a dictionary with these keys
    ["named", [name, [[part, tree], …]]]     what has these attributes: a named tuple, a dataclass; as a result a named tuple
"""

from __future__ import annotations

import functools
import keyword
from collections import namedtuple
from collections.abc import Sequence
from typing import Any

from tilewright_runtime.container import natural

__all__ = ["TreeError", "checked", "filled", "flattened", "is_part", "record"]


class TreeError(TypeError):
    """Arguments of another structure than the program's; the message says where."""


def checked(tree: Any, leaves: int, depth: int = 0) -> Any:
    """A tree whose leaves are numbers below `leaves`. Raises ValueError for anything else."""
    if tree is None:
        return None
    if isinstance(tree, int):
        if natural(tree) >= leaves:
            raise ValueError(f"leaf {tree} of {leaves}")
        return tree
    if not isinstance(tree, list) or len(tree) != 2 or depth > 200:
        raise ValueError(f"no tree: {tree!r}"[:200])
    kind, inner = tree
    if kind in ("tuple", "list") and isinstance(inner, list):
        return [kind, [checked(t, leaves, depth + 1) for t in inner]]
    if kind == "dict" and isinstance(inner, list) and all(isinstance(r, list) and len(r) == 2 for r in inner):
        keys = [k for k, _ in inner]
        if all(isinstance(k, str | int) for k in keys) and len(set(keys)) == len(keys):
            return [kind, [[k, checked(t, leaves, depth + 1)] for k, t in inner]]
    if kind == "named" and isinstance(inner, list) and len(inner) == 2 and is_part(inner[0]) and isinstance(inner[1], list):
        name, rows = inner
        if all(isinstance(r, list) and len(r) == 2 and is_part(r[0]) for r in rows) and len({p for p, _ in rows}) == len(rows):
            return [kind, [name, [[p, checked(t, leaves, depth + 1)] for p, t in rows]]]
    raise ValueError(f"no tree: {tree!r}"[:200])


def is_part(name: Any) -> bool:
    """Whether a named tuple can have a part, or be called, so.

    >>> [is_part(n) for n in ("mu", "_mu", "class", "a b", 3)]
    [True, False, False, False, False]
    """
    return isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")


def record(name: str, parts: tuple[str, ...], values: Sequence[Any]) -> Any:
    """A named tuple of a type that is made for it, and again where it is unpickled.

    >>> record("Moments", ("mu", "nu"), [1, 2])
    Moments(mu=1, nu=2)
    """
    return _record_type(name, parts)(*values)


@functools.cache
def _record_type(name: str, parts: tuple[str, ...]) -> Any:
    make: Any = namedtuple  # (a type checker wants to know the parts beforehand)
    made = make(name, parts)
    made.__reduce__ = lambda self: (record, (name, parts, tuple(self)))
    return made


def filled(tree: Any, leaves: Sequence[Any]) -> Any:
    """The structure with leaves in their places.

    >>> filled(["dict", [["a", 1], ["b", ["tuple", [0, None]]]]], ["x", "y"])
    {'a': 'y', 'b': ('x', None)}
    """
    if tree is None:
        return None
    if isinstance(tree, int):
        return leaves[tree]
    kind, inner = tree
    if kind == "dict":
        return {k: filled(t, leaves) for k, t in inner}
    if kind == "named":
        name, rows = inner
        return record(name, tuple([p for p, _ in rows]), [filled(t, leaves) for _, t in rows])
    parts = [filled(t, leaves) for t in inner]
    return tuple(parts) if kind == "tuple" else parts


def flattened(tree: Any, given: Any, count: int) -> list[Any]:
    """The leaves of a structure, by their number. Raises TreeError where it is not that of the tree.

    >>> flattened(["tuple", [1, ["list", [0]]]], ("x", ["y"]), 2)
    ['y', 'x']
    """
    found: list[Any] = [None] * count

    def walk(t: Any, value: Any, where: str) -> None:
        if t is None:
            if value is not None:
                raise TreeError(f"{where}: expected None, found {type(value).__name__}")
        elif isinstance(t, int):
            found[t] = value
        elif t[0] == "dict":
            keys = [k for k, _ in t[1]]
            if not isinstance(value, dict) or set(value) != set(keys):
                what = sorted(map(str, value)) if isinstance(value, dict) else type(value).__name__
                raise TreeError(f"{where}: expected a dictionary of {', '.join(map(str, keys)) or 'no keys'}, found {what}")
            for k, inner in t[1]:
                walk(inner, value[k], f"{where}[{k!r}]")
        elif t[0] == "named":
            name, rows = t[1]
            if not all(hasattr(value, p) for p, _ in rows):
                parts = ", ".join(p for p, _ in rows)
                raise TreeError(f"{where}: expected a {name} of {parts}, found {type(value).__name__}")
            for p, inner in rows:
                walk(inner, getattr(value, p), f"{where}.{p}")
        else:
            kind = tuple if t[0] == "tuple" else list
            if not isinstance(value, kind) or len(value) != len(t[1]):
                what = f"{type(value).__name__}{f' of {len(value)}' if isinstance(value, tuple | list) else ''}"
                raise TreeError(f"{where}: expected a {t[0]} of {len(t[1])}, found {what}")
            for k, (inner, v) in enumerate(zip(t[1], value, strict=True)):
                walk(inner, v, f"{where}[{k}]")

    walk(tree, given, "arguments")
    return found
