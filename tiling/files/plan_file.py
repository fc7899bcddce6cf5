"""Plans as files: a program, its machine, what was decided, and the plan itself as it was.

    plan.save("plan.json")            the file: JSON, with a schema and a version
    load_plan("plan.json")            an equal plan, made without a search

A file is complete: the program's text, the machine, the pins of all kernels, the orders of loops that were chosen by hand, and
every decision; loops that a person edited are there as text (`tiling.files.loops`). The plan itself (tiles, loops, buffers,
reuses, estimates, edges with reasons) is in it, too, for whoever compares plans or takes them elsewhere; what is read back is
compared with it, word for word, so a file never stands for another plan than it shows.
"""

from __future__ import annotations

import copyreg
import difflib
import errno
import json
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from hlo.errors import TilewrightError
from hlo.module import Value
from hlo.text import parse
from tiling.cost_model import CostModel, model_of
from tiling.files.loops import LoopsError, Table
from tiling.files.parse_loops import schedule_of
from tiling.files.record import parsed_record, record_of
from tiling.loops.ir import Nest
from tiling.machine import Machine
from tiling.passing import skipped
from tiling.planning.edit import with_loop_order, with_schedules
from tiling.planning.model import Plan, save_plan
from tiling.planning.plan import all_ops, plan
from tiling.program.expand import Supports
from tiling.show.text import plan_data

__all__ = ["SCHEMA", "PlanFileError", "all_loops", "known_rules", "load_plan", "plan_from_text", "plan_text", "with_loops"]

SCHEMA = "tilewright.plan_file/2"

known_rules: dict[str, Supports] = {"all": all_ops}
"""What may say which ops are planned, by the name that files have; `codegen` adds its own (`kernels`)."""


class PlanFileError(TilewrightError):
    """A plan that no file can hold, or a file that is no plan, of another version, or of what is planned otherwise now."""


def plan_text(made: Plan) -> str:
    """The file of a plan. Raises PlanFileError for what is not data: rules of somebody's own, schedules edited by hand."""
    names = [n for n, f in known_rules.items() if f is made.supports]
    if not names:
        raise PlanFileError(
            f"the plan was made with rules that have no name, {made.supports}: name them in tiling.files.plan_file.known_rules"
        )
    document = {
        "schema": SCHEMA,
        "module": str(made.module),
        "entry": made.program.name,
        "donate": made.donate,
        "machine": {f.name: getattr(made.machine, f.name) for f in fields(Machine)},
        "cost_model": model_of(made.machine) is not None,
        "rules": names[0],
        "skipped": sorted(skipped()),
        "record": record_of(made),
        "orders": [],
        "loops": [],
        "plan": plan_data(made),
        "reuses": _reuses(made),
    }
    reason: TilewrightError | None = None
    attempts: tuple[dict[str, Callable[[Plan], list[Any]]], ...] = (
        {}, {"orders": _orders}, {"loops": all_loops}
    )
    for edits in attempts:  # most loops are the planner's own
        try:
            text = json.dumps({**document, **{k: find(made) for k, find in edits.items()}}, indent=1)
            plan_from_text(text, _model(made))
        except (PlanFileError, LoopsError) as error:
            reason = error
            continue
        return text
    raise PlanFileError(f"the plan was edited in a way that a file does not say: {reason}")


def _save(made: Plan, path: str | os.PathLike[str]) -> None:
    target = Path(path)
    if target.exists() and not target.is_file():  # (a rename would put the file in a device's place)
        raise FileExistsError(errno.EEXIST, "it exists and is no file", str(target))
    text = plan_text(made)
    temporary = target.with_name(f".new-{secrets.token_hex(8)}")
    with open(temporary, "x", encoding="utf-8") as file:  # (with the mode that the umask leaves)
        try:
            file.write(text)
            file.close()
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise


save_plan.register(Plan, _save)
copyreg.pickle(Plan, lambda made: (plan_from_text, (plan_text(made), _model(made))))


def load_plan(path: str | os.PathLike[str], cost_model: CostModel | None = None) -> Plan:
    """The plan of a file that `Plan.save` wrote, on whatever machine: it is for the machine that it was made for.

    `cost_model` is the one that the plan was weighed with, if it was not the CPU's. Raises PlanFileError for what is no such
    file, and, with the first lines that differ, where this version makes another plan of it; OSError where there is no file.

    >>> import hlo, tempfile
    >>> made = plan(hlo.parse('''func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
    ...   %0 = stablehlo.tanh %x : tensor<8x8xf32>
    ...   return %0 : tensor<8x8xf32>
    ... }'''), machine=Machine())
    >>> path = Path(tempfile.mkdtemp()) / "plan.json"
    >>> made.save(path)
    >>> load_plan(path).to_json() == made.to_json()
    True
    """
    try:
        return plan_from_text(Path(path).read_text("utf-8"), cost_model)
    except UnicodeDecodeError as error:
        raise PlanFileError(f"{os.fspath(path)}: no text: {error}") from error
    except PlanFileError as error:
        raise PlanFileError(f"{os.fspath(path)}: {error}") from error


def plan_from_text(text: str, cost_model: CostModel | None = None) -> Plan:
    """The plan of a file's text. Raises PlanFileError."""
    try:
        document = json.loads(text)
        if not isinstance(document, dict) or not str(document.get("schema", "")).startswith("tilewright.plan_file/"):
            raise ValueError("it has no schema tilewright.plan_file")
        if document["schema"] != SCHEMA:
            raise ValueError(f"its form is {document['schema']}, this version reads {SCHEMA}")
        if document["cost_model"] and cost_model is None:
            raise PlanFileError("it cannot be read without the cost model that it was weighed with: give it as `cost_model`")
        rules = known_rules.get(document["rules"])
        if rules is None:
            there = ", ".join(known_rules)
            raise ValueError(f"it was made with the rules {document['rules']!r}; there is {there} (codegen adds its own)")
        if sorted(skipped()) != document["skipped"]:
            raise ValueError(f"passes that are left out (TILEWRIGHT_SKIP): then {document['skipped']}, now {sorted(skipped())}")
        machine = _machine(document["machine"])
        record = parsed_record(document["record"])
        module = parse(document["module"])
        donate = bool(document.get("donate", False))
        made = plan(module, document["entry"], machine, rules, record.all_pins(), cost_model=cost_model, donate=donate)
        for value, order in document["orders"]:
            made = with_loop_order(made, value, order)
        made = record.applied_to(with_loops(made, document["loops"]))
        expected = {"plan": document["plan"], "reuses": document["reuses"]}
    except PlanFileError:
        raise
    except TilewrightError as error:
        raise PlanFileError(f"no plan: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise PlanFileError(f"no plan: {error if isinstance(error, ValueError) else repr(error)}") from error
    found = json.loads(json.dumps({"plan": plan_data(made), "reuses": _reuses(made)}))
    difference = _difference(expected, found)
    if difference:
        raise PlanFileError(f"this version makes another plan of it; expected (-) and found (+):\n{difference}")
    return made


def _model(made: Plan) -> CostModel | None:
    found: CostModel | None = getattr(made.machine, "cost_model", None)
    return found


def _machine(row: dict[str, Any]) -> Machine:
    kinds = {k: type(v) for k, v in asdict(Machine()).items()}
    if set(row) != set(kinds):
        raise ValueError(f"a machine has the fields {', '.join(kinds)}; found {', '.join(row)}")
    for k, v in row.items():
        if type(v) is not kinds[k] and not (kinds[k] is float and type(v) is int):
            raise ValueError(f"the machine's {k}: expected {kinds[k].__name__}, found {v!r}")
    return Machine(**row)


def _orders(made: Plan) -> list[tuple[str, list[str]]]:
    """The nests whose loops stand in an order that a person chose: a value of each, and its loops."""
    return [
        (made.names.of(next(iter(step.values))), [x.variable.name.partition("_")[0] for x in step.loops])
        for f in made.fusions for phase in f.schedule.phases for step in phase.steps
        if isinstance(step, Nest) and step.order_is_fixed and step.values
    ]  # fmt: skip


Loops = tuple[dict[str, str], list[tuple[str, str]]]


def all_loops(made: Plan) -> list[Loops]:
    """(names of values, [(name of a fusion, text of its loops)]) of the plan and of those of its regions.

    A value is written as `tiling.files.loops` writes it.
    """
    rows = []
    for p in made.nested():
        table = Table(p)
        names = {table.shown[v]: name for v, name in p.names.known.items() if v in table.shown}
        rows.append((names, [(f.name, table.text(f.name)) for f in p.fusions]))
    return rows


def with_loops(made: Plan, rows: Sequence[Loops]) -> Plan:
    """The plan with these names and loops in the place of those that the planner found. Raises LoopsError."""
    if not rows:
        return made
    found = {}
    for p, (names, texts) in zip(made.nested(), rows, strict=True):
        table = Table(p)
        values = {text: v for v, text in table.shown.items() if isinstance(v, Value)}
        p.names.take({values[text]: name for text, name in names.items()})
        found.update({(p, name): schedule_of(text, table) for name, text in texts})
    return with_schedules(made, found)


def _reuses(made: Plan) -> list[list[object]]:
    """What is written over what, in the program and in its regions."""
    return [
        [p.program.name, p.names.of(r.source), p.names.of(r.target), r.shared, r.reason] for p in made.nested() for r in p.reuses
    ]


def _difference(expected: Any, found: Any) -> str:
    """The first lines of two documents that differ; none where they are equal."""
    a, b = (json.dumps(x, indent=1, sort_keys=True).splitlines() for x in (expected, found))
    if a == b:
        return ""
    changed = [x for x in difflib.unified_diff(a, b, lineterm="", n=0) if x[:1] in "+-" and x[:3] not in ("+++", "---")]
    return "\n".join(changed[:8])
