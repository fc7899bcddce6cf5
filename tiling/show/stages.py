"""What each pass makes of a plan's program: the stages between a module and its final loops, as text and to step through.

    TILEWRIGHT_PRINT=after:NAME,…   what these passes make, on standard error, for each program that is compiled
    TILEWRIGHT_PRINT=changed        what every pass makes that changes something
    TILEWRIGHT_PRINT=all            what every pass makes
"""

from __future__ import annotations

import difflib
import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from hlo.display import as_html, as_text
from hlo.errors import Declined, SettingError
from hlo.module import Op
from tiling.loops.ir import Schedule
from tiling.loops.text import show_schedule
from tiling.lower.placing import FusionRequest
from tiling.passing import Pass, runs, without
from tiling.pipeline import PIPELINE, finished, observed
from tiling.planning.forms import lower
from tiling.planning.model import Fusion, Plan
from tiling.planning.plan import plan as planned
from tiling.program.as_module import as_module
from tiling.program.expand import Supports
from tiling.program.flatten import flatten, given_away
from tiling.program.updates.in_place import is_update, update_known_places, updates_taken
from tiling.words import op_summary

__all__ = ["Stage", "Stages", "print_stages", "stages_of"]


@dataclass(frozen=True)
class Stage:
    """What a pass made: `text` of the program, or of the kernel `of`. It `changes` what was there before."""

    name: str
    of: str
    text: str
    changes: bool

    @property
    def title(self) -> str:
        return f"{self.of} after {self.name}" + ("" if self.changes else ", unchanged")


@dataclass(frozen=True)
class Stages:
    """Stages in the order of the pipeline, the program's first, then each kernel's; printed are those that change something."""

    stages: tuple[Stage, ...]

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    def __len__(self) -> int:
        return len(self.stages)

    def after(self, name: str) -> tuple[Stage, ...]:
        """What one pass made: of the program, or of each kernel. Raises KeyError for a pass that did not run."""
        found = tuple(s for s in self.stages if s.name == name)
        if not found:
            raise KeyError(f"no pass {name} ran; there are {', '.join(dict.fromkeys(s.name for s in self.stages))}")
        return found

    @property
    def changed(self) -> tuple[Stage, ...]:
        return tuple(s for s in self.stages if s.changes)

    def _repr_html_(self) -> str:
        return as_html(self)

    def __str__(self) -> str:
        return as_text(self)


def stages_of(plan: Plan, supports: Supports) -> Stages:
    """The stages of a plan: its program pass by pass, then each kernel's loops from lowering to the final ones.

    Kernels are lowered once more to see what passes made; of one whose schedule was made in another way the passes from there on
    are shown.
    """
    found = [*_of_program(plan, supports), *_of_groups(plan, supports)]
    for p in plan.nested():
        for f in p.fusions:
            found += _of_fusion(f, p)
    return Stages(tuple(found))


_PLANNED = ("update_known_places", "run_in_strips", "mark_in_place")  # passes to a program that are no part of flattening it


def _of_program(plan: Plan, supports: Supports) -> Iterator[Stage]:
    """The entry function after each pass: those within `inline` are added one after the other to the same walk."""
    module, entry = plan.module, plan.program.name
    done: list[str] = []
    before = ""
    for p in PIPELINE:
        if p.name == "update_known_places" and runs(p.name):
            program = flatten(module, entry, supports, only=done)
            owned = given_away(program, module.functions[entry]) if plan.donate else ()
            text = str(as_module(update_known_places(program, owned, updates_taken(supports)), module, marked=True))
            yield Stage(p.name, "program", text, text != before)
            before = text
        if p.name == "mark_in_place" and runs(p.name):
            yield Stage(p.name, "program", _ops(plan.program.ops), any(map(is_update, plan.program.ops)))
        if p.name == "run_in_strips" and runs(p.name):
            yield Stage(p.name, "program", str(as_module(plan.program, module)) if plan.strips else before, bool(plan.strips))
        if p.target != "program" or p.name in _PLANNED or not runs(p.name):
            continue
        done.append(p.name)
        text = str(as_module(flatten(module, entry, supports, only=done), module, marked=True))
        yield Stage(p.name, "program", text, text != before)
        before = text


def _ops(ops: Sequence[Op]) -> str:
    marked = [op for op in ops if is_update(op)]
    return "\n".join(f"{op.name}: {op.results[0].type}, over its first operand" for op in marked) or "no update in place"


def _of_groups(plan: Plan, supports: Supports) -> Iterator[Stage]:
    """The kernels, before and after siblings were joined."""
    text = _kernels(plan)
    if not runs("join_siblings"):
        yield Stage("group", "kernels", text, True)
        return
    with without("join_siblings"):
        first = _kernels(planned(plan.module, plan.program.name, plan.machine, supports, donate=plan.donate))
    yield Stage("group", "kernels", first, True)
    yield Stage("join_siblings", "kernels", text, text != first)


def _kernels(plan: Plan) -> str:
    """The fusion graph: each kernel's ops and tiles, and its edges with their maps."""
    found: list[str] = []
    for f in (f for p in plan.nested() for f in p.fusions):
        found += [f"{f.name}: {op_summary(f.ops)}; tiles {list(f.tile_sizes)}", *(f"  {r}" for r in f.reads)]
    return "\n".join(found)


def _of_fusion(fusion: Fusion, plan: Plan) -> Iterator[Stage]:
    before = ""
    for name, schedule in [*_lowering(fusion, plan), *_finishing(fusion.schedule)]:
        text = show_schedule(schedule)
        yield Stage(name, fusion.name, text, text != before)
        before = text


def _lowering(fusion: Fusion, plan: Plan) -> list[tuple[str, Schedule]]:
    """The passes that made a fusion's schedule: those within lowering are added one after the other.

    None but `lower` where another way led to it.
    """
    made = fusion.schedule
    whole = _lowered(fusion, plan, made.form)
    if not whole or show_schedule(whole[-1][1]) != show_schedule(made):
        return [("lower", made)]
    inside = [p.name for p in PIPELINE if p.within == "lower" and runs(p.name)]
    found: list[tuple[str, Schedule]] = []
    for k, name in enumerate(["lower", *inside]):
        later = inside[k:]
        form = "bounded" if _FORM_OF.get(made.form) in later else made.form
        with without(*later):
            part = _lowered(fusion, plan, form)
        found += [(name, part[0][1])] if part else []
    return [*found, *whole[1:]]


_FORM_OF = {"online": "online_form", "limited": "bound_by_numbers"}
"""The pass that makes a form."""


def _lowered(fusion: Fusion, plan: Plan, form: str) -> list[tuple[str, Schedule]]:
    """What `lower` and the passes after it make of a fusion in a form; the last lowering where several are compared."""
    made: list[tuple[str, Schedule]] = []

    def see(p: Pass, schedule: Schedule) -> None:
        if p.name == "lower":
            made.clear()
        made.append((p.name, schedule))

    request = FusionRequest(fusion.stages, frozenset(fusion.outputs), fusion.tile_sizes, form=form)
    with observed(see):
        declined = isinstance(lower(request, plan.machine, plan.names), Declined)
    return [] if declined else made


def _finishing(schedule: Schedule) -> list[tuple[str, Schedule]]:
    found: list[tuple[str, Schedule]] = []
    with observed(lambda p, s: found.append((p.name, s))):
        finished(schedule)
    return found


# ---------------------------------------------------------------- printing


def show_stages(stages: Stages) -> str:
    """The stages that change something, each under its title."""
    return "\n\n".join(f"==== {s.title}\n{s.text}" for s in stages.changed)


def print_stages(plan: Plan, supports: Supports, write: Callable[[str], object] = sys.stderr.write) -> None:
    """Prints the stages that TILEWRIGHT_PRINT asks for, nothing where it is not set. Raises SettingError for anything else."""
    wanted = [w for w in (part.strip() for part in os.environ.get("TILEWRIGHT_PRINT", "").split(",")) if w]
    if not wanted:
        return
    names = [p.name for p in PIPELINE]
    unknown = [w for w in wanted if w not in ("all", "changed") and w.removeprefix("after:") not in names]
    if unknown or any(w in names for w in wanted):
        bad = (unknown or [w for w in wanted if w in names])[0]
        raise SettingError(f"TILEWRIGHT_PRINT: expected all, changed or after:NAME with one of {', '.join(names)}; found {bad!r}")
    for s in stages_of(plan, supports):
        if "all" in wanted or ("changed" in wanted and s.changes) or f"after:{s.name}" in wanted:
            write(f"==== {s.title}\n{s.text}\n\n")


def stages_to_html(stages: Stages) -> str:
    """The stages that change something, one at a time: buttons (or the arrow keys) step through them, new lines are marked."""
    mark = "stages-" + hashlib.sha256(show_stages(stages).encode()).hexdigest()[:12]
    style = (
        f"<style>#{mark}{{display:flex;flex-wrap:wrap;gap:4px}}#{mark} section{{display:none;order:1;width:100%}}"
        f"#{mark} input:checked+label+section{{display:block}}#{mark} input:checked+label{{font-weight:bold}}"
        f"#{mark} pre{{font-family:monospace;white-space:pre;overflow-x:auto}}"
        f"#{mark} ins{{background:#cfc;color:#000;text-decoration:none}}#{mark} del{{background:#fcc;color:#000}}</style>"
    )
    parts = []
    before: dict[str, str] = {}
    for k, s in enumerate(stages.changed):
        checked = " checked" if k == 0 else ""
        parts.append(
            f'<input type="radio" name="{mark}" id="{mark}-{k}"{checked}><label for="{mark}-{k}">{escape(s.name)}</label>'
            f"<section><b>{escape(s.title)}</b><pre>{_marked(before.get(s.of, s.text), s.text)}</pre></section>"
        )
        before[s.of] = s.text
    return f'{style}<div id="{mark}">{"".join(parts)}</div>'


def _marked(before: str, after: str) -> str:
    """The lines after a pass, those that are new and those that are gone marked."""
    lines = []
    for line in difflib.ndiff(before.splitlines(), after.splitlines()):
        tag = {"+": "ins", "-": "del"}.get(line[0])
        if line[0] != "?":
            lines.append(f"<{tag}>{escape(line[2:])}</{tag}>" if tag else escape(line[2:]))
    return "\n".join(lines)


as_text.register(Stages, show_stages)
as_html.register(Stages, stages_to_html)
