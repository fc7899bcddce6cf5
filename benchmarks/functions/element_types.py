"""Which ops run in kernels for which element types, and whether what they give is the evaluator's.

Every elementwise op on every element type that its constraints allow, on all codes of the types of a byte and less and on edge
values and random numbers of the wider ones; then reductions, contractions, moves and the other small examples of the tests.
Prints one line for each op and type that a kernel does not compute, or computes otherwise.
Usage: ``python -m benchmarks.functions.element_types [type ...] [--all]``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import codegen
import hlo
import interp
from hlo.builder import Builder
from hlo.errors import Declined
from hlo.registry import Elementwise, definitions
from hlo.types import ELEMENT_TYPES, ElementType, TensorType
from hlo.typesets import TypeSet
from tilewright.check import Comparison, compare

ELEMENTS = [t for t in ELEMENT_TYPES.values() if t.name != "index"]


@dataclass(frozen=True)
class Outcome:
    """One op on one element type: why the evaluator runs it (or None), and how its result compares."""

    op: str
    element: str
    fallback: str | None
    comparison: Comparison

    @property
    def is_native(self) -> bool:
        return self.fallback is None


# ------------------------------------------------------------------ values


def _codes(t: ElementType) -> np.ndarray:
    """Every number of a type of a byte and less."""
    if t.is_boolean:
        return np.array([False, True])
    return np.arange(1 << t.bits, dtype=np.uint8).view(t.dtype)


_EDGE_FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 0.75, 3.7, -3.7, 1e-3, 0.99, 7.0, -7.5, 25.5, 88.0, 1e4]
_EDGE_FLOATS += [np.inf, -np.inf, np.nan]


def values(t: ElementType, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays of one length that meet each other's edge values; all pairs of codes where there are at most 2**16."""
    if t.bits <= 8:
        found = _codes(t)
    elif t.is_integer:
        low, high = np.iinfo(t.dtype).min, np.iinfo(t.dtype).max
        edges = [low, low + 1, 0, 1, 2, 3, 5, 7, t.bits - 1, t.bits, 100, high - 1, high, high // 3]
        found = np.array(edges + ([-1, -2, -7] if t.is_signed else []), t.dtype)
    else:
        real = t.real.dtype
        info: Any = ml_dtypes.finfo(real)  # type: ignore[no-untyped-call]
        numbers = [*_EDGE_FLOATS, float(info.max), float(info.tiny), float(info.smallest_subnormal), -float(info.max)]
        rng = np.random.default_rng(seed)
        some = np.array([*numbers, *rng.normal(0, 3, 20 if not t.is_complex else 0)]).astype(real)
        if not t.is_complex:
            found = some
        else:
            parts = [0, 1, 2, 3, 4, 7, 8, 9, 10, 15, 18, 19, 20], [0, 2, 3, 5, 9, 10, 18, 20]
            re, im = (g.ravel() for g in np.meshgrid(*(some[p] for p in parts)))
            found = np.zeros(re.size, t.dtype)
            found.real, found.imag = re, im
    x, y = (np.ascontiguousarray(g.ravel()) for g in np.meshgrid(found, found))
    return x, y


# ------------------------------------------------------------------ elementwise ops


def _attributes(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(suffix, attributes) of the forms of an op that are tried."""
    if name.endswith("compare"):
        for direction in ("EQ", "NE", "LT", "LE", "GT", "GE"):
            yield f" {direction}", {"comparison_direction": direction}
        yield " LT TOTALORDER", {"comparison_direction": "LT", "compare_type": "TOTALORDER"}
    elif name.endswith("reduce_precision"):
        yield " e4m2", {"exponent_bits": 4, "mantissa_bits": 2}
        yield " e8m7", {"exponent_bits": 8, "mantissa_bits": 7}
    else:
        yield "", {}


def elementwise(t: ElementType, count: int) -> list[tuple[str, hlo.Module]]:
    """A module for each elementwise op that takes two arrays of `count` elements of `t`."""
    made = []
    by_name = {d.name: d for d in definitions()}
    for d in definitions():
        if not isinstance(d.semantics, Elementwise):
            continue
        base = (
            by_name.get(f"stablehlo.{d.semantics.function}", by_name.get(f"chlo.{d.semantics.function}", d))
            .operands[-1]
            .accepts
        )
        if isinstance(base, TypeSet) and not base.has(TensorType((count,), t)):
            continue  # chlo.broadcast_and of floats verifies, but is no op
        for suffix, attributes in _attributes(d.name):
            goals: list[ElementType | None] = [None]
            if d.mnemonic == "convert":
                goals = list(ELEMENTS)
            elif d.mnemonic == "bitcast_convert":
                goals = [u for u in ELEMENTS if u.bits == t.bits]
            elif isinstance(d.infer, Declined):
                continue
            for goal in goals:
                b = Builder("main")
                x, y = (b.parameter(k, TensorType((count,), t), n) for k, n in enumerate("xy"))
                operands = {1: [x], 2: [x, y], 3: [x, y, x]}[len(d.operands)]
                try:
                    if d.mnemonic in ("select", "broadcast_select"):
                        operands = [b.emit("stablehlo.compare", [x, y], {"comparison_direction": "LT"})[0], x, y]
                    types = [TensorType((count,), goal)] if goal is not None else None
                    results = b.emit(d.name, operands, attributes, (), types)
                    module = b.build(results[0])
                    hlo.verify(module)
                    interp.evaluate(module, *(np.zeros(count, t.dtype) for _ in "xy"))
                except hlo.TilewrightError:
                    continue
                made.append((d.name + suffix + (f" {goal}" if goal is not None else ""), module))
    return made


def merged(modules: list[hlo.Module]) -> hlo.Module:
    """One function with the results of all, for types of one shape and kind."""
    b = Builder("main")
    first = modules[0].entry
    arguments = [b.parameter(k, v.type, f"a{k}") for k, v in enumerate(first.arguments)]
    results = []
    for m in modules:
        env = dict(zip(m.entry.arguments, arguments, strict=True))
        for op in m.entry.body.ops[:-1]:
            made = b.emit(op.name, [env[v] for v in op.operands], op.attributes, (), [r.type for r in op.results])
            env.update(zip(op.results, made, strict=True))
        results += [env[v] for v in m.entry.body.results]
    return b.build(*results)


def survey_elementwise(t: ElementType) -> list[Outcome]:
    """Every elementwise op on one element type."""
    x, y = values(t)
    cases = elementwise(t, x.size)
    found = []
    with np.errstate(all="ignore"):
        step = 24
        for k in range(0, len(cases), step):
            part = cases[k : k + step]
            whole = merged([m for _, m in part])
            exe = codegen.compile(whole)
            fallbacks = {f.split(" (%")[0]: f.partition(": ")[2] for f in exe.fallbacks}
            for (name, _), a, e in zip(part, exe(x, y), interp.evaluate(whole, x, y), strict=True):
                found.append(Outcome(name, t.name, fallbacks.get(name.split()[0]), compare(a, e)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*", default=[t.name for t in ELEMENTS])
    parser.add_argument("--all", action="store_true", help="print what is native and right, too")
    options = parser.parse_args()
    for name in options.types:
        found = survey_elementwise(ELEMENT_TYPES[name])
        right = [o for o in found if o.is_native and o.comparison.passed]
        print(f"{name}: {len(right)} of {len(found)} native and right", flush=True)
        for o in found:
            c = o.comparison
            if not o.is_native:
                print(f"  {o.op}: evaluator: {o.fallback}")
            if not c.passed:
                where = f"{c.worst_index}: {c.worst_actual} for {c.worst_expected}"
                print(f"  {o.op}: {c.mismatched_elems} of {np.prod(c.shape)} differ, {where}")
            elif options.all:
                print(f"  {o.op}: max ulp {c.max_ulp:.3g}")


if __name__ == "__main__":
    main()
