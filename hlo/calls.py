"""Which functions call which, and how much a program is once every call is replaced by what it calls."""

from __future__ import annotations

from hlo.errors import TilewrightError
from hlo.module import Module, Op, walk

__all__ = ["MOST_CALLED_OPS", "called_ops", "callees", "check_size"]

MOST_CALLED_OPS = 4_000_000


class CalledOpsError(TilewrightError):
    """A program that is too large once its calls are replaced by what they call."""


def callees(op: Op) -> tuple[str, ...]:
    """The names of the functions that an op stands for or calls; a custom call's `called_computations` are a list of them."""
    if op.definition.calls:
        return (str(op.attributes.get(op.definition.calls)),)
    called = op.attributes.get("called_computations")
    return tuple(n for n in called if isinstance(n, str)) if isinstance(called, (list, tuple)) else ()


def called_ops(module: Module) -> dict[str, int]:
    """Function -> its ops, those of the functions that it calls counted at every call; each function is looked at once.

    Calls do not recurse (the verifier has seen to that); one that did would count as nothing.
    """
    calls = {n: [c for op in walk(f.body) for c in callees(op)] for n, f in module.functions.items() if not f.is_declaration}
    own = {n: sum(1 for _ in walk(module.functions[n].body)) for n in calls}
    total: dict[str, int] = {}
    for start in calls:
        stack, entered = [start], {start}
        while stack:
            name = stack[-1]
            missing = [c for c in calls[name] if c in calls and c not in total and c not in entered]
            if missing:
                stack.append(missing[0])
                entered.add(missing[0])
                continue
            total[stack.pop()] = own[name] + sum(total.get(c, 0) for c in calls[name])
    return total


def check_size(module: Module, entry: str) -> None:
    """Raises CalledOpsError where `entry`, all calls replaced, has more than `MOST_CALLED_OPS` ops; the message names both."""
    count = called_ops(module).get(entry, 0)
    if count > MOST_CALLED_OPS:
        function = module.functions[entry]
        raise CalledOpsError(
            f"@{entry} has {count} ops once every call is replaced by the function that it calls, expected at most "
            f"{MOST_CALLED_OPS}: functions that call others several times multiply",
            function.location,
        )
