"""A random program, planned for some machine, compiled and run, against the evaluator."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import codegen
import hlo
import interp
import tiling
from codegen.call.memory_safety import MemorySafetyWarning
from hlo.module import Module
from hlo.types import ELEMENT_TYPES
from tests.hostile.programs import Program, machine_choice, program
from tests.hostile.writer import Val
from tests.machines import x86_targets
from tilewright.check import Tolerance, compare, float_info, tolerance
from tiling.machine import Machine

CACHES = (
    (32 << 10, 512 << 10, 32 << 20),
    (48 << 10, 1280 << 10, 24 << 20),
    (16 << 10, 128 << 10, 1 << 20),
    (5 << 10, 37 << 10, 999 << 10),
)
EQUAL = Tolerance(0.0, 0.0)
PERTURBED = 4  # evaluations on neighbouring inputs, before a difference of numbers that are not exact is believed


def setting(seed: int) -> tuple[Machine, str, int, bool]:
    """The machine that is planned for, the target, the number of threads, and whether memory is guarded."""
    r = machine_choice(seed)
    l1, l2, l3 = r.choice(CACHES)
    machine = Machine(cores=r.choice((1, 2, 3, 8, 64)), vector_bytes=r.choice((16, 32, 64)), vector_registers=r.choice((16, 32)),
                      l1_bytes=l1, l2_bytes=l2, l3_bytes=l3)  # fmt: skip
    target, threads, guarded = r.choice(["host", *x86_targets()]), r.choice((1, 1, 2, 3, 5)), r.random() < 0.3
    return replace(machine, pair_products=r.choice((1, 2))), target, threads, guarded


def tried(seed: int) -> list[str]:
    """What is wrong with the program of a seed: nothing, or a line for each fault."""
    made = program(seed)
    module = hlo.parse(made.text)
    hlo.verify(module)
    machine, target, threads, guarded = setting(seed)
    os.environ["TILEWRIGHT_TARGET"] = target
    os.environ["TILEWRIGHT_DEBUG"] = "guard" if guarded else ""
    faults: list[str] = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", MemorySafetyWarning)
        executable = codegen.compile(tiling.plan(module, "main", machine, codegen.supports), threads=threads)
    faults += [f"a plan is refuted: {w.message}" for w in told if issubclass(w.category, MemorySafetyWarning)]
    for draw in range(2):
        arrays = made.arrays(draw)
        before = [a.tobytes() for a in arrays]
        wanted = interp.evaluate(module, *arrays)
        found = executable(*arrays)
        faults += differences(made, module, arrays, found, wanted, draw)
        if [a.tobytes() for a in executable(*arrays)] != [a.tobytes() for a in found]:
            faults.append(f"draw {draw}: a second call gives other bits")
        if [a.tobytes() for a in arrays] != before:
            faults.append(f"draw {draw}: an argument was changed")
    return faults


def differences(
    made: Program, module: Module, arrays: Sequence[np.ndarray], found: Sequence[Any], wanted: Sequence[Any], draw: int
) -> list[str]:
    """A line for each result that does not agree with the evaluator's."""
    faults = []
    near: list[Sequence[Any]] = []
    for k, (v, a, b) in enumerate(zip(made.results, found, wanted, strict=True)):
        a, b = np.asarray(a), np.asarray(b)
        done = compare(a, b, EQUAL if v.exact else agreement(made, b.dtype))
        if done.passed:
            continue
        if not v.exact and a.shape == b.shape:
            near = near or [interp.evaluate(module, *neighbours(made, arrays, n)) for n in range(PERTURBED)]
            if is_unsure(a, b, [np.asarray(r[k]) for r in near], v):
                continue
        which = f"draw {draw}, result {k} ({v.name}: {v.type}, {'exact' if v.exact else 'rounded'})"
        faults.append(
            f"{which}: {done.mismatched_elems} of {b.size} elements, worst {done.worst_actual} for {done.worst_expected} "
            f"at {done.worst_index} (rel {done.max_rel:.3g}, {done.max_ulp:.3g} ulp)"
        )
    return faults


def agreement(made: Program, dtype: np.dtype) -> Tolerance:
    """`tilewright check`'s, or what is left of it after something was rounded to a coarser type on the way."""
    own = tolerance(dtype)
    if made.coarsest is None or dtype.kind in "iub":
        return own
    info = float_info(ELEMENT_TYPES[made.coarsest].dtype)
    coarse = tolerance(ELEMENT_TYPES[made.coarsest].dtype)
    return Tolerance(max(own.relative, coarse.relative, coarse.ulps * float(info.eps)), own.ulps)


def neighbours(made: Program, arrays: Sequence[np.ndarray], number: int) -> list[np.ndarray]:
    """The arrays with each float one or two units in the last place off."""
    rng = np.random.default_rng([made.seed, number])
    found = []
    for a, (v, _) in zip(arrays, made.arguments, strict=True):
        if v.is_float or v.is_complex:
            real = a.reshape(-1).view(f"f{a.dtype.itemsize // 2}") if v.is_complex else a
            step = float(float_info(real.dtype).eps)
            moved = real.astype(np.float64) * (1 + step * rng.choice([-1.0, 1.0, 2.0, -2.0], real.shape))
            with np.errstate(all="ignore"):
                a = moved.astype(real.dtype).view(a.dtype).reshape(a.shape)
        found.append(a)
    return found


def is_unsure(a: np.ndarray, b: np.ndarray, near: Sequence[np.ndarray], v: Val) -> bool:
    """Whether the differences are no larger than what neighbouring inputs make of each element."""
    wide = np.complex128 if v.is_complex else np.float64
    with np.errstate(all="ignore"):
        x, y, others = a.astype(wide), b.astype(wide), [n.astype(wide) for n in near]
        error = np.abs(x - y)
        moved = np.max([np.abs(n - y) for n in others], axis=0)
        odd = ~np.isfinite(x) | ~np.isfinite(y)
        excused = np.any([np.isfinite(n) != np.isfinite(y) for n in others], axis=0)
        agree = (x == y) | (np.isnan(x) & np.isnan(y))
        typical = np.sqrt(np.mean(np.where(np.isfinite(moved), moved, 0) ** 2)) if moved.size else 0.0
        return bool(np.all(agree | np.where(odd, excused, error <= 16 * np.maximum(moved, typical))))
