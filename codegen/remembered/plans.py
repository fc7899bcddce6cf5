"""Plans that are remembered: a program that was planned before is planned again without searching.

What is kept is the plan's pins (which stages form a fusion, with what tile sizes) and its decisions, keyed by the program's
structure, the machine and the source of what decides on plans. A record that does not fit the program any more is not used.
"""

from __future__ import annotations

import functools
import hashlib
import json
import uuid
from collections.abc import Mapping
from types import MappingProxyType

from codegen.native import object_cache, workers
from codegen.native.source_digest import source_digest
from codegen.remembered.machine import calibrated_machine
from codegen.supports import supports
from hlo.module import DenseArray, Module, Value, walk
from tiling import Machine, Plan
from tiling.files.record import Record, parsed_record, record_of
from tiling.passing import skipped
from tiling.planning.garbage import few_collections
from tiling.planning.plan import plan_flattened
from tiling.program.flatten import Program, flatten, region_key

__all__ = ["changes", "planner_digest", "remember", "remembered_plan"]

MANY_KINDS = 80  # of ops, whose kernels take as long to compile as a process takes to start, which loads what this one has loaded
MANY_MORE_KINDS = 120  # the same beside a process that has what compiles: what the other one loads is work that this one has done


def remembered_plan(
    module: Module, entry: str = "main", machine: Machine | None = None, donate: bool = False
) -> Plan:  # fmt: skip
    """`tiling.plan` with what this machine found before. Raises KeyError when there is no function `entry`."""
    machine = machine or calibrated_machine()
    with few_collections():
        program = flatten(module, entry, supports)
    key = _program_key(program, machine, module.functions[entry].donations if donate else {})
    record = _read(key)
    if record is not None:
        try:
            made = plan_flattened(program, module, entry, machine, supports, record.all_pins(), donate=donate)
            return record.applied_to(made)
        except ValueError:
            pass  # the record is of another program after all
    if _kinds(program) >= (MANY_MORE_KINDS if workers.is_prepared() else MANY_KINDS):
        workers.start_early()  # it loads what compiles while this process plans
    made = plan_flattened(program, module, entry, machine, supports, donate=donate)
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


def _write(key: str, made: Plan) -> None:
    object_cache.write(key, json.dumps(record_of(made)).encode())


def _read(key: str) -> Record | None:
    payload = object_cache.read(key)
    if payload is None:
        return None
    try:
        return parsed_record(json.loads(payload))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


@functools.cache
def planner_digest() -> str:
    """A digest of what decides on a plan: the planner, the maps, the ops' definitions, and what the generator has rules for."""
    return source_digest(["tiling", "indexing", "hlo", "codegen"])


def _key(module: Module, entry: str, machine: Machine) -> str:
    return _program_key(flatten(module, entry, supports), machine)


def _program_key(program: Program, machine: Machine, given_away: Mapping[int, int] = MappingProxyType({})) -> str:
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
    if given_away:
        digest.update(repr(sorted(given_away.items())).encode())
    return digest.hexdigest()


def _short(value: object) -> object:
    if isinstance(value, DenseArray):
        return (str(value.type), value.array.reshape(-1)[0].tobytes() if value.is_splat else "…")
    return value
