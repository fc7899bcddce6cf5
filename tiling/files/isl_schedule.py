"""Loops as isl schedule trees, as text that isl reads: a band for the tasks of a phase, then each nest's own band.

    isl_schedule(schedule)      ->  YAML for `isl_schedule_read_from_str`; Declined for loops that isl has no form of
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hlo.errors import Declined
from indexing.expr import Expr, Maximum, Minimum, Var, substitute
from indexing.expressions.terms import FloorDiv, Mod
from tiling.loops.ir import Contract, Loop, LoopKind, Measure, Nest, Phase, Schedule, Sequential, Step, Turn
from tiling.loops.limits import in_full

__all__ = ["isl_schedule"]


class _NoForm(Exception):
    """Carries the reason of a `Declined` out of a print."""


def isl_schedule(schedule: Schedule) -> str | Declined:
    """The tree: statements `S0[tiles, loops]`, one for each nest, in the order of the schedule.

    Tasks are a band whose members are coincident, and so are loops that are no reductions. A contraction is one statement over
    its rows and columns: what its micro-kernel does inside is no loop of the schedule's.

    >>> import hlo, tiling
    >>> text = '''func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    ...   %0 = stablehlo.tanh %x : tensor<4xf32>
    ...   return %0 : tensor<4xf32> }'''
    >>> (fusion,) = tiling.plan(hlo.parse(text), machine=tiling.Machine()).fusions
    >>> str(isl_schedule(fusion.schedule)).partition(", child")[0]
    '{ domain: "{ S0[i0_tanh_1_0] : 0 <= i0_tanh_1_0 <= 3 }"'
    """
    try:
        return _Printer(schedule).text()
    except _NoForm as reason:
        return Declined(str(reason))


class _Printer:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = in_full(schedule)
        self.count = 0

    def text(self) -> str:
        domains: list[str] = []
        phases = []
        for phase in self.schedule.phases:
            own: list[tuple[str, str]] = []  # statement's domain, its filter with a band
            for step in (*phase.before, *phase.steps):
                own += self.step(step, phase, ())
            if own:
                domains += [d for d, _ in own]
                phases.append(self.phase(phase, [d for d, _ in own], [f for _, f in own]))
        whole = "; ".join(d.strip("{ }") for d in domains)
        return f'{{ domain: "{{ {whole} }}", child: {{ {_in_order(phases)} }} }}'

    def phase(self, phase: Phase, domains: Sequence[str], children: Sequence[str]) -> str:
        heads = [d.strip("{ }").partition(":")[0].strip() for d in domains]
        filters = "; ".join(heads)
        inner = _in_order(children)
        if phase.tiles:
            tiles = ", ".join(
                f"{{ {'; '.join(f'{h} -> [({self.name(v)})]' for h in heads)} }}" for v, _ in phase.tiles
            )
            coincident = ", ".join("1" for _ in phase.tiles)
            inner = f'schedule: "[{tiles}]", permutable: 1, coincident: [ {coincident} ], child: {{ {inner} }}'
        return f'{{ filter: "{{ {filters} }}", child: {{ {inner} }} }}'

    def step(self, step: Step, phase: Phase, around: tuple[Loop, ...]) -> list[tuple[str, str]]:
        if isinstance(step, Nest):
            return [self.statement(phase, (*around, *step.loops))]
        if isinstance(step, Turn):
            return [self.statement(phase, (*around, *step.loops))]
        if isinstance(step, Sequential):
            return [x for s in step.steps for x in self.step(s, phase, (*around, step.loop))]
        if isinstance(step, Contract):
            own = (*around, *step.loops)
            rows = Loop(Var("row"), step.rows_upper * 0, step.rows_upper, step.m)
            columns = Loop(Var("column"), step.columns_lower, step.columns_upper, step.n)
            packs = [self.statement(phase, (*own, *p.loops), {step.k_start: 0}) for p in step.pack]
            return [*packs, self.statement(phase, (*own, rows, columns), {step.k_start: 0})]
        if isinstance(step, Measure):
            return [self.statement(phase, around)]
        raise _NoForm(f"a step of kind {type(step).__name__}")

    def statement(self, phase: Phase, loops: Sequence[Loop], known: dict[Var, Expr | int] | None = None) -> tuple[str, str]:
        """(the statement's domain, its filter with the band of its own loops)."""
        name = f"S{self.count}"
        self.count += 1
        values: dict[Var, Expr | int] = {**(known or {}), **{f.variable: 0 for f in phase.flags}}
        tiles = [v for v, _ in phase.tiles]
        inner = [Var(f"{self.name(x.variable)}_{k}") for k, x in enumerate(loops)]
        values.update({x.variable: v for x, v in zip(loops, inner, strict=True)})
        values.update({v: Var(self.name(v)) for v in tiles})
        dims = [*(self.name(v) for v in tiles), *(v.name for v in inner)]
        tests = [f"0 <= {self.name(v)} < {n}" for v, n in phase.tiles]
        for x, v in zip(loops, inner, strict=True):
            lower, upper = (self.shown(substitute(e, values), set(dims)) for e in (x.lower, x.upper))
            tests.append(f"{lower} <= {v.name} <= {upper}")
        head = f"{name}[{', '.join(dims)}]"
        domain = f"{{ {head}{' : ' + ' and '.join(tests) if tests else ''} }}"
        if not inner:
            return domain, f'{{ filter: "{{ {head} }}" }}'
        band = ", ".join(f"{{ {head} -> [({v.name})] }}" for v in inner)
        coincident = ", ".join(str(int(x.kind is LoopKind.PARALLEL)) for x in loops)
        return domain, f'{{ filter: "{{ {head} }}", child: {{ schedule: "[{band}]", coincident: [ {coincident} ] }} }}'

    @staticmethod
    def name(v: Var) -> str:
        return re.sub(r"\W", "_", v.name, flags=re.ASCII)

    @staticmethod
    def shown(e: Expr, dims: set[str]) -> str:
        for v in e.variables:
            if v.name not in dims:
                raise _NoForm(f"a bound with {v.name}, which is known at run time")
        return _isl(e)


def _in_order(filters: Sequence[str]) -> str:
    return f"sequence: [ {', '.join(filters)} ]"


def _isl(e: Expr) -> str:
    """An expression in isl's words.

    >>> d0 = Var("d0")
    >>> _isl((d0 * 3 + 1) // 8 - d0 % 4)
    'floor((3*d0 + 1)/8) - (d0 - 4*floor((d0)/4))'
    """
    parts = [f"{_coefficient(k)}{_atom(atom)}" for atom, k in e.terms]
    if e.constant or not parts:
        parts.append(str(e.constant))
    return " + ".join(parts).replace("+ -", "- ")


def _coefficient(k: int) -> str:
    return "" if k == 1 else "-" if k == -1 else f"{k}*"


def _atom(atom: Expr) -> str:
    if isinstance(atom, Var):
        return atom.name
    if isinstance(atom, FloorDiv | Mod) and isinstance(atom.divisor, int):
        inner = _isl(atom.numerator)
        whole = f"floor(({inner})/{atom.divisor})"
        return whole if isinstance(atom, FloorDiv) else f"({inner} - {atom.divisor}*{whole})"
    if isinstance(atom, Minimum | Maximum):
        return f"{'min' if isinstance(atom, Minimum) else 'max'}({', '.join(map(_isl, atom.arguments))})"
    raise _NoForm(f"{atom}: no expression of isl's")
