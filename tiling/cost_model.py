"""What schedules are weighed by: the interface of a cost model, and which one a machine has.

The CPU's own is `tiling.planning.costs.estimate`; docs/adding-a-cost-model.md adds another.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Protocol

from tiling.loops.ir import Schedule
from tiling.machine import Machine

__all__ = ["CostModel", "Estimate", "model_of", "with_model"]


@dataclass(frozen=True)
class Estimate:
    """Predicted seconds and what they consist of; `unit` names what a model counts in their place.

    >>> estimate = Estimate(5e-6, 2e-6, 5e-6, 4096)
    >>> print(estimate, "|", estimate.figure(7e-6))
    5.0 us (2.0 us arithmetic, 5.0 us traffic, 4096 bytes of memory) | 7.0 us
    >>> print(Estimate(3.0, 0.0, 0.0, 4096, unit="launches"))
    3 launches (4096 bytes of memory)
    """

    seconds: float
    arithmetic_seconds: float
    traffic_seconds: float
    memory_bytes: int
    cache_bytes: int = 0  # from beyond the cores' own caches, memory included
    unit: str = ""

    def figure(self, seconds: float) -> str:
        """What this estimate's model counts, such as the sum of several estimates' `seconds`, as text."""
        return f"{seconds:.10g} {self.unit}" if self.unit else f"{seconds * 1e6:.1f} us"

    def __str__(self) -> str:
        if self.unit:
            return f"{self.figure(self.seconds)} ({self.memory_bytes} bytes of memory)"
        return (
            f"{self.seconds * 1e6:.1f} us ({self.arithmetic_seconds * 1e6:.1f} us arithmetic, "
            f"{self.traffic_seconds * 1e6:.1f} us traffic, {self.memory_bytes} bytes of memory)"
        )


class CostModel(Protocol):
    """What the planner weighs candidates by: the fewest `seconds` win, whatever those count (`Estimate.unit` says what).

    Called often, of alike schedules too: the same schedule and machine must always give the same figures. Of two kernels it is
    their sum that counts.
    """

    def estimate(self, schedule: Schedule, machine: Machine) -> Estimate: ...


@dataclass(frozen=True)
class _Weighed(Machine):
    """A machine whose schedules another model than the CPU's weighs."""

    cost_model: CostModel | None = None


def with_model(machine: Machine, model: CostModel | None) -> Machine:
    """The machine, with schedules on it weighed by `model`; None: by the CPU's own. Raises TypeError for what is no model."""
    if isinstance(model, type) or (model is not None and not callable(getattr(model, "estimate", None))):
        found = f"the class {model.__name__}, no object of it" if isinstance(model, type) else repr(model)
        raise TypeError(f"cost_model: expected an object with estimate(schedule, machine), found {found}")
    return machine if model is None else _Weighed(**asdict(machine), cost_model=model)


def model_of(machine: Machine) -> CostModel | None:
    """The model that schedules on a machine are weighed by, where it is another than the CPU's own: it is asked about each.

    >>> model_of(Machine()) is None
    True
    """
    return machine.cost_model if isinstance(machine, _Weighed) else None
