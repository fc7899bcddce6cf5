"""Plans that are remembered: a program that was planned before is planned again without searching.

What is kept is the plan's pins (which stages form a fusion, with what tile sizes) and its decisions, keyed by the program's
structure, the machine and the source of what decides on plans. A record that does not fit the program any more is not used.
"""

from __future__ import annotations

import functools
import hashlib
import json
import uuid
from dataclasses import asdict, dataclass, replace
from typing import Any

from codegen.native import object_cache, workers
from codegen.native.source_digest import source_digest
from codegen.remembered.machine import calibrated_machine
from codegen.supports import supports
from hlo.module import DenseArray, Module, Value, walk
from tiling import ControlStep, Decision, EvaluatorStep, Fusion, Machine, Pin, Plan, plan
from tiling.passing import skipped
from tiling.program.flatten import Program, flatten, region_key

__all__ = ["changes", "planner_digest", "remember", "remembered_plan"]

MANY_KINDS = 80  # of ops, whose kernels take as long to compile as a process takes to start, which loads what this one has loaded
MANY_MORE_KINDS = 300  # the same beside a process that has what compiles: what the other one loads is work that this one has done


def remembered_plan(module: Module, entry: str = "main", machine: Machine | None = None) -> Plan:
    """`tiling.plan` with what this machine found before. Raises KeyError when there is no function `entry`."""
    machine = machine or calibrated_machine()
    program = flatten(module, entry, supports)
    key = _program_key(program, machine)
    record = _read(key)
    if record is not None:
        try:
            made = plan(module, entry, machine, supports, record.all_pins())
            return record.applied_to(made)
        except ValueError:
            pass  # the record is of another program after all
    if _kinds(program) >= (MANY_MORE_KINDS if workers.is_prepared() else MANY_KINDS):
        workers.start_early()  # it loads what compiles while this process plans
    made = plan(module, entry, machine, supports)
    _write(key, made)
    return made


def _kinds(program: Program) -> int:
    """How many different ops there are, with those of regions: equal layers are the same kernels."""
    ops = [*program.ops, *(inner for op in program.ops for region in op.regions for inner in walk(region))]
    return len({(op.name, *(v.type for v in (*op.operands, *op.results))) for op in ops})


def remember(module: Module, entry: str, made: Plan) -> None:
    """Makes `made` the plan that `remembered_plan` gives for this program on its machine from now on."""
    object_cache.write(_CHANGES, uuid.uuid4().bytes)
    _write(_key(module, entry, made.machine), made)


_CHANGES = hashlib.sha256(b"changes of plans").hexdigest()


def changes() -> bytes:
    """What is another one after each `remember`: records of programs that were compiled before it hold no longer."""
    return object_cache.read(_CHANGES) or b""


@dataclass(frozen=True)
class _Record:
    """What is kept of a plan, and of those of its regions: one list for each op of control flow."""

    pins: tuple[Pin, ...]
    decisions: tuple[Decision, ...]
    looked_at: tuple[int, ...]
    regions: tuple[tuple[_Record, ...], ...]

    def all_pins(self) -> tuple[Pin, ...]:
        return (*self.pins, *(p for row in self.regions for r in row for p in r.all_pins()))

    def applied_to(self, made: Plan) -> Plan:
        """The plan with its decisions and counts. Raises ValueError where it is another program's."""
        if len(made.fusions) != len(self.looked_at) or [len(c.regions) for c in made.controls] != [len(r) for r in self.regions]:
            raise ValueError("the record has other steps")
        counts = dict(zip(made.fusions, self.looked_at, strict=True))
        below = dict(zip(made.controls, self.regions, strict=True))
        steps: list[Fusion | EvaluatorStep | ControlStep] = []
        for s in made.steps:
            if isinstance(s, Fusion):
                steps.append(replace(s, candidates=counts[s]))
            elif isinstance(s, ControlStep):
                rows = zip(s.regions, below[s], strict=True)
                steps.append(replace(s, regions=tuple(replace(r, plan=record.applied_to(r.plan)) for r, record in rows)))
            else:
                steps.append(s)
        return replace(made, steps=tuple(steps), decisions=self.decisions)


def _write(key: str, made: Plan) -> None:
    object_cache.write(key, json.dumps(_document(made, ())).encode())


def _document(made: Plan, path: tuple[int, ...]) -> dict[str, object]:
    number = {op: k for k, op in enumerate(made.program.ops)}
    return {
        "pins": [[list(p.ops), list(p.tile_sizes or ()), list(path), list(p.strips)] for p in made.pins() if not p.region],
        "decisions": [asdict(d) for d in made.decisions],
        "looked_at": [f.candidates for f in made.fusions],
        "regions": [
            [_document(r.plan, (*path, number[c.op], k)) for k, r in enumerate(c.regions)] for c in made.controls
        ],
    }


def _read(key: str) -> _Record | None:
    payload = object_cache.read(key)
    if payload is None:
        return None
    try:
        return _parsed(json.loads(payload))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _parsed(document: dict[str, Any]) -> _Record:
    pins = tuple(Pin(*(tuple(map(int, part)) for part in row)) for row in document["pins"])
    decisions = tuple(Decision(**d) for d in document["decisions"])
    looked_at = tuple(int(n) for n in document["looked_at"])
    if len(looked_at) != sum(not p.strips for p in pins):
        raise ValueError("as many counts as fusions")
    return _Record(pins, decisions, looked_at, tuple(tuple(map(_parsed, row)) for row in document["regions"]))


@functools.cache
def planner_digest() -> str:
    """A digest of what decides on a plan: the planner, the maps, the ops' definitions, and what the generator has rules for."""
    return source_digest(["tiling", "indexing", "hlo", "codegen"])


def _key(module: Module, entry: str, machine: Machine) -> str:
    return _program_key(flatten(module, entry, supports), machine)


def _program_key(program: Program, machine: Machine) -> str:
    """sha256 over the flattened program (constants by type, one repeated element by value), machine, planner, skipped passes."""
    digest = hashlib.sha256(f"plan {planner_digest()} {machine!r} {sorted(skipped())}".encode())
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
