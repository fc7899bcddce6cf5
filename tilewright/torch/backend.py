"""`torch.compile(model, backend="tilewright")`: graphs of ATen ops, forward and backward, compiled for the shapes of each call.

    backend(graph, inputs, options={...})  what torch asks for a graph of a model's
    Program(graph, ops, options)           a graph of ATen ops, callable with tensors; compiled at the first call of each shape

torch's AOTAutograd makes the graphs: without writes to tensors, forward and backward apart. What a model writes to (a cache) is
an input and a result, which is written over it where it may be; else torch copies it there behind the call.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

import codegen
from hlo.errors import Declined
from tilewright.jax.kept_programs import find, keep
from tilewright.jax.lowering import lower_all
from tilewright.torch.graph import Graph, images, saved_outputs, written_inputs
from tilewright.torch.ops import Ops, Random
from tilewright.torch.packages import TorchError, packages, plain_ops
from tilewright.torch.pieces import Pieces
from tilewright.torch.tensors import array_maker, memory_order, numpy_dtype, tensor_maker
from tiling.planning.garbage import few_collections

__all__ = ["Options", "Program", "backend"]

_log = logging.getLogger("tilewright")


@dataclass(frozen=True)
class Options:
    """What `torch.compile(..., options={...})` may say.

    `threads`: how many, else the machine's. `freezing`: parameters change by torch's own calls alone (as optimisers do), not
    through `.data` or NumPy, of which torch tells nobody: what kernels pack of them is kept from call to call. `strict`: an op
    that has no form here is an error; else torch runs it, between two programs.
    """

    threads: int | None = None
    freezing: bool = False
    strict: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Options:
        """Raises TorchError for a name or value that is not one of these."""
        known = {"threads", "freezing", "strict"}
        unknown = sorted(set(given or {}) - known)
        if unknown:
            raise TorchError(f"options: expected some of {sorted(known)}, found {unknown}")
        made = cls(**(given or {}))
        if made.threads is not None and (type(made.threads) is not int or made.threads < 1):
            raise TorchError(f"options: threads: expected a positive number, found {made.threads!r}")
        for name in ("freezing", "strict"):
            if not isinstance(getattr(made, name), bool):
                raise TorchError(f"options: {name}: expected True or False, found {getattr(made, name)!r}")
        return made


@dataclass(frozen=True, eq=False)
class _Compiled:
    """A graph's program for some shapes: which inputs it takes, in which order their dimensions lie, and what its results are.

    `written` are the results, by number, that are to be written over an argument: (its number, that of the input).
    """

    executable: Any
    arguments: tuple[tuple[int, Callable[[Any], np.ndarray]], ...]  # (number of the input, its array)
    results: tuple[Callable[[np.ndarray], Any], ...]  # tensors of the arrays
    returned: tuple[tuple[str, Any], ...]  # ("result", number), ("input", number) or ("value", itself)
    written: Mapping[int, tuple[int, int]]


class _Elements:
    """Stands for the elements of a parameter as long as nothing was written to it."""


class Program:
    """A graph of ATen ops: call it with tensors (and numbers, for symbolic sizes) to get its results as a tuple.

    `compiled` counts the shapes that it was compiled for. `written` are outputs, by number, that become the elements of the input
    with this number: what the model writes to. Of outputs that torch keeps for a backward graph, `saved`, nobody but that graph
    asks in which order their dimensions lie.
    """

    def __init__(
        self, graph: Graph, options: Options, name: str, written: Mapping[int, int] = MappingProxyType({}),
        saved: Collection[int] = (),
    ) -> None:  # fmt: skip
        self._graph, self._options, self._name, self._written = graph, options, name, written
        its_images = images(packages().torch, graph) if saved else set()
        self._images = {node for k, node in enumerate(graph.outputs) if k in saved and node in its_images}
        torch = packages().torch
        placeholders = graph.placeholders
        told = [n.meta.get("val") for n in placeholders]
        self._is_number = [not isinstance(v, torch.Tensor) for v in told]
        # torch guards the shapes of what has no symbol in it: such a graph is compiled once.
        self._is_fixed = not any(self._is_number) and all(isinstance(s, int) for v in told for s in v.shape)
        self._is_random = graph.is_random
        self._made: dict[Any, _Compiled] = {}
        self._only: _Compiled | None = None
        self._owners: dict[int, tuple[Any, int, _Elements]] = {}
        self._lock = threading.Lock()

    @property
    def compiled(self) -> int:
        return len(self._made)

    @property
    def executables(self) -> tuple[Any, ...]:
        """The `codegen.Executable` of each shape: plans, sources, what runs in the evaluator."""
        return tuple(c.executable for c in self._made.values())

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        made = self._only or self._found(inputs)
        arrays = [array_of(inputs[k]) for k, array_of in made.arguments]
        if self._is_random:
            seeds = packages().torch.randint(-(1 << 31), 1 << 31, (2,), dtype=packages().torch.int64)
            arrays.append(seeds.numpy().astype(np.int32).view(np.uint32))
        run = made.executable
        if self._options.freezing or made.written:
            owner = (lambda k: self._owner(k, made, inputs)) if self._options.freezing else (lambda k: None)
            results = run.call_owned(arrays, owner, in_place=bool(made.written))
        else:
            results = run(*arrays)
        tensors = [tensor_of(a) for tensor_of, a in zip(made.results, results, strict=True)]
        for number, (argument, taken) in made.written.items():
            if results[number] is arrays[argument]:
                tensors[number] = inputs[taken]  # torch copies a tensor to itself by doing nothing
        return tuple(
            tensors[value] if kind == "result" else inputs[value] if kind == "input" else value for kind, value in made.returned
        )

    def _owner(self, k: int, made: _Compiled, inputs: Sequence[Any]) -> Any:
        """An object that stays the same until torch says that a parameter's elements were written to; None for the others."""
        if k >= len(made.arguments):
            return None
        number = made.arguments[k][0]
        tensor = inputs[number]
        if not isinstance(tensor, packages().torch.nn.Parameter):
            return None
        held = self._owners.get(number)
        version = tensor._version
        if held is None or held[0] is not tensor or held[1] != version:
            held = self._owners[number] = (tensor, version, _Elements())
        return held[2]

    # ------------------------------------------------------------ compile

    def _found(self, inputs: Sequence[Any]) -> _Compiled:
        key = tuple(v if is_number else tuple(v.shape) for v, is_number in zip(inputs, self._is_number, strict=True))
        with self._lock:
            made = self._made.get(key)
            if made is None:
                with few_collections():
                    made = self._made[key] = self._compile(inputs)
                if self._is_fixed:
                    self._only = made
        return made

    def _compile(self, inputs: Sequence[Any]) -> _Compiled:
        began = time.perf_counter()
        use = packages()
        numbers = {n: k for k, n in enumerate(self._graph.placeholders)}
        tensors = [k for k, is_number in enumerate(self._is_number) if not is_number]
        for k in tensors:
            if inputs[k].device.type != "cpu":
                raise TorchError(f"{self._name}: expected tensors on the CPU, found one on {inputs[k].device}")
        orders = [memory_order(inputs[k].shape, inputs[k].stride()) or tuple(range(inputs[k].ndim)) for k in tensors]
        returned: list[tuple[str, Any]] = []
        chosen: list[tuple[Any, tuple[int, ...]]] = []  # (torch's type, order)

        order_of = dict(zip(tensors, orders, strict=True))
        away = [k for k in self._written.values() if k in order_of]  # JAX pairs them with results of their types in this order
        taken = [*away, *(k for k in tensors if k not in away)]

        def function(away: Sequence[Any], arrays: Sequence[Any], seeds: Any) -> list[Any]:
            values = list(inputs)
            for k, a in zip(taken, [*away, *arrays], strict=True):
                order = order_of[k]
                values[k] = a.transpose(_inverse(order)) if order != tuple(range(a.ndim)) else a
            key = use.jax.random.wrap_key_data(seeds) if seeds is not None else None
            made = self._graph.results(values, Random(use.jax, key))
            returned.clear()
            chosen.clear()
            results: list[Any] = []
            seen: dict[Any, int] = {}
            for node, value in zip(self._graph.outputs, made, strict=True):
                if node in numbers and isinstance(node, use.torch.fx.Node):
                    returned.append(("input", numbers[node]))
                elif not isinstance(value, use.jax.Array):
                    returned.append(("value", value))
                else:
                    if node not in seen:
                        seen[node] = len(results)
                        told = node.meta["val"]
                        # (Convolutions want channels last.)
                        last = (0, *range(2, value.ndim), 1)
                        order = last if node in self._images else _told_order(told, value.shape)
                        chosen.append((told.dtype, order))
                        results.append(value.transpose(order) if order != tuple(range(value.ndim)) else value)
                    returned.append(("result", seen[node]))
            return results

        with use.jax.enable_x64(True):
            avals = [
                use.jax.ShapeDtypeStruct(tuple(inputs[k].shape[d] for d in order_of[k]), numpy_dtype(inputs[k].dtype))
                for k in taken
            ]
            seeds = use.jax.ShapeDtypeStruct((2,), np.uint32) if self._is_random else None
            threads = self._options.threads
            staged = use.jax.jit(function, keep_unused=True, donate_argnums=0)
            given = avals[: len(away)], avals[len(away) :], seeds
            lowered = lower_all(use.jax, staged, None, given, {}, lambda text: find(text, threads))

        def make() -> Any:
            name = lowered.module.function().name
            return codegen.compile(lowered.module, name, threads=threads, custom_calls=lowered.custom_calls, donate=True)

        executable = lowered.kept.executable(make, threads) if lowered.kept is not None else Declined("it is not kept")
        if isinstance(executable, Declined):
            executable = make()
            if not lowered.has_callbacks:
                keep(lowered.module, threads, executable)
        shapes = [tuple(inputs[k].shape) for k in tensors if not isinstance(inputs[k], use.torch.nn.Parameter)]
        _log.info("torch: %s compiled for shapes %s, its number %d, in %.2f s", self._name, shapes, len(self._made) + 1,
                  time.perf_counter() - began)  # fmt: skip
        takes = [(k, array_maker(inputs[k].dtype, order_of[k])) for k in taken]
        gives = [tensor_maker(dtype, order) for dtype, order in chosen]
        wanted = {returned[output][1]: k for output, k in self._written.items() if returned[output][0] == "result"}
        over = {result: argument for argument, result in executable.written_over.items()}
        written = {
            result: (over[result], k)
            for result, k in wanted.items()
            if result in over and taken[over[result]] == k and chosen[result] == (inputs[k].dtype, order_of[k])
        }
        # A result that would be written over another input than its own is none that torch expects there: none is, then.
        is_fine = over.keys() <= written.keys()
        return _Compiled(executable, tuple(takes), tuple(gives), tuple(returned), written if is_fine else {})


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(order)), key=lambda k: order[k]))


def _told_order(told: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The order of dimensions in memory that torch expects of a result; where it has symbols or gaps, as they are numbered."""
    usual = tuple(range(len(shape)))
    strides = tuple(told.stride())
    if not all(isinstance(s, int) for s in (*strides, *told.shape)):
        return usual
    return memory_order(shape, strides) or usual


# ---------------------------------------------------------------- torch.compile


def backend(graph: Any, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str | None = None) -> Any:
    """What `torch.compile(model, backend="tilewright")` calls with each graph of a model's: what runs in its place.

    Forward and backward are compiled at their first call with each shape; parameters and buffers are read where they are. What
    torch does not trace stays torch's, between the graphs. `mode` is Inductor's word and has no meaning here.

    Ops that have no form here are left to torch, too, and the log says so (`tilewright.torch.pieces`).

    Raises TorchError for unknown options, and at the first call for tensors that are not on the CPU and, with the option
    `strict`, for ops that neither this package nor torchax has in JAX's terms.
    """
    chosen = Options.of(options)
    if mode not in (None, "default"):
        raise TorchError(f"mode: expected none, found {mode!r}: what there is to choose is in options")
    use = packages()
    torch = use.torch
    ops = Ops(use)

    def compiler(name: str, writes: bool = False, saves: bool = False) -> Callable[[Any, Sequence[Any]], Callable[..., Any]]:
        def compiled(module: Any, _: Sequence[Any]) -> Callable[..., Any]:
            whole = Graph(module, ops)
            written = written_inputs(torch, whole) if writes else {}
            saved = saved_outputs(torch, whole) if saves else range(0)

            def program(graph: Graph, name: str) -> Program:
                return Program(graph, chosen, name, written, saved) if graph.module is module else Program(graph, chosen, name)

            return boxed(program(whole, name) if chosen.strict else Pieces(module, ops, program, name))

        return compiled

    def boxed(program: Callable[..., Any]) -> Callable[..., Any]:
        call = torch._dynamo.disable(program, reason="a compiled program")
        boxed: Callable[..., Any] = use.torch._functorch.aot_autograd.make_boxed_func(call)
        return boxed

    aot = torch._dynamo.backends.common.aot_autograd(
        fw_compiler=compiler("a forward graph", saves=True),
        bw_compiler=compiler("a backward graph"),
        inference_compiler=compiler("a graph", writes=True),
        partition_fn=torch._functorch.partitioners.min_cut_rematerialization_partition,
        decompositions=ops.decompositions(),
    )
    with plain_ops(torch):
        return aot(graph, inputs)
