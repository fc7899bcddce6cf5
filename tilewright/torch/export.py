"""A PyTorch model's program: `tilewright.from_torch(model, *args)`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from hlo.module import Module
from tilewright.jax.lowering import lower_all
from tilewright.torch.graph import Graph
from tilewright.torch.ops import Ops, Random
from tilewright.torch.packages import TorchError, packages, plain_ops
from tilewright.torch.tensors import numpy_dtype

__all__ = ["from_torch"]


def from_torch(model: Any, /, *args: Any, **kwargs: Any) -> Module:
    """The verified `hlo.Module` of model(*args, **kwargs), as `torch.export` traces it.

    Its arguments are the model's parameters (in the order of `model.parameters()`), its buffers (`model.buffers()`), then the
    tensors in `args` and `kwargs`; its results are the tensors that the model returns. What the model writes to its buffers is
    not among them: `torch.compile(model, backend="tilewright")` updates them. A function is taken, too.

    Raises TorchError without PyTorch, JAX or torchax, for ops that nobody has in JAX's terms and for random ones (a dropout in
    training: call `model.eval()`), and what torch raises while tracing.

        model = torch.nn.Linear(8, 4)
        print(from_torch(model, torch.ones(2, 8)).root)
    """
    use = packages()
    torch, jax = use.torch, use.jax
    traced = model if isinstance(model, torch.nn.Module) else _Function.module(torch, model)
    ops = Ops(use)
    with plain_ops(torch), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`isinstance.treespec, LeafSpec.`", FutureWarning)  # torch of its own code
        exported = torch.export.export(traced, args, kwargs or None).run_decompositions(ops.decompositions())
    graph = Graph(exported.graph_module, ops)
    if graph.is_random:
        raise TorchError("expected a program without random ops: is the model in training mode? call model.eval()")
    signature = exported.graph_signature
    parameters = dict(traced.named_parameters())
    buffers = dict(traced.named_buffers())
    order = [*parameters, *buffers]
    leaves = [t for t in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    numbers = {t: k for k, t in enumerate((*parameters.values(), *buffers.values()))}
    # Weights that two layers share have several names, and one place among the arguments.
    named = (*traced.named_parameters(remove_duplicate=False), *traced.named_buffers(remove_duplicate=False))
    names = {n: numbers[t] for n, t in named}
    user = iter(torch.utils._pytree.tree_leaves((args, kwargs)))
    sources: list[Any] = []  # of each placeholder: the number of an argument, or a value
    number = len(order)
    for spec in signature.input_specs:
        if spec.target in names:
            sources.append(names[spec.target])
        elif spec.kind is torch.export.graph_signature.InputKind.USER_INPUT:
            value = next(user)
            sources.append(number if isinstance(value, torch.Tensor) else [value])
            number += isinstance(value, torch.Tensor)
        else:
            sources.append([exported.constants[spec.target]])
    kinds = torch.export.graph_signature.OutputKind
    chosen = [k for k, spec in enumerate(signature.output_specs) if spec.kind is kinds.USER_OUTPUT]

    def function(*arrays: Any) -> list[Any]:
        values = [arrays[s] if isinstance(s, int) else _value(use, s[0]) for s in sources]
        results = graph.results(values, Random(jax, None))
        return [r for k, r in enumerate(results) if k in chosen and isinstance(r, jax.Array)]

    with jax.enable_x64(True):
        tensors: Sequence[Any] = [*parameters.values(), *buffers.values(), *leaves]
        avals = [jax.ShapeDtypeStruct(tuple(t.shape), numpy_dtype(t.dtype)) for t in tensors]
        return lower_all(jax, jax.jit(function, keep_unused=True), None, avals, {}).module


def _value(use: Any, value: Any) -> Any:
    return use.jax.numpy.asarray(value.detach().numpy()) if isinstance(value, use.torch.Tensor) else value


class _Function:
    """A function as the module that `torch.export` wants."""

    @staticmethod
    def module(torch: Any, function: Any) -> Any:
        if not callable(function):
            raise TorchError(f"expected a model or a function, found {type(function).__name__}")
        made = torch.nn.Module()
        made.forward = function
        return made
