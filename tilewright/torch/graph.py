"""A graph of ATen ops, as torch's tracer makes it, as a function of JAX's arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hlo.errors import TilewrightError
from tilewright.torch.ops import Ops, Random
from tilewright.torch.packages import TorchError
from tilewright.torch.tensors import numpy_dtype

__all__ = ["Graph", "NoForm", "images", "saved_outputs", "written_inputs"]

_OTHER_DIMENSIONS = frozenset("view _unsafe_view reshape permute transpose t expand unsqueeze squeeze bmm mm as_strided".split())
"""Ops after which dimensions may be other ones than an image's."""


class NoForm(TorchError):
    """An op of a graph that cannot be brought here: `node`, and the `reason`."""

    def __init__(self, node: Any, reason: str) -> None:
        super().__init__(f"{node.target}: {reason}: {_place(node)}")
        self.node, self.reason = node, reason


@dataclass(frozen=True, eq=False)
class Graph:
    """`Graph(module, ops)`: a `torch.fx.GraphModule` whose nodes are ATen ops.

    `results(inputs, random)` walks it with JAX's arrays (or numbers, for symbolic sizes) in place of tensors.
    """

    module: Any
    ops: Ops

    @property
    def placeholders(self) -> list[Any]:
        return [n for n in self.module.graph.nodes if n.op == "placeholder"]

    @property
    def outputs(self) -> tuple[Any, ...]:
        """What the graph returns: nodes, numbers, None."""
        (returned,) = next(n for n in self.module.graph.nodes if n.op == "output").args
        return tuple(returned) if isinstance(returned, list | tuple) else (returned,)

    @property
    def is_random(self) -> bool:
        """Whether an op draws random numbers."""
        seeded = self.ops.use.torch.Tag.nondeterministic_seeded
        return any(n.op == "call_function" and seeded in getattr(n.target, "tags", ()) for n in self.module.graph.nodes)

    def results(self, inputs: Sequence[Any], random: Random) -> list[Any]:
        """The outputs' values. Raises TorchError for an op that nothing stands for, and where a result is not what torch says."""
        torch, jax = self.ops.use.torch, self.ops.use.jax
        values: dict[Any, Any] = dict(zip(self.placeholders, inputs, strict=True))
        for node in self.module.graph.nodes:
            if node.op == "get_attr":
                held = self.module
                for name in node.target.split("."):
                    held = getattr(held, name)
                values[node] = jax.numpy.asarray(held.detach().cpu().numpy()) if isinstance(held, torch.Tensor) else held
            elif node.op == "call_function":
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = self._called(node, args, kwargs, random)
            elif node.op not in ("placeholder", "output"):
                raise TorchError(f"{node.format_node()}: expected a graph of ATen ops")
        return [values[o] if isinstance(o, torch.fx.Node) else o for o in self.outputs]

    def _called(self, node: Any, args: Any, kwargs: Any, random: Random) -> Any:
        torch = self.ops.use.torch
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            raise NoForm(node, "a graph inside a graph")
        if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace == "_operator":
            return node.target(*args, **kwargs)  # arithmetic of sizes, an element of a tuple
        try:
            made = self.ops.call(node.target, args, kwargs, random)
        except TilewrightError as e:
            raise NoForm(node, str(e)) from e
        except Exception as e:
            raise NoForm(node, f"{type(e).__name__}: {str(e).strip().partition(chr(10))[0]}") from e
        return self._as_torch_has_it(node, made)

    def _as_torch_has_it(self, node: Any, made: Any) -> Any:
        """The results in the types that torch found for them, whose rules of promotion are not JAX's."""
        told = node.meta.get("val")
        if isinstance(told, list | tuple):
            return tuple(self._one(node, m, t) for m, t in zip(made, told, strict=False))
        return self._one(node, made, told)

    def _one(self, node: Any, made: Any, told: Any) -> Any:
        torch, jax = self.ops.use.torch, self.ops.use.jax
        if not isinstance(told, torch.Tensor) or made is None:
            return made
        made = jax.numpy.asarray(made)
        shape = tuple(told.shape)
        if all(isinstance(n, int) for n in shape) and shape != made.shape:
            raise NoForm(node, f"expected a result of shape {list(shape)}, found {list(made.shape)}")
        dtype = numpy_dtype(told.dtype)
        return made if made.dtype == dtype else made.astype(dtype)


def written_inputs(torch: Any, graph: Graph) -> dict[int, int]:
    """Output k of a graph that is being compiled -> the input that torch will copy it to, as torch's tracer says."""
    context = torch._guards.TracingContext.try_get()
    told = getattr(context, "fw_metadata", None)
    numbers = list(getattr(told, "mutated_inp_runtime_indices", None) or ())
    placeholders, outputs = graph.placeholders, graph.outputs
    if any(n >= len(placeholders) for n in numbers) or len(numbers) > len(outputs):
        return {}
    pairs = {k: n for k, n in enumerate(numbers) if _are_alike(outputs[k], placeholders[n])}
    return pairs if len(pairs) == len(numbers) else {}  # else they are counted in another way


def saved_outputs(torch: Any, graph: Graph) -> range:
    """The outputs of a forward graph that is being compiled that torch keeps for the backward one, and shows nobody."""
    context = torch._guards.TracingContext.try_get()
    first = getattr(getattr(context, "fw_metadata", None), "num_forward_returns", None)
    count = len(graph.outputs)
    return range(first, count) if isinstance(first, int) and 0 <= first <= count else range(count, count)


def images(torch: Any, graph: Graph) -> set[Any]:
    """The nodes that are images of several channels: what convolutions make, and what is made of it pixel by pixel."""
    found: set[Any] = set()
    seen: set[Any] = set()  # with what has several results
    for node in graph.module.graph.nodes:
        if node.op != "call_function":
            continue
        name = getattr(node.target, "__name__", str(node.target)).partition(".")[0]
        if name != "convolution" and (name in _OTHER_DIMENSIONS or seen.isdisjoint(node.all_input_nodes)):
            continue
        seen.add(node)
        told = node.meta.get("val")
        if isinstance(told, torch.Tensor) and told.ndim >= 4 and all(isinstance(n, int) and n > 1 for n in told.shape[1:]):
            found.add(node)
    return found


def _are_alike(a: Any, b: Any) -> bool:
    a, b = (getattr(x, "meta", {}).get("val") for x in (a, b))
    return getattr(a, "shape", None) == getattr(b, "shape", 0) and getattr(a, "dtype", None) == getattr(b, "dtype", 0)


def _place(node: Any) -> str:
    """Where in the model an op comes from, as far as torch says."""
    trace = (node.meta.get("stack_trace") or "").strip().splitlines()
    modules = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    words = [*(modules[-1:]), *(line.strip() for line in trace[-2:])]
    return " ".join(words) or node.format_node()
