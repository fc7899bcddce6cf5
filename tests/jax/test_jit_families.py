"""`tilewright.jit` agrees with `jax.jit` on families of programs: the functions of JAX that compute, option by option."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import pytest

pytestmark = pytest.mark.jax

FAMILIES = ("elementwise", "structured", "numpy_api", "library", "randomness", "transforms", "algorithms", "large", "special")
TABLES: dict[str, Any] = {}

if importlib.util.find_spec("jax") is not None:  # without it the marker leaves these tests out, and the header says so
    import jax

    from tests.jax.test_jit_programs import ROUNDED, same
    from tests.jax_families import cover
    from tests.jax_families.covered import COVERED
    from tests.jax_families.slow import SLOW

    TABLES = {name: importlib.import_module(f"tests.jax_families.{name}").PROGRAMS for name in FAMILIES}



def is_slow(family: str, name: str) -> bool:
    return TABLES[family][name].slow or name in SLOW.get(family, ()) or name in COVERED.get(family, ())


CASES = [
    pytest.param(family, name, id=f"{family}: {name}", marks=pytest.mark.slow if is_slow(family, name) else ())
    for family, table in TABLES.items()
    for name in table
]


@pytest.mark.parametrize(("family", "name"), CASES)
def test_agrees_with_jax(family: str, name: str) -> None:
    """Both calls give JAX's trees, shapes, types and numbers; integers, booleans and random bits exactly."""
    import tilewright

    program = TABLES[family][name]
    with jax.enable_x64(program.x64):
        expected = jax.jit(program.function, compiler_options=ROUNDED)(*program.args)
        compiled = tilewright.jit(program.function)
        for _ in range(2):  # the second call finds memories that the first one left
            same(compiled(*program.args), expected, program.bound)
        assert compiled.cache_size == 1


@pytest.mark.slow
def test_what_is_covered() -> None:
    """The fast tests have every op, with its types, attributes and ranks, and pair of ops of the programs left out."""
    found = {key: cover.features(program) for key, program in cover.quick_programs().items()}
    stays = frozenset().union(*(own for (family, name), own in found.items() if name not in COVERED.get(family, ())))
    gone = {(family, name): found[family, name] for family, names in COVERED.items() if family != cover.SPECIAL for name in names}
    assert not {key: own - stays for key, own in gone.items() if own - stays}


def test_special_functions_are_tested_in_some_type() -> None:
    """The fast tests have each in one type at least, and half of them in each type."""
    table, left_out = TABLES[cover.SPECIAL], COVERED[cover.SPECIAL]
    assert left_out == {*cover.in_another_type()}
    stays = {name for name in table if not is_slow(cover.SPECIAL, name)}
    for name in left_out:
        function, _, element = name.rpartition(", ")
        (other,) = {*cover.WIDTHS} - {element}
        assert f"{function}, {other}" in stays, name
