"""PyTorch, JAX and torchax, asked for when the first graph comes."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from hlo.errors import TilewrightError

__all__ = ["Packages", "TorchError", "packages", "plain_ops"]


class TorchError(TilewrightError):
    """A PyTorch program that cannot be brought here, or a package that is missing to bring it with."""


class Packages(NamedTuple):
    """The modules that a graph of ATen ops needs to become a JAX function."""

    torch: Any
    jax: Any
    registry: Any  # torchax.ops.ops_registry: ATen ops in JAX's terms
    decompositions: Any  # torchax.decompositions: ATen ops in terms of others


@contextlib.contextmanager
def _without_a_device(torch: Any) -> Iterator[None]:
    """torchax's table of ops, without what its import does to the process.

    It declares an accelerator `jax`, which torch then asks for streams that it has not: no backend of `torch.compile` works any
    more. And it switches off a fast path of torch's attention.
    """
    if "torchax" in sys.modules:  # whoever imported it wants the device
        yield
        return
    is_fast = torch.backends.mha.get_fastpath_enabled()
    declared = torch.utils.rename_privateuse1_backend, torch._register_device_module
    torch.utils.rename_privateuse1_backend = torch._register_device_module = lambda *_: None
    try:
        yield
    finally:
        torch.utils.rename_privateuse1_backend, torch._register_device_module = declared
        torch.backends.mha.set_fastpath_enabled(is_fast)


@contextlib.contextmanager
def plain_ops(torch: Any) -> Iterator[None]:
    """torch's tracer without the ops that stand for a library's routine.

    Attention comes as products and a softmax, which are fused here (the fused op's gradient is an op without another form), and
    recurrent layers as their steps.
    """
    is_on = torch._C._get_mkldnn_enabled()  # torch's own context manager also sets what this build has not, and warns
    torch._C._set_mkldnn_enabled(False)
    try:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            yield
    finally:
        torch._C._set_mkldnn_enabled(is_on)


@functools.cache
def packages() -> Packages:
    """The modules. Raises TorchError where one of them is not installed."""
    try:
        import jax
        import torch
        import torch._dynamo.backends.common
        import torch._functorch.partitioners
        import torch.fx.passes.split_module

        with _without_a_device(torch):
            import torchax.decompositions
            import torchax.ops.jaten
            import torchax.ops.ops_registry
    except ImportError as e:
        raise TorchError(f"this needs PyTorch, JAX and torchax ({e}): pip install 'tilewright[torch]'") from e
    return Packages(torch, jax, torchax.ops.ops_registry, torchax.decompositions)
