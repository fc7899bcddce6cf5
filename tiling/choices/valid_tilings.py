"""All tilings of a kernel that a machine of one's own allows, with their costs, one at a time.

    for t in valid_tilings(plan, "k0_y", allowed=lambda sizes: all(n % 16 == 0 for n in sizes)):
        t.sizes, t.estimate, t.schedule, t.plan

The space is that of the kernel's result: one tile size for each dimension. `sizes_of` says which sizes of a dimension there are
(default: powers of two below it, and the whole of it), `allowed` which combinations, `fits` which schedules: those whose scratch
fits a memory, that compute nothing twice, or whatever a machine asks for. What the planner finds no schedule for is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product

from tiling.cost_model import CostModel, Estimate
from tiling.loops.ir import Schedule
from tiling.machine import Machine
from tiling.planning.model import Fusion, Plan
from tiling.planning.plan import all_ops, plan

__all__ = ["Tiling", "powers_of_two", "valid_tilings"]


@dataclass(frozen=True, eq=False)
class Tiling:
    """Tile sizes of a kernel, what the model says that they cost, and the plan that has them."""

    sizes: tuple[int, ...]
    estimate: Estimate
    fusion: Fusion
    plan: Plan

    @property
    def schedule(self) -> Schedule:
        return self.fusion.schedule

    def __repr__(self) -> str:
        return f"<Tiling {list(self.sizes)}: {self.estimate}>"


def powers_of_two(extent: int) -> list[int]:
    """1, 2, 4, … below a dimension's extent, and the extent.

    >>> powers_of_two(40), powers_of_two(1)
    ([1, 2, 4, 8, 16, 32, 40], [1])
    """
    return [*(1 << k for k in range(max(0, (extent - 1).bit_length())) if 1 << k < extent), extent]


def valid_tilings(
    made: Plan,
    fusion: str,
    allowed: Callable[[tuple[int, ...]], bool] = lambda sizes: True,
    sizes_of: Callable[[int], Sequence[int]] = powers_of_two,
    fits: Callable[[Schedule], bool] = lambda schedule: True,
    cost_model: CostModel | None = None,
) -> Iterator[Tiling]:
    """The tilings of a plan's kernel, smallest sizes first; each is made when it is asked for.

    Raises KeyError, naming what there is, for a kernel that there is not.

    >>> import hlo, tiling
    >>> plan = tiling.plan(hlo.parse('''func.func @main(%x: tensor<64x32xf32>) -> tensor<64x32xf32> {
    ...   %0 = stablehlo.tanh %x : tensor<64x32xf32>
    ...   return %0 : tensor<64x32xf32>
    ... }'''), machine=tiling.Machine())
    >>> found = valid_tilings(plan, plan.fusions[0].name, allowed=lambda sizes: all(n % 16 == 0 for n in sizes))
    >>> [t.sizes for t in found]
    [(16, 16), (16, 32), (32, 16), (32, 32), (64, 16), (64, 32)]
    """
    names = [f.name for f in made.fusions]
    if fusion not in names:
        raise KeyError(f"no fusion {fusion!r}; there is {', '.join(names)}")
    machine = Machine(**{f.name: getattr(made.machine, f.name) for f in fields(Machine)})
    model = cost_model if cost_model is not None else getattr(made.machine, "cost_model", None)
    pins = made.pins()
    number = names.index(fusion)
    shape = made.fusions[number].stages[-1].values[0].shape
    for sizes in product(*(sizes_of(n) for n in shape)):
        if not allowed(sizes):
            continue
        wanted = [replace(p, tile_sizes=sizes) if k == number else p for k, p in enumerate(pins)]
        try:
            one = plan(made.module, made.program.name, machine, made.supports or all_ops, wanted, cost_model=model)
        except ValueError:  # no schedule has these tiles
            continue
        found = next(f for f in one.fusions if f.name == fusion)
        if found.tile_sizes == sizes and fits(found.schedule):
            yield Tiling(sizes, found.estimate, found, one)
