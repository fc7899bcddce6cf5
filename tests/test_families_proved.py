"""Right schedules are not refuted: plans of the families of JAX programs, a sample at every run, all when it is slow."""

from __future__ import annotations

import importlib
import importlib.util
import random
from typing import Any

import pytest

import codegen
import hlo
import tiling

pytestmark = pytest.mark.jax

FAMILIES = ("elementwise", "structured", "numpy_api", "library", "randomness", "transforms", "algorithms", "large", "special")
TABLES: dict[str, Any] = {}

if importlib.util.find_spec("jax") is not None:
    import jax

    TABLES = {name: importlib.import_module(f"tests.jax_families.{name}").PROGRAMS for name in FAMILIES}

SAMPLE = 2  # programs of a family at every run


def names(family: str) -> list[str]:
    """A few of a family's programs, the same at every run."""
    quick = [n for n, p in TABLES.get(family, {}).items() if not p.slow]
    return random.Random(26).sample(quick, min(SAMPLE, len(quick))) if family != "large" else []


def proved(family: str, name: str, seconds: float) -> tiling.Proof:
    program = TABLES[family][name]
    with jax.enable_x64(program.x64):
        text = jax.jit(program.function).lower(*program.args).as_text()
    plan = tiling.plan(hlo.parse(text), supports=codegen.supports)
    return tiling.prove(plan, seconds=seconds)


def not_refuted(family: str, name: str, seconds: float) -> None:
    proof = proved(family, name, seconds)
    assert not proof.refuted, proof


@pytest.mark.parametrize(("family", "name"), [(f, n) for f in FAMILIES for n in names(f)])
def test_a_sample(family: str, name: str) -> None:
    not_refuted(family, name, 5.0)


@pytest.mark.parametrize(
    ("family", "name"), [("transforms", "grad through loops"), ("algorithms", "mixed precision")]
)
def test_what_was_refuted_or_not_decided_once(family: str, name: str) -> None:
    assert proved(family, name, 600.0).holds


@pytest.mark.parametrize("length", [1, 2, 7, 64, 1000])
@pytest.mark.parametrize("function", ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"])
def test_cumulative_functions_are_proved(function: str, length: int) -> None:
    from jax import lax

    for reverse in (False, True):
        scan = getattr(lax, function)
        text = jax.jit(lambda x, scan=scan, reverse=reverse: scan(x, reverse=reverse)).lower(jax.numpy.ones(length)).as_text()
        proof = tiling.prove(tiling.plan(hlo.parse(text), supports=codegen.supports))
        assert proof.holds, proof


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_all_of_a_family(family: str) -> None:
    for name in TABLES[family]:
        not_refuted(family, name, 20.0)
