"""Exchanges that begin early: the same values as in the order that was given, and kernels in between."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from codegen.call.program.nodes import Copy, Evaluate, Exchange, Loop, Node
from codegen.call.program.overlap import order_of, overlapped
from tiling import EvaluatorStep

TEXT = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.negate %x : tensor<4xf32>
  return %0 : tensor<4xf32> }"""
OP = hlo.parse(TEXT).root


def call(name: str, reads: tuple[int, ...], writes: tuple[int, ...]) -> Evaluate:
    return Evaluate(EvaluatorStep(name, OP, ""), reads, writes)


def is_exchange(n: Evaluate) -> bool:
    return n.step.name.startswith("exchange")


def run(nodes: list[Node], memory: list[object]) -> list[str]:
    """Runs nodes on symbols; an exchange takes its operands when it begins. Returns the exchanges as they begin."""
    begun: dict[Evaluate, object] = {}
    order: list[str] = []
    for n in nodes:
        if isinstance(n, Copy):
            memory[n.target] = memory[n.source]
        elif isinstance(n, Exchange):
            memory[n.first], memory[n.second] = memory[n.second], memory[n.first]
        elif isinstance(n, Evaluate):
            if n.ends is None:
                order += [n.step.name] if is_exchange(n) else []
                found = begun[n] = (n.step.name, *(memory[s] for s in n.reads))
            else:
                found = begun.pop(n.ends)
            for k, s in enumerate(n.writes):
                memory[s] = (found, k)
        else:
            assert isinstance(n, Loop)
            for _ in range(2):
                order += run(n.body, memory)
    return order


@pytest.mark.parametrize("seed", range(40))
def test_any_order_computes_the_same(seed: int) -> None:
    chance = np.random.default_rng(seed)
    slots = 6

    def nodes(count: int, depth: int) -> list[Node]:
        made: list[Node] = []
        for k in range(count):
            a, b, c = (int(s) for s in chance.permutation(slots)[:3])
            kind = int(chance.integers(6 if depth else 5))
            name = f"{depth}.{k}"
            if kind < 2:
                made.append(call(f"exchange {name}", (a,), (b,)))
            elif kind == 2:
                made.append(Copy(a, b, 16, "f32"))
            elif kind == 3:
                made.append(Exchange(a, b))
            elif kind == 4:
                made.append(call(name, (a, b), (c,)))
            else:
                made.append(Loop(name, [], a, nodes(4, depth - 1), frozenset()))
        return made

    given = nodes(12, 1)
    made = overlapped(given, is_exchange)
    before, after = list(range(slots)), list(range(slots))
    first: list[object] = list(before)
    second: list[object] = list(after)
    assert run(made, second) == run(given, first)  # exchanges begin in the order that was given
    assert first == second
    assert order_of(overlapped(given, is_exchange)) == order_of(made)


def test_what_does_not_wait_runs_in_between() -> None:
    """An exchange of what is there, a copy that has nothing to do with it, and what reads the result."""
    given: list[Node] = [call("exchange", (0,), (1,)), Copy(1, 2, 16, "f32"), Copy(3, 4, 16, "f32"), Copy(5, 0, 16, "f32")]
    begin, apart, overwrites, end, reads = overlapped(given, is_exchange)
    assert isinstance(begin, Evaluate) and begin.begins and (begin.reads, begin.writes) == ((0,), ())
    assert (apart, overwrites, reads) == (given[2], given[3], given[1])
    assert isinstance(end, Evaluate) and end.ends is begin and (end.reads, end.writes) == ((), (1,))
    alone: list[Node] = [call("exchange", (0,), (1,)), Copy(1, 2, 16, "f32")]
    assert overlapped(alone, is_exchange) == alone
