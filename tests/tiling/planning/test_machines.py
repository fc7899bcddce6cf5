"""Plans for machines that are not here: every kernel touches its own memory only, whatever the vectors, caches and cores are.

Each program is planned for one of a dozen machines in the fast tests, in turns, and for all of them with `--slow`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import hlo
import tiling
from codegen.supports import supports
from tests.codegen.contract.test_transposed_convolutions import CASES as TRANSPOSED
from tests.codegen.contract.test_transposed_convolutions import Transposed
from tests.random_programs import random_program
from tiling import Machine
from tiling.pipeline import finished
from tiling.proving.obligations import prove_memory

ROOT = Path(__file__).parents[3]
K, M = 1 << 10, 1 << 20

MACHINES: dict[str, Machine] = {
    "sse_1": Machine(1, 16, 16, 1, 2e9, 16 * K, 128 * K, 1 * M),
    "sse_4": Machine(4, 16, 16, 2, 3e9, 32 * K, 256 * K, 4 * M),
    "neon_8": Machine(8, 16, 32, 2, 2.5e9, 64 * K, 512 * K, 2 * M),
    "neon_64": Machine(64, 16, 32, 2, 2.5e9, 64 * K, 1 * M, 32 * M),
    "neon_large_l2": Machine(10, 16, 32, 4, 3.2e9, 128 * K, 12 * M, 12 * M),
    "avx2_1": Machine(1, 32, 16, 2, 3e9, 32 * K, 256 * K, 3 * M),
    "avx2_2": Machine(2, 32, 16, 2, 3e9, 32 * K, 512 * K, 16 * M),
    "avx2_16": Machine(16, 32, 16, 2, 3.5e9, 48 * K, 2 * M, 30 * M),
    "avx2_64": Machine(64, 32, 16, 2, 2.4e9, 32 * K, 512 * K, 256 * M),
    "sve_32": Machine(32, 32, 32, 2, 2.6e9, 64 * K, 1 * M, 32 * M),
    "avx512_2": Machine(2, 64, 32, 2, 3e9, 48 * K, 2 * M, 32 * M),
    "avx512_48": Machine(48, 64, 32, 2, 2.7e9, 32 * K, 1 * M, 36 * M),
}


def product(m: int, n: int, k: int, batch: int = 0, left: str = "mk", right: str = "kn", element: str = "f32") -> str:
    """A matrix product, its factors stored in either order, perhaps in a batch."""
    size = {"m": m, "n": n, "k": k}
    lead = f"{batch}x" if batch else ""
    a, b = (f"tensor<{lead}{'x'.join(str(size[x]) for x in s)}x{element}>" for s in (left, right))
    c = f"tensor<{lead}{m}x{n}x{element}>"
    first = 1 if batch else 0
    dims = f"contracting_dims = [{first + left.index('k')}] x [{first + right.index('k')}]"
    dims = f"batching_dims = [0] x [0], {dims}" if batch else dims
    return f"""func.func @main(%a: {a}, %b: {b}) -> {c} {{
      %r = stablehlo.dot_general %a, %b, {dims} : ({a}, {b}) -> {c}
      return %r : {c} }}"""


CONVOLUTIONS = {
    "same": Transposed(holes=(1, 1), pads=((1, 1), (1, 1))),
    "same_first": Transposed(holes=(1, 1), pads=((1, 1), (1, 1)), first=True),
    "strided": Transposed(size=(29, 31), holes=(1, 1), stride=(2, 2), pads=((1, 1), (0, 1))),
    "strided_first": Transposed(size=(29, 31), holes=(1, 1), stride=(2, 3), window=(5, 3), first=True),
    "spread": Transposed(size=(21, 23), holes=(1, 1), spread=(3, 2)),
    "groups": Transposed(holes=(1, 1), groups=4, channels=(32, 48)),
    "depthwise": Transposed(size=(19, 21), holes=(1, 1), groups=32, channels=(32, 32)),
    "depthwise_first": Transposed(size=(19, 21), holes=(1, 1), groups=32, channels=(32, 32), first=True),
    "small_image": Transposed(size=(7, 7), holes=(1, 1), pads=((1, 1), (1, 1)), channels=(64, 96), first=True),
    "bytes": Transposed(holes=(1, 1), channels=(36, 40), types=("i8", "i8", "i32")),
    "narrow": Transposed(holes=(1, 1), types=("bf16",) * 3),
    "line": Transposed((301,), (9,), (24, 40), (1,), (2,), (1,), ((4, 4),)),
}
PRODUCTS = {
    "small": product(5, 3, 300),
    "uneven": product(127, 65, 129),
    "deep": product(13, 50, 2000),
    "wide": product(100, 1000, 36),
    "one_row": product(1, 700, 330),
    "columns_by_rows": product(96, 80, 400, left="km", right="nk"),
    "along_k": product(40, 24, 1100, right="nk"),
    "batch": product(33, 65, 100, batch=3),
    "small_batch": product(4, 4, 4, batch=100),
    "doubles": product(61, 83, 97, element="f64"),
    "halves": product(61, 83, 500, element="f16"),
    "complex": product(30, 20, 40, element="complex<f32>"),
}
SLOW = {"causal_attention", "encoder_block", "grouped_query_attention"}  # planning takes longer than all that is left
FAMILIES = ("structured", "library", "transforms", "algorithms", "special", "numpy_api", "elementwise", "large")


@dataclass(frozen=True)
class Program:
    name: str
    module: Callable[[], hlo.Module]
    slow: bool = False


def programs() -> list[Program]:
    """What is planned: the shipped programs, the tables of convolutions and contractions, random programs."""
    files = [*sorted((ROOT / "examples").glob("*.mlir")), *sorted((ROOT / "tests" / "programs").glob("*.mlir"))]
    found = [Program(p.stem, lambda p=p: hlo.load(p), p.stem in SLOW) for p in files]  # type: ignore[misc]
    tables = {"transposed": TRANSPOSED, "convolution": CONVOLUTIONS}
    found += [
        Program(f"{kind}_{name}", lambda c=c: hlo.parse(c.text))  # type: ignore[misc]
        for kind, table in tables.items()
        for name, c in table.items()
    ]
    found += [Program(f"product_{name}", lambda t=t: hlo.parse(t)) for name, t in PRODUCTS.items()]  # type: ignore[misc]
    return [*found, *(Program(f"random_{k}", lambda k=k: random_program(k)[0]) for k in range(0, 60, 5))]  # type: ignore[misc]


def unproved(module: hlo.Module, machine: Machine) -> list[str]:
    """The obligations about memory that a plan's kernels, as they are written, do not keep or leave open."""
    found = []
    for p in tiling.plan(module, machine=machine, supports=supports).nested():
        for f in p.fusions:
            proof = prove_memory(finished(f.schedule))
            found += [f"{f.name} tiles {list(f.tile_sizes)}: {o}" for o in (*proof.refuted, *proof.undecided)]
    return found


PROGRAMS = programs()
TURNS = [
    pytest.param(p, list(MACHINES)[5 * k % len(MACHINES)], id=f"{p.name}-{list(MACHINES)[5 * k % len(MACHINES)]}",
                 marks=pytest.mark.slow if p.slow else ())
    for k, p in enumerate(PROGRAMS)
]  # fmt: skip


@pytest.mark.parametrize(("program", "machine"), TURNS)
def test_memory_in_turns(program: Program, machine: str) -> None:
    assert unproved(program.module(), MACHINES[machine]) == []


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_memory_on_every_machine(program: Program, machine: str) -> None:
    assert unproved(program.module(), MACHINES[machine]) == []


def test_the_machines_differ_in_what_plans_depend_on() -> None:
    assert len(MACHINES) == len({*MACHINES.values()}) == 12
    assert {m.vector_bytes for m in MACHINES.values()} == {16, 32, 64}
    assert {m.vector_registers for m in MACHINES.values()} == {16, 32}
    assert {1, 64} <= {m.cores for m in MACHINES.values()}
    module = hlo.parse(TRANSPOSED["three"].text)
    made = [tiling.plan(module, machine=MACHINES[m], supports=supports) for m in ("sse_1", "avx512_2")]
    assert made[0].fusions[0].tile_sizes != made[1].fusions[0].tile_sizes


# ---------------------------------------------------------------- programs from JAX


SAMPLE: list[Any] = []
if importlib.util.find_spec("jax") is not None:  # without it the marker leaves these tests out
    from tests.jax_families.slow import SLOW as SLOW_FAMILIES

    for _family in FAMILIES:
        _table = importlib.import_module(f"tests.jax_families.{_family}").PROGRAMS
        _names = [n for n, p in _table.items() if not p.slow and n not in SLOW_FAMILIES.get(_family, ())]
        SAMPLE += [(_family, n) for n in _names[:: max(1, len(_names) // 20)]]


def lowered(family: str, name: str) -> hlo.Module:
    import jax

    program = importlib.import_module(f"tests.jax_families.{family}").PROGRAMS[name]
    with jax.enable_x64(program.x64):
        return hlo.parse(jax.jit(program.function).lower(*program.args).as_text())


@pytest.mark.jax
@pytest.mark.parametrize(("at", "case"), list(enumerate(SAMPLE))[::8], ids=lambda x: None if isinstance(x, int) else ": ".join(x))
def test_memory_of_jax_programs_in_turns(at: int, case: tuple[str, str]) -> None:
    assert unproved(lowered(*case), list(MACHINES.values())[5 * at % 12]) == []


@pytest.mark.jax
@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", SAMPLE, ids=": ".join)
def test_memory_of_jax_programs_on_every_machine(case: tuple[str, str], machine: str) -> None:
    assert unproved(lowered(*case), MACHINES[machine]) == []
