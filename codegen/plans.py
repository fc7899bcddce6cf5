"""Plans that are remembered: a program that was planned before is planned again without searching.

What is kept is the plan's pins (which stages form a fusion, with what tile sizes) and its decisions, keyed by the program's
structure, the machine and the planner's own source. A record that does not fit the program any more is not used.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path

from codegen import object_cache
from codegen.machine_memory import calibrated_machine
from codegen.supports import supports
from hlo.module import DenseArray, Module, Value
from tiling import Decision, Fusion, Machine, Pin, Plan, plan
from tiling.flatten import flatten, region_key

__all__ = ["remember", "remembered_plan"]


def remembered_plan(module: Module, entry: str = "main", machine: Machine | None = None) -> Plan:
    """`tiling.plan` with what this machine found before. Raises KeyError when there is no function `entry`."""
    machine = machine or calibrated_machine()
    key = _key(module, entry, machine)
    record = _read(key)
    if record is not None:
        pins, decisions, looked_at = record
        try:
            made = plan(module, entry, machine, supports, pins)
        except ValueError:
            made = None  # the record is of another program after all
        if made is not None and len(made.fusions) == len(pins):
            counts = {id(f): n for f, n in zip(made.fusions, looked_at, strict=True)}
            steps = tuple(replace(s, candidates=counts[id(s)]) if isinstance(s, Fusion) else s for s in made.steps)
            return replace(made, steps=steps, decisions=decisions)
    made = plan(module, entry, machine, supports)
    _write(key, made)
    return made


def remember(module: Module, entry: str, made: Plan) -> None:
    """Makes `made` the plan that `remembered_plan` gives for this program on its machine from now on."""
    _write(_key(module, entry, made.machine), made)


def _write(key: str, made: Plan) -> None:
    document = {
        "pins": [[list(p.ops), list(p.tile_sizes or ())] for p in made.pins()],
        "decisions": [asdict(d) for d in made.decisions],
        "looked_at": [f.candidates for f in made.fusions],
    }
    object_cache.write(key, json.dumps(document).encode())


def _read(key: str) -> tuple[tuple[Pin, ...], tuple[Decision, ...], list[int]] | None:
    payload = object_cache.read(key)
    if payload is None:
        return None
    try:
        document = json.loads(payload)
        pins = tuple(Pin(tuple(map(int, ops)), tuple(map(int, sizes))) for ops, sizes in document["pins"])
        decisions = tuple(Decision(**d) for d in document["decisions"])
        looked_at = [int(n) for n in document["looked_at"]]
    except (ValueError, KeyError, TypeError):
        return None
    return (pins, decisions, looked_at) if len(looked_at) == len(pins) else None


@functools.cache
def _planner_digest() -> str:
    """A digest of the planner's own source: another planner may decide otherwise."""
    import indexing
    import tiling

    digest = hashlib.sha256()
    for package in (tiling, indexing):
        for path in sorted(Path(package.__path__[0]).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _key(module: Module, entry: str, machine: Machine) -> str:
    """sha256 over the flattened program (constants by type, one repeated element by value), the machine and the planner."""
    program = flatten(module, entry, supports)
    digest = hashlib.sha256(f"plan {_planner_digest()} {machine!r}".encode())
    number: dict[Value, int] = {}
    for v in program.arguments:
        number[v] = len(number)
        digest.update(str(v.type).encode())
    for op in program.ops:
        attributes = {k: _short(v) for k, v in op.attributes.items()}
        text = [op.name, [number.get(v, -1) for v in op.operands], attributes, [region_key(b) for b in op.regions]]
        for r in op.results:
            number[r] = len(number)
            text.append(str(r.type))
        digest.update(repr(text).encode())
    digest.update(repr([number.get(v, -1) for v in program.results]).encode())
    return digest.hexdigest()


def _short(value: object) -> object:
    if isinstance(value, DenseArray):
        return (str(value.type), value.array.reshape(-1)[0].tobytes() if value.is_splat else "…")
    return value
