"""What the machine knows of a block before it runs it: what regions read from outside, and when values die."""

from __future__ import annotations

from dataclasses import dataclass

from hlo import Block, Op, Value
from hlo.types import QuantizedType, TensorType
from interp.quantization import through_expressed
from interp.registry import Rule, rule_for

__all__ = ["BlockPlan", "plan_blocks"]


@dataclass(frozen=True)
class BlockPlan:
    """A block ready to run.

    steps          each op but the terminator, with the values that its regions read from outside of them and its rule
    results        what the terminator returns
    dies_after     for each step, the block's own values that nothing later reads
    """

    steps: tuple[tuple[Op, tuple[Value, ...], Rule | None], ...]
    results: tuple[Value, ...]
    dies_after: tuple[tuple[Value, ...], ...]
    dies_on_entry: tuple[Value, ...]
    dies_on_exit: tuple[Value, ...]


def plan_blocks(root: Block) -> dict[Block, BlockPlan]:
    """block -> plan, for `root` and every region inside it; O(values read), without recursion."""
    order: list[Block] = []
    todo = [root]
    while todo:
        block = todo.pop()
        order.append(block)
        todo.extend(region for op in block.ops for region in op.regions)
    plans: dict[Block, BlockPlan] = {}
    outside: dict[Block, dict[Value, None]] = {}  # what a block reads but does not define, in order
    for block in reversed(order):  # inner blocks first
        plans[block], outside[block] = _plan(block, outside)
    return plans


def _plan(block: Block, outside: dict[Block, dict[Value, None]]) -> tuple[BlockPlan, dict[Value, None]]:
    last = len(block.ops) - 1
    terminates = last >= 0 and block.ops[last].definition.is_terminator
    body = block.ops[:last] if terminates else block.ops
    results = block.ops[last].operands if terminates else ()
    steps: list[tuple[Op, tuple[Value, ...], Rule | None]] = []
    last_use: dict[Value, int] = {}
    for i, op in enumerate(body):
        captured: dict[Value, None] = {}
        for region in op.regions:
            captured.update(outside[region])
        steps.append((op, tuple(captured), _rule(op)))
        for v in (*op.operands, *captured):
            last_use[v] = i
    for v in results:
        last_use[v] = len(body)
    own = dict.fromkeys(block.arguments, -1)
    own.update({r: i for i, op in enumerate(body) for r in op.results})
    dies: list[list[Value]] = [[] for _ in body]
    on_entry: list[Value] = []
    on_exit: list[Value] = []
    for v, made in own.items():
        end = last_use.get(v, made)
        (on_exit if end == len(body) else on_entry if end < 0 else dies[end]).append(v)
    plan = BlockPlan(tuple(steps), tuple(results), tuple(map(tuple, dies)), tuple(on_entry), tuple(on_exit))
    return plan, {v: None for v in last_use if v not in own}


def _rule(op: Op) -> Rule | None:
    """The op's rule, wrapped where operands or results are quantized and the op is defined on what they express."""
    found = rule_for(op.name)
    if found is None or not found.dequantizes:
        return found
    quantized = any(_is_quantized(v) for v in (*op.operands, *op.results))
    return through_expressed(found) if quantized else found


def _is_quantized(v: Value) -> bool:
    return isinstance(v.type, TensorType) and isinstance(v.type.element, QuantizedType)
