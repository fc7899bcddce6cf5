"""The programs, in groups, by name: how each is made. Files are shipped; others come from a seed, or are traced by JAX."""

from __future__ import annotations

import functools
import pathlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import hlo
from hlo import Module
from tests.random_programs import random_program

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FILES = {p.stem: p for folder in ("examples", "tests/programs") for p in sorted((ROOT / folder).glob("*.mlir"))}
SEEDS = 100

Make = Callable[[], Module]
Row = tuple[str, Callable[..., Any], tuple[tuple[tuple[int, ...], str], ...]]  # name, function, shapes and types


def _files() -> dict[str, Make]:
    return {name: functools.partial(hlo.load, path) for name, path in FILES.items()}


def _by_seed() -> dict[str, Make]:
    return {str(seed): functools.partial(_random, seed) for seed in range(SEEDS)}


def _random(seed: int) -> Module:
    return random_program(seed)[0]


def _jax() -> dict[str, Make]:
    from tests.jax.jax_programs import PROGRAMS

    return {name: functools.partial(_trace, function, arguments) for name, (function, arguments) in PROGRAMS.items()}


def _more() -> dict[str, Make]:
    from tests.jax.jax_programs_more import P

    return {name: functools.partial(_trace, function, arguments) for name, (function, arguments) in P.items()}


def _contractions() -> dict[str, Make]:
    """Half of the table of benchmarks/contractions.py."""
    from benchmarks.contractions import cases

    return _sample(2, ((c.name, c.function, c.operands) for c in cases()))


def _forms() -> dict[str, Make]:
    """A third of the table of benchmarks/forms.py."""
    from benchmarks.cases.forms import cases

    return _sample(3, ((f"{c.group}/{c.name}", c.function, tuple((g.shape, g.dtype) for g in c.arguments)) for c in cases()))


def _streams() -> dict[str, Make]:
    """A third of the table of benchmarks/streams.py."""
    from benchmarks.cases.streams import cases

    return _sample(3, ((f"{c.group}/{c.name}", c.function, tuple((g.shape, g.dtype) for g in c.arguments)) for c in cases()))


def _sample(part: int, rows: Iterator[Row]) -> dict[str, Make]:
    """One of `part` rows, by a digest of the name: the same ones when a table grows."""
    import jax.numpy as jnp
    from jax import ShapeDtypeStruct

    found: dict[str, Make] = {}
    for name, function, operands in rows:
        name = name.replace(" ", "_").replace(":", "")
        if zlib.crc32(name.encode()) % part == 0 and name not in found:
            shapes = tuple(ShapeDtypeStruct(shape, jnp.dtype(kind)) for shape, kind in operands)
            found[name] = functools.partial(_trace, function, shapes)
    return found


def _trace(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Module:
    import tilewright

    return tilewright.from_jax(function, *arguments)


GROUPS: dict[str, Callable[[], dict[str, Make]]] = {
    "file": _files,
    "file-avx512": _files,
    "seed": _by_seed,
    "jax": _jax,
    "more": _more,
    "contraction": _contractions,
    "form": _forms,
    "stream": _streams,
}
TRACED = ("jax", "more", "contraction", "form", "stream")


def machine_of(group: str) -> str:
    """The name of the machine that a group is planned for."""
    return "avx512" if group.endswith("avx512") else "avx2"
