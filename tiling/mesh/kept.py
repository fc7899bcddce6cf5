"""Sharded arrays as files: one .npy for each tile, and an index of where each belongs, with its checksum.

    index.json   {"format": "tilewright.array/1", "shape": [8, 6], "dtype": "float32", "tiles": [{"file": …, "start": [0, 0],
                  "shape": [4, 6], "sha256": …}, …]}

NumPy alone reads it, on any number of processes: one opens the files that its tile meets. Files are named after their contents
and the index is put in place last, so that a reader finds either the array that was there before or the new one.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
from typing import Any

import numpy as np

from hlo.types import ELEMENT_TYPES
from tiling.mesh.arrays import Exchange, ShardedArray, ShardingError
from tiling.mesh.mesh import Mesh
from tiling.mesh.shardings import Sharding

__all__ = ["FORMAT", "load", "save"]

FORMAT = "tilewright.array/1"
_INDEX = "index.json"


def save(array: ShardedArray, folder: str | os.PathLike[str]) -> None:
    """Writes an array; all processes call it, with a folder that all see. Each tile is written once, by its owner.

    Raises OSError where a file cannot be written.
    """
    place = pathlib.Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    row: dict[str, Any] = {}
    if array.is_owner and array.tile.size:
        stored = _stored(array.tile)
        digest = _digest(stored)
        start = [s.start for s in array.slices]
        name = "-".join(map(str, start)) or "scalar"
        row = {"file": f"{name}-{digest[:16]}.npy", "start": start, "shape": list(array.tile.shape), "sha256": digest}
        half = place / f".{row['file']}.{os.getpid()}"
        with open(half, "wb") as f:
            np.save(f, stored)
        os.replace(half, place / row["file"])
    told = np.frombuffer(json.dumps(row).encode(), np.uint8)
    rows = [json.loads(bytes(r)) for r in array.exchange(told)]  # now all tiles are there
    if array.process == 0:
        tiles = [r for r in rows if r]
        index = {"format": FORMAT, "shape": list(array.shape), "dtype": array.dtype.name, "sharding": str(array.sharding),
                 "mesh": dict(array.mesh.axes), "tiles": tiles}  # fmt: skip
        half = place / f".{_INDEX}.{os.getpid()}"
        half.write_text(json.dumps(index, indent=1), "utf-8")
        os.replace(half, place / _INDEX)
        kept = {r["file"] for r in tiles}
        for old in place.glob("*.npy"):
            if old.name not in kept:
                old.unlink()
    array.exchange(np.zeros(0, np.uint8))  # nobody goes on before the index is there


def load(
    folder: str | os.PathLike[str], sharding: Sharding | None, mesh: Mesh, process: int, exchange: Exchange
) -> ShardedArray:
    """This process's tile of an array that was saved, from the files that it meets; None for all of it.

    Raises ShardingError for what is no such array, or is damaged, and OSError for files that are not there.
    """
    place = pathlib.Path(folder)
    index = json.loads((place / _INDEX).read_text("utf-8"))
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        found = index.get("format") if isinstance(index, dict) else index
        raise ShardingError(f"{place / _INDEX}: expected an index of format {FORMAT}, found {found!r}")
    shape, dtype = tuple(index["shape"]), _dtype(index["dtype"])
    own = sharding or Sharding.whole(len(shape))
    if len(own.dims) != len(shape):
        raise ShardingError(f"{place}: expected a sharding of {len(shape)} dimensions, found {own}")

    def read(slices: tuple[slice, ...]) -> np.ndarray:
        made = np.zeros(tuple([s.stop - s.start for s in slices]), dtype)
        filled = 0
        for row in index["tiles"]:
            meet = [
                slice(max(s.start, at), min(s.stop, at + n)) for s, at, n in zip(slices, row["start"], row["shape"], strict=True)
            ]  # fmt: skip
            if any(s.start >= s.stop for s in meet):
                continue
            tile = _tile(place / row["file"], row, dtype)
            there = tuple([slice(s.start - at, s.stop - at) for s, at in zip(meet, row["start"], strict=True)])
            here = tuple([slice(s.start - o.start, s.stop - o.start) for s, o in zip(meet, slices, strict=True)])
            made[here] = tile[there]
            filled += tile[there].size
        if filled != made.size:
            raise ShardingError(f"{place}: expected {made.size} elements at {slices}, found {filled}")
        return made

    return ShardedArray.made(shape, own, mesh, process, exchange, read)


def _tile(path: pathlib.Path, row: dict[str, Any], dtype: np.dtype[Any]) -> np.ndarray:
    stored: np.ndarray = np.load(path, allow_pickle=False)
    if _digest(stored) != row["sha256"] or list(stored.shape) != row["shape"]:
        raise ShardingError(f"{path} is not what was saved: its checksum is another")
    return stored.view(dtype)


def _stored(tile: np.ndarray) -> np.ndarray:
    """A tile as .npy can have it: element types that are not NumPy's own as their bits."""
    made = np.array(tile, order="C")
    return made if made.dtype.isbuiltin == 1 else made.view(f"u{made.dtype.itemsize}")


def _digest(stored: np.ndarray) -> str:
    return hashlib.sha256(stored.tobytes()).hexdigest()


def _dtype(name: str) -> np.dtype[Any]:
    found = next((np.dtype(t.dtype) for t in ELEMENT_TYPES.values() if np.dtype(t.dtype).name == name), None)
    if found is None:
        raise ShardingError(f"expected an element type, found {name!r}")
    return found
