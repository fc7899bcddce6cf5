"""Groups of processes that the axes of a mesh form, as HLO's text writes them."""

from __future__ import annotations

import re
from math import prod

import numpy as np

__all__ = ["MESH", "mesh_rows"]

MESH = re.compile(
    r"mesh\[(?P<axes>(?:'[^']*'=\d+,?)*)\](?:, ?device_ids=\((?P<ids>[\d,]+|\[[\d,]+\](?:T\([\d,]+\))?)\))? ?"
    r"\{(?P<named>(?:'[^']*'(?::\(\d+\)\d+)?,? ?)*)\}",
    re.ASCII,
)
"""Such groups, as they stand in a text: the value of an attribute in which there may be a comma and spaces."""

_AXIS = re.compile(r"'([^']*)'=(\d+)", re.ASCII)
_NAMED = re.compile(r"'([^']*)'(?::\((\d+)\)(\d+))?", re.ASCII)
_MOST = 1 << 20


def mesh_rows(text: str) -> tuple[tuple[int, ...], ...] | None:
    """`mesh['x'=2,'y'=2] {'x'}`: the mesh's processes; those that differ along the named axes alone are a row.

    They are numbered from 0 on in the mesh's order, or as `device_ids=(0,2,1,3)` or `device_ids=([2,2]T(1,0))` says. Of
    `'x':(2)3` the axis is cut into 2 by 3 by the rest, and the middle is meant. The axis that is named last is the fastest one.
    None for what is nothing of this kind.

    >>> mesh_rows("mesh['x'=2,'y'=3] {'x'}"), mesh_rows("mesh['x'=4] {'x':(2)2}")
    (((0, 3), (1, 4), (2, 5)), ((0, 1), (2, 3)))
    >>> mesh_rows("mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)) {'y'}")
    ((0, 2), (1, 3))
    """
    m = MESH.fullmatch(text)
    axes = {name: int(size) for name, size in _AXIS.findall(m["axes"])} if m else {}
    named = [(n, int(before or 1), int(size or axes.get(n, 0))) for n, before, size in _NAMED.findall(m["named"])] if m else []
    if m is None or any(name not in axes for name, _, _ in named) or prod(axes.values()) > _MOST:
        return None
    sizes: list[int] = []  # every axis in pieces: those that are named, and what lies between them
    place: dict[tuple[str, int], int] = {}
    for axis, whole in axes.items():
        done = 1
        for name, before, size in sorted(named):
            if name == axis:
                sizes += [before // done, size]
                place[name, before] = len(sizes) - 1
                done = before * size
        sizes.append(whole // done)
    numbers = _numbers(m["ids"], prod(axes.values()))
    if prod(sizes) != prod(axes.values()) or numbers is None:
        return None
    inner = [place[name, before] for name, before, _ in named]
    outer = [k for k in range(len(sizes)) if k not in inner]
    grid = numbers.reshape(sizes).transpose(*outer, *inner)
    return tuple(tuple(int(x) for x in row) for row in grid.reshape(-1, prod(sizes[k] for k in inner)))


def _numbers(ids: str | None, count: int) -> np.ndarray | None:
    """The processes in the mesh's order; None where they are not each there once."""
    found = np.arange(count)
    if ids is not None and ids.startswith("["):
        shape, _, order = ids.strip("[)").partition("]")
        dims = [int(n) for n in shape.split(",")]
        axes = [int(n) for n in order.removeprefix("T(").split(",")] if order else [*range(len(dims))]
        if prod(dims) != count or sorted(axes) != [*range(len(dims))]:
            return None
        return found.reshape(dims).transpose(axes).ravel()
    if ids is not None:
        found = np.array([int(n) for n in ids.split(",")])
        return found if sorted(found) == [*range(count)] else None
    return found
